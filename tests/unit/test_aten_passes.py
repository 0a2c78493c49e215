"""Passes on the ATen graph as Inductor's inner compile gets it: each finds its places, keeps the values, leaves the rest alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from graph_carrier import Inner
from kernelwright.probe.rewrites import batch_products as batch_file
from kernelwright.probe.rewrites.batch_products import batch_products
from kernelwright.probe.rewrites.freeze_weights import freeze_weights
from kernelwright.probe.rewrites.fuse_parallel_linears import fuse_parallel_linears
from kernelwright.probe.rewrites.remove_redundant_aten import remove_redundant_aten

CASTS = ("convert_element_type.default", "_to_copy.default")
NOTHING = "found nothing to change"


class Parts(nn.Module):
    """Linear layers, cells and what a forward does with them."""

    def __init__(self, forward: Callable[..., Any], size: int = 8) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(size, size) for _ in range(3))
        self.cell, self.run = nn.LSTMCell(size, size), forward

    def forward(self, *args):
        return self.run(self, *args)


def values(output: Any) -> tuple[torch.Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)


def test_casts_that_autocast_repeats_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def attention(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            scores = torch.matmul(self.q(x), self.k(x).transpose(-2, -1))
            return torch.matmul(F.softmax(scores, -1), self.v(x)) + self.q(x)

    model, x = Parts(attention).eval(), torch.randn(2, 4, 8)
    plain, fast = Inner(monkeypatch, model), Inner(monkeypatch, model, remove_redundant_aten)
    assert torch.equal(plain(x), fast(x))
    casts = [sum(name in CASTS for name in inner.targets) for inner in (plain, fast)]
    assert casts[0] - casts[1] >= 3, "of x for each layer, and of the first layer's weight and bias for its second call"
    assert plain.targets.count("addmm.default") == 4 and fast.targets.count("addmm.default") == 3


def there_and_back(_self, x):
    wide = x.float().view(2, 2, 4).transpose(0, 1)
    return wide.bfloat16() @ wide.bfloat16().transpose(1, 2)


def rounds(_self, x):
    y = x.float()
    return (y + 1, y.bfloat16().view(4, 4).float() * 2, (y * 3).view(4, 4).bfloat16() + 1)


def test_a_cast_back_behind_what_moves_numbers_goes_and_those_that_round_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(4, 4).bfloat16()
    fast = Inner(monkeypatch, Parts(there_and_back), remove_redundant_aten)
    assert torch.equal(fast(x), there_and_back(None, x)) and not any(name in CASTS for name in fast.targets)
    narrow = torch.randn(4, 4)
    fast = Inner(monkeypatch, Parts(rounds), remove_redundant_aten)
    with pytest.raises(NotImplementedError, match=NOTHING):
        fast(narrow)


def test_permutations_that_cancel_go_from_between_repeated_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(_self, x):
        return torch.sin(x.permute(2, 0, 1)) + torch.sin(x.permute(1, 2, 0).permute(1, 2, 0))

    x = torch.randn(2, 3, 4)
    fast = Inner(monkeypatch, Parts(turned), remove_redundant_aten)
    assert torch.equal(fast(x), turned(None, x))
    assert fast.targets.count("sin.default") == fast.targets.count("permute.default") == 1


def drawn(_self, x):
    return torch.rand_like(x) + torch.rand_like(x)


def both_returned(_self, x):
    return torch.sin(x), torch.sin(x)[1:]


def copied_input(_self, x):
    return x.clone()


def written_input(_self, x):
    before = torch.sin(x)
    x.mul_(2)
    return before * torch.sin(x)


@pytest.mark.parametrize("forward", [drawn, both_returned, copied_input, written_input])
def test_random_numbers_and_what_leaves_the_graph_are_not_shared(monkeypatch: pytest.MonkeyPatch, forward) -> None:
    with pytest.raises(NotImplementedError, match=NOTHING):
        Inner(monkeypatch, Parts(forward), remove_redundant_aten)(torch.randn(4, 4))


def given_on(_self, x, y):
    there_and_back = x.double().float()
    x.copy_(y + 1)
    y.copy_(there_and_back)
    return torch.sin(x) + torch.sin(x)


def given_on_in_parts(_self, x, y):
    turned, again = x.double().t().float(), x.double().t().float()
    x.mul_(2)
    y.copy_(again.t())
    return turned + again


@pytest.mark.parametrize("forward", [given_on, given_on_in_parts])
def test_what_an_input_held_before_it_is_written_stays_a_copy(monkeypatch: pytest.MonkeyPatch, forward) -> None:
    """Both inputs are written at the graph's end, the second with what the first held."""
    expected, found = ([torch.arange(16.0).view(4, 4), torch.ones(4, 4)] for _ in range(2))
    value = forward(None, *expected)
    assert torch.equal(Inner(monkeypatch, Parts(forward), remove_redundant_aten)(*found), value)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


