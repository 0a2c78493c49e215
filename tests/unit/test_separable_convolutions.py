"""Depthwise and 1x1 convolutions as kernels of their own, on the CPU: what is found, what is replaced, and the arithmetic."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.probe.rewrites import conv_places
from kernelwright.probe.rewrites import separable_convolutions as rewrite
from kernelwright.probe.rewrites.batch_norms import fold_batch_norms
from kernelwright.probe.rewrites.separable_convolutions import Convolutions, chains_of, replace_chains, stage_of
from kernelwright.probe.rewrites.side_calls import on_the_side
from kernelwright.probe.rewrites.tracing import traced_call
from triton_interpreter import interpreted

TILE = [64, 64, 32, 4, 3, 0]


class Blocks(nn.Module):
    """Depthwise, norm, ReLU6, 1x1, norm; a residual; a strided depthwise one alone; a 1x1 one whose ReLU has company."""

    def __init__(self) -> None:
        super().__init__()
        self.separable = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True),
                                       nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.strided = nn.Conv2d(8, 8, 5, stride=2, padding=(2, 1), dilation=1, groups=8)
        self.plain, self.grouped = nn.Conv2d(8, 12, 1), nn.Conv2d(12, 12, 3, groups=3)
        self.circular = nn.Conv2d(12, 12, 3, padding=1, padding_mode="circular", groups=12)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.separable(x)
        y = self.plain(torch.relu(self.strided(x)))
        return self.circular(self.grouped(F.relu(y))) + y.mean()


def traced(model: nn.Module, x: torch.Tensor) -> tuple[torch.fx.GraphModule, dict[nn.Module, torch.Tensor]]:
    twin = traced_call(model, (x,), {})
    fold_batch_norms(twin, (x,), {})
    seen: dict[nn.Module, torch.Tensor] = {}
    watches = [module.register_forward_pre_hook(lambda module, given: seen.update({module: given[0].clone()}))
               for module in twin.modules() if type(module) is nn.Conv2d]
    with torch.no_grad():
        twin(x)
    for watch in watches:
        watch.remove()
    return twin, seen


def replace_all(monkeypatch: pytest.MonkeyPatch, replacements: Callable[..., object]) -> None:
    """As where the library takes longer."""
    monkeypatch.setattr(rewrite, "library_seconds", lambda chain, x: [1.0] * len(chain))
    monkeypatch.setattr(rewrite, "replacements", replacements)


def blocks() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Blocks().eval(), torch.randn(2, 8, 13, 11)


def test_a_depthwise_convolution_and_the_1x1_after_it_go_together_and_what_has_company_stays_apart() -> None:
    model, x = blocks()
    graph, seen = traced(model, x)
    found = [[(stage.depthwise, stage.activation, stage.conv.kernel_size) for stage, _, _ in chain] for chain in chains_of(graph, seen)]
    # The 1x1 convolution's result goes to a ReLU and to a mean: its activation is not taken in.
    assert found == [[(True, "relu6", (3, 3)), (False, "none", (1, 1))], [(True, "relu", (5, 5)), (False, "none", (1, 1))]]


def test_what_is_replaced_gives_the_same_and_what_is_not_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = blocks()
    graph, seen = traced(model, x)
    expected = model(x).detach()
    replace_all(monkeypatch, lambda chain, x, _library_s: [(0, len(chain), Convolutions([one[0] for one in chain], TILE))])
    assert replace_chains(graph, seen) == 2
    left = {type(module) for module in graph.children()}
    assert Convolutions in left and not any(isinstance(module, (nn.BatchNorm2d, nn.ReLU6)) for module in graph.modules())
    with torch.no_grad():
        torch.testing.assert_close(graph(x), expected)
        compiled = torch.compile(graph, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), expected)
        nhwc = x.contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(graph(nhwc), expected)
        torch.testing.assert_close(graph(x[:1, :, :9]), model(x[:1, :, :9]))
    graph(x).sum().backward()
    assert graph.grouped.weight.grad is not None, "with gradients the library does it"


def test_only_the_stage_that_pays_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = blocks()
    model.convolutions_0 = model.plain  # a name that the model has itself
    del model.plain
    model.plain = model.convolutions_0
    graph, seen = traced(model, x)
    expected = model(x).detach()
    replace_all(monkeypatch, lambda chain, x, _library_s: [(1, 2, Convolutions([chain[1][0]], TILE))])
    assert replace_chains(graph, seen) == 2
    with torch.no_grad():
        torch.testing.assert_close(graph(x), expected)
    assert sum(isinstance(module, Convolutions) for module in graph.children()) == 2


@pytest.mark.parametrize(("both_s", "first_s", "second_s", "expected"), [
    (19.0, 9.8, 9.9, [(0, 2, "2 stages")]),  # 19 s against the library's 20 s, and 19.8 s where only the first is fast enough alone
    (19.9, 3.0, 9.9, [(0, 1, "1 stages")]),  # too close to 20 s; 9.9 s to 10 s
    (15.0, 3.0, 9.9, [(0, 1, "1 stages")]),  # 13 s with the library's second stage
    (15.0, 8.0, 9.0, [(0, 2, "2 stages")]),
    (19.9, 9.9, 9.9, []),
])
def test_the_fastest_of_both_in_one_kernel_each_for_itself_and_the_library(
    monkeypatch: pytest.MonkeyPatch, both_s: float, first_s: float, second_s: float, expected: list[object],
) -> None:
    model, x = blocks()
    graph, seen = traced(model, x)
    chain = chains_of(graph, seen)[0]
    times = {(True,): first_s, (False,): second_s, (True, False): both_s}

    def best_of(stages, x, limit_s):  # type: ignore[no-untyped-def]
        taken_s = times[tuple(stage.depthwise for stage in stages)]
        return (taken_s, f"{len(stages)} stages") if taken_s < limit_s else None

    monkeypatch.setattr(rewrite, "best_of", best_of)
    with torch.no_grad():
        assert rewrite.fastest_replacements([one[0] for one in chain], x, [10.0, 10.0]) == expected


def test_the_next_process_takes_what_was_fastest_if_it_is_as_exact_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    model, x = blocks()
    graph, seen = traced(model, x)
    chain, timed = chains_of(graph, seen)[0], []

    def fastest(stages, _x, _library_s):  # type: ignore[no-untyped-def]
        timed.append(len(stages))
        return [(0, 1, Convolutions(stages[:1], [4, 13, 16, 4])), (1, 2, Convolutions(stages[1:], TILE))]

    monkeypatch.setattr(rewrite, "fastest_replacements", fastest)

    def chosen(x: torch.Tensor) -> list[tuple[int, int, list[int]]]:
        with torch.no_grad():
            return [(begin, end, module.tile) for begin, end, module in rewrite.replacements(chain, x, [1.0, 1.0])]

    assert chosen(x) == chosen(x) == [(0, 1, [4, 13, 16, 4]), (1, 2, TILE)] and timed == [2]
    assert chosen(x[:1]) == chosen(x) and timed == [2, 2], "other sizes are timed"
    plain = rewrite.convolve_in_torch
    monkeypatch.setattr(rewrite, "convolve_in_torch", lambda *given: plain(*given) * 1.001)
    assert chosen(x) and timed == [2, 2, 2], "not as exact on these numbers"
    monkeypatch.setattr(rewrite, "convolve_in_torch", plain)
    file = rewrite.CONVOLUTION_CHOICES.file()
    for strange in ('[["second", [4, 13, 16, 4]]]', '[["first", [64, 64, 32, 4, 3, 0]]]', '[["third", [64]]]', '[["first", [1, 2]]]'):
        key = rewrite.chain_key([one[0] for one in chain], x)
        file.write_text(f'{{"{key}": {strange}}}'.replace("'", ""))
        before = len(timed)
        assert chosen(x) and len(timed) == before + 1, strange


def written_after(self, x):  # type: ignore[no-untyped-def]
    y = self.plain(self.strided(x))
    y.mul_(2)
    return y


def written_between(self, x):  # type: ignore[no-untyped-def]
    x = x + 1
    y = self.strided(x)
    x.mul_(3)
    return self.plain(F.relu(y)).sum() + x


@pytest.mark.parametrize("forward", [written_after, written_between])
def test_what_is_written_in_place_stays_and_is_not_read_too_late(monkeypatch: pytest.MonkeyPatch, forward) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(Blocks, "forward", forward)
    model, x = blocks()
    with torch.no_grad():
        expected = model(x)
    graph, seen = traced(model, x)
    replace_all(monkeypatch, lambda chain, x, _library_s: [(0, len(chain), Convolutions([one[0] for one in chain], TILE))])
    assert replace_chains(graph, seen) == 1
    with torch.no_grad():
        torch.testing.assert_close(graph(x), expected)


def test_weights_are_the_layers_own_whatever_becomes_of_them() -> None:
    torch.manual_seed(0)
    convs = [nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.Conv2d(8, 12, 1)]
    module = Convolutions([stage for conv in convs if (stage := stage_of(conv, "relu")) is not None], TILE)
    x = torch.randn(2, 8, 5, 5)

    def library(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(convs[1](torch.relu(convs[0](x))))

    with torch.no_grad():
        convs[0].weight.mul_(2)
        torch.testing.assert_close(module(x), library(x))
        twin = copy.deepcopy(module).double()
        module.load_state_dict({name: value + 1 for name, value in module.state_dict().items()})
        torch.testing.assert_close(module(x), library(x))
        assert not torch.allclose(twin(x.double()).float(), library(x))
    with torch.inference_mode():
        torch.testing.assert_close(module(x.clone()), library(x))
    convs[0].weight.requires_grad_(False)
    assert module(x).requires_grad, "of the second layer's weights"


def test_the_places_where_the_library_takes_longest_come_first_while_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = blocks()
    graph, seen = traced(model, x)
    clock, tried = [0.0], []
    monkeypatch.setattr(conv_places.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(rewrite, "library_seconds", lambda chain, x: [float(chain[0][0].conv.kernel_size[0])])

    def replacements(chain, x, library_s):  # type: ignore[no-untyped-def]
        tried.append(library_s)
        clock[0] += conv_places.LIMIT_S + 1
        return []

    monkeypatch.setattr(rewrite, "replacements", replacements)
    assert replace_chains(graph, seen) == 0 and tried == [[5.0]], "of windows of 3 and of 5"


def test_what_errs_more_than_the_library_is_refused_and_the_next_way_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32 where the library's own products are float32's; then three of them."""
    model, x = blocks()
    graph, seen = traced(model, x)
    chain = [one[0] for one in chains_of(graph, seen)[0]]
    plain, tried = rewrite.convolve_in_torch, []

    def rough(module, given):  # type: ignore[no-untyped-def]
        tried.append(module.tile)
        result = plain(given, *module.weights(), module.geometry, *module.activations)
        return result * (1 + 1e-3 * module.tile[-1])

    monkeypatch.setattr(Convolutions, "forward", rough)
    monkeypatch.setattr(rewrite, "seconds", lambda call: 1.0)
    with torch.no_grad():
        found = rewrite.best_of(chain, x, 2.0)
    assert found is not None and found[1].tile[-1] == 0
    assert [tile[-1] for tile in tried[:2]] == [1, 0], "one tile shows what TF32 errs: no other is compiled"


