"""Products outside linear layers as products of parts: what is matched, what is split once, the numbers, and when the pass applies."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import builders
from graph_carrier import Passed
from kernelwright.model.capture import ProbeEnvironment
from kernelwright.model.workload import TensorSpec, WorkloadFacts
from kernelwright.optimize.passes import CATALOGUE, Context, with_carrier
from kernelwright.optimize.plan import compatible
from kernelwright.probe.rewrites import product_choice
from kernelwright.probe.rewrites import split_matmuls as rewrite
from kernelwright.probe.rewrites.measuring import errors
from kernelwright.probe.rewrites.product_choice import PRODUCT_CHOICES, Chooser
from kernelwright.probe.rewrites.products import Product
from kernelwright.probe.rewrites.split_matmuls import MatmulChooser, MatmulOperand, MatmulPlace, contracts_last, matmul_now
from made_candidates import loaded, text_of
from triton_interpreter import interpreted

NOTHING = "found nothing to change"
LEFT = {"matmul", "mm", "addmm", "linear", "einsum"}
TOGETHER = [64, 64, 64, 4, 3, 1, 1]


class Called(nn.Module):
    """A module whose forward is the given function of itself."""

    def __init__(self, forward) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        self.run = forward
        self.wide, self.high = nn.Parameter(torch.randn(48, 80)), nn.Parameter(torch.randn(80, 48))  # (K, N), (N, K)
        self.shift = nn.Parameter(torch.randn(80))
        self.layer = nn.Linear(48, 80)

    def forward(self, *args: torch.Tensor) -> object:
        return self.run(self, *args)


class Taken:
    """Takes every place and remembers it."""

    def __init__(self, mode: str = "fp16x3", tile: list[int] | None = None) -> None:
        self.places: list[MatmulPlace] = []
        self.mode, self.tile = mode, TOGETHER if tile is None else tile

    def split_matmuls(self, graph: torch.fx.GraphModule, given: object) -> int:
        found = rewrite.split_matmuls(graph, given, self.choose)
        self.constants = [node.target for node in graph.graph.nodes if node.op == "get_attr"]
        return found

    def choose(self, place: MatmulPlace) -> Product:
        self.places.append(place)
        return Product(self.mode, self.tile, place.value is None)


def assert_as_exact(model: nn.Module, fast: Passed, *args: torch.Tensor) -> None:
    """The error to float64 is within that of products of parts, not that of narrow ones."""
    with torch.no_grad():
        given, found = model(*args), fast(*args)
        exact = model.double()(*(arg.double() for arg in args))
        model.float()
    for old, new, truth in zip(*(value if isinstance(value, tuple) else (value,) for value in (given, found, exact)), strict=True):
        assert new.shape == old.shape and new.dtype == old.dtype and new.stride() == old.stride()
        assert errors(new, truth)[0] < 4e-7 and not torch.equal(new, old)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


A, B, TALL, CUBE = (40, 48), (48, 80), (48, 40), (3, 5, 48)
MOVING = {
    "@": (lambda _, a, b: a @ b, A, B), "matmul": (lambda _, a, b: torch.matmul(a, other=b), A, B),
    "method": (lambda _, a, b: a.matmul(b), A, B), "mm": (lambda _, a, b: torch.mm(a, mat2=b), A, B),
    "mm method": (lambda _, a, b: a.mm(b), A, B), "addmm": (lambda self, a, b: torch.addmm(self.shift, a, b), A, B),
    "addmm method": (lambda self, a, b: self.shift.addmm(a, b), A, B),
    "linear": (lambda self, a, b: F.linear(a, b, self.shift), A, (80, 48)),
    "A.T": (lambda _, a, b: a.T @ b, TALL, B), "A.t()": (lambda _, a, b: torch.matmul(a.t(), b), TALL, B),
    "B.mT": (lambda _, a, b: a @ b.mT, A, (80, 48)), "both": (lambda _, a, b: a.transpose(0, 1) @ b.permute(1, 0), TALL, (80, 48)),
    "part of columns": (lambda _, a, b: a[:, :32] @ b[:32, 10:50], A, B), "3D": (lambda _, a, b: a @ b, CUBE, B),
    "4D turned": (lambda _, a, b: a.transpose(1, 2) @ b, (2, 4, 3, 48), B),
    "3D einsum": (lambda _, a, b: torch.einsum("bil,lk->bik", a, b), CUBE, B),
    "3D linear": (lambda _, a, b: F.linear(a, b), CUBE, (80, 48)),
    "addition behind": (lambda self, a, b: self.shift + a @ b, A, B),
}


@pytest.mark.parametrize("name", MOVING)
def test_two_moving_operands_in_every_spelling(name: str) -> None:
    forward, *shapes = MOVING[name]
    taken = Taken()
    model = Called(forward)
    fast = Passed(model, taken.split_matmuls)
    assert_as_exact(model, fast, *(torch.randn(shape) for shape in shapes))
    [place] = taken.places
    assert not LEFT & set(fast.targets) and "add" not in fast.targets and place.value is None
    assert fast.targets.count("product.default") == 1, fast.targets
    assert (place.bias is not None) == (name in ("addmm", "addmm method", "linear", "addition behind"))


WEIGHTS = {
    "x @ W + b": lambda self, x: x @ self.wide + self.shift, "x @ W.T": lambda self, x: x @ self.high.T,
    "x @ W.t()": lambda self, x: torch.mm(x, self.high.t()), "x @ W.transpose": lambda self, x: x @ self.high.transpose(-2, -1),
    "x @ W.permute": lambda self, x: x @ torch.permute(self.high, (1, 0)), "linear": lambda self, x: F.linear(x, self.high, self.shift),
    "linear, turned": lambda self, x: F.linear(x, self.wide.t()), "addmm": lambda self, x: torch.addmm(self.shift, x, self.wide),
    "einsum": lambda self, x: torch.einsum("ik,kn->in", x, self.wide),
}


@pytest.mark.parametrize("mode", ["fp16x3", "bf16x6", "tf32x3"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_split_once_and_read_as_constants(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    splits: list[torch.Size] = []
    prepare = Product.prepare

    def noted(self: Product, weight: torch.Tensor):  # type: ignore[no-untyped-def]
        splits.append(weight.shape)
        return prepare(self, weight)

    monkeypatch.setattr(Product, "prepare", noted)
    taken = Taken(mode, TOGETHER if mode == "fp16x3" else [64, 64, 64, 4, 3, 1, 0])
    model = Called(WEIGHTS[name])
    fast = Passed(model, taken.split_matmuls)
    with torch.no_grad():
        x = torch.randn(40, 48)
        exact = model.double()(x.double())
        model.float()
        for _call in range(2):
            assert errors(fast(x), exact)[0] < 4e-7
    assert splits == [(80, 48)] and taken.places[0].value is not None
    assert "opaque_linear.default" in fast.targets and not LEFT & set(fast.targets)
    assert sorted(taken.constants) == (["matmul_parts", "matmul_scale"] if mode == "fp16x3" else ["matmul_parts"])


def test_two_places_share_the_parts_of_one_weight_and_results_feed_the_next() -> None:
    taken = Taken()
    model = Called(lambda self, x, y: (torch.tanh(x @ self.wide) @ self.high, (y @ self.wide).relu_()))
    fast = Passed(model, taken.split_matmuls)
    assert_as_exact(model, fast, torch.randn(40, 48), torch.randn(3, 4, 48))
    assert len(taken.places) == 3 and len(taken.constants) == 4


def written(self, a, b):  # type: ignore[no-untyped-def]
    made = a @ b
    b[0, 0] = 1.0
    return made + self.shift


def test_an_addition_is_not_moved_over_a_write_nor_taken_where_the_product_is_wanted_too() -> None:
    for forward in (written, lambda self, a, b: (lambda made: (made + self.shift, made))(a @ b), lambda self, a, b: a @ b + self.shift[:1],
                    lambda self, a, b: torch.add(a @ b, self.shift, alpha=2.0), lambda self, a, b: a @ b[:, :40] + self.shift[::2]):
        taken = Taken()
        model = Called(forward)
        fast = Passed(model, taken.split_matmuls)
        assert_as_exact(model, fast, torch.randn(A), torch.randn(B))
        assert [place.bias for place in taken.places] == [None] and "add" in fast.targets


def test_a_buffer_that_is_written_to_is_split_at_each_call() -> None:
    for write in (lambda self: self.state.mul_(2.0), lambda self: self.state.t().mul_(2.0)):
        def forward(self, x, write=write):  # type: ignore[no-untyped-def]
            write(self)
            return x @ self.state.t()

        model, taken = Called(forward), Taken()
        model.register_buffer("state", torch.randn(80, 48))
        x, before = torch.randn(40, 48), model.state.clone()
        fast = Passed(model, taken.split_matmuls)
        for times in (2.0, 4.0):
            assert errors(fast(x), x.double() @ before.t().double() * times)[0] < 4e-7
        assert taken.places[0].value is None


@pytest.mark.parametrize("forward", [
    lambda _, a, b: torch.bmm(a, b), lambda _, a, b: a @ b, lambda self, a, b: self.layer(a), lambda _, a, b: a[0, 0] @ b[0],
    lambda _, a, b: a[0].double() @ b[0].double(), lambda _, a, b: a[0].bfloat16() @ b[0].bfloat16(),
    lambda _, a, b: torch.addmm(a[0, :, :1], a[0], b[0]), lambda self, a, b: torch.addmm(self.shift, a[0], b[0], beta=2.0),
    lambda _, a, b: a[0, :1].expand(40, 48) @ b[0], lambda _, a, b: torch.einsum("bik,bkn->bin", a, b),
    lambda _, a, b: torch.einsum("ik,kn->ni", a[0], b[0]), lambda self, a, b: torch.addmm(self.shift[::2], a[0], b[0, :, :40]),
], ids=range(12))
def test_what_is_left_to_the_library(forward) -> None:  # type: ignore[no-untyped-def]
    taken = Taken()
    with pytest.raises(NotImplementedError, match=NOTHING):
        Passed(Called(forward), taken.split_matmuls)(torch.randn(2, 40, 48), torch.randn(2, 48, 80))
    assert not taken.places


def test_products_that_want_gradients_and_sizes_that_change_are_left() -> None:
    taken = Taken()
    fast = Passed(Called(lambda self, x: x @ self.wide), taken.split_matmuls)
    with pytest.raises(NotImplementedError, match=NOTHING):
        fast.call(torch.randn(40, 48))
    torch._dynamo.reset()
    a = torch.randn(A)
    torch._dynamo.mark_dynamic(a, 0)
    with pytest.raises(NotImplementedError, match=NOTHING):
        Passed(Called(lambda self, x: x @ self.wide), taken.split_matmuls)(a)
    assert not taken.places


def test_refused_without_tensor_cores_or_with_narrow_products(monkeypatch: pytest.MonkeyPatch) -> None:
    def fast() -> Passed:
        return Passed(Called(lambda _, a, b: a @ b), rewrite.split_matmuls)

    if not torch.cuda.is_available():
        with pytest.raises(NotImplementedError, match="needs Triton and a GPU"):
            fast()(torch.randn(A), torch.randn(B))
    monkeypatch.setattr(rewrite, "need_tensor_cores", lambda: None)
    with pytest.raises(NotImplementedError, match=NOTHING):  # on a CPU
        fast()(torch.randn(A), torch.randn(B))
    monkeypatch.setattr(rewrite, "float32_flags", lambda: ("high", False))
    with pytest.raises(NotImplementedError, match="less exact than float32"):
        fast()(torch.randn(A), torch.randn(B))


def test_einsums_that_are_plain_products() -> None:
    assert all(map(contracts_last, ("ik,kn->in", "b i l, l k -> b i k", "abCd,dE->abCE")))
    assert not any(map(contracts_last, ("ik,kn", "ik,nk->in", "ik,kn->ni", "ii,ik->ik", "ik,ki->ii", "k,kn->n", "...k,kn->...n", None)))


@pytest.mark.parametrize(("mode", "tile"), [
    *((mode, tile) for mode in ("fp16x3", "bf16x6", "bf16x9", "tf32x3") for tile in ([], [64, 64, 64, 4, 3, 1, 0])),
    ("fp16x3", TOGETHER)])  # that kernel is for three products
def test_infinities_and_nan_of_both_stand_where_the_library_has_them(mode: str, tile: list[int]) -> None:
    x, y = torch.randn(20, 40), torch.randn(40, 30)
    x[1, 3], x[2, 4], y[7, 5], y[8, 6], y[9, 7], y[:, 8] = float("inf"), float("nan"), float("inf"), float("nan"), -float("inf"), 0.0
    x[1, 7] = x[1, 9] = 1.0
    ours, library = matmul_now(x, y, None, Product(mode, tile, True).name), x @ y
    apart = torch.ones_like(library, dtype=torch.bool)
    apart[1, [5, 6, 7]] = False  # a row with an infinity is scaled until its other numbers are zero in float16
    assert torch.equal(ours.isnan()[apart], library.isnan()[apart]) and not ours[1].isfinite().any()
    infinite = library.isinf() & apart
    assert torch.equal(ours[infinite], library[infinite]) and torch.equal(ours.isfinite(), library.isfinite())
    exact = x.double() @ y.double()
    assert errors(ours[exact.isfinite()], exact[exact.isfinite()])[0] < 4e-7


def test_the_operator_passes_torchs_own_checks() -> None:
    for given in ((torch.randn(40, 48), torch.randn(80, 48).t(), torch.randn(80)), (torch.randn(2, 4, 48), torch.randn(48, 80), None)):
        torch.library.opcheck(torch.ops.split_matmuls.product.default, (*given, Product("fp16x3", TOGETHER, True).name))


def test_choices_are_kept_apart_by_strides_and_by_what_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(product_choice, "LEAST_WORK", 1)
    monkeypatch.setattr(product_choice, "seconds", lambda call: (call(), 1.0)[1])
    asked: list[str] = []

    def faster(self: MatmulChooser, operand: MatmulOperand, x: torch.Tensor) -> list[Product]:
        asked.append(self.key(operand, x))
        took = self.time(operand, x, self.product(operand, "fp16x3", TOGETHER))
        assert took is not None and took[0] == 1.0
        return [took[1]]

    monkeypatch.setattr(Chooser, "faster", faster)
    monkeypatch.setattr(Chooser, "as_exact", lambda self, operand, x, how: bool(self.ready(operand, how)(x).isfinite().all()))
    x, y = torch.randn(40, 48), torch.randn(48, 80)
    for _process in range(2):
        chooser = MatmulChooser(("fp16x3",))
        for weight, moves in ((y.t(), True), (y.t().contiguous(), True), (y.t(), False)):
            how = chooser(MatmulOperand(weight, None, moves), x)
            assert how is not None and how.both == moves and how.tile == TOGETHER
    assert len(set(asked)) == len(asked) == 3 and set(PRODUCT_CHOICES.kept()) == set(asked)


def test_places_are_measured_while_dynamo_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With times and errors as given: everything else of a choice runs, the products in plain torch."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(rewrite, "MATMULS_ON", "cpu")
    monkeypatch.setattr(rewrite, "need_tensor_cores", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(multi_processor_count=132))
    times: list[torch.Size] = []

    def seconds(call) -> float:  # type: ignore[no-untyped-def]
        times.append(call().shape)
        return 1.0 if "faster" in call.__qualname__ else 0.5  # the library's is timed there

    def given(got: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
        assert errors(got, exact)[0] < 6e-7
        return 1.0, 1.0

    monkeypatch.setattr(product_choice, "seconds", seconds)
    monkeypatch.setattr(product_choice, "errors", given)
    model = Called(lambda self, a, b: (a.t() @ b, F.linear(a.t(), self.long, b[0]), self.layer(b[:, :48])))
    model.long = nn.Parameter(torch.randn(600, 512))
    fast = Passed(model, rewrite.split_matmuls)
    before = torch.get_rng_state()
    a, b = torch.randn(512, 400), torch.randn(512, 600)
    torch.set_rng_state(before)
    fast(a, b)
    assert torch.equal(torch.get_rng_state(), before), "the global generator is left alone"
    assert {"product.default", "opaque_linear.default", "linear"} <= set(fast.targets) and fast.backend.found["split_matmuls"] == 2
    assert times[0] == (400, 600) and len(times) > 4 and len(PRODUCT_CHOICES.kept()) == 2
    measured = len(times)
    Passed(model, rewrite.split_matmuls)(a, b)
    assert len(times) == measured, "kept for the next process"


def test_small_products_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*shape: int) -> SimpleNamespace:
        return SimpleNamespace(shape=shape, device=SimpleNamespace(type="cuda"), numel=lambda: math.prod(shape))

    def measured(*_given: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(rewrite, "random_like", measured)
    for x, y in (((64, 64), (64, 64)), ((4096, 4096), (4096, 16)), ((512, 512), (512, 512))):
        place: Any = SimpleNamespace(x=look(*x), y=look(*y), value=None, shift=None)
        if x[0] == 512:
            with pytest.raises(AssertionError, match="measured"):
                MatmulChooser(("fp16x3",)).place(place)
        else:
            assert MatmulChooser(("fp16x3",)).place(place) is None


def context(*operators: str, parents: tuple[str, ...] = (), modules: tuple[str, ...] = (), form: str = "model",
            **environment: object) -> Context:
    """Of operators that share the time, each in the module at its place."""
    seen = ProbeEnvironment.model_validate({
        "device": "cuda", "device_name": "GPU", "torch_version": "2.11.0", "cuda_version": None, "python_version": "3.12",
        "triton_version": None, "compute_capability": None, "sm_count": None, "l2_bytes": None, "device_memory_bytes": None,
        "cpu_threads": 2, "matmul_tf32": False, "cudnn_tf32": True, "cudnn_benchmark": False, **environment})
    facts = WorkloadFacts.model_validate({
        "form": form, "version": None, "params": {}, "inputs": (TensorSpec(path="", shape=(2, 3), dtype="float32", device="cuda"),),
        "outputs": (), "training": False, "dtype": "float32", "parameter_count": 1, "parameter_bytes": 4, "already_compiled": False})
    made = builders.operators(operators, 2, 300_000)
    made = tuple(item.model_copy(update={
        "parents": tuple(filter(None, (dict(zip(operators, parents, strict=False)).get(item.operator_name, ""),))),
        "module": dict(zip(operators, modules, strict=False)).get(item.operator_name, "root")}) for item in made)
    timeline = builders.timeline(sum(item.aggregated.total_duration_ns for item in made), 0)
    profile = builders.gpu_annotation(capture_metadata=builders.metadata(dtype="float32", device="cuda", version=None), parameters={},
                                      operators=made, timeline=timeline)
    return Context(facts=facts, environment=seen, profile=profile)


def test_it_applies_to_products_that_no_linear_layer_makes() -> None:
    mine = CATALOGUE["split_matmuls"]
    plain = context("aten::mm", "aten::relu", parents=("aten::matmul",))
    assert mine.refusal(plain) is None and "hold 50%" in mine.predict(plain).words
    assert mine.predict(plain).gain == (1.0, pytest.approx(1.6))
    layer = context("aten::addmm", "aten::relu", parents=("aten::linear",), modules=("blocks.0.up", "blocks.0"))
    assert mine.refusal(layer) == "products of two matrices that no linear layer makes hold 0% of the measured time"
    assert mine.predict(layer).gain == (1.0, 1.0)
    own = context("aten::addmm", "aten::relu", parents=("aten::linear",), modules=("blocks.0", "blocks.0"))
    assert mine.refusal(own) is None, "F.linear in a module that does other things too"
    assert "no product of two matrices" in (mine.refusal(context("aten::bmm", "aten::relu")) or "")
    assert "hold 0%" in (mine.refusal(context("aten::bmm", "aten::relu", parents=("aten::matmul",))) or "")
    assert "hold 0%" in (mine.refusal(context("aten::addmm", parents=("aten::conv2d",))) or "")
    assert "TF32 is on" in (mine.refusal(context("aten::mm", matmul_tf32=True)) or "")
    assert "CUDA" in (mine.refusal(context("aten::mm", device="cpu")) or "")
    assert "a function, not a module" in (mine.refusal(context("aten::mm", form="versions")) or ""), "nothing watches its weights"


def test_it_goes_with_split_products_and_brings_a_compiler_along() -> None:
    assert compatible(("split_products", "split_matmuls", "compile_default", "cuda_graph"))
    assert [item.name for item in with_carrier([CATALOGUE["split_matmuls"]])] == ["split_matmuls", "compile_default"]
    for other in ("tf32", "bf16", "bf16_autocast", "bf16_reverted", "scaled_fp16", "selective_bf16", "selective_fp16"):
        assert not compatible(("split_matmuls", other))


def test_it_stands_in_a_candidates_file_that_runs_on_a_cpu(tmp_path: Path) -> None:
    module = loaded(tmp_path, text_of(Path("/w.py"), ("split_matmuls",), (2, 3)))

    def split_matmuls(graph: torch.fx.GraphModule, given: object) -> int:
        return module.split_matmuls(graph, given, lambda place: module.Product("fp16x3", TOGETHER, place.value is None))

    model = Called(lambda self, a, b: (a @ b, b.t() @ self.wide + self.shift))
    assert_as_exact(model, Passed(model, split_matmuls), torch.randn(A), torch.randn(48, 16))


INTERPRETED = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from kernelwright.probe.rewrites.measuring import errors
from kernelwright.probe.rewrites.product_kernels import split_kernel
from kernelwright.probe.rewrites.products import Product, Steps, split_launch, split_rows
torch.manual_seed(0)
x, y = torch.randn(20, 70), torch.randn(33, 70)
x[3, 5], y[7, 5], y[8, 6] = float("inf"), float("inf"), float("nan")
# The interpreter cuts off what does not fit into bfloat16, where a GPU rounds.
for mode, splits, together in (("fp16x3", 1, 1), ("fp16x3", 2, 1), ("fp16x3", 1, 0)):
    how = Product(mode, [16, 16, 32, 4, 3, splits, together], True)
    parts, scale = how.prepare(y)
    half = how.dtype == torch.float16
    again, scales = torch.empty_like(parts), torch.empty(33)
    split_launch(33, 70, how.w_blocks, half).plain(y, again, scales)
    assert torch.equal(parts.view(torch.int16), again.view(torch.int16)) and (scale is None or torch.equal(scale, scales)), mode
    out, library = Steps(how, x, parts, None, "none")(x, parts, scale, None), x @ y.t()
    assert torch.equal(out.isfinite(), library.isfinite()), how.name
    exact = x.double() @ y.double().t()
    assert errors(out[exact.isfinite()], exact[exact.isfinite()])[0] < 4e-7, how.name
    apart = torch.arange(20) != 3
    assert torch.equal(out[apart].isnan(), library[apart].isnan()) and torch.equal(out[apart][library[apart].isinf()],
                                                                                 library[apart][library[apart].isinf()]), how.name
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")
def test_the_kernels_in_tritons_interpreter() -> None:
    assert interpreted(INTERPRETED) == ""
