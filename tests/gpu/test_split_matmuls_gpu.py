"""Products outside linear layers on a GPU: right in every mode and stride, no less exact than the library's float32, and how fast (printed:
pytest -s)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernelwright.probe.rewrites.graphs import GraphBackend
from kernelwright.probe.rewrites.measuring import errors, seconds
from kernelwright.probe.rewrites.product_choice import COMPENSATED
from kernelwright.probe.rewrites.products import Product
from kernelwright.probe.rewrites.split_matmuls import MatmulChooser, MatmulPlace, matmul_now, split_matmuls

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu
TILES = ([], [64, 64, 64, 4, 3, 1, 0], [64, 64, 64, 4, 3, 3, 0], [64, 64, 64, 4, 3, 1, 1], [128, 128, 32, 8, 3, 2, 1])
MODES = ("fp16x3", "bf16x6", "bf16x9", "tf32x3")


@pytest.fixture(autouse=True)
def full_float32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch.set_float32_matmul_precision(before)


def computable(mode: str, tile: list[int]) -> Product:
    """The product; skips where there is none."""
    if not tile and (mode == "tf32x3" or not hasattr(torch.ops.aten.mm, "dtype")):
        pytest.skip("no such product in the library")
    if tile[6:] == [1] and mode != "fp16x3":
        pytest.skip("that kernel is for three products")
    return Product(mode, [*tile[:2], 32, *tile[3:]] if tile and mode == "tf32x3" else tile, True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_errs_by_no_more_than_float32_in_any_strides(mode: str, tile: list[int], turned: tuple[bool, bool]) -> None:
    how = computable(mode, tile)
    for rows, depth, columns in ((33, 100, 70), (256, 512, 512), (129, 1032, 257)):
        x, y = (torch.randn(shape[::-1] if turn else shape, device="cuda") for shape, turn in zip(
            ((rows, depth), (depth, columns)), turned, strict=True))
        x, y = x.t() if turned[0] else x, y.t() if turned[1] else y
        bias = torch.randn(columns, device="cuda")
        exact = torch.addmm(bias.double(), x.double(), y.double())
        ours, library = errors(matmul_now(x, y, bias, how.name), exact), errors(torch.addmm(bias, x, y), exact)
        limit = max(1.2 * library[0], 2e-7 if tile[6:] == [1] else 2e-6)
        assert ours[0] <= limit, (ours, library)
        for _later in range(2):
            assert torch.equal(matmul_now(x, y, bias, how.name), matmul_now(x, y, bias, how.name))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_infinities_and_nan_of_both_stand_where_the_library_has_them(mode: str, tile: list[int]) -> None:
    how = computable(mode, tile)
    x, y = torch.randn(100, 64, device="cuda"), torch.randn(64, 90, device="cuda")
    x[1, 3], x[2, 4], y[7, 5], y[8, 6], y[9, 7], y[:, 80] = float("inf"), float("nan"), float("inf"), float("nan"), -float("inf"), 0.0
    ours, library = matmul_now(x, y, None, how.name), x @ y
    assert torch.equal(ours.isfinite(), library.isfinite())
    apart = torch.arange(100, device="cuda") != 1  # a row with an infinity is scaled until its other numbers are zero in float16
    assert torch.equal(ours[apart].isnan(), library[apart].isnan())
    infinite = library[apart].isinf()
    assert torch.equal(ours[apart][infinite], library[apart][infinite])
    exact = x.double() @ y.double()
    assert errors(ours[exact.isfinite()], exact[exact.isfinite()])[0] < 2e-6


@pytest.mark.parametrize("mode", ["fp16x3", "bf16x6"])
def test_the_kernel_prepares_what_plain_torch_does(mode: str) -> None:
    for tile in TILES[:2]:
        how = Product(mode, tile, True)
        for y in (torch.randn(70, 100, device="cuda"), torch.randn(1000, 33, device="cuda").t(), torch.randn(3, 5000, device="cuda")):
            y[1, 2] = float("inf")
            expected, scale = how.prepare(y)
            for _later in range(3):
                found, scales = how.prepare_now(y)
                assert torch.equal(found.view(torch.int16), expected.view(torch.int16))
                assert (scale is None) == (scales is None) and (scale is None or torch.equal(scales, scale))


class Called(nn.Module):
    def __init__(self, forward, *shapes: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.run = forward
        self.parts = nn.ParameterList(torch.randn(shape) / shape[0] ** 0.5 for shape in shapes)

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.run(self, *args)


CASES = {
    "(4096, 4096) x (4096, 4096)": (lambda _, a, b: a @ b, (), ((4096, 4096), (4096, 4096))),
    "(256, 131072) x (131072, 256)": (lambda _, a, b: torch.matmul(a, b), (), ((256, 131072), (131072, 256))),
    "(4096, 2048).t() x (4096, 4096)": (lambda _, a, b: a.t() @ b, (), ((4096, 2048), (4096, 4096))),
    "(2048, 4096) x (4096, 4096).t()": (lambda _, a, b: a @ b.t(), (), ((2048, 4096), (4096, 4096))),
    "(16, 1024, 2048) x (2048, 768)": (lambda _, a, b: a @ b, (), ((16, 1024, 2048), (2048, 768))),
    "(4096, 2048) x weight (2048, 4096) + bias": (
        lambda self, a: a @ self.parts[0] + self.parts[1], ((2048, 4096), (4096,)), ((4096, 2048),)),
}


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_times_and_errors_against_the_library(name: str) -> None:
    forward, weights, inputs = CASES[name]
    model = Called(forward, *weights).cuda().eval()
    given = [torch.randn(shape, device="cuda") for shape in inputs]
    chosen: list[Product | None] = []
    chooser = MatmulChooser(COMPENSATED)

    def passed(graph: torch.fx.GraphModule, example_inputs: object) -> int:
        def choose(place: MatmulPlace) -> Product | None:
            chosen.append(chooser.place(place))
            return chosen[-1]

        return split_matmuls(graph, example_inputs, choose)

    backend = GraphBackend([passed])
    fast = backend.checked(torch.compile(model, backend=backend))
    try:
        ours = fast(*given)
    except NotImplementedError:
        print(f"\n{name}: left to the library {chooser.notes}")
        assert chosen == [None] and name != "(4096, 4096) x (4096, 4096)"
        return
    theirs, exact = model(*given), model.double()(*(item.double() for item in given))
    model.float()
    found, limit = errors(ours, exact), errors(theirs, exact)
    mine, library = seconds(lambda: fast(*given)), seconds(lambda: model(*given))
    print(f"\n{name}: {[how and how.name for how in chosen]}, {library * 1e6:.0f} us -> {mine * 1e6:.0f} us ({library / mine:.2f}x), "
          f"error {found[0]:.2e} (at most {found[1]:.1e}), library {limit[0]:.2e} (at most {limit[1]:.1e})")
    assert found[0] <= 1.02 * limit[0]
    if name == "(4096, 4096) x (4096, 4096)":
        assert library / mine > 1.3


@torch.no_grad()
def test_it_runs_in_a_cuda_graph_and_beside_inductors_own() -> None:
    model = Called(lambda self, a, b: torch.relu(a @ b) @ self.parts[0] + self.parts[1], (512, 256), (256,)).cuda().eval()
    given = [torch.randn(300, 400, device="cuda"), torch.randn(400, 512, device="cuda")]

    def passed(graph: torch.fx.GraphModule, example_inputs: object) -> int:
        return split_matmuls(graph, example_inputs, lambda place: Product("fp16x3", [64, 64, 64, 4, 3, 2, 1], place.value is None))

    exact = model.double()(*(item.double() for item in given))
    limit = errors(model.float()(*given), exact)[0]
    for mode in ("default", "reduce-overhead"):
        torch._dynamo.reset()
        fast = torch.compile(model, backend=GraphBackend([passed]), mode=mode)
        for _call in range(4):
            assert errors(fast(*given).clone(), exact)[0] <= 1.2 * limit
    side = torch.cuda.Stream()
    name = Product("fp16x3", [64, 64, 64, 4, 3, 2, 1], True).name
    with torch.cuda.stream(side):
        matmul_now(*given, None, name)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = matmul_now(*given, None, name)
    for item in given:
        item.mul_(0.5)
    graph.replay()
    assert torch.equal(out, matmul_now(*given, None, name))
