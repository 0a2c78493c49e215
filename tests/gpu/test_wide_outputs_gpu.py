"""Last linear layers from bfloat16 operands to float32 on a GPU: right alone, compiled and in a graph, and taken at a large projection."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.probe.rewrites.bf16 import bf16
from kernelwright.probe.rewrites.casts import layer_seconds
from kernelwright.probe.rewrites.compile_default import compile_default
from kernelwright.probe.rewrites.cuda_graph import cuda_graph
from kernelwright.probe.rewrites.wide_outputs import WideLinear, wide_outputs

pytestmark = pytest.mark.gpu


class Net(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.hidden, self.logits = nn.Linear(512, 512), nn.Linear(512, columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits(F.gelu(self.hidden(x)))


def given(rows: int, columns: int) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    with torch.device("cuda"):
        return Net(columns).eval(), torch.randn(rows, 512)


@torch.no_grad()
@pytest.mark.parametrize("columns", [40, 41])
def test_it_is_right_alone_in_bfloat16_compiled_and_in_a_graph(columns: int) -> None:
    net, x = given(64, columns)
    exact = net.double()(x.double())
    net.float()
    wide = wide_outputs(net, (x,), {}, lambda *_arguments: True)
    assert type(wide.logits) is WideLinear and type(wide.hidden) is nn.Linear
    both = bf16(wide, (x,), {})
    ways = {"alone": wide, "bf16": both, "compiled": compile_default(both, (x,), {}), "graph": cuda_graph(both, (x,), {})}
    for name, way in ways.items():
        got = way(x)
        assert got.dtype == torch.float32 and got.shape == exact.shape, name
        assert float((got - exact).norm() / exact.norm()) < 1e-2, name


@torch.no_grad()
def test_a_projection_to_a_vocabulary_is_faster_than_with_a_cast_behind_it() -> None:
    net, x = given(8192, 32000)
    wide = wide_outputs(net, (x,), {})
    assert type(wide.logits) is WideLinear
    half, weight, bias = x.bfloat16(), net.logits.weight.bfloat16(), net.logits.bias.bfloat16()
    ways = {"wide": lambda: wide.logits(half), "bfloat16 and cast": lambda: F.linear(half, weight, bias).float(),
            "bfloat16": lambda: F.linear(half, weight, bias), "float32": lambda: net.logits(x),
            "without bias": lambda: torch.mm(half, weight.t(), out_dtype=torch.float32)}
    took = {name: 1e6 * layer_seconds(way, cuda=True) for name, way in ways.items()}
    print({name: f"{us:.0f} us" for name, us in took.items()})
    assert took["wide"] < took["bfloat16 and cast"]
