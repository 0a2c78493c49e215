"""Depthwise and 1x1 convolutions as kernels of their own, on the CPU: what is found, what is replaced, and the arithmetic."""

from __future__ import annotations

import importlib.util

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.probe.rewrites import separable_convolutions as rewrite
from kernelwright.probe.rewrites.batch_norms import fold_batch_norms
from kernelwright.probe.rewrites.separable_convolutions import Convolutions, chains_of, replace_chains, stage_of
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
    fold_batch_norms(twin)
    seen: dict[nn.Module, torch.Tensor] = {}
    watches = [module.register_forward_pre_hook(lambda module, given: seen.update({module: given[0].clone()}))
               for module in twin.modules() if type(module) is nn.Conv2d]
    with torch.no_grad():
        twin(x)
    for watch in watches:
        watch.remove()
    return twin, seen


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
    monkeypatch.setattr(rewrite, "replacements", lambda chain, x: [(0, len(chain), Convolutions([one[0] for one in chain], TILE))])
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
    monkeypatch.setattr(rewrite, "replacements", lambda chain, x: [(1, 2, Convolutions([chain[1][0]], TILE))])
    assert replace_chains(graph, seen) == 2
    with torch.no_grad():
        torch.testing.assert_close(graph(x), expected)
    assert sum(isinstance(module, Convolutions) for module in graph.children()) == 2


def test_each_for_itself_where_both_in_one_kernel_do_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = blocks()
    graph, seen = traced(model, x)
    chain = chains_of(graph, seen)[0]
    monkeypatch.setattr(rewrite, "seconds", lambda call: 10.0)
    times = {(True,): 3.0, (False,): 9.9, (True, False): 19.0}

    def best_of(stages, x, limit_s):  # type: ignore[no-untyped-def]
        taken_s = times[tuple(stage.depthwise for stage in stages)]
        return (taken_s, f"{len(stages)} stages") if taken_s < limit_s else None

    monkeypatch.setattr(rewrite, "best_of", best_of)
    assert rewrite.replacements(chain, x) == [(0, 2, "2 stages")], "19 s against the library's 20 s"
    times[(True, False)] = 19.9
    assert rewrite.replacements(chain, x) == [(0, 1, "1 stages")], "9.9 s is too close to 10 s"


def test_what_errs_more_than_the_library_is_refused_and_the_next_way_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32 where the library's own products are float32's; then three of them."""
    model, x = blocks()
    graph, seen = traced(model, x)
    chain = [one[0] for one in chains_of(graph, seen)[0]]
    plain, tried = rewrite.convolve_in_torch, []

    def rough(module, given):  # type: ignore[no-untyped-def]
        tried.append(module.tile)
        result = plain(given, module.first, module.first_bias, module.weight, module.weight_bias, module.geometry, *module.activations)
        return result * (1 + 1e-3 * module.tile[-1])

    monkeypatch.setattr(Convolutions, "forward", rough)
    monkeypatch.setattr(rewrite, "seconds", lambda call: 1.0)
    with torch.no_grad():
        found = rewrite.best_of(chain, x, 2.0)
    assert found is not None and found[1].tile[-1] == 0 and {tile[-1] for tile in tried} == {0, 1}


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
for channels, out, size, geometry in ((5, 20, (13, 11), [3, 3, 1, 1, 1, 1, 1, 1]), (40, 70, (9, 8), [5, 3, 2, 1, 2, 0, 1, 2]),
                                      (16, 16, (5, 6), [7, 1, 1, 1, 3, 0, 1, 1])):
    x = torch.randn(1, channels, *size) * 3
    x[0, 0, 2, 2] = float("nan")
    first, shift = torch.randn(channels, *geometry[:2]), torch.randn(channels)
    weight, bias = torch.randn(out, channels), torch.randn(out)
    plain = [1, 1, 1, 1, 0, 0, 1, 1]
    for given, tile in (((first, shift, None, None, geometry, "relu6", "none"), [32]),
                        ((None, None, weight, bias, plain, "none", "relu"), [16, 32, 16, 4, 2, 0]),
                        ((first, shift, weight, bias, geometry, "relu", "relu6"), [64, 16, 32, 4, 2, 0])):
        torch.testing.assert_close(launched(x, *given, tile), convolve_in_torch(x, *given), rtol=2e-5, atol=2e-5, equal_nan=True)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")
def test_the_kernels_in_tritons_interpreter() -> None:
    assert interpreted(INTERPRETED) == ""
