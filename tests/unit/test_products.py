"""float32 products as sums of products of narrow parts, on the CPU: the arithmetic, what is replaced, and what is not."""

from __future__ import annotations

import copy
import importlib.util
import types
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from kernelwright.probe.rewrites import product_choice, products
from kernelwright.probe.rewrites.product_choice import COMPENSATED, PRODUCT_CHOICES, Chooser, errors, tiles_for
from kernelwright.probe.rewrites.product_layers import ProductLinear, with_products
from kernelwright.probe.rewrites.products import HI, HI_FINITE, LO, LOWEST, MODES, Launch, Product, product_of, split_rows
from kernelwright.probe.rewrites.split_products import split_products
from triton_interpreter import interpreted

SPLIT = ("fp16x3", "bf16x6", "bf16x9")


@pytest.mark.parametrize("mode", SPLIT)
@pytest.mark.parametrize("tile", [[], [64, 64, 64, 4, 3, 1, 0], [64, 64, 64, 4, 3, 1, 1]], ids=["library", "kernel", "together"])
@pytest.mark.parametrize("shape", [(33, 70, 100), (64, 64, 512), (1, 5, 3)], ids=str)
def test_compensated_products_err_like_float32(mode: str, tile: list[int], shape: tuple[int, int, int]) -> None:
    rows, columns, depth = shape
    torch.manual_seed(0)
    x, weight, bias = torch.randn(rows, depth) * torch.logspace(-8, 8, rows)[:, None], torch.randn(columns, depth), torch.randn(columns)
    exact = F.linear(x.double(), weight.double(), bias.double())
    how = Product(mode, tile)
    ours = how(x, *how.prepare(weight), bias)

    def of_rows(got: torch.Tensor) -> float:
        return float(((got.double() - exact).norm(dim=1) / exact.norm(dim=1)).max())

    assert of_rows(ours) < max(2e-7, 1.2 * of_rows(F.linear(x, weight, bias)))


def test_one_product_of_parts_errs_like_tf32_and_leaving_out_a_small_one_shows() -> None:
    x, weight = torch.randn(64, 256), torch.randn(48, 256)
    exact = x.double() @ weight.double().t()
    single = Product("fp16x1")
    assert 1e-4 < errors(single(x, *single.prepare(weight), None), exact)[0] < 5e-4
    how = Product("fp16x3", [64, 64, 64, 4, 3, 1])
    how.terms = how.terms[2:]
    assert errors(how(x, *how.prepare(weight), None), exact)[0] > 1e-4


def test_nine_products_leave_nothing_out_and_six_leave_out_what_can_be_as_much_as_a_rounding() -> None:
    torch.manual_seed(0)
    x, weight = 1.0 + torch.rand(64, 1), 1.0 + torch.rand(48, 1)
    x[0] = weight[0] = 1.0 + 2.0**-8 - 2.0**-17
    exact, lost = x.double() @ weight.double().t(), {}
    for mode in ("bf16x6", "bf16x9"):
        a, w = (split_rows(one, (HI, LO, LOWEST, HI_FINITE), torch.bfloat16)[0].double()[:, ::64] for one in (x, weight))
        found = sum(torch.outer(a[:, left], w[:, right]) for left, right in MODES[mode][1])
        lost[mode] = ((found - exact) / exact).abs().max()
    assert lost["bf16x9"] == 0.0 and 0.9 * 2.0**-24 < lost["bf16x6"] < 1.1 * 2.0**-24


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(width=32, allow_nan=False, min_value=-2.0**100, max_value=2.0**100), min_size=1, max_size=70))
def test_parts_add_up_to_the_row(values: list[float]) -> None:
    x = torch.tensor([values])
    for dtype, blocks, unit in ((torch.float16, (HI, LO), 2.0**-21), (torch.bfloat16, (HI, LO, LOWEST), 2.0**-23)):
        parts, scale = split_rows(x, blocks, dtype)
        assert parts.shape == (1, 64 * len(blocks) * -(-len(values) // 64))
        total = parts.double().view(len(blocks), -1).sum(0)[: len(values)] * (1.0 if scale is None else scale.double())
        # Elements far below the row's largest are rounded to 11 bits and then to float16's smallest step, 2**-38 of the largest at most
        # (half a step and half of an 11th bit of 2**10 steps: 0.75 steps). Below float32's normal range nothing is promised.
        room = x.double().abs() * unit + float(x.abs().max()) * 0.75 * 2.0**-38 + 2.0**-126
        assert bool(((total - x.double()).abs() <= room).all())


@pytest.mark.parametrize("mode", [*SPLIT, "fp16x3 together"])
def test_infinities_and_nan_stand_where_the_library_has_them(mode: str) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(6, 40), torch.randn(30, 40)
    x[1, 3], x[2, 4], x[3, 5], x[4] = float("inf"), float("nan"), -float("inf"), 0.0
    how = Product(mode.split()[0], [64, 64, 64, 4, 3, 1, int("together" in mode)])
    ours, library = how(x, *how.prepare(weight), None), F.linear(x, weight)
    assert torch.equal(ours.isnan(), library.isnan()) and torch.equal(ours[library.isinf()], library[library.isinf()])
    parts, _scale = split_rows(x, (HI_FINITE, LO), torch.float16)
    assert not parts[1:4].any() and bool(parts[0].any())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 16, bias=False)
        self.unused = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(F.gelu(self.first(x))))


