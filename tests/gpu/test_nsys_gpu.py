"""Mode nsys for real: `pytest tests/gpu/test_nsys_gpu.py -s` on a machine with a GPU and nsys on PATH (about 2 min).

The causes of idle time must be named rightly, with the line, for workloads whose trouble is known; torch.profiler's recording must agree;
and no environment of any process may stay in what is left.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECRET = "hunter2-do-not-tell"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU is visible")]
PLACE = tempfile.TemporaryDirectory(prefix="nsys-mode-")


@functools.cache
def profiled(name: str, *words: str) -> tuple[Path, dict, str]:
    """(folder, profile.json, report.md) of one run, with secrets about: in our environment and in another process's."""
    example = ROOT / "examples" / f"{name}.py"
    file = example if example.is_file() else ROOT / "tests" / "gpu" / "nsys" / f"{name}.py"
    out = Path(PLACE.name) / "-".join((name, *(word.strip("-").replace("/", "_") for word in words)))
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PLANTED_API_KEY": SECRET}
    command = [sys.executable, "-m", "kernelwright", "profile_kernel", str(file), "--mode", "nsys", "--python", sys.executable,
               "--out", str(out), "--json", *words]
    with subprocess.Popen(["sleep", "300"], env={**os.environ, "OTHERS_TOKEN": SECRET}) as other:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=PLACE.name, env=env)
        finally:
            other.kill()
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((out / "profile.json").read_text())
    report = (out / "report.md").read_text()
    recording, causes = document["recording"], causes_of(document)
    shown = ", ".join(f"{cause} {share:.1f}% {where or ''}".strip() for cause, (share, where) in causes.items())
    print(f"\n{out.name}: {recording['tool']}, alone={recording['alone']}, {recording['seconds']} s; busy "
          f"{busy_pct(document):.1f}% while recorded, idle at most {document['timeline']['idle_share_pct']:.1f}% of a call; {shown}")
    print("\n".join(f"  warning: {warning}" for warning in document["warnings"]))
    return out, document, report


def causes_of(document: dict) -> dict[str, tuple[float, str | None]]:
    """Cause -> (share of the recorded time in %, line of its largest place), most first."""
    span = sum(device["span_end_ns"] - device["span_start_ns"] for device in document["flow"]["devices"])
    idle: dict[str, int] = {}
    for row in (row for device in document["flow"]["devices"] for row in device["causes"]):
        idle[row["cause"]] = idle.get(row["cause"], 0) + row["idle_ns"]
    lines = {}
    for site in sorted(document["flow"]["sites"], key=lambda site: -site["idle_ns"]):
        if site["where"]:
            lines.setdefault(site["cause"], site["where"])
    return {cause: (100.0 * time / span, lines.get(cause)) for cause, time in sorted(idle.items(), key=lambda item: -item[1])}


def busy_pct(document: dict) -> float:
    span = sum(device["span_end_ns"] - device["span_start_ns"] for device in document["flow"]["devices"])
    return 100.0 * sum(device["busy_ns"] for device in document["flow"]["devices"]) / span


def test_gpt2_eager_the_device_is_busy_but_for_late_launches():
    _out, document, report = profiled("gpt2")
    assert document["recording"]["recorder"] == "nsys", document["recording"]
    causes = causes_of(document)
    assert next(iter(causes)) == "host_bound" and causes["host_bound"][1].startswith("gpt2.py:")
    assert document["timeline"]["idle_share_pct"] < 30 and "data_loader" not in causes
    assert document["timeline"]["attributed_ns"] >= 0.99 * document["timeline"]["measured_ns"]
    assert "late launches by the host" in report and len(report) <= 6000


