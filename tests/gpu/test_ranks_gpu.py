"""Two ranks over NCCL on two GPUs of one host: the late one is named, and waits told by ends agree with the host's one clock."""

import gzip
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")]

ROOT = Path(__file__).resolve().parents[2]


def _profiled(out, *arguments):
    command = [sys.executable, "-m", "kernelwright", "profile_kernel", str(ROOT / "examples" / "train_ddp.py"), "--ranks", "2", "--json",
               "--python", sys.executable, "--timeout", "100s", "--out", str(out), "--", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=out.parent, timeout=150,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "NCCL_NVLS_ENABLE": "0"})
    assert done.returncode == 0, done.stdout + done.stderr
    print("\n" + (out / "report.md").read_text())
    return json.loads((out / "ranks.json").read_text())


def _collectives(out, rank):
    """[(sequence, start, end)] of the all-reduces in us, straight from the trace; both ranks' clocks are the host's."""
    with gzip.open(out / "raw" / f"rank{rank}" / "trace.json.gz") as file:
        trace = json.load(file)
    base = trace.get("baseTimeNanoseconds", 0) / 1000
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel" and "nccl" in event["name"].lower()
               and "AllReduce" in event["name"]]
    return sorted((event["args"].get("Seq", -1), event["ts"] + base, event["ts"] + base + event["dur"]) for event in kernels)


def test_the_late_rank_is_named_and_waits_agree_with_the_hosts_one_clock(tmp_path):
    out = tmp_path / "late"
    found = _profiled(out, "--late-work", "20", "--width", "1024")
    assert found["backend"] == "device" and found["collectives"] >= 5 and found["unmatched"] == 0
    assert found["ranks"][1]["last"] > found["ranks"][0]["last"] and found["ranks"][1]["last"] >= 5
    waited = found["waits_for"][0][1]
    assert waited > 5 * 200_000  # twenty products of 2048 x 2048 matrices a step, in fp32
    exposure = found["ranks"][0]["exposure"]
    assert exposure["overlapped_ns"] + exposure["exposed_ns"] == exposure["communication_ns"] <= exposure["span_ns"]
    assert exposure["exposed_waiting_ns"] > 0.5 * waited
    assert (out / "wait_heatmap.svg").is_file() and found["kinds"][0]["kind"] == "all_reduce"

    first, second = (_collectives(out, rank) for rank in (0, 1))
    assert len(first) == len(second) > 0
    apart = [abs(a[2] - b[2]) for a, b in zip(first, second, strict=True)]
    by_clock = [b[1] - a[1] for a, b in zip(first, second, strict=True)]
    by_ends = [(a[2] - a[1]) - (b[2] - b[1]) for a, b in zip(first, second, strict=True)]
    print(f"ends apart: median {statistics.median(apart):.1f} us, most {max(apart):.1f} us; second rank later by the clock: median "
          f"{statistics.median(by_clock):.1f} us, by the ends {statistics.median(by_ends):.1f} us; matched by {found['matched_by']}, "
          f"numbers {[one[0] for one in first][:8]}")
    assert statistics.median(apart) < 100
    assert statistics.median(by_ends) == pytest.approx(statistics.median(by_clock), abs=100)


def test_ranks_in_step_wait_little(tmp_path):
    found = _profiled(tmp_path / "even", "--width", "2048", "--batch", "4096")
    whole = sum(row["exposure"]["span_ns"] for row in found["ranks"])
    waiting = sum(row["exposure"]["exposed_waiting_ns"] for row in found["ranks"])
    print(f"exposed waiting {100 * waiting / whole:.1f}% of all time, {found['waited']} of {found['collectives']} collectives waited for")
    assert found["collectives"] >= 5 and waiting < 0.6 * whole