def test_chosen_layers_are_replaced_in_a_copy_that_shares_the_weights() -> None:
    torch.manual_seed(0)
    net, x, seen = Net().eval(), torch.randn(4, 8, 32), {}

    def choose(layer: nn.Linear, given: torch.Tensor) -> Product | None:
        seen[layer.out_features] = tuple(given.shape)
        return Product("fp16x3") if layer.bias is not None else None

    fast = with_products(net, (x,), {}, choose)
    assert seen == {64: (4, 8, 32), 16: (4, 8, 64)}
    assert isinstance(fast.first, ProductLinear) and type(fast.second) is nn.Linear and type(net.first) is nn.Linear
    assert fast.first.weight is net.first.weight and fast.second.weight is net.second.weight
    exact = net.double()(x.double())
    net.float()
    with torch.no_grad():
        assert fast(x).shape == exact.shape and errors(fast(x), exact)[0] < 4e-7
        assert not torch.equal(fast.first(x), net.first(x)), "computed by the library"
    assert torch.equal(fast.first(x), net.first(x)) and fast.first(x).requires_grad, "gradients are the library's"
    assert set(fast.state_dict()) == set(net.state_dict())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fast.first(x).dtype == torch.bfloat16


def test_a_single_linear_layer_is_a_model_too_and_nothing_to_replace_is_said() -> None:
    linear, x = nn.Linear(8, 8), torch.randn(3, 8)
    assert isinstance(with_products(linear, (x,), {}, lambda _layer, _x: Product("fp16x3")), ProductLinear)
    with pytest.raises(NotImplementedError, match="no linear layer"):
        with_products(linear, (x,), {}, lambda _layer, _x: None)
    with pytest.raises(NotImplementedError, match=r"only an nn\.Module"):
        with_products(torch.relu, (x,), {}, lambda _layer, _x: None)


