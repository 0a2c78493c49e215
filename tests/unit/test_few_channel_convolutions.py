"""Convolutions of few input channels as a kernel of their own, on the CPU: what is found, what is replaced, when it applies."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.model.capture import ProbeResult
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.passes.few_channel_convolutions import MOST_CHANNELS, MOST_SUMMED
from kernelwright.probe.rewrites import conv_places, separable_convolutions
from kernelwright.probe.rewrites import few_channel_convolutions as rewrite
from kernelwright.probe.rewrites.conv_places import traced_convolutions
from kernelwright.probe.rewrites.few_channel_convolutions import FewChannelConvolution, few_channel_places, few_channel_stage
from kernelwright.probe.rewrites.separable_convolutions import Convolutions, stage_of
from kernelwright.probe.rewrites.tracing import traced_call
from ncu_reports import DATA
from recorded_profiles import recorded_profile
from stand_in_graph import OnGpu
from triton_interpreter import interpreted

TILE = [8, 1, 64]


class Stem(nn.Module):
    """The layers that image networks begin with, and what looks like them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 12, 5, padding=2, bias=False), nn.BatchNorm2d(12), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.second = nn.Conv2d(12, 20, 3, stride=2, padding=(1, 0), dilation=(2, 1))
        self.third, self.overlapping = nn.Conv2d(20, 8, 3), nn.MaxPool2d(3, 2)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.alone = nn.Conv2d(8, 4, 3)
        nn.init.normal_(self.first[1].running_mean)
        nn.init.uniform_(self.first[1].running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu6(self.second(self.first(x))), (2, 2), stride=2)
        x = self.grouped(self.overlapping(F.relu(self.third(x))))
        return self.alone(x) + x.mean()


