"""Depthwise and 1x1 convolutions in kernels of their own, on a GPU: exactness at odd shapes, and what they gain."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites.cuda_graph import cuda_graph
from kernelwright.probe.rewrites.measuring import errors, seconds
from kernelwright.probe.rewrites.separable_convolutions import Convolutions, convolve_in_torch, separable_convolutions, stage_of, tiles_of

pytestmark = pytest.mark.gpu
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "depthwise_separable_conv.py"


def stages(window=3, stride=1, padding=1, dilation=1, *, dtype=torch.float32, bias=True):
    first = nn.Conv2d(40, 40, window, stride, padding, dilation, groups=40, bias=bias, device="cuda", dtype=dtype)
    return stage_of(first, "relu6"), stage_of(nn.Conv2d(40, 70, 1, bias=bias, device="cuda", dtype=dtype), "relu")


def exactly(module, x):
    parts = [None if part is None else part.detach().double() for part in module.weights()]
    return convolve_in_torch(x.double(), *parts, module.geometry, *module.activations)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("window", "stride", "padding", "dilation"), [(3, 1, 1, 1), (5, 2, 2, 1), (7, 1, 3, 1), (3, 1, 2, 2)])
@torch.no_grad()
def test_kernels_err_like_the_library(dtype, window, stride, padding, dilation):
    torch.manual_seed(0)
    x = torch.randn(3, 40, 29, 31, device="cuda", dtype=dtype)
    first, second = stages(window, stride, padding, dilation, dtype=dtype)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for chain in ([first], [second], [first, second]):
            module = Convolutions(chain, tiles_of(chain, x, False)[0])
            exact, library = exactly(module, x), x
            for stage in chain:
                library = stage.library(library)
            # Sums of 40 products in float32 err by little more than the rounding of the result, in whatever order.
            room = 2 * torch.finfo(torch.float32).eps
            assert errors(module(x), exact)[0] <= 1.3 * errors(library, exact)[0] + room, (module.tile, len(chain))
            if not chain[-1].depthwise and dtype == torch.float32:
                module.tile[-1] = 1
                assert 5e-5 < errors(module(x), exact)[0] < 6e-4, "operands rounded to TF32, not cut off"


@torch.no_grad()
def test_every_tile_computes_the_same():
    torch.manual_seed(0)
    x = torch.randn(2, 40, 29, 31, device="cuda")
    first, second = stages()
    for chain in ([first], [second], [first, second]):
        exact = exactly(Convolutions(chain, []), x)
        for tile, images in itertools.product(tiles_of(chain, x, False), (1, 2)):
            module = Convolutions(chain, tile)
            torch.testing.assert_close(module(x[:images]).double(), exact[:images], rtol=1e-5, atol=1e-5, msg=str(tile))


@torch.no_grad()
def test_it_runs_inside_torch_compile_and_other_layouts_take_the_library():
    torch.manual_seed(0)
    x = torch.randn(2, 40, 29, 31, device="cuda")
    chain = stages(bias=False)
    module = Convolutions(chain, tiles_of(chain, x, False)[0])
    exact = exactly(module, x)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: module(torch.sin(x)) + 1, fullgraph=True)
    torch.testing.assert_close(compiled(x), module(torch.sin(x)) + 1)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for other in (x.contiguous(memory_format=torch.channels_last), x.mT.contiguous().mT):
            torch.testing.assert_close(module(other).double(), exact, rtol=1e-4, atol=1e-4)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.testing.assert_close(module(x).double(), exact, rtol=1e-5, atol=1e-5)
        torch.cuda.synchronize()


@torch.no_grad()
def test_the_example_gains_and_stays_as_exact():
    spec = importlib.util.spec_from_file_location("depthwise_example", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    torch.manual_seed(0)
    model, x = example.get_model_and_input(device="cuda")
    fast = separable_convolutions(model, (x,), {})
    exact = type(model)(32, 256).cuda().eval()
    exact.load_state_dict(model.state_dict())
    exact = exact.double()(x.double())
    ours, library = errors(fast(x), exact), errors(model(x), exact)
    assert all(one <= 2 * other for one, other in zip(ours, library, strict=True)), "the judge's rule"
    plain_s, fast_s = seconds(lambda: model(x)), seconds(lambda: fast(x))
    graphed = cuda_graph(fast, (x,), {})
    print(f"device time of a call: {plain_s * 1e6:.0f} us, in kernels of their own {fast_s * 1e6:.0f} us; errors {ours} and {library}; "
          f"{[(module.tile, len(module.stages)) for module in fast.modules() if isinstance(module, Convolutions)]}")
    assert fast_s < plain_s / 1.5
    assert torch.equal(graphed(x), fast(x))