def test_a_check_is_no_repeated_call() -> None:
    def checked(x):
        torch.ops.aten._assert_async.msg(x.isfinite().all(), "finite")
        return torch.sin(x) + torch.sin(x)

    graph = make_fx(checked, tracing_mode="fake")(torch.ones(3))
    assert remove_redundant_aten(graph, []) == 1
    assert [node.name for node in graph.graph.nodes if node.target is torch.ops.aten._assert_async.msg]


def test_a_graph_that_goes_backward_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Parts(lambda self, x: self.q(x).square().mean())
    with pytest.raises(NotImplementedError, match="goes backward"):
        Inner(monkeypatch, model, remove_redundant_aten).call(torch.randn(2, 8))


def unrolled(self, x):
    h, c = x[:, 0], x[:, 1]
    for step in range(5):
        h, c = self.cell(x[:, step], (h, c))
    return h, c


def by_steps(self, x):
    return torch.stack([torch.tanh(self.q(step)) for step in x.unbind(0)])


def towers(self, x, y):
    left, right = torch.relu(self.q(x)), self.k(y)
    return left.sum(-1), right, self.v(left * right)


def crossed(self, x, y):
    """Two pairs of like products, of which each has one that needs the other pair's first."""
    first, second = torch.mm(x, self.q.weight), torch.mm(y, self.k.weight[:, :4])
    return torch.mm(first, self.k.weight[:, :4]) + 1, torch.mm(torch.cat([second, second], 1), self.q.weight) + 1


@pytest.mark.parametrize(("forward", "shapes", "expected"), [
    (unrolled, [(3, 5, 8)], {"addmm.default": 6, "cat.default": 0}),
    (by_steps, [(5, 3, 8)], {"addmm.default": 1, "clone.default": 0}),
    (towers, [(3, 8), (3, 8)], {"baddbmm.default": 1, "addmm.default": 1, "clone.default": 1}),
    (crossed, [(3, 8), (3, 8)], {"mm.default": 3}),
])
def test_products_that_do_not_need_each_other_become_one(monkeypatch: pytest.MonkeyPatch, forward, shapes, expected) -> None:
    monkeypatch.setattr(batch_file, "together_is_faster", lambda group: True)
    model = Parts(forward).eval()
    args = [torch.randn(shape) for shape in shapes]
    plain, fast = Inner(monkeypatch, model), Inner(monkeypatch, model, batch_products)
    with torch.no_grad():
        given, found = values(plain(*args)), values(fast(*args))
        exact = values(model.double()(*(arg.double() for arg in args)))
    assert {name: fast.targets.count(name) for name in expected} == expected
    for old, new, truth in zip(given, found, exact, strict=True):
        assert new.shape == old.shape and new.dtype == old.dtype and new.stride() == old.stride()
        error, before = (float((value - truth).abs().max()) for value in (new, old))
        assert error <= 2 * before + 4 * torch.finfo(old.dtype).eps * float(truth.abs().max()), "the judge's rule"
    assert len({value.untyped_storage().data_ptr() for value in found}) == len(found), "outputs lie apart"


def test_products_that_need_each_other_or_measure_slower_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_file, "together_is_faster", lambda group: False)
    with pytest.raises(NotImplementedError, match=NOTHING):
        Inner(monkeypatch, Parts(towers), batch_products)(torch.randn(3, 8), torch.randn(3, 8))
    monkeypatch.setattr(batch_file, "together_is_faster", lambda group: True)
    with pytest.raises(NotImplementedError, match=NOTHING):
        Inner(monkeypatch, Parts(lambda self, x: self.q(self.q(self.k(x)))), batch_products)(torch.randn(3, 8))


def test_what_is_faster_is_measured_at_the_shapes_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[tuple[int, ...]] = []

    def median_us(call: Callable[[], Any], _device: torch.device) -> float:
        output = call()
        timed.append((len(output), *(output[0] if isinstance(output, list) else output).shape))
        return 10.0 if isinstance(output, list) else times.pop()

    monkeypatch.setattr(batch_file, "median_us", median_us)
    times = [12.0]  # together, where four in a row take 10
    fast = Inner(monkeypatch, Parts(by_steps), batch_products)
    fast(torch.randn(5, 3, 8))
    assert timed == [(4, 3, 8), (15, 15, 8)] and fast.backend.found["batch_products"] == 1
    times = [10.0]
    with pytest.raises(NotImplementedError, match=NOTHING):
        Inner(monkeypatch, Parts(towers), batch_products)(torch.randn(3, 8), torch.randn(3, 8))
    assert timed[-1] == (2, 2, 3, 8), "a batched product"