@pytest.mark.parametrize(("conv", "why"), [
    (nn.Conv2d(4, 8, 3, groups=4), "two results a channel"), (nn.Conv2d(8, 8, 1, stride=2), "a 1x1 with a stride"),
    (nn.Conv2d(8, 8, 3, padding="same", groups=8), "padding in words"), (nn.Conv2d(8, 8, 9, groups=8), "a large window"),
    (nn.ConvTranspose2d(8, 8, 1), "transposed"), (nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect", groups=8), "not zeros")])
def test_other_convolutions_are_left_to_the_library(conv: nn.Module, why: str) -> None:
    assert stage_of(conv, "none") is None, why


def test_a_weight_with_an_infinity_is_left_to_the_library() -> None:
    """Beside a plane's edge the library multiplies it with nothing, a kernel with a zero."""
    conv = nn.Conv2d(8, 8, 3, groups=8)
    assert stage_of(conv, "none") is not None
    conv.weight.data[0, 0, 0, 0] = float("inf")
    assert stage_of(conv, "none") is None


def test_a_window_that_moves_by_one_is_read_row_by_row_and_any_other_place_by_place() -> None:
    def tiles(window: int, size: int, **options: int) -> list[list[int]]:
        stage = stage_of(nn.Conv2d(8, 8, window, groups=8, padding=window // 2, **options), "relu")
        assert stage is not None
        return rewrite.tiles_of([stage], torch.empty(1, 8, size, size, device="meta"), False)

    assert tiles(3, 56) == [[4, 14, 64, 4], [8, 14, 64, 4], [512]]  # planes, rows, columns, warps
    assert tiles(5, 7) == [[16, 7, 16, 4], [32, 7, 16, 4], [64]] and tiles(3, 300)[0] == [1, 14, 256, 4]
    for other in (tiles(3, 56, stride=2), tiles(3, 56, dilation=2), tiles(7, 56)):
        assert all(len(tile) == 1 for tile in other)


def separable(*between: nn.Module) -> nn.Module:
    """As KernelBench writes it: nobody calls eval()."""
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), *between, nn.Conv2d(8, 8, 1))


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the rewrite asks."""
    monkeypatch.setattr(rewrite, "triton", object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(conv_places, "computable", lambda _x, _weight: True)


@pytest.mark.usefixtures("on_a_gpu")
def test_a_model_in_training_mode_in_which_nothing_depends_on_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_all(monkeypatch, lambda chain, x, _s: [(0, len(chain), Convolutions([place[0] for place in chain], TILE))])
    for model in (separable(), separable(nn.Dropout(0.0)), separable(nn.BatchNorm2d(8).eval()), separable(nn.Dropout().eval())):
        x = torch.randn(1, 8, 5, 5)
        twin = rewrite.separable_convolutions(model, (x,), {})
        assert model.training and any(isinstance(module, Convolutions) for module in twin.modules())
        with torch.no_grad():
            torch.testing.assert_close(twin(x), model(x))


class Drops(nn.Module):
    """Draws for itself, as stochastic depth does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.1, self.training)


def leaf(module: nn.Module) -> nn.Module:
    """torch.fx does not look into it."""
    type(module).__module__ = "torch.nn.own"
    return module


class Averages(nn.Module):
    """Keeps a running mean without being a norm of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.lerp_(x.mean((0, 2, 3)), 0.1)
        return x - self.mean[:, None, None]


class Numpys(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(numpy.random.rand())


NARROW = nn.utils.parametrizations.spectral_norm(nn.Conv2d(8, 8, 1))


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize(("layer", "why"), [
    (nn.BatchNorm2d(8), "changes 1."), (nn.InstanceNorm2d(8, track_running_stats=True), "changes 1."),
    (nn.Dropout(0.1), "draws random numbers"), (nn.RReLU(), "draws random numbers"), (Drops(), "draws random numbers"),
    (leaf(Averages()), "changes 1.mean"), (leaf(Numpys()), "draws random numbers"), (NARROW, "changes 1.parametrizations.weight.0._u"),
], ids=lambda one: type(one).__name__ if isinstance(one, nn.Module) else "")
def test_a_model_that_depends_on_it_is_refused_and_stays_as_it_was(layer: nn.Module, why: str) -> None:
    model, x = separable(layer), torch.randn(1, 8, 5, 5)
    before, numbers, others = copy.deepcopy(model.state_dict()), torch.get_rng_state(), numpy.random.get_state()[1].copy()
    with pytest.raises(NotImplementedError, match=rf"not applicable: a call of the model.*{why}"):
        rewrite.separable_convolutions(model, (x,), {})
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), numbers) and (numpy.random.get_state()[1] == others).all()


@pytest.mark.usefixtures("on_a_gpu")
def test_numbers_drawn_in_eval_mode_are_drawn_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_all(monkeypatch, lambda chain, x, _s: [(0, len(chain), Convolutions([place[0] for place in chain], TILE))])
    model, x, numbers = separable(Drops()).train().eval(), torch.randn(1, 8, 5, 5), torch.get_rng_state()
    model[1].forward = lambda y: F.dropout(y, 0.1, True)
    twin = rewrite.separable_convolutions(model, (x,), {})
    assert torch.equal(torch.get_rng_state(), numbers)
    with torch.no_grad():
        one, two = (torch.manual_seed(3) and net(x) for net in (twin, model))
        torch.testing.assert_close(one, two)


class Holds(nn.Module):
    def __init__(self, held: torch.Tensor | None, step: object = None) -> None:
        super().__init__()
        self.register_buffer("held", held)
        self.step = step

    def forward(self) -> None:
        if self.step is not None:
            self.step(self)


@pytest.mark.parametrize("held", [
    torch.arange(16.0)[::2], torch.ones(4, 4)[:, 0], torch.ones(1, 1).expand(3, 4), torch.zeros(()), torch.zeros(0, 3), None,
    torch.randn(3, dtype=torch.complex64).conj(), torch.tensor([float("nan")]), torch.tensor([True]), torch.randn(3, 4).t()])
def test_a_buffer_of_any_shape_that_stays_as_it_is_hinders_nothing(held: torch.Tensor | None) -> None:
    with on_the_side(Holds(held)) as nothing:
        assert nothing is None


def assigned(module: Holds) -> None:
    module.held = module.held + 1


@pytest.mark.parametrize("step", [assigned, lambda module: module.held.add_(1), lambda module: setattr(module, "held", None),
                                  lambda module: module.held.resize_(7), lambda module: setattr(module, "held", module.held.double())])
@pytest.mark.parametrize("training", [True, False])
def test_a_buffer_that_a_call_changes_is_as_it_was_afterwards(step: object, training: bool) -> None:
    module, held = Holds(torch.arange(3.0), step).train(training), None
    held = module.held
    with pytest.raises(NotImplementedError, match="changes held") if training else contextlib.nullcontext(), on_the_side(module):
        module()
    assert module.held is held and torch.equal(held, torch.arange(3.0))
    with pytest.raises(ZeroDivisionError), on_the_side(module):
        module()
        raise ZeroDivisionError
    assert module.held is held and torch.equal(held, torch.arange(3.0)), "also after a failure, which is told as it is"


@pytest.mark.parametrize("held", [torch.eye(2).to_sparse(), torch.ones(2, device="meta"), nn.parameter.UninitializedBuffer()],
                         ids=["sparse", "meta", "lazy"])
def test_a_buffer_that_can_not_be_put_back_is_refused(held: torch.Tensor) -> None:
    with pytest.raises(NotImplementedError, match="not applicable: the model has a buffer"), on_the_side(Holds(held)):
        pass


def test_without_a_gpu_it_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    model, x = blocks()
    with pytest.raises(NotImplementedError, match="not applicable: needs Triton and a GPU"):
        rewrite.separable_convolutions(model, (x,), {})


INTERPRETED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from kernelwright.probe.rewrites.separable_convolutions import convolve_in_torch, launched
torch.manual_seed(0)
for channels, out, size, geometry in ((5, 20, (6, 5), [3, 3, 1, 1, 1, 1, 1, 1]), (20, 24, (7, 6), [5, 3, 2, 1, 2, 0, 1, 2]),
                                      (16, 16, (5, 6), [7, 1, 1, 1, 3, 0, 1, 1])):
    x = torch.randn(1, channels, *size) * 3
    x[0, 0, 2, 2] = float("nan")
    first, shift = torch.randn(channels, 1, *geometry[:2]), torch.randn(channels)
    weight, bias = torch.randn(out, channels, 1, 1), torch.randn(out)
    plain = [1, 1, 1, 1, 0, 0, 1, 1]
    ways = [[32], [4, 3, 16, 4], [8, 2, 4, 4]] if geometry[2:4] + geometry[6:] == [1, 1, 1, 1] else [[32]]
    for given, tile in (*(((first, shift, None, None, geometry, "relu6", "none"), way) for way in ways),
                        ((None, None, weight, bias, plain, "none", "relu"), [16, 16, 16, 4, 2, 0]),
                        ((first, shift, weight, bias, geometry, "relu", "relu6"), [32, 16, 16, 4, 2, 0])):
        torch.testing.assert_close(launched(x, *given, tile), convolve_in_torch(x, *given), rtol=2e-5, atol=2e-5, equal_nan=True)
        if len(tile) == 6 and channels == 20:  # operands to the nearest of TF32's 11 bits: twice as exact as the tensor cores' own cut
            x[0, 0, 2, 2] = float("inf")
            given = (*given[:-1], "none")
            narrow = launched(x, *given, [*tile[:-1], 1])
            exact = convolve_in_torch(x.double(), *(part.double() if isinstance(part, torch.Tensor) else part for part in given))
            assert torch.equal(narrow.isinf(), exact.isinf()) and torch.equal(narrow.isnan(), exact.isnan())
            finite = exact.isfinite()
            error = float((narrow - exact)[finite].norm() / exact[finite].norm())
            assert 5e-5 < error < 5e-4, error  # cut off they err by 7e-4
            given = [part.half() if isinstance(part, torch.Tensor) else part for part in given]
            x[0, 0, 2, 2] = 0.0
            found = launched(x.half(), *given, [*tile[:-1], 1])  # cast after its tile was chosen
            torch.testing.assert_close(found, convolve_in_torch(x.half(), *given), rtol=5e-3, atol=5e-2)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")
def test_the_kernels_in_tritons_interpreter() -> None:
    assert interpreted(INTERPRETED) == ""


COMPILED = """
import re, subprocess, sys
sys.path.insert(0, sys.argv[1])
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kernelwright.probe.rewrites import conv_kernels
from kernelwright.probe.rewrites.separable_convolutions import Stage, tiles_of
kernel, pointers = conv_kernels.pointwise_kernel, 6
convs = [torch.nn.Conv2d(128, 128, 3, padding=1, groups=128), torch.nn.Conv2d(128, 256, 1)]
for bm, bn, bk, warps, stages, tf32 in tiles_of([Stage(conv, "relu") for conv in convs], torch.empty(1, 128, 56, 56, device="meta"), True):
    numbers = dict(zip(kernel.arg_names[pointers:], (128, 256, 56, 56, 3136, 56, 3136, 1, 1, 1, 1, 1, 1)))
    known = {"KH": 3, "KW": 3, "FIRST": 1, "ACTIVATION": 1, "TF32": bool(tf32), "BM": bm, "BN": bn, "BK": bk}
    known.update({name: 1 for name, number in numbers.items() if number == 1})
    types = {name: "constexpr" if name in known else "i32" if name in numbers else "*fp32" for name in kernel.arg_names}
    even = [place for place, name in enumerate(kernel.arg_names) if types[name] == "*fp32" or numbers.get(name, 1) % 16 == 0]
    source = ASTSource(kernel, types, constexprs={(kernel.arg_names.index(name),): value for name, value in known.items()},
                       attrs={(place,): [["tt.divisibility", 16]] for place in even})
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "num_stages": stages}).asm["ptx"]
    assert "wgmma.mma_async" in ptx, "tensor cores"
    program = f"{triton.__path__[0]}/backends/nvidia/bin/ptxas"
    said = subprocess.run([program, "-v", "-arch=sm_90a", "-o", "/dev/null", "-"], input=ptx, capture_output=True, text=True).stderr
    assert re.findall(r"(\\d+) bytes spill stores", said) == ["0"], (bm, bn, said)
