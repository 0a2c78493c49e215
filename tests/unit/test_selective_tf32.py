"""TF32 at chosen layers: which are asked, whose flags they run under, what they compute, and the file that is made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import optimizing
from float32_programs import PROGRAMS, in_a_fork, older
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.optimize.plan import compatible
from kernelwright.probe.rewrites import selective_tf32 as rewrite
from kernelwright.probe.rewrites.float32_flags import convolutions_are_tf32, float32_flags, products_are_narrow, set_float32_flags
from kernelwright.probe.rewrites.selective_tf32 import Tf32Convolution, Tf32Linear, selective_tf32, tf32_layer
from made_candidates import loaded, text_of

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head, self.lstm = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 4), nn.LSTM(4, 6, batch_first=True)
        self.twice = self.head

    def forward(self, x):
        flat = self.conv(x).relu().flatten(2).transpose(1, 2)
        return self.lstm(self.twice(flat))[0] + 0.0 * self.head.weight.sum()

def get_model_and_input():
    torch.manual_seed(0)
    return Net().eval(), torch.randn(2, 3, 4, 4)
"""


def given() -> tuple[nn.Module, torch.Tensor]:
    space: dict = {}
    exec(NET, space)
    return space["get_model_and_input"]()


def always(*_arguments: object) -> bool:
    return True


@pytest.fixture(autouse=True)
def all_off() -> Iterator[None]:
    before = float32_flags()
    older("highest", False)()
    yield
    set_float32_flags(before)


@torch.no_grad()
def test_linear_layers_and_convolutions_are_taken_and_share_their_weights() -> None:
    net, x = given()
    asked = []
    chosen = selective_tf32(net, (x,), {}, lambda layer, *_rest: not asked.append(type(layer)))
    assert asked == [nn.Conv2d, nn.Linear]
    assert type(chosen.conv) is Tf32Convolution and type(chosen.head) is Tf32Linear and chosen.head is chosen.twice
    assert type(chosen.lstm) is nn.LSTM and chosen.conv.weight is net.conv.weight and type(net.conv) is nn.Conv2d
    torch.testing.assert_close(chosen(x), net(x))
    net.head.weight.mul_(2.0)
    torch.testing.assert_close(chosen(x), net(x))
    only = selective_tf32(net, (x,), {}, lambda layer, *_rest: isinstance(layer, nn.Linear))
    assert type(only.conv) is nn.Conv2d and type(only.head) is Tf32Linear
    assert type(selective_tf32(nn.Linear(4, 4), (torch.ones(2, 4),), {}, always)) is Tf32Linear


@torch.no_grad()
def test_what_has_tf32_already_is_not_asked() -> None:
    net, x = given()
    for flags, kinds in ((("high", False), [nn.Conv2d]), (("highest", True), [nn.Linear]), (("high", True), [])):
        older(*flags)()
        asked: list[type] = []
        with pytest.raises(NotImplementedError, match="not applicable: no layer without TF32"):
            selective_tf32(net, (x,), {}, lambda layer, *_rest, asked=asked: bool(asked.append(type(layer))))
        assert asked == kinds
    with pytest.raises(NotImplementedError, match=r"only an nn\.Module"):
        selective_tf32(torch.relu, (x,), {}, always)


