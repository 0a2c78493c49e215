"""The candidates that the optimize skill shows: each is built as the judge builds it, and computes what its workload computes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelwright.probe import judge_candidate
from kernelwright.probe.loaders import LoadedWorkload, load

REFERENCES = Path(__file__).resolve().parents[2] / "skills" / "optimize" / "references"
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
