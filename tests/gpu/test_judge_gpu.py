"""The judge on a GPU: events, TF32 and bf16 yardsticks, CUDA graphs, side streams, large outputs."""

import sys
from pathlib import Path

import pytest

from kernelwright.judge import JudgeOptions, ReferenceSession, judge
from kernelwright.model.workload import WorkloadRef

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TF32 = "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n"
PLAIN = "def optimize(model, inputs):\n    return model\n"
BF16 = """
PRECISION = "bf16"
def optimize(model, inputs):
    model = model.bfloat16()
    return lambda x: model(x.bfloat16()).float()
"""
GRAPH = """
import torch
def optimize(model, inputs):
    static = inputs.clone()
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            model(static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = model(static)
    def call(x):
        static.copy_(x)
        graph.replay()
        return out.clone()
    return call
"""
STALE_GRAPH = GRAPH.replace("static = inputs.clone()", "static = inputs").replace("        static.copy_(x)\n", "")
SIDE_STREAM = """
import torch
side = torch.cuda.Stream()
def optimize(model, inputs):
    def call(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(3):
                out = model(x)
        return out
    return call
"""


@pytest.fixture(scope="module")
def session():
    options = JudgeOptions(device="cuda", python=sys.executable, max_timing_s=2.0, timeout_s=200, confirm=False, conditions=())
    with ReferenceSession(WorkloadRef(path=EXAMPLES / "mlp_activations.py", name="mlp_activations"), options) as session:
        yield session


def verdict_on(session, tmp_path, text, **changes):
    candidate = tmp_path / "candidate_under_test.py"
    candidate.write_text(text)
    return judge(session.workload, candidate, session.options.model_copy(update=changes), session=session)


@pytest.mark.parametrize(("text", "precision", "expected", "words"), [
    (PLAIN, "equal", ("SAME", "AMBIGUOUS"), ""),
    (GRAPH, "equal", ("FASTER",), ""),
    (STALE_GRAPH, "equal", ("WRONG",), "error"),
    (TF32 + PLAIN, "equal", ("WRONG",), "undeclared precision drop: as inaccurate as tf32"),
    (TF32 + "PRECISION = 'tf32'\n" + PLAIN, "tf32", ("FASTER",), ""),
    (BF16, "bf16", ("FASTER",), ""),
    (BF16, "tf32", ("WRONG",), "does not allow"),
    (SIDE_STREAM, "equal", ("SLOWER",), ""),
], ids=["same", "graph", "stale_graph", "tf32_undeclared", "tf32", "bf16", "bf16_not_allowed", "side_stream"])
def test_verdicts(session, tmp_path, text, precision, expected, words):
    verdict = verdict_on(session, tmp_path, text, precision=precision)
    assert verdict.verdict in expected, verdict.reasons
    assert any(words in reason for reason in verdict.reasons)


def test_a_large_output_is_compared_on_a_sample(tmp_path):
    options = JudgeOptions(device="cuda", python=sys.executable, max_timing_s=1.0, timeout_s=200, confirm=False, conditions=())
    with ReferenceSession(WorkloadRef(path=EXAMPLES / "embedding_projection.py", name="embedding_projection"), options) as session:
        right = verdict_on(session, tmp_path, PLAIN)
        wrong = verdict_on(session, tmp_path, TF32 + PLAIN)
    assert right.verdict in ("SAME", "AMBIGUOUS") and all("random sample of" in error.note for error in right.correctness.errors)
    assert wrong.verdict == "WRONG" and "undeclared precision drop: as inaccurate as tf32" in wrong.reasons[0]
