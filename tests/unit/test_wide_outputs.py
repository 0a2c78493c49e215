"""Last linear layers that write float32 from bfloat16 operands: which layers, how exact, and beside the other casts."""

from __future__ import annotations

import copy
import importlib.util

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites import wide_outputs as rewrite
from kernelwright.probe.rewrites.bf16 import bf16
from kernelwright.probe.rewrites.wide_outputs import (
    ALIGNED,
    WIDE_TILES,
    WideLinear,
    last_layers,
    wide_is_faster,
    wide_outputs,
    wide_tiles_for,
)
from triton_interpreter import interpreted


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.hidden, self.logits, self.value = nn.Linear(16, 16), nn.Linear(16, 40, bias=False), nn.Linear(16, 3)
        self.logits.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        x = torch.tanh(self.hidden(self.embed(ids)))
        return {"logits": self.logits(x), "value": self.value(x), "spread": self.embed.weight.std()}


def given() -> tuple[Net, torch.Tensor]:
    torch.manual_seed(0)
    return Net().eval(), torch.randint(0, 40, (2, 5))


def always(*_arguments: object) -> bool:
    return True


@torch.no_grad()
def test_layers_whose_results_leave_the_model_are_wide_and_the_others_stay():
    net, ids = given()
    wide = wide_outputs(net, (ids,), {}, always)
    assert [type(layer) for layer in (wide.hidden, wide.logits, wide.value)] == [nn.Linear, WideLinear, WideLinear]
    assert wide.logits.weight is net.embed.weight and type(net.logits) is nn.Linear
    ours, exact = wide(ids), net(ids)
    for name in ("logits", "value"):
        assert ours[name].dtype == torch.float32 and ours[name].shape == exact[name].shape
        assert 0 < float((ours[name] - exact[name]).norm() / exact[name].norm()) < 5e-3
    assert ours["spread"] == exact["spread"]


@torch.no_grad()
def test_in_a_bfloat16_model_the_results_are_never_rounded_to_bfloat16():
    net, ids = given()
    plain, both = bf16(net, (ids,), {})(ids), bf16(wide_outputs(net, (ids,), {}, always), (ids,), {})(ids)
    assert both["logits"].dtype == torch.float32
    assert torch.equal(plain["logits"], plain["logits"].bfloat16().float())
    assert not torch.equal(both["logits"], both["logits"].bfloat16().float())
    exact = net(ids)["logits"]
    assert (both["logits"] - exact).norm() < (plain["logits"] - exact).norm()


@torch.no_grad()
@pytest.mark.parametrize("depth", [5, 6, 13, 16])
@pytest.mark.parametrize("biased", [True, False])
def test_only_the_operands_are_rounded_the_bias_is_not(depth: int, biased: bool):
    torch.manual_seed(1)
    layer, x = nn.Linear(depth, 7, bias=biased), torch.randn(3, 2, depth)
    if biased:
        layer.bias.mul_(1000)
    wide = WideLinear(layer)
    assert wide.wide.shape[1] % ALIGNED == 0
    exact = x.bfloat16().double() @ layer.weight.bfloat16().double().t() + (layer.bias.double() if biased else 0)
    assert float((wide(x).double() - exact).abs().max()) <= 1e-6 * float(exact.abs().max())
    assert wide(x[:0]).shape == (0, 2, 7)


INTERPRETED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from kernelwright.probe.rewrites.wide_outputs import by_kernel, product
torch.manual_seed(0)
plain = torch.Tensor.new_empty
def unwritten(self, *given, **named):
    found = plain(self, *given, **named)
    return found.fill_(float("nan")) if found.is_floating_point() else found
torch.Tensor.new_empty = unwritten
for rows, columns, depth, tile in ((5, 37, 40, [16, 16, 32, 4, 2]), (33, 50, 64, [32, 16, 64, 4, 2]), (1, 3, 8, [16, 32, 16, 4, 1])):
    a, w = torch.randn(rows, depth), torch.randn(columns, depth)
    torch.testing.assert_close(by_kernel(a, w, tile), product(a, w), rtol=1e-4, atol=1e-4)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")
def test_the_kernel_in_tritons_interpreter() -> None:
    assert interpreted(INTERPRETED) == ""


def test_only_rows_that_start_anywhere_are_tried_in_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "triton", object())
    assert wide_tiles_for(512, 50257) == [list(tile) for tile in WIDE_TILES] and wide_tiles_for(512, 50256) == []
    assert wide_tiles_for(40, 50257) == [[64, 128, 64, 4, 4]], "no rows for more"


@torch.no_grad()
def test_what_is_used_again_or_returned_otherwise_too_is_no_last_layer():
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.twice, self.hooked, self.double_ = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4).double()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self.twice(self.twice(x)), self.hooked(x), self.double_(x.double())

    net = Again()
    net.hooked.register_forward_hook(lambda *_arguments: None)
    assert last_layers(net, (torch.ones(2, 4),), {}) == []
    with pytest.raises(NotImplementedError, match="not applicable: no linear layer whose result leaves the model"):
        wide_outputs(net, (torch.ones(2, 4),), {}, always)
    with pytest.raises(NotImplementedError, match=r"only an nn\.Module"):
        wide_outputs(torch.relu, (torch.ones(2, 4),), {}, always)
    assert len(net.hooked._forward_hooks) == 1 and not net.twice._forward_hooks


@torch.no_grad()
def test_the_model_itself_can_be_the_layer_and_a_copy_stays_apart():
    layer = nn.Linear(8, 8)
    wide = wide_outputs(layer, (torch.ones(2, 8),), {}, always)
    assert type(wide) is WideLinear and type(layer) is nn.Linear
    again = copy.deepcopy(wide)
    assert torch.equal(again(torch.ones(2, 8)), wide(torch.ones(2, 8)))
    assert wide_is_faster(layer, wide, (torch.ones(2, 8),), {}) in (True, False)
