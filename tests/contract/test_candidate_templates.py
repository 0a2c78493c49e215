"""The candidates that the optimize skill shows: each is built as the judge builds it, and computes what its workload computes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.judge import JudgeOptions, judge
from kernelwright.model.verdict import Verdict
from kernelwright.probe import judge_candidate
from kernelwright.probe.failures import describe
from kernelwright.probe.importing import import_file
from kernelwright.probe.loaders import LoadedWorkload, load
from warm_start import warm_start

ROOT = Path(__file__).resolve().parents[2]
REFERENCES = ROOT / "skills" / "optimize" / "references"
FILES = ROOT / "knowledge" / "kernels" / "candidates"
FOUND = "def optimize(model, inputs):\n    return lambda *values: model(*values)\n"
"""In the place of optimized.py: what the search keeps has the same form."""
MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.RMSNorm(24), nn.Linear(24, 24)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        return x + self.linear(self.norm(x))

def get_model_and_input(b=4):
    return nn.Sequential(Block(), Block()).eval(), torch.randn(b, 24)
"""
ATTENTION = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, x):
        q, k, v = (one(x).view(2, 5, 3, 8).transpose(1, 2) for one in (self.q, self.k, self.v))
        return torch.softmax(SCORES, dim=-1) @ v

def get_model_and_input():
    return Attention().eval(), torch.randn(2, 5, 24)
"""
KERNELBENCH = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape)

    def forward(self, x):
        return self.ln(x)

def get_inputs():
    return [torch.randn(3, 5, 7)]

def get_init_inputs():
    return [(5, 7)]
"""
VERSIONS = """
import torch

def get_inputs(rows=4):
    return torch.randn(rows, 9)

def plain(x):
    return x.exp() / x.exp().sum(1, keepdim=True)

VERSIONS = {"plain": plain}
"""


