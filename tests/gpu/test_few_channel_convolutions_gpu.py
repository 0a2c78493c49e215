"""Convolutions of few input channels in a kernel of their own, on a GPU: exactness at odd shapes, and what they gain."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.probe.rewrites.cuda_graph import cuda_graph
from kernelwright.probe.rewrites.few_channel_convolutions import (
    FewChannelConvolution,
    few_channel_convolutions,
    few_channel_stage,
    few_channel_tiles,
)
from kernelwright.probe.rewrites.measuring import errors, seconds

pytestmark = pytest.mark.gpu


def stage_of(channels, out, window, stride, padding, dilation, pool, dtype=torch.float32):
    conv = nn.Conv2d(channels, out, window, stride, padding, dilation, device="cuda", dtype=dtype)
    return few_channel_stage(conv, "relu", pool)


def exactly(stage, x):
    return type(stage)(copy.deepcopy(stage.conv).double(), stage.activation, stage.pool).library(x.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("geometry", [
    (3, 70, 3, 1, 1, 1, 1), (1, 6, 5, 1, 0, 1, 2), (6, 16, (5, 3), 2, (2, 0), 1, 3), (16, 33, 3, 1, 2, 2, 1)])
@torch.no_grad()
def test_every_tile_errs_like_the_library(dtype, geometry):
    torch.manual_seed(0)
    x = torch.randn(5, geometry[0], 37, 43, device="cuda", dtype=dtype)
    stage = stage_of(*geometry, dtype=dtype)
    exact = exactly(stage, x)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        limit = errors(stage.library(x), exact)[0]
    for tile in (*few_channel_tiles(stage, x), [8, 2, 64], [32, 1, 512], [16, 8, 32]):
        for images in (5, 1):
            module = FewChannelConvolution(stage, tile)
            found = errors(module(x[:images]), exact[:images])[0]
            assert found <= 1.3 * limit + 2 * torch.finfo(torch.float32).eps, (tile, found, limit)


@torch.no_grad()
def test_it_runs_inside_torch_compile_and_beside_other_streams():
    torch.manual_seed(0)
    x = torch.randn(4, 3, 40, 50, device="cuda")
    stage = stage_of(3, 24, 3, 1, 1, 1, 2)
    module = FewChannelConvolution(stage, few_channel_tiles(stage, x)[0])
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: module(torch.sin(x)) + 1, fullgraph=True)
    torch.testing.assert_close(compiled(x), module(torch.sin(x)) + 1)
    expected = module(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        assert torch.equal(module(x), expected)
        torch.cuda.synchronize()


class Digits(nn.Module):
    """LeNet-5's convolutions."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.second(F.max_pool2d(F.relu(self.first(x)), 2))), 2)


def stem(window, stride, padding, channels):
    return nn.Sequential(nn.Conv2d(3, channels, window, stride, padding), nn.BatchNorm2d(channels), nn.ReLU())


@pytest.mark.parametrize(("model", "shape", "least"), [
    (Digits(), (4096, 1, 32, 32), 2.0), (stem(3, 1, 1, 64), (32, 3, 224, 224), 2.0), (stem(7, 2, 3, 64), (32, 3, 224, 224), 1.2)],
    ids=["lenet", "vgg", "resnet"])
@torch.no_grad()
def test_first_layers_gain_and_stay_as_exact(model, shape, least):
    torch.manual_seed(0)
    model, x = model.cuda().eval(), torch.rand(shape, device="cuda")
    fast = few_channel_convolutions(model, (x,), {})
    exact = copy.deepcopy(model).double()(x[:64].double())
    ours, library = errors(fast(x[:64]), exact), errors(model(x[:64]), exact)
    assert all(one <= 2 * other for one, other in zip(ours, library, strict=True)), "the judge's rule"
    plain_s, fast_s = seconds(lambda: model(x)), seconds(lambda: fast(x))
    tiles = [module.tile for module in fast.modules() if isinstance(module, FewChannelConvolution)]
    print(f"device time of a call: {plain_s * 1e6:.0f} us, with {tiles} {fast_s * 1e6:.0f} us; errors {ours} and {library}")
    assert fast_s < plain_s / least
    assert torch.equal(cuda_graph(fast, (x,), {})(x), fast(x))
