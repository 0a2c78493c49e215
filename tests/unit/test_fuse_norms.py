"""Normalisations in Triton kernels: what is matched, what is left alone, what is measured, and the kernels' numbers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graph_carrier import Passed
from kernelwright.probe.rewrites import fuse_norms as rewrite
from kernelwright.probe.rewrites.fuse_norms import NormPlace, norm_ways
from kernelwright.probe.rewrites.graphs import tensor_of
from made_candidates import loaded, text_of
from triton_interpreter import interpreted

NOTHING = "found nothing to change"
WAY = [1, 1024, 4]
LEFT = {"layer_norm", "rms_norm", "group_norm", "instance_norm", "rsqrt", "relu", "silu", "gelu", "mean", "sqrt"}


class Called(nn.Module):
    """A module whose forward is the given function of itself."""

    def __init__(self, forward, **parts: torch.Tensor) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        for name, part in parts.items():
            self.register_buffer(name, part)
        self.run = forward

    def forward(self, *args: torch.Tensor) -> object:
        return self.run(self, *args)


def assert_no_worse(model: nn.Module, fast: Passed, *args: torch.Tensor) -> None:
    """The error to float64 is within twice the original's own (plus two ulps)."""
    with torch.no_grad():
        given, found = model(*args), fast(*args)
        exact = model.double()(*(arg.double() for arg in args))
        model.float()
    for old, new, truth in zip(*(value if isinstance(value, tuple) else (value,) for value in (given, found, exact)), strict=True):
        assert new.shape == old.shape and new.dtype == old.dtype and new.stride() == old.stride()
        limit = 2 * float((old - truth).abs().max()) + 2.4e-7 * float(truth.abs().max())
        assert float((new - truth).abs().max()) <= limit


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[NormPlace]:
    """Those that were asked for; each is taken, and what would be timed in its place computes the same."""
    found: list[NormPlace] = []

    def take(place: NormPlace) -> list[int]:
        found.append(place)
        given = {node: torch.randn(value.shape, dtype=value.dtype) for node in place.inputs if (value := tensor_of(node)) is not None}
        tensors = [given.get(node) for node in (place.source, place.residual, place.weight, place.bias)]
        ours = rewrite.normed(*tensors, *place.settings(), WAY, place.keep)
        for one, two in zip(place.alone()(*given.values()), ours, strict=False):
            torch.testing.assert_close(one, two, **({} if one.dtype == torch.float32 else {"atol": 0.06, "rtol": 0.02}))
        return WAY

    monkeypatch.setattr(rewrite, "fastest_norm", take)
    return found


def llama(self, x):
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return self.factor * wide.to(x.dtype)


def llama_again(self, x):
    return (lambda wide: wide * torch.rsqrt(torch.mean(wide * wide, dim=-1, keepdim=True) + 1e-5))(x.float()).type_as(x) * self.factor


KINDS = {
    "layer": lambda self, x: F.layer_norm(x, (8,), self.factor, self.shift),
    "layer, factor alone, three dimensions": lambda self, x: F.layer_norm(x, (4, 6, 8), self.whole, None, 1e-3),
    "layer, plain": lambda self, x: F.layer_norm(x, [8]),
    "rms": lambda self, x: F.rms_norm(x, (8,), self.factor, 1e-6),
    "rms, no eps": lambda self, x: F.rms_norm(x, (8,)),
    "group": lambda self, x: F.group_norm(x, 2, self.channels, self.channels, 1e-4),
    "group, plain": lambda self, x: F.group_norm(x, 4),
    "instance": lambda self, x: F.instance_norm(x, weight=self.channels, bias=self.channels),
    "instance, plain": lambda self, x: F.instance_norm(x),
    "by hand, factor first": llama, "by hand, type_as": llama_again,
    "by hand, square": lambda self, x: torch.rsqrt(0.1 + x.square().mean(3, True)) * x,
    "by hand, root": lambda self, x: x / torch.sqrt(torch.mean(x**2, dim=-1, keepdim=True) + 1e-5),
}


def parts() -> dict[str, torch.Tensor]:
    return {"factor": torch.randn(8), "shift": torch.randn(8), "channels": torch.randn(4), "whole": torch.randn(4, 6, 8)}


@pytest.mark.parametrize("act", [None, F.relu, F.silu, F.gelu, lambda x: F.gelu(x, approximate="tanh"), nn.ReLU(inplace=True)])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_with_what_stands_around_it(places: list[NormPlace], kind: str, act) -> None:  # type: ignore[no-untyped-def]
    def plain(self, x, y):
        made = KINDS[kind](self, x + y)
        return made if act is None else act(made)

    model = Called(plain, **parts()).eval()
    fast = Passed(model, rewrite.fuse_norms)
    assert_no_worse(model, fast, *torch.randn(2, 3, 4, 6, 8))
    [place] = places
    assert not LEFT & set(fast.targets) and "add" not in fast.targets, "nothing is left beside the operator"
    assert place.residual is not None and not place.keep and (place.activation == "none") == (act is None)