def test_gpt2_compiled_has_fewer_launches_with_the_line_that_calls_it():
    _out, eager, _report = profiled("gpt2")
    _out, compiled, _report = profiled("gpt2", "--compile-mode", "inductor")
    assert compiled["recording"]["recorder"] == "nsys"
    assert any(operator["operator_name"].startswith("triton_") for operator in compiled["operators"])
    per_step = [document["timeline"]["busy_ns"] / document["timeline"]["steps"] for document in (compiled, eager)]
    assert per_step[0] < 1.05 * per_step[1]
    cause, (_share, where) = next(iter(causes_of(compiled).items()))
    assert cause == "host_bound" and where is not None and where.startswith("gpt2.py:"), (cause, where)


def test_two_streams_that_are_done_before_the_next_launch():
    _out, document, report = profiled("two_streams")
    device, causes = document["flow"]["devices"][0], causes_of(document)
    assert device["stream_count"] == 2 and next(iter(causes)) == "host_bound"
    assert causes["host_bound"][1] in ("two_streams.py:24", "two_streams.py:27")
    assert device["overlaps"]["compute_compute_ns"] < 0.05 * device["busy_ns"] and "hardly ever runs at once" in report


def test_two_streams_that_overlap():
    _out, document, report = profiled("two_streams", "--b=256", "--d=4096")
    device = document["flow"]["devices"][0]
    print(f"  kernels beside kernels: {100 * device['overlaps']['compute_compute_ns'] / device['busy_ns']:.1f}% of busy time")
    assert device["stream_count"] == 2 and device["overlaps"]["compute_compute_ns"] > 0.2 * device["busy_ns"]
    assert "hardly ever runs at once" not in report


def test_a_slow_loader_with_its_line():
    _out, document, report = profiled("slow_loader")
    causes = causes_of(document)
    assert next(iter(causes)) == "data_loader" and causes["data_loader"][0] > 60
    first = document["findings"][0]
    assert first["rule"] == "data_loader_stall" and first["where"] == "slow_loader.py:35", first
    assert "| the data loader |" in report and "slow_loader.py:35" in report


def test_hidden_waits_copies_and_allocations():
    _out, document, _report = profiled("hidden_sync")
    causes = causes_of(document)
    assert {"synchronization", "allocator", "copy"} <= set(causes) and causes["synchronization"][1] == "hidden_sync.py:17", causes
    assert causes["allocator"][1] == "hidden_sync.py:21", causes  # torch.cuda.empty_cache()
    assert {"synchronisation", "allocator_gaps"} <= {finding["rule"] for finding in document["findings"]}


def test_torch_s_profiler_takes_over_and_names_the_same_cause():
    _out, document, report = profiled("slow_loader", "--nsys-executable", "/nowhere/nsys")
    assert document["recording"]["recorder"] == "kineto" and document["recording"]["not_nsys"]["code"] == "no_nsys"
    assert "**Recorded by torch.profiler, not by Nsight Systems**" in report
    assert next(iter(causes_of(document))) == "data_loader" and document["findings"][0]["where"] == "slow_loader.py:35"


def test_no_environment_stays():
    for name in ("gpt2", "slow_loader"):
        out, document, _report = profiled(name)
        for path in (path for path in out.rglob("*") if path.is_file()):
            data = path.read_bytes()
            data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            assert SECRET.encode() not in data, path
        kept = [path.name for path in (out / "raw").glob("*.nsys-rep")]
        print(f"  {name}: alone={document['recording']['alone']}, report kept: {kept or 'no'}")
        assert kept or any("environments of" in warning for warning in document["warnings"])


def test_a_report_that_was_kept_reads_the_same_without_the_workload():
    out, document, _report = profiled("gpt2")
    reports = list((out / "raw").glob("*.nsys-rep")) or list((out / "raw").glob("*.sqlite"))
    again = Path(PLACE.name) / "again"
    command = [sys.executable, "-m", "kernelwright", "profile_kernel", str(reports[0]), "--out", str(again)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    assert done.returncode == 0, done.stderr
    other = json.loads((again / "profile.json").read_text())
    assert other["timeline"]["measured_ns"] == document["timeline"]["measured_ns"]
    assert other["flow"]["devices"] == document["flow"]["devices"]
