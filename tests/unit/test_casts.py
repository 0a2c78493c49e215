"""Single layers in a narrow type: which are cast, which are reverted, and that the model given stays as it is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.probe.rewrites.bf16_reverted import Float32Island
from kernelwright.probe.rewrites.casts import NarrowLayer, narrow_is_faster, narrow_layers
from kernelwright.probe.rewrites.product_layers import ProductLinear
from kernelwright.probe.rewrites.products import Product
from kernelwright.probe.rewrites.selective_tf32 import tf32_layer
from kernelwright.probe.rewrites.wide_outputs import WideLinear


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 4)
        self.twice = self.head
        self.lstm = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        flat = self.norm(self.conv(x)).relu().flatten(2).transpose(1, 2)
        states, (hidden, _cell) = self.lstm(self.twice(flat))
        return states + 0.0 * self.head.weight.sum(), hidden


def given() -> tuple[Net, torch.Tensor]:
    torch.manual_seed(0)
    return Net().eval(), torch.randn(2, 3, 4, 4)


def always(*_arguments: object) -> bool:
    return True


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "largest"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_layers_are_narrow_and_what_lies_between_stays_float32(dtype: torch.dtype, largest: float) -> None:
    net, x = given()
    narrow = narrow_layers(net, (x,), {}, dtype, always)
    assert {type(layer) for layer in (narrow.conv, narrow.head, narrow.twice, narrow.lstm)} == {NarrowLayer}
    assert type(narrow.norm) is nn.BatchNorm2d and narrow.norm.weight is net.norm.weight
    assert type(net.conv) is nn.Conv2d and net.conv.weight.dtype == torch.float32 and not net.conv._forward_pre_hooks
    for ours, exact in zip(narrow(x), net(x), strict=True):
        assert ours.dtype == torch.float32
        assert 0 < float((ours - exact).norm() / exact.norm()) < largest
    assert {parameter.dtype for parameter in narrow.conv.inner.parameters()} == {dtype}


CONV = nn.Conv2d(4, 8, 3, stride=(1, 2), padding="valid", bias=False)
TURNED = nn.ConvTranspose2d(4, 8, (3, 2), 2, 1, output_padding=1)


@pytest.mark.parametrize(("make", "layers"), [
    (lambda layer: NarrowLayer(layer, torch.bfloat16), [nn.Linear(4, 8, bias=False), CONV, TURNED, nn.GRU(4, 6, batch_first=True)]),
    (lambda layer: Float32Island(layer, layer), [nn.Linear(4, 8, bias=False), CONV, TURNED]),
    (tf32_layer, [nn.Linear(4, 8), CONV, TURNED]),
    (WideLinear, [nn.Linear(4, 8, bias=False)]),
    (lambda layer: ProductLinear(layer, Product("fp16x3")), [nn.Linear(4, 8)]),
])
def test_what_takes_a_layers_place_has_its_plain_attributes(make, layers) -> None:
    names = {"in_features", "out_features", "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups",
             "output_padding", "padding_mode", "transposed", "hidden_size", "num_layers", "batch_first", "bidirectional", "training"}
    for layer in layers:
        new = make(layer)
        known = names & vars(layer).keys()
        assert len(known) > 2 and {name: getattr(new, name) for name in known} == {name: getattr(layer, name) for name in known}
        assert getattr(layer, "bias", None) is getattr(new, "bias", None)
        assert getattr(new, "dtype", None) in (None, torch.bfloat16, torch.float32), "its own"


@torch.no_grad()
def test_a_model_may_read_its_layers_sizes() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 8, 3, bias=False), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = self.conv(F.pad(x, [size // 2 for size in self.conv.kernel_size for _ in range(2)]))
            return self.head(wide.mean((2, 3))).view(-1, self.head.out_features, 1)

    torch.manual_seed(0)
    net, x = Reads(), torch.randn(2, 3, 4, 4)
    narrow = narrow_layers(net, (x,), {}, torch.bfloat16, always)
    assert {type(layer) for layer in (narrow.conv, narrow.head)} == {NarrowLayer}
    torch.testing.assert_close(narrow(x), net(x), atol=0.02, rtol=0.02)


@torch.no_grad()
def test_layers_that_are_not_faster_stay() -> None:
    net, x = given()
    narrow = narrow_layers(net, (x,), {}, torch.bfloat16, lambda layer, *_rest: not isinstance(layer, nn.Conv2d))
    assert type(narrow.conv) is nn.Conv2d and type(narrow.lstm) is NarrowLayer
    with pytest.raises(NotImplementedError, match="no layer is faster"):
        narrow_layers(net, (x,), {}, torch.bfloat16, lambda *_arguments: False)
    with pytest.raises(NotImplementedError, match=r"only an nn\.Module"):
        narrow_layers(torch.relu, (x,), {}, torch.bfloat16, always)


@torch.no_grad()
def test_float16_leaves_layers_whose_values_need_its_whole_range() -> None:
    linear, x = nn.Linear(4, 4), torch.randn(3, 4)
    assert isinstance(narrow_layers(linear, (x,), {}, torch.float16, always), NarrowLayer)
    with pytest.raises(NotImplementedError, match="close to float32"):
        narrow_layers(linear, (x * 1e5,), {}, torch.float16, always)
    assert isinstance(narrow_layers(linear, (x * 1e5,), {}, torch.bfloat16, always), NarrowLayer)


@torch.no_grad()
def test_the_timing_tells_a_slow_layer_from_a_fast_one() -> None:
    class Slow(nn.Linear):
        slow_in = torch.bfloat16

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dtype == self.slow_in:
                x = torch.stack([x] * 2000).mean(0)
            return super().forward(x)

    x = torch.randn(64, 64)
    for slow_in, expected in ((torch.bfloat16, False), (torch.float32, True)):
        layer = Slow(64, 64)
        layer.slow_in = slow_in
        assert narrow_is_faster(layer, NarrowLayer(layer, torch.bfloat16), (x,), {}) is expected
