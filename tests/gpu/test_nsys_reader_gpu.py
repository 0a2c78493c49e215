"""Nsight Systems itself: reports told by their contents, graphs traced as a whole and node by node, and its own table of them."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.model.trace import Trace
from kernelwright.readers.nsys import read_gpus, read_nsys
from kernelwright.readers.sniff import trace_kind

pytestmark = pytest.mark.gpu
LAUNCHES, KERNELS = 5, 3
PROGRAM = f"""
import torch
x = torch.randn(256, 256, device="cuda")
def work():
    y = x
    for _ in range({KERNELS}):
        y = torch.relu(y)
    return y
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    work()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    work()
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStart()
with torch.autograd.profiler.emit_nvtx(record_shapes=True):
    for number in range({LAUNCHES}):
        torch.cuda.nvtx.range_push("iteration")
        graph.replay()
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
    torch.addmm(x, x, x)
    x.cpu()
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStop()
"""


def few_variables() -> dict[str, str]:
    """A recording holds its environment; and nsys's own tables are made by a Python of its own, which PYTHONPATH would mislead."""
    return {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "HOME") if key in os.environ}


def recorded(folder: Path, tracing: str) -> tuple[Path, Path]:
    """(the report, its export)."""
    nsys = os.environ.get("NSYS", shutil.which("nsys"))
    if nsys is None:
        pytest.skip("nsys is not on PATH, and NSYS does not name it")
    program, report, export = folder / "program.py", folder / "report.nsys-rep", folder / "report.sqlite"
    program.write_text(PROGRAM)
    for words in ((nsys, "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--capture-range=cudaProfilerApi",
                   "--capture-range-end=stop", f"--cuda-graph-trace={tracing}", "--output", str(report.with_suffix("")), sys.executable,
                   str(program)),
                  (nsys, "export", "--type=sqlite", "--output", str(export), str(report))):
        done = subprocess.run(words, env=few_variables(), cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return report, export


def device_rows(trace: Trace) -> list[tuple[str, int]]:
    return sorted(zip((trace.device.name(row) for row in range(len(trace.device))), trace.device.duration_ns.tolist(), strict=True))


@pytest.mark.parametrize("tracing", ["graph", "node"])
def test_a_recording_made_here(tmp_path: Path, tracing: str) -> None:
    report, export = recorded(tmp_path, tracing)
    assert trace_kind(report) == "nsys-rep" and trace_kind(export) == "nsys-sqlite"
    trace, stacks = read_nsys(export, steps_range="iteration")
    assert stacks is None and len(trace.steps) == LAUNCHES and read_gpus(export)[0].sm_count
    graphs = [row for row in range(len(trace.device)) if trace.device.args[row]["graph"]]
    assert len(graphs) == LAUNCHES * (1 if tracing == "graph" else KERNELS)
    assert {trace.device.name(row) for row in graphs} == ({"CUDA graph 1"} if tracing == "graph" else {trace.device.name(graphs[0])})
    assert "aten::addmm" in trace.operators.names and any(name.startswith("Memcpy DtoH") for name in trace.device.names)
    starts = dict(zip(trace.runtime.correlation.tolist(), trace.runtime.start_ns.tolist(), strict=True))
    assert all(starts[int(trace.device.correlation[row])] <= trace.device.start_ns[row] for row in range(len(trace.device)))


def test_it_equals_nsys_s_own_table(tmp_path: Path) -> None:
    report, export = recorded(tmp_path, "node")
    nsys = os.environ.get("NSYS", shutil.which("nsys"))
    assert nsys is not None
    subprocess.run([nsys, "stats", "--format=csv", "--report=cuda_gpu_kern_sum", "--output", str(tmp_path / "stats"), str(report)],
                   env=few_variables(), cwd=tmp_path, capture_output=True, timeout=300, check=True)
    with (tmp_path / "stats_cuda_gpu_kern_sum.csv").open(newline="") as text:
        expected = {row["Name"]: (int(row["Total Time (ns)"]), int(row["Instances"])) for row in csv.DictReader(text)}
    ours: dict[str, tuple[int, int]] = {}
    for name, duration in device_rows(read_nsys(export)[0]):
        if not name.startswith("Mem"):
            total, count = ours.get(name, (0, 0))
            ours[name] = (total + duration, count + 1)
    assert ours == expected