"""


def tritons_version() -> tuple[int, ...]:
    found = metadata.version("triton") if importlib.util.find_spec("triton") is not None else "0.0"
    return tuple(int(part) for part in found.split(".")[:2])


@pytest.mark.skipif(tritons_version() < (3, 6), reason="no Triton whose compiler takes these arguments")
def test_the_tiles_of_the_fused_kernel_fit_into_the_registers_of_an_h200(tmp_path: Path) -> None:
    source = str(Path(rewrite.__file__).parents[3])
    done = subprocess.run([sys.executable, "-c", COMPILED, source], capture_output=True, text=True,
                          env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("tile", "dtype", "is_exact"), [
    (TILE, torch.float32, False), ([*TILE[:-1], 1], torch.float32, True), (TILE, torch.bfloat16, True), ([256], torch.float32, True),
])
def test_what_makes_up_for_narrow_products_may_err_no_more_than_the_library(monkeypatch, tile, dtype, is_exact) -> None:
    """Others by some per cent, which is chance."""
    conv = nn.Conv2d(8, 8, 3, groups=8, dtype=dtype) if len(tile) == 1 else nn.Conv2d(8, 12, 1, dtype=dtype)
    stage, x = conv_places.Stage(conv, "none"), torch.randn(2, 8, 5, 5, dtype=dtype)
    found = iter([(1.0, 1.0), (1.05, 1.0), (1.0, 1.0), (1.2, 1.0)])
    monkeypatch.setattr(conv_places, "errors", lambda _got, _exact: next(found))
    as_exact = conv_places.exactness([stage], x)
    with torch.no_grad():
        module = Convolutions([stage], tile)
        assert as_exact(module) is is_exact and as_exact(module) and not as_exact(module)
