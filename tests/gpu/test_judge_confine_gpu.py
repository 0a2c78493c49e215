"""A confined candidate on a GPU: CUDA starts, Triton and Inductor compile, and nothing is left on the GPU."""

import os
import sys
from pathlib import Path

import pytest

from kernelwright.judge import JudgeOptions, ReferenceSession, judge
from kernelwright.model.workload import WorkloadRef

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLAIN = "def optimize(model, inputs):\n    return model\n"
COMPILED = "import torch\ndef optimize(model, inputs):\n    return torch.compile(model)\n"
TUNED = "import torch\ndef optimize(model, inputs):\n    return torch.compile(model, mode='max-autotune')\n"
LEAVES_A_CHILD = """
import subprocess, sys
def optimize(model, inputs):
    program = "import torch, time; torch.ones(1 << 28, device='cuda'); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    return model
"""
MEMORY = """
import torch
def optimize(model, inputs):
    kept = [torch.ones(1 << 28) for _ in range(64)]
    return lambda x: (model(x), kept)[0]
"""


@pytest.fixture(scope="module")
def session():
    options = JudgeOptions(device="cuda", python=sys.executable, timing=False, timeout_s=300)
    with ReferenceSession(WorkloadRef(path=EXAMPLES / "mlp_activations.py", name="mlp_activations"), options) as session:
        yield session


def verdict_on(session, tmp_path, text, **changes):
    candidate = tmp_path / "candidate_under_test.py"
    candidate.write_text(text)
    return judge(session.workload, candidate, session.options.model_copy(update=changes), session=session)


@pytest.mark.parametrize("text", [PLAIN, COMPILED, TUNED, LEAVES_A_CHILD], ids=["plain", "compiled", "tuned", "leaves_a_child"])
def test_cuda_and_its_compilers_work_in_confinement(session, tmp_path, text):
    verdict = verdict_on(session, tmp_path, text, keep_dir=tmp_path)
    logs = [log.read_text()[-4000:] for log in session.shared.glob("*.log")]
    assert verdict.correctness is not None and verdict.correctness.passed, (verdict.reasons, logs)
    assert session.unconfinable == "", "the confined process could not start CUDA"
    held = {mechanism.name for mechanism in verdict.separation.held}
    assert {"nothing left running", "limits", "no new privileges"} <= held, verdict.separation
    left = [process for process in Path("/proc").glob("[0-9]*/stat") if owner_of(process) == os.getpid()]
    assert {int(process.parent.name) for process in left} <= {session.worker.process.pid}


def test_host_memory_above_the_limit_ends_it(session, tmp_path):
    verdict = verdict_on(session, tmp_path, MEMORY, memory_limit_bytes=16 * 2**30)
    assert verdict.verdict == "FAILED" and "used more than 16 GiB of memory" in verdict.reasons[0], verdict.reasons


def owner_of(stat):
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
