"""The probe on a real GPU."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.model.capture import ProbeResult

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