def test_the_sum_is_returned_too_where_others_use_it_and_one_shape_is_asked_for_once(places: list[NormPlace]) -> None:
    def block(self, x, y):
        for _ in range(3):
            x = x + y
            y = torch.tanh(F.layer_norm(x, (8,), self.factor, self.shift, 1e-5))
        return x, y

    model = Called(block, **parts()).eval()
    fast = Passed(model, rewrite.fuse_norms)
    assert_no_worse(model, fast, *torch.randn(2, 5, 8))
    assert fast.backend.found["fuse_norms"] == 3 and len(places) == 1 and places[0].keep
    assert "add" not in fast.targets and fast.targets.count("getitem") == 6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["rms", "rms, no eps", "layer", "group", "by hand, factor first", "by hand, type_as", "by hand, root"])
def test_narrow_types_are_normalised_in_float32(places: list[NormPlace], kind: str, dtype: torch.dtype) -> None:
    model = Called(lambda self, x, y: F.silu(KINDS[kind](self, x + y)), **parts()).eval().to(dtype)
    fast = Passed(model, rewrite.fuse_norms)
    x, y = torch.randn(2, 3, 4, 6, 8).to(dtype)
    given, found = model(x, y), fast(x, y)
    exact = model.double()(((x + y).double()), torch.zeros(()).double())
    assert found.dtype == dtype and len(places) == 1 and places[0].x.dtype == dtype
    assert float((found - exact).norm()) <= 1.01 * float((given - exact).norm())


def late_user(self, x, y):
    total = x + y
    early = torch.tanh(total)
    return F.layer_norm(total, (8,)) + early


def broadcast(self, x, y):
    return F.layer_norm(x + y[0], (8,))


def scaled(self, x, y):
    return F.layer_norm(torch.add(x, y, alpha=2), (8,))


@pytest.mark.parametrize("forward", [late_user, broadcast, scaled])
def test_an_addition_that_can_not_go_in_stays_before_the_norm(places: list[NormPlace], forward) -> None:  # type: ignore[no-untyped-def]
    model = Called(forward).eval()
    fast = Passed(model, rewrite.fuse_norms)
    assert_no_worse(model, fast, *torch.randn(2, 3, 4, 6, 8))
    assert places[0].residual is None and "add" in fast.targets and "layer_norm" not in fast.targets


def by_itself(self, x, y):
    total = x + y
    return total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-5) * total


@pytest.mark.parametrize("forward", [by_itself, lambda self, x, y: (lambda total: F.layer_norm(total, (8,), bias=total))(x + y)])
def test_a_sum_that_is_the_factor_or_the_shift_too_stays(places: list[NormPlace], forward) -> None:  # type: ignore[no-untyped-def]
    model = Called(forward).eval()
    fast = Passed(model, rewrite.fuse_norms)
    assert_no_worse(model, fast, *torch.randn(2, 8))
    assert len(places) == 1 and places[0].residual is None and "add" in fast.targets


def written(self, x):
    x = x + 1
    total = x + x.flip(0)
    x.mul_(2)
    return F.layer_norm(total, (8,)) + x


def other_dim(self, x):
    return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6)


def cubes(self, x):
    return x * torch.rsqrt(x.pow(3).abs().mean(-1, keepdim=True) + 1e-6)


def other_factor(self, x):
    return x.flip(0) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def root_kept(self, x):
    root = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return x * root, root


def running(self, x):
    return F.instance_norm(x, torch.zeros_like(x[0, :, 0, 0]), torch.ones_like(x[0, :, 0, 0]), use_input_stats=False)


@pytest.mark.parametrize("forward", [
    written, other_dim, cubes, other_factor, root_kept, running, lambda self, x: F.layer_norm(x.transpose(2, 3), (6,)),
    lambda self, x: F.group_norm(x.contiguous(memory_format=torch.channels_last), 2), lambda self, x: F.layer_norm(x.double(), (8,)),
    lambda self, x: F.layer_norm(x[:0], (8,)),
    lambda self, x: x * torch.rsqrt(input=x.pow(2).mean(-1, keepdim=True) + 1e-6),
    lambda self, x: x * torch.rsqrt(torch.square(input=x).mean(-1, keepdim=True) + 1e-6),
    lambda self, x: (lambda one: one * torch.rsqrt(one.pow(2).mean(-1, keepdim=True) + 1e-6))(x.sum())])
