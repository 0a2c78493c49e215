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
from kernelwright.probe.rewrites.wide_outputs import WIDE_TILES, WideLinear, wide_outputs

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
@pytest.mark.parametrize("tile", WIDE_TILES, ids=str)
def test_every_tile_gives_what_the_library_gives(tile: tuple[int, ...]) -> None:
    net, x = given(200, 1001)
    wide = WideLinear(net.logits)
    expected = wide(x)
    wide.tile = list(tile)
    torch.testing.assert_close(wide(x), expected, rtol=1e-5, atol=1e-5)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(wide, fullgraph=True)(x), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_rows_that_start_anywhere_take_the_kernel() -> None:  # biased: the parts of the bias make no multiple of a tile's depth
    net, x = given(512, 50257)
    wide = wide_outputs(net, (x,), {})
    half = x.bfloat16()
    took = {"kernel": layer_seconds(lambda: wide.logits(half), cuda=True)}
    tile, wide.logits.tile = wide.logits.tile, []
    took["library"] = layer_seconds(lambda: wide.logits(half), cuda=True)
    print({name: f"{1e6 * s:.0f} us" for name, s in took.items()}, tile)
    assert tile and took["kernel"] < took["library"] / 2


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
