"""bfloat16 models with float32 islands: which layers are timed, what stays float32, and the file that is made of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

import optimizing
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.optimize.plan import compatible
from kernelwright.probe.rewrites.bf16 import bf16
from kernelwright.probe.rewrites.bf16_reverted import Float32Island, bf16_reverted, is_padded
from kernelwright.probe.rewrites.casts import whole_is_faster
from kernelwright.probe.rewrites.wide_outputs import WideLinear, wide_outputs
from made_candidates import loaded, text_of

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.hidden, self.head = nn.Linear(16, 16), nn.Linear(16, 5)
        self.again = self.head

    def forward(self, x):
        x = self.norm(self.conv(self.stem(x).relu())).relu().mean((2, 3))
        return {"classes": self.head(self.hidden(x)), "again": self.again(x), "places": x.argmax(1)}

def get_model_and_input():
    torch.manual_seed(0)
    return Net().eval(), torch.randn(2, 3, 8, 8)
"""


def given() -> tuple[nn.Module, torch.Tensor]:
    space: dict = {}
    exec(NET, space)
    return space["get_model_and_input"]()


def always(*_arguments: object) -> bool:
    return True


@torch.no_grad()
def test_layers_of_odd_sizes_are_asked_and_those_that_hurt_stay_float32() -> None:
    net, x = given()
    asked = []
    mixed = bf16_reverted(net, (x,), {}, faster=lambda layer, *_rest: not asked.append(layer) and isinstance(layer, nn.Conv2d))
    assert [type(layer) for layer in asked] == [nn.Conv2d, nn.Linear] and {layer.weight.dtype for layer in asked} == {torch.bfloat16}
    inner = mixed.inner
    assert type(inner.stem) is Float32Island and inner.stem.inner.weight is net.stem.weight and inner.stem.weight.dtype == torch.bfloat16
    assert {type(layer) for layer in (inner.conv, inner.hidden, inner.head)} == {nn.Conv2d, nn.Linear}
    assert inner.conv.weight.dtype == inner.norm.running_mean.dtype == torch.bfloat16
    assert type(net.stem) is nn.Conv2d and net.stem.weight.dtype == torch.float32
    exact, ours = net(x), mixed(x)
    errors = [(stem(x.bfloat16()).float() - net.stem(x)).norm() for stem in (inner.stem, bf16(net, (x,), {}).inner.stem)]
    assert errors[0] < errors[1], "the island's weights are not rounded"
    assert ours["classes"].dtype == torch.float32 and ours["places"].dtype == torch.int64
    for name in ("classes", "again"):
        assert 0 < float((ours[name] - exact[name]).norm() / exact[name].norm()) < 3e-2
    seen = []
    inner.stem.register_forward_hook(lambda _layer, _given, out: seen.append(out.dtype))
    mixed(x)
    assert seen == [torch.bfloat16]


@torch.no_grad()
def test_one_layer_under_two_names_is_one_island_and_edges_can_be_left_to_the_caller() -> None:
    net, x = given()
    bare = bf16_reverted(net, (x,), {}, edges=False, faster=always)
    assert type(bare.head) is Float32Island and bare.head is bare.again
    out = bare(x.bfloat16())
    assert out["classes"].dtype == torch.bfloat16
    assert torch.equal(out["classes"].float(), bf16_reverted(net, (x,), {}, faster=always)(x)["classes"])
    assert isinstance(bf16_reverted(nn.Linear(3, 8), (torch.ones(2, 3),), {}, edges=False, faster=always), Float32Island)


@torch.no_grad()
def test_nothing_to_revert_is_not_applicable_and_nothing_is_timed_at_even_sizes() -> None:
    net, x = given()
    with pytest.raises(NotImplementedError, match="not applicable: no layer is faster in float32"):
        bf16_reverted(net, (x,), {}, faster=lambda *_arguments: False)
    even = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8))
    with pytest.raises(NotImplementedError, match="not applicable: no layer"):
        bf16_reverted(even, (torch.ones(2, 16),), {}, faster=lambda *_arguments: pytest.fail("timed"))
    with pytest.raises(NotImplementedError, match=r"only an nn\.Module"):
        bf16_reverted(torch.relu, (x,), {}, faster=always)


@pytest.mark.parametrize(("layer", "padded"), [
    (nn.Linear(16, 8), False), (nn.Linear(15, 8), True), (nn.Linear(16, 10), True), (nn.Conv2d(16, 32, 3), False),
    (nn.Conv2d(3, 64, 7), True), (nn.Conv2d(16, 16, 3, groups=16), True), (nn.Conv1d(16, 16, 3, groups=2), False),
    (nn.ConvTranspose2d(16, 8, 3), False), (nn.ConvTranspose2d(16, 3, 3), True)])
def test_sizes_that_are_no_multiple_of_8_are_suspect(layer: nn.Module, padded: bool) -> None:
    assert is_padded(layer) is padded