LAYERS: list[tuple[Callable[[], nn.Module], tuple[int, ...], dict]] = [
    (lambda: nn.Linear(5, 7), (5,), {}), (lambda: nn.Linear(5, 7, bias=False), (2, 3, 5), {}), (lambda: nn.Linear(5, 7), (0, 5), {}),
    (lambda: nn.Conv1d(4, 6, 3, padding="same", groups=2), (2, 4, 9), {}), (lambda: nn.Conv1d(4, 6, 4, padding="same"), (2, 4, 9), {}),
    (lambda: nn.Conv2d(4, 6, (3, 5), stride=2, padding=(1, 2), dilation=(2, 1)), (2, 4, 9, 11), {}),
    (lambda: nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode="reflect", bias=False), (2, 4, 9, 8), {}),
    (lambda: nn.Conv2d(4, 6, 3, padding="valid"), (4, 9, 8), {}), (lambda: nn.Conv2d(4, 6, 3, padding=(0, 1), padding_mode="circular"),
                                                                    (2, 4, 9, 8), {}),
    (lambda: nn.Conv3d(4, 6, 3, padding=(0, 1, 2)), (2, 4, 5, 6, 7), {}),
    (lambda: nn.ConvTranspose2d(4, 6, (3, 5), stride=2, padding=1, output_padding=1), (2, 4, 5, 6), {}),
    (lambda: nn.ConvTranspose1d(4, 6, 3, stride=3, padding=1, dilation=2), (2, 4, 5), {"output_size": [16]}),
    (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (4, 5, 6), {"output_size": (6, 12, 14)})]


@torch.no_grad()
@pytest.mark.parametrize("place", range(len(LAYERS)))
@pytest.mark.parametrize("operator", [False, True])
def test_a_layer_gives_what_it_gave(place: int, operator: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    make, shape, named = LAYERS[place]
    layer, x = make(), torch.randn(shape)
    monkeypatch.setattr(rewrite, "by_operator", lambda _x: operator)
    got, expected = tf32_layer(layer)(x, **named), layer(x, **named)
    assert got.shape == expected.shape and got.stride() == expected.stride()
    torch.testing.assert_close(got, expected)


@torch.no_grad()
def test_strides_are_told_to_compilers_as_they_are() -> None:
    net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 1)).eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, 4, 9, 8).contiguous(memory_format=torch.channels_last)
    convolution = tf32_layer(net[0])
    arguments = (x, convolution.weight, convolution.bias, *convolution.rest, convolution.output_padding, convolution.groups)
    torch.library.opcheck(torch.ops.selective_tf32.convolution.default, arguments, test_utils=("test_schema", "test_faketensor"))
    linear = nn.Linear(5, 7)
    torch.library.opcheck(torch.ops.selective_tf32.linear.default, (torch.randn(3, 5), linear.weight, linear.bias),
                          test_utils=("test_schema", "test_faketensor"))


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """(products, convolutions) in TF32 at each call of the library."""
    seen: list[tuple[bool, bool]] = []

    def now() -> None:
        flags = float32_flags()
        seen.append((products_are_narrow(flags), convolutions_are_tf32(flags)))

    linear = torch.nn.functional.linear
    monkeypatch.setattr(rewrite.F, "linear", lambda *arguments: (now(), linear(*arguments))[1])
    return seen


@torch.no_grad()
@pytest.mark.parametrize("program", [name for name, (_use, means) in PROGRAMS.items() if not means[0]])
def test_flags_are_on_in_the_call_alone_also_where_it_raises(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        older("highest", True)()
        PROGRAMS[program][0]()
        before, seen = float32_flags(), watched(monkeypatch)
        layer = Tf32Linear(nn.Linear(4, 4))
        layer(torch.ones(2, 4))
        assert seen == [(True, True)] and float32_flags() == before
        for way in (rewrite.tf32_linear_now, torch.ops.selective_tf32.linear):
            with pytest.raises(RuntimeError):
                way(torch.ones(2, 5), layer.weight, layer.bias)
            assert float32_flags() == before
        with pytest.raises(RuntimeError):
            tf32_layer(nn.Conv2d(3, 4, 3))(torch.ones(1, 5, 8, 8))
        assert float32_flags() == before

    in_a_fork(check)


@torch.no_grad()
def test_compilers_take_the_layers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding="same"), nn.ReLU(), nn.Flatten(2), nn.Linear(16, 4)).eval()
    x = torch.randn(2, 3, 4, 4)
    chosen, graphs = selective_tf32(net, (x,), {}, always), []
    torch._dynamo.reset()

    def backend(graph: torch.fx.GraphModule, _inputs: list) -> Callable:
        graphs.append({str(node.target) for node in graph.graph.nodes if node.op == "call_function"})
        return graph.forward

    before = float32_flags()
    torch.testing.assert_close(torch.compile(chosen, fullgraph=True, backend=backend)(x), net(x))
    assert len(graphs) == 1 and {name for name in graphs[0] if "selective_tf32" in name} == {
        "selective_tf32.linear", "selective_tf32.convolution"}
    torch._dynamo.reset()
    seen = watched(monkeypatch)
    compiled = torch.compile(chosen, fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(x), net(x))
    assert set(seen) <= {(True, True), (False, False)} and (True, True) in seen, "inside and in the original"
    assert torch.equal(compiled(torch.cat([x, x]))[:2], compiled(x)) and float32_flags() == before


