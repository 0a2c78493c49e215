"""bfloat16 models with float32 islands, and TF32 at chosen layers, on a GPU: right alone, compiled and in a graph, and what they gain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites.bf16_reverted import Float32Island, bf16_reverted
from kernelwright.probe.rewrites.casts import WORTH, layer_seconds
from kernelwright.probe.rewrites.compile_default import compile_default
from kernelwright.probe.rewrites.cuda_graph import cuda_graph
from kernelwright.probe.rewrites.edges import apart, narrowed
from kernelwright.probe.rewrites.float32_flags import float32_flags, set_float32_flags
from kernelwright.probe.rewrites.selective_tf32 import Tf32Convolution, Tf32Linear, selective_tf32

pytestmark = pytest.mark.gpu


def always(*_arguments: object) -> bool:
    return True


def stem() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    with torch.device("cuda"):
        net = nn.Sequential(nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1))
        return net.eval(), torch.randn(32, 3, 224, 224)


@torch.no_grad()
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_islands_are_right_alone_compiled_and_in_a_graph(layout: torch.memory_format) -> None:
    net, x = stem()
    net, x = net.to(memory_format=layout), x.contiguous(memory_format=layout)
    exact = net(x)
    mixed, bare = (bf16_reverted(net, (x,), {}, edges=edges, faster=always) for edges in (True, False))
    assert type(bare[0]) is Float32Island and type(bare[2]) is nn.Conv2d
    torch._dynamo.reset()
    ways = {"alone": mixed, "compiled": compile_default(mixed, (x,), {}), "graph": cuda_graph(mixed, (x,), {}),
            "graph that casts": cuda_graph(bare, (narrowed(x),), {}, result=apart)}
    for name, way in ways.items():
        got = way(x)
        assert got.dtype == torch.float32 and got.shape == exact.shape, name
        assert float((got - exact).norm() / exact.norm()) < 2e-2, name


@torch.no_grad()
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_first_convolution_is_reverted_where_its_float32_is_faster(layout: torch.memory_format) -> None:
    net, x = stem()
    net, half = net.to(memory_format=layout), x.bfloat16().contiguous(memory_format=layout)
    narrow = net[0].bfloat16()
    net, _x = stem()
    island = Float32Island(net.to(memory_format=layout)[0], narrow)
    ways = {"bfloat16": lambda: narrow(half), "float32 island": lambda: island(half), "float32": lambda: island.inner(half.float())}
    for way in ways.values():
        way()
    took = {name: layer_seconds(way, cuda=True) for name, way in ways.items()}
    print(layout, {name: f"{1e6 * s:.0f} us" for name, s in took.items()})
    ratio = took["bfloat16"] / took["float32 island"]
    if not 1.0 / WORTH**3 < ratio / WORTH < WORTH**3:  # not too close to tell
        try:
            reverted = type(bf16_reverted(net, (x.contiguous(memory_format=layout),), {}, edges=False)[0]) is Float32Island
        except NotImplementedError:
            reverted = False
        assert reverted == (ratio > WORTH)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(64, 256, 3, padding=1), nn.Linear(256, 2048)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).relu().flatten(2).transpose(1, 2))


@pytest.fixture
def flags() -> Iterator[tuple]:
    before = float32_flags()
    set_float32_flags(("highest", False) if len(before) == 2 else ("ieee",) * 3)
    yield float32_flags()
    set_float32_flags(before)


def given() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    with torch.device("cuda"):
        return Net().eval(), torch.randn(16, 64, 32, 32)


@torch.no_grad()
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_tf32_layers_are_right_alone_compiled_and_in_a_graph(layout: torch.memory_format, flags: tuple) -> None:
    net, x = given()
    net, x = net.to(memory_format=layout), x.contiguous(memory_format=layout)
    exact = net.double()(x.double())
    net.float()
    chosen = selective_tf32(net, (x,), {}, always)
    assert type(chosen.conv) is Tf32Convolution and type(chosen.head) is Tf32Linear
    torch._dynamo.reset()
    compiled = compile_default(chosen, (x,), {})
    ways = {"alone": chosen, "compiled": compiled, "graph": cuda_graph(chosen, (x,), {}), "both": cuda_graph(compiled, (x,), {})}
    errors = {name: float((way(x) - exact).norm() / exact.norm()) for name, way in {"float32": net, **ways}.items()}
    print(layout, errors)
    assert errors.pop("float32") < 1e-5 and all(1e-5 < error < 1e-3 for error in errors.values()), errors
    assert float32_flags() == flags


@torch.no_grad()
def test_tf32_layers_are_faster_and_the_flags_are_what_they_were(flags: tuple) -> None:
    net, x = given()
    chosen = selective_tf32(net, (x,), {})
    rows = net.conv(x).flatten(2).transpose(1, 2).contiguous()
    took = {name: 1e6 * layer_seconds(way, cuda=True) for name, way in {
        "linear": lambda: net.head(rows), "TF32 linear": lambda: chosen.head(rows),
        "convolution": lambda: net.conv(x), "TF32 convolution": lambda: chosen.conv(x)}.items()}
    print({name: f"{us:.0f} us" for name, us in took.items()}, type(chosen.conv).__name__)
    assert type(chosen.head) is Tf32Linear and took["TF32 linear"] * WORTH < took["linear"]
    assert float32_flags() == flags