def templates(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (REFERENCES / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder, and the interpreter as before when the test ends."""
    before, modules = list(sys.path), set(sys.modules)
    (tmp_path / "candidates").mkdir()
    monkeypatch.setattr(torch, "compile", lambda model: model)  # needs a C++ compiler, and seconds
    yield tmp_path
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def workload_and_candidate(folder: Path, workload: str, candidate: str, name: str) -> tuple[LoadedWorkload, judge_candidate.Candidate]:
    (folder / "my_model.py").write_text(workload, encoding="utf-8")
    (folder / "candidates" / "found.py").write_text(FOUND, encoding="utf-8")
    file = folder / "candidates" / f"{name}.py"
    file.write_text(candidate, encoding="utf-8")
    loaded = load(str(folder / "my_model.py"), None, {}, "cpu")
    return loaded, judge_candidate.build(str(file), loaded, 0)


@pytest.mark.parametrize(("place", "workload", "entry"), [(0, MODEL, "optimize"), (1, KERNELBENCH, "ModelNew"), (2, VERSIONS, "candidate")],
                         ids=["optimize", "ModelNew", "versions"])
@torch.no_grad()
def test_templates_of_the_loop(folder: Path, place: int, workload: str, entry: str) -> None:
    assert len(templates("loop.md")) == 3
    loaded, candidate = workload_and_candidate(folder, workload, templates("loop.md")[place], f"template_{place}")
    assert candidate.entry == entry
    torch.testing.assert_close(candidate.call(*loaded.args), loaded.step())


@torch.no_grad()
def test_template_of_the_handover(folder: Path) -> None:
    """A kernel as an operator, put into the model below what the search kept. Its Triton half runs on a GPU (test_kernels_gpu.py)."""
    (text,) = templates("handover.md")
    (folder / "my_model.py").write_text(MODEL, encoding="utf-8")
    expected = load(str(folder / "my_model.py"), None, {}, "cpu").step()  # of a model that no candidate has changed
    loaded, candidate = workload_and_candidate(folder, MODEL, text, "own_kernel")
    module = sys.modules["own_kernel"]

    @module.norm.register_kernel("cpu")
    def _(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight

    x, weight = torch.randn(2, 3, 24), torch.rand(24)
    torch.library.opcheck(module.norm, (x, weight, 1e-6), test_utils=("test_schema", "test_faketensor"))
    torch.testing.assert_close(candidate.call(*loaded.args), expected)
    assert not [part for part in loaded.model.modules() if isinstance(part, torch.nn.RMSNorm)], "the modules were replaced"


def judged(folder: Path, workload: str, candidate: str) -> Verdict:
    """By the judge itself, for whether it is right."""
    (folder / "my_model.py").write_text(workload, encoding="utf-8")
    options = JudgeOptions(device="cpu", python=sys.executable, timing=False, timeout_s=200, conditions=())
    with warm_start():
        return judge(folder / "my_model.py", FILES / f"{candidate}.py", options)


def test_each_file_of_candidates_is_named_where_candidates_are_written() -> None:
    page = (REFERENCES / "loop.md").read_text(encoding="utf-8")
    for file in FILES.glob("*.py"):
        assert f"knowledge/kernels/candidates/{file.name}`" in page or file.stem == "triton_version", file.name


@pytest.mark.parametrize(("scores", "places"), [
    ("q @ k.transpose(-2, -1) / 8 ** 0.5", 1), ("torch.matmul(q, k.transpose(-1, -2)) * 0.3", 1),
    ("torch.matmul(q, k.transpose(-2, -1))", 1), ("(q @ k.transpose(-2, -1)).tanh()", 0), ("q @ k.transpose(-2, -1).tanh()", 0),
    ("q @ k.transpose(-2, -1) * q.sum()", 0),
])
@torch.no_grad()
def test_the_backends_edit_takes_its_pattern_and_nothing_else(scores: str, places: int) -> None:
    names: dict = {}
    exec(ATTENTION.replace("SCORES", scores), names)
    model, x = names["get_model_and_input"]()
    assert edited_places(model, x) == places


def edited_places(model, *inputs: torch.Tensor) -> int:
    """In the graph that Dynamo makes, without Inductor behind it; what is made of it computes the same."""
    module, found = import_file(str(FILES / "graph_backend.py")), []

    def edited(graph: torch.fx.GraphModule, _example_inputs: object) -> torch.fx.GraphModule:
        found.append(module.edit(graph.graph))
        graph.recompile()
        return graph

    torch._dynamo.reset()
    ours, plain = [one.clone() for one in inputs], [one.clone() for one in inputs]
    torch.testing.assert_close(torch.compile(model, backend=edited)(*ours), model(*plain))
    torch.testing.assert_close(ours, plain)  # what is written to in place
    (places,) = found
    return places


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v


@pytest.mark.parametrize(("function", "places"), [
    (lambda q, k, v: (lambda out: (k.add_(1), out)[1])(attention(q, k, v)), 1),
    (lambda q, k, v: (lambda out, counts: (counts.mul_(2), out)[1])(attention(q, k, v), v[0]), 1),
    (lambda q, k, v: attention(q, k, v) + attention(k, q, v), 2),
    (lambda q, k, v: F.softmax(torch.bmm(q, k.transpose(-1, -2)) * 2, dim=-1).bmm(v), 1),
    (lambda q, k, v: F.softmax(input=q @ k.transpose(-2, -1), dim=-1) @ v, 0),
    (lambda q, k, v: torch.matmul(input=torch.softmax(q @ k.transpose(-2, -1), -1), other=v), 0),
    (lambda q, k, v: torch.softmax(torch.matmul(input=q, other=k.transpose(-2, -1)), -1) @ v, 0),
    (lambda q, k, v: torch.softmax(q @ k.transpose(dim0=-2, dim1=-1), -1) @ v, 0),
    (lambda q, k, v: torch.matmul(other=v, input=q), 0),
    (lambda q, k, v: torch.softmax(q.double() @ k.double().transpose(-2, -1), -1, torch.float32) @ v, 0),
    (lambda q, k, v: (torch.softmax(q @ k.transpose(-2, -1) / 0, -1) @ v).isnan(), 0),
    (lambda q, k, v: attention(q, k, v[0, :, 0]), 0),
    (lambda q, k, v: attention(q[0, 0], k, v), 0),
])
@torch.no_grad()
def test_the_backends_edit_knows_no_other_spelling_and_keeps_what_is_written(function, places: int) -> None:
    torch.manual_seed(0)
    assert edited_places(function, *torch.randn(3, 4, 6, 6)) == places


@torch.no_grad()
def test_the_backends_edit_leaves_operands_of_several_dtypes() -> None:
    def function(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return attention(q, k, v)

    q, k, v = torch.randn(3, 4, 6, 6)
    assert edited_places(function, q, k.bfloat16(), v.bfloat16()) == 0


@pytest.mark.parametrize(("candidate", "workload"), [
    ("graph_backend", ATTENTION.replace("SCORES", "q @ k.transpose(-2, -1) / 3")), ("triton_operator", MODEL)])
def test_it_is_judged_right_on_the_cpu(tmp_path: Path, candidate: str, workload: str) -> None:
    """Inductor and all."""
    verdict = judged(tmp_path, workload, candidate)
    assert verdict.verdict == "AMBIGUOUS", verdict.reasons


def test_a_cuda_kernel_says_that_there_is_no_gpu(tmp_path: Path) -> None:
    verdict = judged(tmp_path, MODEL, "cuda_inline")
    assert verdict.verdict == "FAILED" and "No CUDA GPUs are available to a CUDA kernel: the model is on the cpu" in verdict.reasons[0]


@pytest.mark.skipif(torch.version.cuda is not None, reason="torch has CUDA")
def test_a_cuda_kernel_says_that_there_is_no_toolkit() -> None:
    with pytest.raises(OSError, match="CUDA_HOME") as caught:
        import_file(str(FILES / "cuda_inline.py")).extension()
    assert describe(caught.value, "cuda_inline.py").code == "no_cuda_toolkit"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("eps", [None, 0.0, 1e-5])
@torch.no_grad()
def test_the_operator_adds_the_eps_that_torch_adds(eps: float | None, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    norm, x = nn.RMSNorm(64, eps=eps).to(dtype), (1e-2 * torch.randn(4, 64)).to(dtype)
    module = import_file(str(FILES / "triton_operator.py"))
    torch.testing.assert_close(module.optimize(nn.Sequential(norm), x)(x), norm(x))
    if dtype == torch.float32:
        assert import_file(str(FILES / "cuda_inline.py")).RMSNorm(norm).eps == module.RMSNorm(norm).eps


@torch.no_grad()
def test_the_operator_is_one_to_torch(folder: Path) -> None:
    module = import_file(str(FILES / "triton_operator.py"))
    x, weight = torch.randn(2, 3, 24), torch.rand(24)
    torch.library.opcheck(module.rms_norm, (x, weight, 1e-6), test_utils=("test_schema", "test_faketensor"))
    loaded, candidate = workload_and_candidate(folder, MODEL, (FILES / "triton_operator.py").read_text(encoding="utf-8"), "own_operator")
    assert not [part for part in loaded.model.modules() if isinstance(part, torch.nn.RMSNorm)], "the modules were replaced"
    assert callable(candidate.call)
