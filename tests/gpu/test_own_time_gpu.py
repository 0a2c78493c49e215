"""The counter process that starts early, on a real GPU with ncu: it waits for the first one, and changes neither peaks nor counters."""

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible")]

ROOT = Path(__file__).resolve().parents[2]
FEW = {0, 1, 2}
"""So few cores that the counter process is started after the first one."""


def open_devices(marks, stop, seen):
    """Of the counter process while it waits: the GPU's device files that it holds open, by name."""
    while not stop.wait(0.02):
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = line.read_bytes()
                if marks not in words or not words.startswith(os.fsencode(sys.executable)):  # ncu itself may look for devices
                    continue
                names = {os.readlink(entry) for entry in (line.parent / "fd").iterdir()}
                if not (Path(os.fsdecode(marks)).parent / "go").exists():
                    seen.append({name for name in names if re.match(r"/dev/nvidia(-uvm|\d)", name)})
            except OSError:
                continue


def profiled(out, example, cores):
    command = [sys.executable, "-m", "kernelwright", "profile_kernel", str(ROOT / "examples" / f"{example}.py"), "--json",
               "--python", sys.executable, "--out", str(out)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "KERNELWRIGHT_CACHE": str(out.parent / f"cache-{out.name}")}
    stop, seen = threading.Event(), []
    watcher = threading.Thread(target=open_devices, args=(os.fsencode(out / "raw" / "counters" / "request.json"), stop, seen))
    watcher.start()
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=out.parent, timeout=400, env=env,
                              preexec_fn=lambda: os.sched_setaffinity(0, cores))
    finally:
        stop.set()
        watcher.join()
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    read = {name: json.loads((out / file).read_text()) for name, file in (
        ("profile", "profile.json"), ("first", "raw/result.json"), ("second", "raw/counters/result.json"), ("params", "params.json"))}
    print(read["params"]["stages_s"])
    shown = {name: {key: round(value, 2) for key, value in read[name]["phases_s"].items()} for name in ("first", "second")}
    print(f"\n{example} on {len(cores)} cores: {seconds:.1f} s, counters {read['profile']['counters']['seconds']} s, {shown}")
    read["held"] = seen
    return read


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 4, reason="fewer than four cores")
@pytest.mark.parametrize("example", ["conv_block", "sdpa_attention", "train_mlp_step"])
def test_an_early_counter_process_changes_no_figure(tmp_path, example):
    early = profiled(tmp_path / "early", example, os.sched_getaffinity(0))
    later = profiled(tmp_path / "later", example, FEW)
    assert "wait" in early["second"]["phases_s"] and "wait" not in later["second"]["phases_s"]
    assert early["held"] and not set().union(*early["held"]), early["held"]  # it waits without a CUDA context
    raw = tmp_path / "early" / "raw"
    assert (raw / "counters" / "go").stat().st_mtime >= (raw / "result.json").stat().st_mtime
    assert early["profile"]["counters"]["disagreements"] == [] and early["profile"]["counters"]["time_share_pct"] >= 95.0
    peaks = {name: {peak["name"]: peak["value"] for peak in one["first"]["peaks"]} for name, one in (("early", early), ("later", later))}
    assert set(peaks["early"]) == set(peaks["later"]) != set()
    ratios = {name: value / peaks["later"][name] for name, value in peaks["early"].items()}
    print(f"peaks, early over later: { {name: round(ratio, 3) for name, ratio in ratios.items()} }")
    assert 0.95 < statistics.median(ratios.values()) < 1.05 and all(0.85 < ratio < 1.18 for ratio in ratios.values()), ratios
