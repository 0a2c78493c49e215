"""Products of parts on a GPU: right at odd shapes, no less exact than the library's float32, and how fast (printed: pytest -s)."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright.probe.rewrites import products
from kernelwright.probe.rewrites.products import MODES, Product, activate, errors, seconds, split_rows, tiles_for, with_products
from kernelwright.probe.rewrites.split_products import split_products

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COMPENSATED = ("fp16x3", "bf16x6", "bf16x9", "tf32x3")
TILES = ([], [64, 64, 64, 4, 3, 1, 0], [64, 64, 64, 4, 3, 3, 0], [128, 128, 64, 8, 3, 1, 0], [64, 64, 64, 4, 3, 1, 1],
         [128, 128, 32, 8, 3, 2, 1])


@pytest.fixture(autouse=True)
def full_float32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)
    yield
    torch.set_float32_matmul_precision(before)


def operands(rows: int, columns: int, depth: int):
    x, weight = torch.randn(rows, depth, device="cuda"), torch.randn(columns, depth, device="cuda")
    return x, weight / depth**0.5, torch.randn(columns, device="cuda")


def run(how: Product, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str = "none") -> torch.Tensor:
    return how(x, *how.prepare(weight), bias, activation)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("shape", [(33, 70, 100), (1, 5, 3), (256, 512, 512), (129, 257, 1031)], ids=str)
def test_errs_by_no_more_than_float32(mode: str, tile: list[int], shape: tuple[int, int, int]) -> None:
    if not tile and (mode == "tf32x3" or not hasattr(torch.ops.aten.mm, "dtype")):
        pytest.skip("no such product in the library")
    x, weight, bias = operands(*shape)
    if tile[6:] == [1] and mode != "fp16x3":
        pytest.skip("that kernel is for three products")
    tile = [*tile[:2], 32, *tile[3:]] if tile and mode == "tf32x3" else tile
    exact = F.linear(x.double(), weight.double(), bias.double())
    ours, library = errors(run(Product(mode, tile), x, weight, bias), exact), errors(F.linear(x, weight, bias), exact)
    # One accumulator over the whole depth is cut off towards zero at each step: the library's kernels, and ours without promotion.
    promoted = tile[6:] == [1]
    limit = 1e-3 if mode == "fp16x1" else max(1.2 * library[0], 2e-7 if promoted else 2e-6)
    assert ours[0] <= limit, (ours, library)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("shape", [(5, 3), (7, 64), (64, 1000), (3, 9000)])
def test_the_split_kernel_gives_the_same_bits_as_plain_torch(half: bool, shape: tuple[int, int]) -> None:
    x = torch.randn(shape, device="cuda") * torch.logspace(-6, 6, shape[0], device="cuda")[:, None]
    x[0, 1], x[1, 2] = float("inf"), 0.0
    x[2] = 0.0
    blocks, dtype = [0, 1, 2, 3], torch.float16 if half else torch.bfloat16
    parts, scale = torch.ops.tensor_core_products.split(x, blocks, half)
    expected, expected_scale = split_rows(x, blocks, dtype)
    assert torch.equal(parts.view(torch.int16), expected.view(torch.int16))
    assert not half or torch.equal(scale, expected_scale)


@pytest.mark.parametrize("mode", COMPENSATED)
@pytest.mark.parametrize("tile", [[], [64, 64, 32, 4, 3, 1, 0], [64, 64, 32, 4, 3, 1, 1], [64, 64, 32, 4, 3, 2, 1]],
                         ids=str)
def test_infinities_and_nan_stand_where_the_library_has_them(mode: str, tile: list[int]) -> None:
    if not tile and (mode == "tf32x3" or not hasattr(torch.ops.aten.mm, "dtype")):
        pytest.skip("no such product in the library")
    x, weight, bias = operands(40, 50, 64)
    if tile[6:] == [1] and mode != "fp16x3":
        pytest.skip("that kernel is for three products")
    x[1, 3], x[2, 4], x[3, 5], x[4] = float("inf"), float("nan"), -float("inf"), 0.0
    ours, library = run(Product(mode, tile), x, weight, bias), F.linear(x, weight, bias)
    assert torch.equal(ours.isnan(), library.isnan()) and torch.equal(ours[library.isinf()], library[library.isinf()])
    assert torch.isfinite(ours[library.isfinite()]).all()


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "tanh"])
@pytest.mark.parametrize("splits", [[1, 0], [2, 0], [1, 1], [2, 1]], ids=str)
def test_activations_of_the_epilogue(activation: str, splits: list[int]) -> None:
    x, weight, bias = operands(70, 90, 128)
    ours = run(Product("fp16x3", [64, 64, 64, 4, 3, *splits]), x, weight, bias, activation)
    exact = activate(F.linear(x.double(), weight.double(), bias.double()), activation)
    assert errors(ours, exact)[0] < 5e-7


@torch.no_grad()
def test_a_model_with_products_under_compile_and_in_a_cuda_graph() -> None:
    model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 512)).cuda().eval()
    x = torch.randn(256, 512, device="cuda")
    fast = with_products(model, (x,), {}, lambda _layer, _x: Product("fp16x3", [64, 64, 64, 4, 3, 2, 1]))
    exact = model.double()(x.double())
    model.float()
    library = errors(model(x), exact)[0]
    for name, call in (("eager", fast), ("compiled", torch.compile(fast)), ("graphs", torch.compile(fast, mode="reduce-overhead"))):
        found = [errors(call(x).clone(), exact)[0] for _ in range(3)]
        print(f"{name}: {max(found):.1e}, library {library:.1e}")
        assert max(found) <= 1.2 * library
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fast(x)
    x.mul_(0.5)
    graph.replay()
    assert errors(out, model.double()(x.double()))[0] <= 1.2 * library


def captured(call, x: torch.Tensor) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(x)
    return graph


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_model_and_input()


@torch.no_grad()
@pytest.mark.parametrize("name", ["embedding_projection", "mlp_activations", "gpt2"])
def test_examples_are_faster_and_as_exact(name: str) -> None:
    model, x = example(name)
    began = time.perf_counter()
    fast = split_products(model, (x,), {})
    print(f"\nchosen in {time.perf_counter() - began:.1f} s")
    layers = {path: (layer.how.mode, layer.how.tile) for path, layer in fast.named_modules() if isinstance(layer, products.ProductLinear)}
    print(f"\n{name}: {layers}")
    before, after = (seconds(captured(call, x).replay, 5) for call in (model, fast))  # launches left out: the products count here
    ours, theirs = fast(x), model(x)
    exact = model.double()(x if x.dtype == torch.int64 else x.double())
    found, limit = errors(ours, exact)[0], errors(theirs, exact)[0]
    print(f"{name}: {before * 1e6:.0f} us -> {after * 1e6:.0f} us ({before / after:.2f}x), error {found:.1e}, library {limit:.1e}")
    assert found <= 1.2 * limit and after < before


@pytest.mark.parametrize("shape", [(8192, 32000, 512), (4096, 4096, 4096), (8192, 2048, 512), (512, 3072, 768), (256, 2048, 2048),
                                   (256, 2048, 512), (512, 50257, 768)], ids=str)
def test_speed_table(shape: tuple[int, int, int]) -> None:
    x, weight, bias = operands(*shape)
    exact = F.linear(x[:256].double(), weight.double(), bias.double())
    library = seconds(lambda: F.linear(x, weight, bias))
    print(f"\n{shape}: library {library * 1e6:.1f} us, error {errors(F.linear(x, weight, bias)[:256], exact)[0]:.1e}")
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    best = 0.0
    for mode in ("fp16x3", "fp16x1"):
        tiles = tiles_for(*shape, processors, mode) + ([[]] if mode != "tf32x3" and hasattr(torch.ops.aten.mm, "dtype") else [])
        for tile in tiles:
            how = Product(mode, tile)
            w, scale = how.prepare(weight)
            try:
                error = errors(how(x, w, scale, bias)[:256], exact)[0]
                took = seconds(lambda how=how, w=w, scale=scale: how(x, w, scale, bias))
            except RuntimeError as problem:
                print(f"  {mode} {tile}: {type(problem).__name__}")
                continue
            best = max(best, library / took if mode != "fp16x1" else 0.0)
            print(f"  {mode} {tile or 'library'}: {took * 1e6:.1f} us, {library / took:.2f}x, error {error:.1e}")
    assert best > 0.0