def stem() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Stem().eval(), torch.randn(2, 3, 130, 122)


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as the rewrite asks."""
    monkeypatch.setattr(rewrite, "triton", object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(conv_places, "computable", lambda _x, _weight: True)


def traced(model: nn.Module, x: torch.Tensor) -> tuple[torch.fx.GraphModule, dict[nn.Module, torch.Tensor]]:
    return traced_convolutions(model, (x,), {}, lambda module: few_channel_stage(module, "none") is not None)


@pytest.mark.usefixtures("on_a_gpu")
def test_what_follows_a_convolution_goes_with_it_as_far_as_nothing_else_uses_it() -> None:
    model, x = stem()
    graph, seen = traced(model, x)
    found = [(stage.conv.in_channels, stage.activation, stage.pool) for stage, _first, _last in few_channel_places(graph, seen)]
    assert found == [(3, "relu", 2), (12, "relu6", 2), (8, "none", 1)], "20 channels, and groups, are the library's"


@pytest.mark.usefixtures("on_a_gpu")
def test_what_is_replaced_gives_the_same_and_other_calls_go_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = stem()
    with torch.no_grad():
        expected, smaller = model(x), model(x[:1, :, :124])
    monkeypatch.setattr(conv_places, "seconds", lambda call: 1.0)
    monkeypatch.setattr(rewrite, "chosen_tile", lambda stage, _x, _library_s: TILE if stage.pool == 2 else None)
    twin = rewrite.few_channel_convolutions(model, (x,), {})
    assert sum(isinstance(module, FewChannelConvolution) for module in twin.modules()) == 2
    assert not any(isinstance(module, (nn.BatchNorm2d, nn.ReLU)) for module in twin.modules()), "folded, and taken over"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    asked: list[int] = []
    plain = rewrite.few_channels_in_torch
    monkeypatch.setattr(rewrite, "few_channels_in_torch", lambda *given: asked.append(1) or plain(*given))
    with torch.no_grad():
        torch.testing.assert_close(twin(x), expected)
        torch.testing.assert_close(twin(x[:1, :, :124].contiguous()), smaller)
        assert len(asked) == 4
        torch.testing.assert_close(torch.compile(twin, backend="aot_eager", fullgraph=True)(x), expected)
        torch.testing.assert_close(twin(x.contiguous(memory_format=torch.channels_last)), expected)
        double = copy.deepcopy(twin).double()
        torch.testing.assert_close(double(x.double()).float(), expected)
        assert len(asked) <= 8, "float64 and other layouts are the library's"
    twin(x).sum().backward()
    assert twin.alone.weight.grad is not None


def test_an_image_without_a_batch_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    conv, image = nn.Conv2d(3, 4, 1), torch.randn(3, 8, 8)
    taken = [conv_places.computable(x.as_subclass(OnGpu), conv.weight) for x in (image[None], image)]
    assert taken == [True, False]
    few, plain = few_channel_stage(conv, "relu", 2), stage_of(conv, "relu")
    for file, name in ((rewrite, "few_channels"), (separable_convolutions, "convolve")):
        monkeypatch.setattr(file, name, None)  # kernels count a batch in
    with torch.no_grad():
        for stage, module in ((few, FewChannelConvolution(few, TILE)), (plain, Convolutions([plain], [64, 64, 32, 4, 3, 0]))):
            assert torch.equal(module(image), stage.library(image))


@pytest.mark.usefixtures("on_a_gpu")
def test_it_goes_together_with_separable_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model that one has rewritten is traced again by the other, which takes its kernels as they are."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU6()).eval()
    x, stage = torch.randn(2, 3, 20, 20), stage_of(model[2], "relu6")
    assert stage is not None and not CATALOGUE["separable_convolutions"].conflicts & {"few_channel_convolutions"}
    both = nn.Sequential(model[0], model[1], Convolutions([stage], [64]))
    monkeypatch.setattr(conv_places, "seconds", lambda call: 1.0)
    monkeypatch.setattr(rewrite, "chosen_tile", lambda *_: TILE)
    twin = rewrite.few_channel_convolutions(both, (x,), {})
    with torch.no_grad():
        torch.testing.assert_close(twin(x), model(x))
        torch.testing.assert_close(traced_call(twin, (x,), {})(x), model(x))


@pytest.mark.parametrize(("pooling", "window"), [
    (nn.MaxPool2d(2), 2), (nn.MaxPool2d((3, 3), stride=3), 3), (nn.MaxPool2d(3, 2), 1), (nn.MaxPool2d((2, 1)), 1),
    (nn.MaxPool2d(2, padding=1), 1), (nn.MaxPool2d(2, dilation=2), 1), (nn.MaxPool2d(2, ceil_mode=True), 1), (nn.AvgPool2d(2), 1),
    (nn.MaxPool2d(1), 1), (lambda y: F.max_pool2d(y, 2), 2), (lambda y: F.max_pool2d(y, [3, 3], [3, 3]), 3),
    (lambda y: F.max_pool2d(y, 2, stride=None, padding=0), 2), (lambda y: F.max_pool2d(y, 2, 1), 1),
    (lambda y: F.max_pool2d(y, 2, ceil_mode=True), 1), (lambda y: F.max_pool2d(y, kernel_size=2) + y.mean(), 1),
    (lambda y: F.max_pool2d(y, 2, return_indices=True)[0], 1), (nn.MaxPool2d((2,)), 2), (lambda y: F.max_pool2d(y, (2,), [2]), 2),
    (nn.MaxPool2d(4), 1),
])
@pytest.mark.usefixtures("on_a_gpu")
def test_a_pooling_is_taken_over_where_its_windows_touch_and_do_not_overlap(pooling: Callable[..., torch.Tensor], window: int) -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            self.pooling = pooling if isinstance(pooling, nn.Module) else None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return pooling(torch.relu(self.conv(x))) if self.pooling is None else self.pooling(torch.relu(self.conv(x)))

    model, x = Pooled().eval(), torch.randn(2, 3, 15, 14)
    graph, seen = traced(model, x)
    stage = few_channel_places(graph, seen)[0][0]
    assert (stage.activation, stage.pool) == ("relu", window)
    module = FewChannelConvolution(stage, TILE)
    with torch.no_grad():
        torch.testing.assert_close(module(x), stage.library(x))


@pytest.mark.parametrize(("conv", "why"), [
    (nn.Conv2d(MOST_CHANNELS + 1, 8, 3), "many channels"), (nn.Conv2d(8, 8, 3, groups=2), "groups"),
    (nn.Conv2d(3, 8, 3, padding="same"), "padding in words"), (nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"), "not zeros"),
    (nn.ConvTranspose2d(3, 8, 3), "transposed"), (nn.Conv2d(16, 8, 17), "a sum of more than 4096"), (nn.Conv1d(3, 8, 3), "rows"),
    (nn.Conv2d(3, 8, (1, 33)), "33 columns unrolled")])
def test_other_convolutions_are_left_to_the_library(conv: nn.Module, why: str) -> None:
    assert few_channel_stage(conv, "none") is None, why
    assert few_channel_stage(nn.Conv2d(MOST_CHANNELS, 8, 3), "none") is not None


def test_tiles_give_every_multiprocessor_work() -> None:
    def tiles(channels: int, out: int, images: int, size: int, pool: int = 1) -> list[list[int]]:
        stage = few_channel_stage(nn.Conv2d(channels, out, 3, padding=1), "relu", pool)
        assert stage is not None
        return rewrite.few_channel_tiles(stage, torch.empty(images, channels, size, size, device="meta"))

    assert tiles(3, 64, 32, 224) == [[32, 1, 512], [16, 1, 256]]  # channels, images, places
    assert tiles(1, 6, 4096, 28, pool=2) == [[8, 2, 256], [8, 1, 256]], "196 places an image"
    assert tiles(3, 64, 1, 56) == [[16, 1, 128]], "few places: the smallest tile"
    assert tiles(6, 16, 8, 10, pool=2) == [[8, 4, 32]]


@pytest.mark.parametrize(("images", "channels", "columns", "out", "expected"), [
    (4096, 6, 196, 1, 3552), (256, 3, 224 * 224, 1, 16), (100, 3, 224 * 224, 1, 27), (100, 1, 2**18, 1, 15), (10, 1, 2**22, 1, 1),
    (12, 1, 100, 1, 12), (4096, 1, 1024, 64, 64), (4096, 1, 1024, 512, 8)])
def test_a_sample_is_as_many_images_as_let_one_compilation_do_for_both(
    images: int, channels: int, columns: int, out: int, expected: int,
) -> None:
    stage = few_channel_stage(nn.Conv2d(channels, out, 1), "none")
    assert stage is not None
    assert len(conv_places.sampled(torch.empty(images, channels, 1, columns, device="meta"), [stage])) == expected


def kept_tile(monkeypatch: pytest.MonkeyPatch, library_s: float = 1.0) -> list[int] | None:
    torch.manual_seed(0)
    stage = few_channel_stage(nn.Conv2d(3, 12, 3), "relu")
    assert stage is not None
    monkeypatch.setattr(rewrite, "few_channel_tiles", lambda *_: [[8, 1, 64], [16, 1, 64]])
    with torch.no_grad():
        return rewrite.chosen_tile(stage, torch.randn(2, 3, 9, 9), library_s)


def test_the_fastest_tile_is_taken_and_found_again_and_one_no_faster_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "one"))
    times = iter([0.5, 0.4])
    monkeypatch.setattr(rewrite, "seconds", lambda call: call() is not None and next(times))
    assert kept_tile(monkeypatch) == [16, 1, 64] and kept_tile(monkeypatch) == [16, 1, 64], "timed once"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "two"))
    times = iter([0.99, 0.98])
    assert kept_tile(monkeypatch) is None and kept_tile(monkeypatch) is None, "that nothing is faster is kept too"


def test_what_errs_more_than_the_library_is_refused_also_where_it_was_chosen_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(rewrite, "seconds", lambda call: 0.1)
    plain = rewrite.few_channels_in_torch
    assert kept_tile(monkeypatch) == [8, 1, 64]
    monkeypatch.setattr(rewrite, "few_channels_in_torch", lambda *given: plain(*given) * 1.001)
    assert kept_tile(monkeypatch) is None


@pytest.mark.parametrize("kept", ["[[\"kernel\", [8, 1, 48]]]", "[[\"kernel\", [8, 1]]]", "[[\"other\", [8, 1, 64]]]", "7"])
def test_a_choice_that_is_none_of_ours_is_measured_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: str) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(rewrite, "seconds", lambda call: 0.1)
    monkeypatch.setattr(rewrite, "few_channel_key", lambda *_: "key")
    rewrite.FEW_CHANNEL_CHOICES.file().write_text(f'{{"key": {kept}}}')
    assert kept_tile(monkeypatch) == [8, 1, 64]


def test_the_places_where_the_library_takes_longest_come_first_while_there_is_time(monkeypatch: pytest.MonkeyPatch, on_a_gpu: None) -> None:
    graph, seen = traced(*stem())
    clock, tried, times = [0.0], [], iter([1.0, 3.0, 2.0])
    monkeypatch.setattr(conv_places.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(conv_places, "seconds", lambda call: next(times))

    def chosen(_stage: object, _x: object, library_s: float) -> None:
        tried.append(library_s)
        clock[0] += 0.6 * conv_places.LIMIT_S

    monkeypatch.setattr(rewrite, "chosen_tile", chosen)
    assert rewrite.replace_few_channels(graph, seen) == 0 and tried == [3.0, 2.0]


class Named(nn.Module):
    """Its activation is an attribute of this name."""

    def __init__(self, relu: nn.Module) -> None:
        super().__init__()
        self.conv, self.relu = nn.Conv2d(3, 8, 3), relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.conv(x))


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda _module, _given, result: result + 1)
    return module


def with_forward(module: nn.Module) -> nn.Module:
    module.forward = lambda x: x + 1  # type: ignore[method-assign]
    return module


@pytest.mark.usefixtures("on_a_gpu")
@pytest.mark.parametrize("relu", [hooked(nn.LeakyReLU()), hooked(nn.ReLU()), with_forward(nn.ReLU()), nn.GELU()], ids=str)
def test_a_module_that_is_more_than_its_name_or_type_says_is_no_activation(relu: nn.Module) -> None:
    graph, seen = traced(Named(relu).eval(), torch.randn(2, 3, 9, 9))
    assert [stage.activation for stage, _first, _last in few_channel_places(graph, seen)] == ["none"]
    conv = with_forward(nn.Conv2d(3, 8, 3))
    assert few_channel_stage(conv, "none") is None


def test_a_kept_tile_that_no_longer_runs_is_measured_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(rewrite, "seconds", lambda call: 0.1)
    monkeypatch.setattr(rewrite, "triton", SimpleNamespace(errors=SimpleNamespace(TritonError=OSError)))
    assert kept_tile(monkeypatch) == [8, 1, 64]
    plain, failures = rewrite.few_channels_in_torch, [RuntimeError("out of resource: shared memory")]

    def once(*given: object) -> torch.Tensor:
        if failures:
            raise failures.pop()
        return plain(*given)

    monkeypatch.setattr(rewrite, "few_channels_in_torch", once)
    assert kept_tile(monkeypatch) == [8, 1, 64] and not failures


def test_without_a_gpu_it_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    model, x = stem()
    with pytest.raises(NotImplementedError, match="not applicable: needs Triton and a GPU"):
        rewrite.few_channel_convolutions(model, (x,), {})


def conv_context(tmp_path: Path) -> Context:
    result = ProbeResult.model_validate_json((DATA / "captures" / "h200" / "conv_block" / "result.json").read_bytes())
    assert result.facts is not None and result.environment is not None
    return Context(facts=result.facts, environment=result.environment, profile=recorded_profile("conv", tmp_path))


def test_what_it_promises_is_the_share_of_such_convolutions_and_of_what_stands_right_after_them(tmp_path: Path) -> None:
    """conv_block on an H200: the first of three convolutions has 3 channels; in two steps it, its bias, norm and ReLU took 9%."""
    context, item = conv_context(tmp_path), CATALOGUE["few_channel_convolutions"]
    said = item.prediction(context)
    assert item.refusal(context) is None and said.gain == pytest.approx((1.0, 1.083), abs=0.001)
    assert said.words == "convolutions of at most 16 input channels and what stands right after them hold 9% of the measured time"
    assert (rewrite.MOST_CHANNELS, rewrite.MOST_SUMMED) == (MOST_CHANNELS, MOST_SUMMED) == (16, 4096)
    profile = context.profile
    wide = [one.model_copy(update={"input_shapes": ((16, 32, 64, 64), (64, 32, 3, 3))}) if one.input_shapes[0][1:2] == (3,) else one
            for one in profile.operators]
    other = Context(facts=context.facts, environment=context.environment, profile=profile.model_copy(update={"operators": tuple(wide)}))
    assert item.refusal(other) == "the profile shows no convolutions of at most 16 input channels"
    for changes in ({"parents": ("aten::conv1d",)}, {"operator_name": "aten::cudnn_convolution_transpose"},
                    {"input_shapes": ((16, 3, 64, 64), (64, 3, 37, 37))}):
        strange = [one.model_copy(update=changes) if one.input_shapes[0][1:2] == (3,) else one for one in profile.operators]
        changed = profile.model_copy(update={"operators": tuple(strange)})
        other = Context(facts=context.facts, environment=context.environment, profile=changed)
        assert item.refusal(other) == "the profile shows no convolutions of at most 16 input channels", changes
    bare = [one.model_copy(update={"input_shapes": ()}) for one in profile.operators]
    unknown = Context(facts=context.facts, environment=context.environment, profile=profile.model_copy(update={"operators": tuple(bare)}))
    assert item.refusal(unknown) is None and item.prediction(unknown).gain is None, "without shapes nothing is promised"


INTERPRETED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from kernelwright.probe.rewrites.few_channel_convolutions import few_channels_in_torch, few_channels_launched
torch.manual_seed(0)
for channels, out, size, pool, geometry in ((3, 20, (13, 11), 1, [5, 3, 2, 2, 2, 1, 1, 1]), (6, 16, (14, 14), 2, [5, 5, 1, 1, 0, 0, 1, 1]),
                                            (1, 6, (12, 13), 3, [3, 3, 1, 1, 1, 1, 1, 2]), (2, 8, (9, 9), 1, [3, 3, 1, 2, 0, 1, 2, 1])):
    x = torch.randn(3, channels, *size)
    x[0, 0, 2, 2], x[1, 0, 3, 3] = float("nan"), float("inf")
    taps, bias = torch.randn(channels, *geometry[:2], out), torch.randn(out)
    wide = torch.nn.functional.pad(taps, (0, -out % 32)).contiguous()
    for tile in ([8, 1, 16], [16, 2, 32], [32, 4, 64]):
        for activation in ("none", "relu", "relu6"):
            given = (bias, geometry, activation, pool)
            torch.testing.assert_close(few_channels_launched(x, wide, *given, tile), few_channels_in_torch(x, taps, *given), equal_nan=True,
                                       rtol=2e-5, atol=2e-5)
    half = few_channels_launched(x.half(), wide.half(), bias.half(), geometry, "relu", pool, [8, 1, 16])
    torch.testing.assert_close(half, few_channels_in_torch(x.half(), taps.half(), bias.half(), geometry, "relu", pool), equal_nan=True,
                               rtol=5e-3, atol=5e-2)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")
def test_the_kernel_in_tritons_interpreter() -> None:
    assert interpreted(INTERPRETED) == ""