@torch.no_grad()
def test_the_casts_count(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = nn.Linear(3, 8), torch.randn(64, 3).bfloat16()
    narrow = nn.Linear(3, 8).bfloat16()
    island = Float32Island(layer, narrow)
    assert whole_is_faster(narrow, island, (x,), {}) in (True, False)
    monkeypatch.setattr(island, "forward", lambda x: torch.stack([x.float()] * 5000).mean(0))
    assert whole_is_faster(narrow, island, (x,), {}) is False and whole_is_faster(island, narrow, (x,), {}) is True


@torch.no_grad()
def test_under_torch_compile_and_behind_wide_outputs() -> None:
    net, x = given()
    both = bf16_reverted(wide_outputs(net, (x,), {}, always), (x,), {}, faster=always)
    assert type(both.inner.again) is WideLinear and type(both.inner.stem) is Float32Island
    torch._dynamo.reset()
    got, expected = torch.compile(both, fullgraph=True, backend="aot_eager")(x), both(x)
    torch.testing.assert_close(got["classes"], expected["classes"], rtol=1e-2, atol=1e-2)


@torch.no_grad()
@pytest.mark.parametrize("standalone", [False, True])
def test_the_file_made_of_it_runs(tmp_path: Path, standalone: bool) -> None:
    workload = tmp_path / "net_workload.py"
    workload.write_text(NET)
    passes, shape = ("bf16_reverted", "no_grad"), (2, 3, 8, 8)
    module = loaded(tmp_path, text_of(workload, passes, shape, standalone=standalone))
    module.is_worth = always
    net, x = given()
    got = module.optimize(net, x)(x)
    assert torch.equal(got["classes"], bf16_reverted(net, (x,), {}, faster=always)(x)["classes"])
    graphed = text_of(workload, (*passes, "cuda_graph"), shape, device="cuda")
    assert "bf16_reverted(fast, args, kwargs, edges=False), map_tensors(narrowed, (args, kwargs))" in graphed and "result=apart)" in graphed


def at(shapes: tuple[tuple[int, ...], ...], *names: str, share: float = 1.0, device: str = "cuda", **changes: object):
    """A context whose operators have these input shapes; share: of the measured time, that they take."""
    plain = optimizing.context(device, names, **changes)
    operators = tuple(item.model_copy(update={"input_shapes": shapes}) for item in plain.profile.operators)
    timeline = plain.profile.timeline
    if timeline is not None:
        took = sum(item.aggregated.total_duration_ns for item in operators)
        timeline = timeline.model_copy(update={"measured_ns": int(took / share)})
    return dataclasses.replace(plain, profile=plain.profile.model_copy(update={"operators": operators, "timeline": timeline}))


STEM = ((32, 3, 224, 224), (64, 3, 7, 7), (64,))


def test_it_applies_where_the_profile_shows_a_size_that_is_padded() -> None:
    found = CATALOGUE["bf16_reverted"]
    none = "the profile shows no product or convolution of sizes that bfloat16 kernels pad"
    assert found.refusal(at(STEM, "aten::cudnn_convolution")) is None
    assert found.refusal(at(((32, 64, 56, 56), (64, 1, 3, 3)), "aten::_conv_depthwise2d")) is None
    assert found.refusal(at(((32, 64, 56, 56), (64, 64, 3, 3), (64,)), "aten::cudnn_convolution")) == none
    for rows in (64, 63):  # rows don't count
        assert found.refusal(at(((512,), (rows, 128), (128, 512)), "aten::addmm")) == none
        assert found.refusal(at(((1003,), (rows, 128), (128, 1003)), "aten::addmm")) is None
        assert found.refusal(at(((rows, 127), (512, 127), (512,)), "aten::linear")) is None
    assert found.refusal(at(((8, 63, 63), (8, 63, 63)), "aten::bmm")) == none, "attention is no layer"
    assert found.refusal(at((), "aten::addmm")) == none, "no shape shown"
    assert found.refusal(at(STEM, "aten::cudnn_convolution", device="cpu")) == "needs a CUDA device"
    assert "training" in found.refusal(at(STEM, "aten::cudnn_convolution", training=True))
    assert "not float32" in found.refusal(at(STEM, "aten::cudnn_convolution", dtype="bfloat16"))
    assert "already compiled" in found.refusal(at(STEM, "aten::cudnn_convolution", already_compiled=True, compiled_inside=True))


def test_it_stands_in_the_place_of_the_other_casts_and_predicts_no_more_than_bf16() -> None:
    found = CATALOGUE["bf16_reverted"]
    given_ = at(STEM, "aten::cudnn_convolution")
    assert found.measures and found.casts_edges and not CATALOGUE["bf16"].measures
    assert found.predict(given_).gain == CATALOGUE["bf16"].predict(given_).gain and "layers of sizes" in found.predict(given_).words
    for other in ("bf16", "bf16_autocast", "tf32", "selective_bf16", "selective_fp16", "selective_tf32", "scaled_fp16", "split_products"):
        assert not compatible(["bf16_reverted", other])
    assert compatible(["wide_outputs", "bf16_reverted", "compile_default", "cuda_graph"])