def test_what_is_not_quite_that_or_laid_out_otherwise_stays(places: list[NormPlace], forward) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(NotImplementedError, match=NOTHING):
        Passed(Called(forward).eval(), rewrite.fuse_norms)(torch.randn(3, 4, 6, 8))
    assert not places


def test_an_input_laid_out_otherwise_when_it_runs_is_still_right(places: list[NormPlace]) -> None:
    x = torch.randn(3, 4, 6, 8).contiguous(memory_format=torch.channels_last)
    found = rewrite.norm_operators().norm(x, None, None, None, [96, 48, 2], False, 1e-5, "relu", torch.float32, WAY)
    torch.testing.assert_close(found, F.relu(F.group_norm(x, 2)))
    assert found.is_contiguous()


@pytest.mark.parametrize(("kernels", "eager", "inductor", "taken"), [
    ([3.0, 1.0], 2.0, 1.5, 1), ([3.0, 1.0], 2.0, 1.01, None), ([1.0, 3.0], 1.01, 2.0, None), ([1.0, 1.9], 2.0, 3.0, 0)])
def test_only_what_is_faster_than_eager_and_inductor_is_taken(
    monkeypatch: pytest.MonkeyPatch, kernels: list[float], eager: float, inductor: float, taken: int | None,
) -> None:
    class Triton:
        class errors:
            TritonError = ValueError

    times, made = iter([eager, inductor, *kernels]), []
    monkeypatch.setattr(rewrite, "triton", Triton)
    monkeypatch.setattr(rewrite, "ON_DEVICE", "cpu")
    monkeypatch.setattr(rewrite, "median_us", lambda call, device: (call(), next(times))[1])
    monkeypatch.setattr(rewrite, "compiled_alone", lambda small, samples: (made.append(len(samples)), small)[1])
    monkeypatch.setattr(rewrite, "norm_ways", lambda rows, numbers: [[1, 8, 4], [2, 8, 4]])
    model, chosen = Called(lambda self, x, y: F.relu(F.layer_norm(x + y, (8,), self.factor))[:, 0] + 1, **parts()).eval(), []

    def fuse_norms(graph: torch.fx.GraphModule, given: object) -> int:
        return rewrite.fuse_norms(graph, given, lambda place: (chosen.append(rewrite.fastest_norm(place)), WAY)[1])

    assert_no_worse(model, Passed(model, fuse_norms), *torch.randn(2, 3, 8))
    assert chosen == [None if taken is None else [taken + 1, 8, 4]] and made == [3]


def test_sizes_that_change_from_call_to_call_stay(places: list[NormPlace]) -> None:
    x = torch.randn(3, 4, 6, 8)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(NotImplementedError, match=NOTHING):
        Passed(Called(KINDS["layer"], **parts()).eval(), rewrite.fuse_norms)(x)
    assert not places


def test_so_do_those_of_what_only_gives_the_type(places: list[NormPlace]) -> None:
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    torch._dynamo.mark_dynamic(y, 0)
    with pytest.raises(NotImplementedError, match=NOTHING):
        Passed(Called(lambda self, x, y: KINDS["by hand, root"](self, x).type_as(y)).eval(), rewrite.fuse_norms)(x, y)
    assert not places


def test_without_a_gpu_nothing_is_taken() -> None:
    with pytest.raises(NotImplementedError, match=NOTHING):
        Passed(Called(KINDS["layer"], **parts()).eval(), rewrite.fuse_norms)(torch.randn(3, 4, 6, 8))


def test_inductors_own_is_made_while_dynamo_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def choose(place: NormPlace) -> list[int]:
        samples = [torch.randn(tensor_of(node).shape) for node in place.inputs]
        monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx_inner", lambda graph, _inputs, **_: (
            setattr(graph, "_boxed_call", True), lambda args: graph.forward(*args))[1])
        with torch.no_grad():
            made = rewrite.compiled_alone(place.alone(), samples)
            seen.append((made(*samples), place.alone()(*samples)))
        monkeypatch.undo()
        return WAY

    def fuse_norms(graph: torch.fx.GraphModule, given: object) -> int:
        return rewrite.fuse_norms(graph, given, choose)

    model = Called(lambda self, x, y: (lambda total: F.gelu(F.layer_norm(total, (8,), self.factor)) + total)(x + y), **parts()).eval()
    assert_no_worse(model, Passed(model, fuse_norms), *torch.randn(2, 3, 4, 6, 8))
    [(compiled, plain)] = seen
    assert len(compiled) == len(plain) == 2 and all(torch.allclose(one, two, atol=1e-6) for one, two in zip(compiled, plain, strict=True))