class Apart(nn.Module):
    """Layers of an nn.Sequential that is not called itself: what is between them is seen."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        between = self.layers[0](x)
        return between, self.layers[1](between)


@torch.no_grad()
def test_an_activation_that_follows_inside_a_sequence_becomes_part_of_the_product() -> None:
    torch.manual_seed(0)
    shared = nn.Linear(16, 16)
    layers = nn.Sequential(nn.Linear(16, 16), nn.GELU(approximate="tanh"), shared, nn.SiLU(), shared, nn.Tanh(), nn.Linear(16, 16),
                           nn.Dropout(), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(inplace=True)).eval()
    x = torch.randn(8, 16)

    def choose(_layer: nn.Module, _x: torch.Tensor) -> Product:
        return Product("fp16x3", [64, 64, 64, 4, 3, 1, 1])

    fast = with_products(layers, (x,), {}, choose)
    assert [layer.activation for layer in fast if isinstance(layer, ProductLinear)] == ["gelu_tanh", "none", "none", "none", "relu"]
    assert [type(fast[place]).__name__ for place in (1, 3, 5, 8, 10)] == ["Identity", "SiLU", "Tanh", "ReLU", "Identity"]
    assert errors(fast(x), layers(x).double())[0] < 1e-6 and not torch.equal(fast(x), layers(x))
    with torch.enable_grad():
        assert torch.equal(fast[0](x), layers[1](layers[0](x))) and fast[0](x).requires_grad
    apart = with_products(Apart(nn.Sequential(nn.Linear(16, 16), nn.ReLU())), (x,), {}, choose)
    assert apart.layers[0].activation == "none" and apart(x)[0].min() < 0.0
    watched = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    watched[1].register_forward_hook(lambda *_given: None)
    assert with_products(watched, (x,), {}, choose)[0].activation == "none"


def test_dynamo_traces_a_product_without_a_break_and_dispatches_the_same_numbers() -> None:
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(8, 32)
    fast = with_products(net, (x,), {}, lambda _layer, _x: Product("fp16x3", [64, 64, 64, 4, 3, 1]))
    with torch.no_grad():
        compiled = torch.compile(fast, backend="aot_eager", fullgraph=True)(x)
        assert torch.equal(compiled, fast(x))


@pytest.mark.parametrize("operator", ["linear", "opaque_linear"])
def test_the_operators_pass_torchs_own_checks(operator: str) -> None:
    how = Product("fp16x3", [64, 64, 64, 4, 3, 1])
    given = (torch.randn(2, 4, 32), *how.prepare(torch.randn(6, 32)), None, "gelu", how.name)
    found = getattr(torch.ops.tensor_core_products, operator)
    torch.library.opcheck(found.default, given)
    assert torch.equal(found(*given), how(*given[:5]))


def test_a_second_file_with_the_same_operators_can_be_loaded_beside() -> None:
    spec = importlib.util.spec_from_file_location("kernelwright.probe.rewrites.products_again", products.__file__)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    x, weight = torch.randn(4, 32), torch.randn(8, 32)
    for file in (products, again):
        how = file.Product("fp16x3")
        assert errors(how(x, *how.prepare(weight), None), x.double() @ weight.double().t())[0] < 4e-7


def test_refused_without_a_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(NotImplementedError, match="needs Triton and a GPU"):
        split_products(nn.Linear(8, 8), (torch.randn(2, 8),), {})


def test_at_tf32_the_norm_decides_and_one_large_error_is_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(32, 64), torch.randn(64, 32)
    exact, off = linear(x).detach(), 1e-3 * torch.randn(64, 64)
    monkeypatch.setattr(Chooser, "library", lambda self, layer, given: exact + (off if self.tf32 else 0.0))

    def is_exact(found: torch.Tensor, *, tf32: bool = True) -> bool:
        monkeypatch.setattr(Chooser, "ready", lambda _self, _layer, _how: lambda _x: found)
        return Chooser(("fp16x1",), tf32=tf32).as_exact(linear, x, Product("fp16x1", [64, 64, 64, 4, 3, 1, 1]))

    largest = off.abs().max()
    spiked = [off.flatten().clone() for _ in range(2)]
    for one, times in zip(spiked, (1.5, 2.5), strict=True):
        one[0] = times * largest
    assert is_exact(exact + off) and is_exact(exact + spiked[0].view_as(off)) and not is_exact(exact + spiked[1].view_as(off))
    assert not is_exact(exact + 1.2 * off) and not is_exact(exact + off, tf32=False) and not is_exact(exact * float("nan"))


def test_choices_are_kept_for_the_next_process_and_a_broken_file_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(product_choice, "LEAST_WORK", 1)
    linear, x, measured = nn.Linear(32, 8), torch.randn(64, 32), []

    def faster(self: Chooser, layer: nn.Linear, given: torch.Tensor) -> list[Product]:
        measured.append(self.key(layer, given))
        return [Product("fp16x3", [64, 64, 64, 4, 3, 1, 1])]

    monkeypatch.setattr(Chooser, "faster", faster)
    monkeypatch.setattr(Chooser, "as_exact", lambda *_arguments: True)
    for _process in range(2):
        how = Chooser(("fp16x3",))(linear, x)
        assert how is not None and (how.mode, how.tile) == ("fp16x3", [64, 64, 64, 4, 3, 1, 1])
    assert len(measured) == 1 and "64x8x32" in measured[0]
    Chooser(("fp16x1",), tf32=True)(linear, x)
    assert len(measured) == 2 and set(PRODUCT_CHOICES.kept()) == set(measured)
    for text in ("{", "[1]", '{"key": [["fp16x3", "x"]]}', '{"key": 3}'):
        PRODUCT_CHOICES.file().write_text(text)
        assert PRODUCT_CHOICES.kept() == {}
    assert [file.name for file in tmp_path.iterdir()] == ["tensor_core_products.json"]


TIMES = {"fp16x3": 5.0, "tf32x3": 7.0, "bf16x6": 8.0, "bf16x9": 9.0}


@pytest.mark.parametrize(("exact", "times", "chosen", "tried"), [
    ("", {}, "none", 1), ("fp16x3", {}, "fp16x3", 0), ("bf16x6", {}, "bf16x6", 0), ("bf16x9", {}, "bf16x9", 1),
    ("bf16x9", {"bf16x9": 9.9}, "none", 1), ("bf16x9", {"bf16x6": 9.9}, "none", 0),
], ids=["none is exact", "fp16x3", "bf16x6", "bf16x9", "nine too slow", "six too slow"])
def test_nine_products_are_timed_only_where_six_are_fast_and_not_exact(
    exact: str, times: dict[str, float], chosen: str, tried: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(product_choice, "LEAST_WORK", 1)
    monkeypatch.setattr(product_choice, "seconds", lambda _call: 10.0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: types.SimpleNamespace(multi_processor_count=132))
    timed: list[tuple[str, list[int]]] = []

    def time(_self: Chooser, _layer: nn.Linear, _x: torch.Tensor, how: Product) -> tuple[float, Product]:
        timed.append((how.mode, how.tile))
        return {**TIMES, **times}[how.mode] - 0.01 * (how.tile[:2] == [64, 64]), how

    monkeypatch.setattr(Chooser, "time", time)
    monkeypatch.setattr(Chooser, "as_exact", lambda _self, _layer, _x, how: how.mode == exact)
    how = Chooser(COMPENSATED)(nn.Linear(512, 64), torch.randn(64, 512))
    assert ("none" if how is None else how.mode) == chosen
    nine = [tile for mode, tile in timed if mode == "bf16x9"]
    assert len(nine) == tried and all(tile[:2] == [64, 64] for tile in nine), "with the tile that was fastest for six"


@pytest.mark.parametrize("shape", [(8192, 32000, 512), (256, 2048, 2048), (33, 70, 100), (512, 50257, 768)], ids=str)
def test_few_tiles_are_tried_and_they_fill_the_device(shape: tuple[int, int, int]) -> None:
    for mode in MODES:
        tiles = tiles_for(*shape, 132, mode)
        assert 1 <= len(tiles) <= 6
        for rows, columns, _depth, _warps, _stages, splits, _together in tiles:
            count = -(-shape[0] // rows) * -(-shape[1] // columns)
            assert splits == 1 or count * splits <= 132, "shares only fill what would idle"


def test_every_mode_sums_what_it_must() -> None:
    for mode, (_dtype, pairs) in MODES.items():
        assert pairs[-1] == (HI, HI), "infinities go through the last product alone"
        assert not any(left == HI for left, _right in pairs[:-1]), mode
        assert len(pairs) == (int(mode[-1]) if mode != "tf32x3" else 1)


def test_a_product_is_known_by_its_name_and_a_copy_has_no_compiled_kernels() -> None:
    for how in (Product("fp16x3", [64, 32, 64, 4, 3, 2, 1]), Product("bf16x6"), Product("tf32x3", [64, 64, 32, 4, 3, 1])):
        assert product_of(how.name).name == how.name and product_of(how.name).terms == how.terms
        how.kept[(1,)] = None
        assert copy.deepcopy(how).name == how.name and not copy.deepcopy(how).kept


class Kernel:
    """Stands in for a Triton kernel: notes which way each launch went. takes: the arguments its compiled form counts."""

    arg_names = ("x", "out", "size", "FLAG", "BLOCK")

    def __init__(self, takes: int) -> None:
        self.takes, self.went = takes, []

    def __getitem__(self, grid: tuple[int, ...]):
        def launch(*given, **flags):
            self.went.append(("plain", grid, given, flags))
            return {grid: self.direct}

        return launch

    def direct(self, *given) -> None:
        if len(given) != self.takes:
            raise TypeError("function takes exactly so many arguments")
        self.went.append(("direct", given))


@pytest.mark.parametrize(("version", "takes", "ways"), [
    ("3.6.0", 5, ["plain", "direct", "direct"]), ("3.2.0", 3, ["plain", "direct", "direct"]),
    ("3.9.0", 4, ["plain", "plain", "plain"]),
])
def test_a_kernel_is_launched_directly_from_the_second_time_on(
    version: str, takes: int, ways: list[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    triton = types.SimpleNamespace(__version__=version, JITFunction=types.SimpleNamespace(run=products.TRITONS_LAUNCH))
    monkeypatch.setattr(products, "triton", triton)
    kernel = Kernel(takes)
    launch = Launch(kernel, (7,), (9,), BLOCK=64, FLAG=True, num_warps=4)
    for call in range(3):
        launch(f"x{call}", "out")
    assert [way for way, *_rest in kernel.went] == ways
    assert kernel.went[0][1:] == ((7, 1, 1), ("x0", "out", 9), {"BLOCK": 64, "FLAG": True, "num_warps": 4})
    if ways[2] == "direct":
        assert kernel.went[2][1] == (("x2", "out", 9, True, 64) if takes == 5 else ("x2", "out", 9))
    else:
        assert kernel.went[2][2] == ("x2", "out", 9)
    triton.JITFunction.run = "a tool's own"
    launch("x3", "out")
    assert kernel.went[3][0] == "plain", "withheld or watched as any other launch"


INTERPRETED = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from kernelwright.probe.rewrites.product_choice import errors
from kernelwright.probe.rewrites.product_kernels import finish_kernel, product_kernel, split_kernel, three_products_kernel
from kernelwright.probe.rewrites.products import Product, Steps, split_rows
torch.manual_seed(0)
x, weight, bias = torch.randn(20, 70), torch.randn(33, 70), torch.randn(33)
how = Product("fp16x3", [16, 16, 32, 4, 3, 2])
parts, scale = torch.empty(20, 3 * 128, dtype=torch.float16), torch.empty(20)
split_kernel[(20,)](x, parts, scale, 70, 128, CODE=sum(b << 2 * i for i, b in enumerate(how.a_blocks)), BLOCKS=3, HALF=True, BLOCK=64)
assert torch.equal(parts, split_rows(x, how.a_blocks, torch.float16)[0])
w, columns = how.prepare(weight)
partial, out = torch.empty(2, 20, 33), torch.empty(20, 33)
a_code, w_code = (sum(c << 2 * i for i, c in enumerate(how.terms[s::2])) for s in (0, 1))
flags = dict(SCALED=True, BIASED=True, ACTIVATION=2)
product_kernel[(2 * 3, 2)](parts, w, partial, scale, columns, bias, 20, 33, 128, 384, 256, 2, A_CODE=a_code, W_CODE=w_code, TERMS=3,
                           MASKED=False, TF32X3=False, PROMOTED=True, PARTIAL=True, **flags, BM=16, BN=16, BK=32, GROUP=8)
finish_kernel[(1,)](partial, out, scale, columns, bias, 20, 33, 660, 2, **flags, BLOCK=1024)
exact = torch.nn.functional.gelu(torch.nn.functional.linear(x.double(), weight.double(), bias.double()))
assert errors(out, exact)[0] < 4e-7, errors(out, exact)
x[3, 5] = float("inf")
parts, scale = split_rows(x, (0, 1), torch.float16)
three_products_kernel[(2 * 3, 1)](parts, w, out, scale, columns, bias, 20, 33, 128, 256, 256, 1, PARTIAL=False, BIASED=True,
                                  ACTIVATION=0, BM=16, BN=16, BK=32, GROUP=8)
exact = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
rows = torch.arange(20) != 3
assert errors(out[rows], exact[rows])[0] < 4e-7 and torch.equal(out[3], exact[3].float()), errors(out[rows], exact[rows])
x[3, 5] = 0.5
for mode, splits, together in (("fp16x3", 1, 1), ("fp16x3", 2, 1), ("tf32x3", 1, 0)):
    how = Product(mode, [16, 16, 32, 4, 3, splits, together])
    for bound, activation in ((None, "none"), (bias, "silu")):
        given = (*how.prepare(weight), bound)
        steps = Steps(how, x, given[0], bound, activation)
        out, expected = steps(x, *given), how.in_torch(x, *given, activation)
        assert errors(out, expected.double())[0] < 4e-7, (how.name, activation)
        assert torch.equal(steps(x, *given), out)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")
def test_the_kernels_in_tritons_interpreter() -> None:
    assert interpreted(INTERPRETED) == ""
