"""The probe on a real GPU."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.attribute import attribute
from kernelwright.model.capture import ProbeResult
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.lines import read_lines

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible")]

ROOT = Path(__file__).resolve().parents[2]
START = ROOT / "src" / "kernelwright" / "probe" / "start.py"
WORKLOADS = ROOT / "tests" / "data" / "workloads"


def probe(out_dir, name, action, **options):
    request = {"action": action, "workload": {"path": str(WORKLOADS / name)}, "device": "cuda", "out_dir": str(out_dir), **options}
    (out_dir / "request.json").write_text(json.dumps(request), encoding="utf-8")
    done = subprocess.run([sys.executable, str(START), "run", str(out_dir / "request.json")], env=dict(os.environ), capture_output=True,
                          text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ProbeResult.model_validate_json((out_dir / "result.json").read_text(encoding="utf-8"))


def test_event_timing_and_ceilings(tmp_path):
    result = probe(tmp_path, "mlp.py", "event", calibrate=True, flush_l2=True)
    timing = result.timing
    assert timing.timer == "cuda_events" and len(timing.host_ns) == len(timing.samples_ns) >= 10
    assert timing.flushed_l2 and timing.calls_per_sample == 1 and timing.peak_memory_bytes > 0
    assert result.facts.inputs[0].device == "cuda" and result.environment.l2_bytes > 2**20
    peaks = {peak.name: peak.value for peak in result.peaks}
    assert peaks["bandwidth"] > 100 and peaks["matmul:float32"] > 1
    if result.environment.compute_capability >= "8.0":
        assert peaks["matmul:bfloat16"] > peaks["matmul:tf32"] > peaks["matmul:float32"]
    assert not result.environment.matmul_tf32
    assert result.phases_s["calibrate"] < 5


@pytest.mark.parametrize("name", ["mlp.py", "training.py"])
def test_annotation_holds_the_kernels(tmp_path, name):
    result = probe(tmp_path, name, "annotation")
    for file in (result.trace_file, result.stacks_file):
        with gzip.open(tmp_path / file) as packed:
            events = json.load(packed)["traceEvents"]
        assert sum(event.get("cat") == "kernel" for event in events) >= 2
    assert result.warnings == () and result.work.flops > 0


def test_cuda_graphs(tmp_path):
    result = probe(tmp_path, "mlp.py", "event", compile_mode="cudagraphs")
    assert result.work.flops > 0 and not any("not stable" in warning for warning in result.warnings)
    eager = probe(tmp_path, "mlp.py", "event")
    assert min(result.timing.samples_ns) < 3 * min(eager.timing.samples_ns)  # replayed, not recorded anew in each call


WAITS = """
import torch

def get_model_and_input():
    return Net(), torch.ones(64, 64)

class Net(torch.nn.Module):
    def forward(self, x):
        y = x @ x
        if y.sum().item() > 1e12:  # item
            y = y * 2
        torch.cuda.synchronize()  # synchronize
        rows = y.nonzero()  # nonzero
        return rows.cpu()  # copy
"""


def test_what_waits_has_the_line_that_called_it(tmp_path):
    workload = tmp_path / "waits.py"
    workload.write_text(WAITS, encoding="utf-8")
    result = probe(tmp_path, workload, "annotation", steps=2)
    trace, stacks = (read_kineto(tmp_path / file) for file in (result.trace_file, result.stacks_file))
    found = attribute(trace, stacks=stacks, lines=read_lines(tmp_path / result.lines_file))

    def at(comment):
        return next(f"waits.py:{number}" for number, line in enumerate(WAITS.splitlines(), 1) if line.endswith(f"# {comment}"))

    lines = {}
    for operator in found.operators:
        lines.setdefault(operator.operator_name, set()).add((operator.source, operator.source_kind))
    assert lines["aten::_local_scalar_dense"] == {(at("item"), "line")}
    assert lines["aten::nonzero"] == {(at("nonzero"), "line")}
    waits = {found.places.of_runtime(row).source for row in range(len(trace.runtime))
             if trace.runtime.name(row) in ("cudaStreamSynchronize", "cudaDeviceSynchronize") and trace.runtime.start_ns[row] >= 0}
    assert {at("item"), at("synchronize"), at("nonzero"), at("copy")} <= waits


@pytest.mark.parametrize("mode", ["inductor", "cudagraphs"])
def test_compiled_code_keeps_a_line(tmp_path, mode):
    result = probe(tmp_path, "mlp.py", "annotation", steps=2, compile_mode=mode)
    trace, stacks = (read_kineto(tmp_path / file) for file in (result.trace_file, result.stacks_file))
    found = attribute(trace, stacks=stacks, lines=read_lines(tmp_path / result.lines_file))
    known = sum(operator.aggregated.total_duration_ns for operator in found.operators if operator.source)
    assert known > 0.9 * found.measured_ns


@pytest.mark.parametrize("name", ["mlp.py", "training.py"])
def test_the_peak_in_the_trace_is_torchs_own(tmp_path, name):
    """Without cuDNN's or the profiler's own blocks in between the two agree to the byte; 2 MiB are left for those."""
    result = probe(tmp_path, name, "annotation", steps=3)
    use = next(use for use in attribute(read_kineto(tmp_path / result.trace_file)).memory if use.device == "cuda:0")
    assert abs(use.peak_bytes - result.timing.peak_memory_bytes) <= 2 << 20
    assert use.before_bytes + sum(owner.bytes for owner in use.owners) + use.left_bytes == use.peak_bytes