def test_the_three_levels_stand_in_one_backend_and_frozen_weights_are_stacked_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(self, x, y):
        return self.q(x) * self.k(x), F.linear(y, self.v.weight) + F.linear(y + 1, self.cell.weight_ih[:8])

    monkeypatch.setattr(batch_file, "together_is_faster", lambda group: True)
    model, (x, y) = Parts(both).double().eval(), torch.randn(2, 8, 8).double()  # float32 products become oneDNN's under freezing
    fast = Inner(monkeypatch, model, batch_products, functional=[fuse_parallel_linears], inductor=[freeze_weights])
    for found, wanted in zip(fast(x, y), model(x, y), strict=True):
        assert torch.allclose(found, wanted)
    assert fast.backend.found == {"fuse_parallel_linears": 1, "batch_products": 1, "keep": 1}
    assert fast.targets.count("bmm.default") == 1
    weights = [node for node in fast.graph.graph.nodes if node.op == "get_attr" and str(node.target).startswith("stacked")]
    assert [getattr(fast.graph, node.target).shape for node in weights] == [(2, 8, 8)]


def test_a_frozen_weight_is_laid_out_for_its_product_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Parts(lambda self, x: x @ (2 * self.q.weight.t()).contiguous()).double().eval(), torch.randn(3, 8).double()
    plain = Inner(monkeypatch, model)
    assert torch.allclose(plain(x), model(x)) and len(plain.targets) > 1, "each call lays it out anew"
    fast = Inner(monkeypatch, model, inductor=[freeze_weights])
    assert torch.allclose(fast(x), model(x)) and fast.targets == ["mm.default"]
    [weight] = [getattr(fast.graph, str(node.target)) for node in fast.graph.graph.nodes if node.op == "get_attr"]
    assert weight.is_contiguous() and torch.equal(weight, 2 * model.q.weight.t())


def random_program(seed: int, *, rounds: bool) -> Callable[..., list[torch.Tensor]]:
    """Thirty random calls on square matrices, each on values before it; the last of them are returned, some of which share memory."""
    steps = [
        torch.mm, lambda a, b: torch.addmm(b[0], a, b), lambda a, b: torch.addmm(a[0], a, b.t()), lambda a, b: torch.tanh(a),
        lambda a, b: a.t(), lambda a, b: a.permute(1, 0).permute(1, 0), lambda a, b: a.clone(), lambda a, b: a + b,
        lambda a, b: a.double().t().float(), lambda a, b: a.double().reshape(2, 8).float().reshape(4, 4), lambda a, b: a.contiguous(),
        lambda a, b: torch.stack([a, b])[1], lambda a, b: torch.cat([a[:2], b[2:]]), *([lambda a, b: a.bfloat16().t().float()] * rounds),
    ]
    order = random.Random(seed)
    plan = [(order.choice(steps), order.random(), order.random()) for _ in range(30)]

    def program(*given: torch.Tensor) -> list[torch.Tensor]:
        found = list(given)
        for step, a, b in plan:
            found.append(step(found[int(a * len(found))], found[int(b * b * len(found))]))
        return found[-6:]

    return program


def memory(tensors: list[torch.Tensor]) -> list[int]:
    """For each the place of the first that shares its memory."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return [places.index(place) for place in places]


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_keep_their_values(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(batch_file, "together_is_faster", lambda group: True)
    torch.manual_seed(seed)
    args = [torch.randn(4, 4) for _ in range(3)]
    for change, limits in ((remove_redundant_aten, {"rtol": 0, "atol": 0}), (batch_products, {"rtol": 1e-4, "atol": 1e-4})):
        graph = make_fx(random_program(seed, rounds=change is remove_redundant_aten), tracing_mode="fake")(*args)
        plain = graph(*args)
        assert change(graph, args) > 0
        graph.graph.lint()
        graph.recompile()
        fast = graph(*args)
        assert memory([*args, *fast]) == memory([*args, *plain])
        for old, new in zip(plain, fast, strict=True):
            torch.testing.assert_close(new, old, check_stride=True, equal_nan=True, **limits)
    assert not batch_file.next_group(graph, set()), "no two independent products of one shape are left"
