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
STATIC_OUTPUT = GRAPH.replace("return out.clone()", "return out")
FRESH_MEMORY = """
import torch
def optimize(model, inputs):
    def call(x):
        out = torch.empty_like(model(x))
        out[:-1] = model(x)[:-1]
        return out
    return call
"""
ADDS_INTO_FRESH_MEMORY = """
import torch
def optimize(model, inputs):
    def call(x):
        right = model(x)
        out = torch.empty(right.shape, device=x.device)
        return out.add_(right)
    return call
"""
SNIFFS = """
import torch
def optimize(model, inputs):
    def call(x):
        return model(x.clamp(-8, 8))
    return call
"""


@pytest.fixture(scope="module")
def session():
    options = JudgeOptions(device="cuda", python=sys.executable, max_timing_s=4.0, timeout_s=200, confirm=False, conditions=())
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
    (BF16, "bf16", ("FASTER", "AMBIGUOUS"), ""),  # the host, which launches it, decides
    (BF16, "tf32", ("WRONG",), "does not allow"),
    (SIDE_STREAM, "equal", ("SLOWER",), ""),
], ids=["same", "graph", "stale_graph", "tf32_undeclared", "tf32", "bf16", "bf16_not_allowed", "side_stream"])
def test_verdicts(session, tmp_path, text, precision, expected, words):
    verdict = verdict_on(session, tmp_path, text, precision=precision)
    assert verdict.verdict in expected, verdict.reasons
    assert any(words in reason for reason in verdict.reasons)


def test_other_distributions_on_the_gpu(session, tmp_path):
    right = verdict_on(session, tmp_path, PLAIN, timing=False)
    status = {other.kind: other.status for other in right.correctness.distributions}
    assert len(status) == 8 and all(how == "passed" for kind, how in status.items() if kind != "nonfinite"), right.reasons
    assert right.correctness.passed and right.correctness.steadiness.repeatable and right.correctness.steadiness.calls > 12
    wrong = verdict_on(session, tmp_path, SNIFFS, timing=False)
    assert wrong.verdict == "WRONG" and wrong.reproducer.distribution and wrong.reproducer.changed, wrong.reasons


@pytest.mark.parametrize(("text", "precision"), [(TF32 + "PRECISION = 'tf32'\n" + PLAIN, "tf32"), (BF16, "bf16"), (GRAPH, "equal")],
                         ids=["tf32", "bf16", "graph"])
def test_honest_programs_are_right_on_other_distributions(session, tmp_path, text, precision):
    verdict = verdict_on(session, tmp_path, text, precision=precision, timing=False)
    assert verdict.correctness.passed and verdict.correctness.distributions, verdict.reasons


def test_a_graphs_output_that_the_next_call_overwrites_is_wrong(session, tmp_path):
    verdict = verdict_on(session, tmp_path, STATIC_OUTPUT, timing=False)
    assert verdict.verdict == "WRONG" and "changes when it is called again" in verdict.reasons[0], verdict.reasons


@pytest.mark.parametrize("text", [FRESH_MEMORY, ADDS_INTO_FRESH_MEMORY], ids=["unwritten_row", "adds_into_fresh_memory"])
def test_poisoned_memory_shows_what_was_never_written(session, tmp_path, text):
    verdict = verdict_on(session, tmp_path, text, timing=False)
    assert verdict.verdict == "WRONG" and verdict.reproducer is not None, verdict.reasons


def test_a_reference_that_asserts_on_the_device_is_surveyed_within_its_range(tmp_path):
    """binary_cross_entropy ends the process's device on values outside 0 to 1: the survey must not give it any."""
    workload = tmp_path / "probabilities.py"
    workload.write_text("import torch\nclass Loss(torch.nn.Module):\n    def forward(self, p, q):\n"
                        "        return torch.nn.functional.binary_cross_entropy(p, q, reduction='none')\n"
                        "def get_model_and_input():\n    return Loss().eval(), (torch.rand(64, 64), torch.rand(64, 64))\n")
    options = JudgeOptions(device="cuda", python=sys.executable, timing=False, timeout_s=200)
    with ReferenceSession(WorkloadRef(path=workload, name="probabilities"), options) as session:
        verdict = verdict_on(session, tmp_path, "def optimize(model, inputs):\n    return lambda p, q: model(p, q)\n")
        assert session.survey.applicable and not any(kind.free for kind in session.survey.distributions), session.survey
    kinds = {other.kind for other in verdict.correctness.distributions}
    assert verdict.correctness.passed and kinds >= {"small", "shifted"}, verdict.reasons


def test_a_large_output_is_compared_on_a_sample(tmp_path):
    options = JudgeOptions(device="cuda", python=sys.executable, max_timing_s=1.0, timeout_s=200, confirm=False, conditions=())
    with ReferenceSession(WorkloadRef(path=EXAMPLES / "embedding_projection.py", name="embedding_projection"), options) as session:
        right = verdict_on(session, tmp_path, PLAIN)
        wrong = verdict_on(session, tmp_path, TF32 + PLAIN)
    assert right.verdict in ("SAME", "AMBIGUOUS") and all("random sample of" in error.note for error in right.correctness.errors)
    assert wrong.verdict == "WRONG" and "undeclared precision drop: as inaccurate as tf32" in wrong.reasons[0]


ON_THE_HOST = """
import torch
VERSIONS = {"v1": lambda x: x.sigmoid() * x, "v2": lambda x: x / (1 + (-x).exp())}
def get_inputs():
    return torch.randn(4096, 4096)
def reference(x):
    there = x.cpu()
    return there / (1 + (-there).exp())
"""


def test_a_reference_on_the_host_is_compared_at_the_same_places_of_a_large_output(tmp_path):
    workload = tmp_path / "swish.py"
    workload.write_text(ON_THE_HOST)
    options = JudgeOptions(device="cuda", python=sys.executable, max_timing_s=1.0, timeout_s=200, confirm=False, conditions=())
    with ReferenceSession(WorkloadRef(path=workload, name="swish", version="v1"), options) as session:
        right = verdict_on(session, tmp_path, "from torch.nn.functional import silu\ndef candidate(x):\n    return silu(x)\n")
    assert right.verdict in ("FASTER", "SAME", "AMBIGUOUS"), right.reasons
    assert right.correctness.oracle == "float64" and all("random sample of" in error.note for error in right.correctness.errors[:3])
