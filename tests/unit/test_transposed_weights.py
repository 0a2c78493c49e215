"""Weights of linear layers transposed in memory: which layers are asked, that nothing but the layout changes, and the file made of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

import optimizing
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.optimize.passes.base import Context
from kernelwright.optimize.plan import compatible
from kernelwright.probe.rewrites.transposed_weights import ASKED, transposed_weights
from made_candidates import loaded, text_of

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.first, self.second = nn.Embedding(16, 8), nn.Linear(8, 12), nn.Linear(12, 8, bias=False)
        self.third, self.head = nn.Linear(8, 12), nn.Linear(12, 16, bias=False)
        self.head.weight = nn.Parameter(torch.randn(16, 12))
        self.out = nn.Linear(8, 16, bias=False)
        self.out.weight = self.table.weight
        self.again = self.second

    def forward(self, x):
        found = self.second(input=self.first(self.table(x)).relu())
        return self.head(self.third(found)), self.out(self.again(self.third(found)))

def get_model_and_input():
    torch.manual_seed(0)
    return Net().eval(), torch.arange(6).view(2, 3)
"""
LINEARS = ("first", "second", "third", "head", "out")


def given() -> tuple[nn.Module, torch.Tensor]:
    space: dict = {}
    exec(NET, space)
    return space["get_model_and_input"]()


def always(*_arguments: object) -> bool:
    return True


def is_transposed(layer: nn.Linear) -> bool:
    return layer.weight.stride() == (1, layer.out_features)


@torch.no_grad()
def test_only_the_layout_changes_and_the_model_given_stays_as_it_is() -> None:
    net, x = given()
    changed = transposed_weights(net, (x,), {}, always)
    for name in LINEARS:
        ours, own = getattr(changed, name), getattr(net, name)
        assert type(ours) is nn.Linear and is_transposed(ours) and not is_transposed(own)
        assert torch.equal(ours.weight, own.weight) and ours.bias is own.bias
        assert not ours._forward_pre_hooks and not own._forward_pre_hooks and not ours.weight.requires_grad and own.weight.requires_grad
    assert changed.again is changed.second and changed.table.weight is net.table.weight is net.out.weight
    for ours, own in zip(changed(x), net(x), strict=True):
        torch.testing.assert_close(ours, own)


@torch.no_grad()
def test_layers_of_one_kind_are_timed_once_and_each_must_be_faster_every_time() -> None:
    net, x = given()
    asked: list[nn.Linear] = []

    def at_first(layer: nn.Linear, *_rest: object) -> bool:
        asked.append(layer)
        return asked.count(layer) < ASKED or layer.out_features == 12

    changed = transposed_weights(net, (x,), {}, at_first)
    assert [is_transposed(getattr(changed, name)) for name in LINEARS] == [True, False, True, False, False]
    assert len({id(layer) for layer in asked}) == 4 and len(asked) == 4 * ASKED, "first and third are of one kind"
    assert changed.second.weight is net.second.weight
    net.first.weight = transposed_weights(net, (x,), {}, always).first.weight
    asked.clear()
    transposed_weights(net, (x,), {}, at_first)
    assert len({id(layer) for layer in asked}) == 4, "of one kind the first that does not lie so already is timed"
    with pytest.raises(NotImplementedError, match="not applicable: no linear layer is faster with its weight transposed"):
        transposed_weights(net, (x,), {}, lambda *_arguments: False)
    with pytest.raises(NotImplementedError, match=r"only an nn\.Module"):
        transposed_weights(torch.relu, (x,), {}, always)


@torch.no_grad()
def test_compiled_code_reads_the_weights_as_they_lie() -> None:
    net, x = given()
    changed = transposed_weights(net, (x,), {}, always)
    torch._dynamo.reset()
    for ours, own in zip(torch.compile(changed, fullgraph=True)(x), net(x), strict=True):
        torch.testing.assert_close(ours, own)
    assert all(is_transposed(getattr(changed, name)) for name in LINEARS)


@torch.no_grad()
@pytest.mark.parametrize("standalone", [False, True])
def test_the_file_made_of_it_runs_and_follows_a_weight_that_changes(tmp_path: Path, standalone: bool) -> None:
    workload = tmp_path / "net_workload.py"
    text = NET.replace("self.table(x)", "x").replace("torch.arange(6).view(2, 3)", "torch.randn(2, 8)")
    workload.write_text(text)
    module = loaded(tmp_path, text_of(workload, ("transposed_weights", "no_grad"), (2, 8), standalone=standalone))
    made, real = [], module.transposed
    module.is_worth, module.transposed = always, lambda layer: made.append(layer) or real(layer)
    space: dict = {}
    exec(text, space)
    net, x = space["get_model_and_input"]()
    call = module.optimize(net, x)
    torch.testing.assert_close(call(x), net(x))
    assert len(made) == len(LINEARS), "it is what was called"
    net.first.weight.mul_(2.0)
    torch.testing.assert_close(call(x), net(x))
    assert len(made) == 2 * len(LINEARS), "copies of the weights are made anew"


def where(*shapes: tuple[int, ...], device: str = "cuda", **changes: object) -> Context:
    """Of one product with these operands."""
    plain = optimizing.context(device, ("aten::addmm",), **changes)
    operators = tuple(one.model_copy(update={"input_shapes": shapes}) for one in plain.profile.operators)
    return dataclasses.replace(plain, profile=plain.profile.model_copy(update={"operators": operators}))


def test_it_applies_where_float32_products_of_few_rows_hold_some_of_the_time() -> None:
    found, few = CATALOGUE["transposed_weights"], ((64,), (16, 32), (32, 64))
    assert found.refusal(where(*few)) is None and found.refusal(where(*few, device="cpu")) == "needs a CUDA device"
    assert found.refusal(where((2, 4, 32), (64, 32))) is None
    none = "the profile shows no linear layer of at most 128 rows"
    assert found.refusal(where((64,), (256, 32), (32, 64))) == found.refusal(where()) == none
    assert found.refusal(where((64, 32, 32), (64, 32))) == none
    assert "not float32" in found.refusal(where(*few, dtype="bfloat16"))
    assert "training" in found.refusal(where(*few, training=True))
    assert "already compiled" in found.refusal(where(*few, already_compiled=True, compiled_inside=True))
    assert found.precision == "equal" and found.measures and found.dimension == "layout"
    assert found.predict(where(*few)).words.startswith("linear layers of few rows, whose weights are transposed where that is faster, hold")


def test_what_it_stands_beside() -> None:
    for other in ("freeze_weights", "tf32", "bf16", "split_products", "selective_tf32"):
        assert not compatible(["transposed_weights", other])
    assert not compatible(["transposed_weights", "fuse_parallel_linears"]), "weights side by side lie as they did"
    assert compatible(["transposed_weights", "fuse_linear_activation", "compile_default", "cuda_graph"])
    assert CATALOGUE["transposed_weights"].takes == "values"