@torch.no_grad()
@pytest.mark.parametrize("standalone", [False, True])
def test_the_file_made_of_it_runs(tmp_path: Path, standalone: bool) -> None:
    workload = tmp_path / "net_workload.py"
    workload.write_text(NET)
    module = loaded(tmp_path, text_of(workload, ("selective_tf32", "no_grad"), (2, 3, 4, 4), standalone=standalone))
    module.is_worth = always
    net, x = given()
    before, call = float32_flags(), module.optimize(net, x)
    torch.testing.assert_close(call(x), net(x))
    assert module.PRECISION == "tf32" and float32_flags() == before
    net.head = nn.Linear(8, 4)
    torch.testing.assert_close(call(x), net(x))


def on(device_flags: dict[str, object], *operators: str, device: str = "cuda", **changes: object):
    plain = optimizing.context(device, operators, **changes)
    return dataclasses.replace(plain, environment=plain.environment.model_copy(update=device_flags))


def test_it_applies_where_layers_have_no_tf32_yet() -> None:
    found, off = CATALOGUE["selective_tf32"], {"matmul_tf32": False, "cudnn_tf32": False, "compute_capability": "9.0"}
    assert found.refusal(on(off, "aten::addmm")) is None and found.refusal(on(off, "aten::cudnn_convolution")) is None
    none = "the profile shows no product or convolution without TF32"
    assert found.refusal(on(off, "aten::relu")) == none
    assert found.refusal(on({**off, "cudnn_tf32": True}, "aten::cudnn_convolution")) == none
    assert found.refusal(on({**off, "matmul_tf32": True}, "aten::addmm")) == none
    assert found.refusal(on({**off, "matmul_tf32": True, "cudnn_tf32": True}, "aten::addmm")) == "TF32 is already on"
    assert found.refusal(on({**off, "compute_capability": "7.5"}, "aten::addmm")) == "the device has no TF32"
    assert found.refusal(on({**off, "compute_capability": None}, "aten::addmm")) is None
    assert found.refusal(on(off, "aten::addmm", device="cpu")) == "needs a CUDA device"
    assert "training" in found.refusal(on(off, "aten::addmm", training=True))
    assert "not float32" in found.refusal(on(off, "aten::addmm", dtype="bfloat16"))
    assert "already compiled" in found.refusal(on(off, "aten::addmm", already_compiled=True, compiled_inside=True))


def test_it_stands_in_the_place_of_the_other_casts() -> None:
    for other in ("tf32", "bf16", "bf16_autocast", "bf16_reverted", "selective_bf16", "selective_fp16", "scaled_fp16", "split_products"):
        assert not compatible(["selective_tf32", other])
    assert compatible(["wide_outputs", "selective_tf32", "compile_max_autotune_no_cudagraphs", "cuda_graph"])
    found = CATALOGUE["selective_tf32"]
    assert found.precision == "tf32" and found.measures and not found.narrows_weights
    assert found.predict(on({"matmul_tf32": False}, "aten::addmm")).words.startswith("products and convolutions")