def test_many_short_rows_take_one_launch_few_long_ones_two() -> None:
    assert norm_ways(8192, 768) == [[1, 1024, 2], [1, 1024, 1], [4, 1024, 8], [4, 1024, 4]]
    assert norm_ways(8192, 4096) == [[1, 4096, 8], [1, 4096, 4]] and norm_ways(2, 3)[0] == [2, 4, 1]
    both = {len(way) for way in norm_ways(64, 8192)}
    assert both == {3, 4}
    for rows, numbers in ((16, 64 * 256 * 256), (128, 524288), (1, 2**31 - 1), (3, 16385)):
        for block, _warps, chunks, count in norm_ways(rows, numbers):
            assert (count - 1) * block * chunks < numbers <= count * block * chunks and count <= rewrite.MOST_PARTS


INTERPRETED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
import torch.nn.functional as F
from kernelwright.probe.rewrites.fuse_norms import norm_in_torch, norm_launched
torch.manual_seed(0)
plain = torch.Tensor.new_empty
torch.Tensor.new_empty = lambda self, *given, **named: plain(self, *given, **named).fill_(float("nan"))
WAYS = {48: [[1, 64, 1], [4, 64, 1], [16, 1, 1, 3], [16, 1, 2, 2], [8, 1, 2, 3]], 50: [[2, 64, 1], [16, 1, 3, 2], [16, 1, 1, 4]]}
def check(shape, geometry, dtype, rms, activation, affine, adds, keep, mean):
    x = (torch.randn(shape) + mean).to(dtype)
    residual = torch.randn(shape).to(dtype) if adds else None
    weights = geometry[2] * (geometry[0] // geometry[1])
    weight, bias = (torch.randn(weights).to(dtype) if given else None for given in affine)
    exact, total = norm_in_torch(*(None if one is None else one.double() for one in (x if residual is None else x + residual, None, weight,
                                 bias)), geometry, rms, 1e-5, activation, torch.float64)
    library = norm_in_torch(x, residual, weight, bias, geometry, rms, 1e-5, activation, dtype)[0]
    for way in WAYS[geometry[0]]:
        out, added = norm_launched(x, residual, weight, bias, geometry, rms, 1e-5, activation, dtype, way, keep)
        error = float((out.double() - exact).abs().max())
        assert out.dtype == dtype and error <= 1.05 * float((library.double() - exact).abs().max()) + 5e-6, (geometry, way, error, dtype)
        assert torch.equal(added, x if residual is None else x + residual) or not keep
acts = ["none", "relu", "silu", "gelu", "gelu_tanh"]
number = 0
for shape, geometry in (((5, 48), [48, 1, 1]), ((3, 50), [50, 1, 1]), ((2, 4, 6, 4), [48, 24, 2]), ((2, 3, 50), [50, 50, 3])):
    for dtype in (torch.float32, torch.float16):  # the interpreter cuts off what does not fit into bfloat16, where a GPU rounds
        for rms in (False, True):
            for adds, keep in ((False, False), (True, False), (True, True)):
                number += 1
                check(shape, geometry, dtype, rms, acts[number % 5], ((number % 2, number % 3), (1, 1))[number % 2], adds, keep, 0.5)
    check(shape, geometry, torch.float32, False, "none", (1, 1), False, False, 1e4)
# A large mean: no worse than the library; parts of which one lies far off the others.
for numbers in (48, 50):
    x = torch.randn(4, numbers) + 1e4
    x[2, :16] -= 1e4
    exact = F.layer_norm(x.double(), (numbers,))
    error = float((F.layer_norm(x, (numbers,)).double() - exact).abs().max())
    for way in WAYS[numbers]:
        out = norm_launched(x, None, None, None, [numbers, 1, 1], False, 1e-5, "none", x.dtype, way, False)[0]
        assert float((out.double() - exact).abs().max()) <= min(error, 1e-5), (way, error)
x = torch.randn(3, 48)
x[1, 5] = float("nan")
for way in WAYS[48]:
    out = norm_launched(x, None, None, None, [48, 1, 1], False, 1e-5, "relu", x.dtype, way, False)[0]
    assert out[1].isnan().all() and not out[[0, 2]].isnan().any()
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")
def test_the_kernels_in_tritons_interpreter() -> None:
    assert interpreted(INTERPRETED) == ""


def test_it_stands_in_a_candidates_file_that_runs_on_a_cpu(tmp_path: Path) -> None:
    module = loaded(tmp_path, text_of(Path("/w.py"), ("fuse_norms",), (2, 3)))
    module.fastest_norm = lambda place: WAY
    model = Called(lambda self, x, y: F.relu(KINDS["group"](self, x + y)), **parts()).eval()
    assert_no_worse(model, Passed(model, module.fuse_norms), *torch.randn(2, 3, 4, 6, 8))
