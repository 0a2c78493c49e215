"""The counter process that starts early, on a real GPU with ncu: it waits for the first one, and changes neither peaks nor counters."""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible")]

ROOT = Path(__file__).resolve().parents[2]
FEW = {0, 1, 2}
"""So few cores that the counter process is started after the first one."""


def profiled(out, example, cores):
    command = [sys.executable, "-m", "kernelwright", "profile_kernel", str(ROOT / "examples" / f"{example}.py"), "--json",
               "--python", sys.executable, "--out", str(out)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "KERNELWRIGHT_CACHE": str(out.parent / f"cache-{out.name}")}
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, cwd=out.parent, timeout=400, env=env,
                          preexec_fn=lambda: os.sched_setaffinity(0, cores))
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout + done.stderr
    read = {name: json.loads((out / file).read_text()) for name, file in (
        ("profile", "profile.json"), ("first", "raw/result.json"), ("second", "raw/counters/result.json"))}
    shown = {name: {key: round(value, 2) for key, value in read[name]["phases_s"].items()} for name in ("first", "second")}
    print(f"\n{example} on {len(cores)} cores: {seconds:.1f} s, counters {read['profile']['counters']['seconds']} s, {shown}")
    return read


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 4, reason="fewer than four cores")
@pytest.mark.parametrize("example", ["conv_block", "sdpa_attention", "train_mlp_step"])
def test_an_early_counter_process_changes_no_figure(tmp_path, example):
    early = profiled(tmp_path / "early", example, os.sched_getaffinity(0))
    later = profiled(tmp_path / "later", example, FEW)
    assert "wait" in early["second"]["phases_s"] and "wait" not in later["second"]["phases_s"]
    raw = tmp_path / "early" / "raw"
    assert (raw / "counters" / "go").stat().st_mtime >= (raw / "result.json").stat().st_mtime
    assert early["profile"]["counters"]["disagreements"] == [] and early["profile"]["counters"]["time_share_pct"] >= 95.0
    peaks = {name: {peak["name"]: peak["value"] for peak in one["first"]["peaks"]} for name, one in (("early", early), ("later", later))}
    assert set(peaks["early"]) == set(peaks["later"]) != set()
    ratios = {name: value / peaks["later"][name] for name, value in peaks["early"].items()}
    print(f"peaks, early over later: { {name: round(ratio, 3) for name, ratio in ratios.items()} }")
    assert 0.95 < statistics.median(ratios.values()) < 1.05 and all(0.85 < ratio < 1.18 for ratio in ratios.values()), ratios
