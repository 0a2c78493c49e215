"""Depthwise and 1x1 convolutions in kernels of their own, on a GPU: exactness at odd shapes, and what they gain."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites.cuda_graph import cuda_graph
from kernelwright.probe.rewrites.measuring import errors, seconds
from kernelwright.probe.rewrites.separable_convolutions import TILES, Convolutions, convolve_in_torch, separable_convolutions, stage_of

pytestmark = pytest.mark.gpu
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "depthwise_separable_conv.py"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("window", "stride", "padding", "dilation"), [(3, 1, 1, 1), (5, 2, 2, 1), (7, 1, 3, 1), (3, 1, 2, 2)])
def test_kernels_err_like_the_library(dtype, window, stride, padding, dilation):
    torch.manual_seed(0)
    x = torch.randn(3, 40, 29, 31, device="cuda", dtype=dtype)
    first = stage_of(nn.Conv2d(40, 40, window, stride, padding, dilation, groups=40, device="cuda", dtype=dtype), "relu6")
    second = stage_of(nn.Conv2d(40, 70, 1, device="cuda", dtype=dtype), "relu")
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for stages in ([first], [second], [first, second]):
            for tile in [[512]] if stages == [first] else [[*tile, 0] for tile in TILES]:
                module = Convolutions(stages, tile)
                parts = (module.first, module.first_bias, module.weight, module.weight_bias)
                wide = [None if part is None else part.double() for part in parts]
                exact = convolve_in_torch(x.double(), *wide, module.geometry, *module.activations)
                library = x
                for stage in stages:
                    library = stage.library(library)
                assert errors(module(x), exact)[0] <= 1.3 * errors(library, exact)[0], (tile, len(stages))


def test_the_example_gains_and_stays_as_exact(record_property):
    spec = importlib.util.spec_from_file_location("depthwise_example", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    torch.manual_seed(0)
    model, x = example.get_model_and_input(device="cuda")
    with torch.no_grad():
        fast = separable_convolutions(model, (x,), {})
        exact = type(model)(32, 256).cuda().eval()
        exact.load_state_dict(model.state_dict())
        exact = exact.double()(x.double())
        ours, library = errors(fast(x), exact), errors(model(x), exact)
        assert all(one <= 1.2 * other for one, other in zip(ours, library, strict=True))
        plain_s, fast_s = seconds(lambda: model(x)), seconds(lambda: fast(x))
        graphed = cuda_graph(fast, (x,), {})
        print(f"device time of a call: {plain_s * 1e6:.0f} us, in kernels of their own {fast_s * 1e6:.0f} us; "
              f"{[(module.tile, len(module.stages)) for module in fast.modules() if isinstance(module, Convolutions)]}")
        assert fast_s < plain_s / 1.5
        assert torch.equal(graphed(x), fast(x))
