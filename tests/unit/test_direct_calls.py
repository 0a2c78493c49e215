"""A compiled graph that is called directly: what it gives, what it still sees, and where it is refused."""

from __future__ import annotations

import copy
import importlib.util
import random
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from kernelwright.model.workload import TensorSpec, WorkloadRef
from kernelwright.optimize.generate import render_source, write_source
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.probe.rewrites.compiled_calls import bare
from kernelwright.probe.rewrites.direct_calls import DirectCalls
from kernelwright.probe.rewrites.graphs import GraphBackend
from optimizing import context, facts


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    with torch.no_grad():
        yield


class Plain(GraphBackend):
    """Runs Dynamo's graph as it is."""

    def compiled(self, graph: torch.fx.GraphModule, example_inputs: Any, options: dict[str, Any]) -> Any:
        return graph.forward


def direct(model: Any, dynamic: bool | None = None, *, strict: bool = True) -> DirectCalls:
    backend = Plain(calls=(DirectCalls,))
    return DirectCalls(model, bare(torch.compile(model, backend=backend, dynamic=dynamic)), backend.recorded, strict)


ELSEWHERE = [torch.ones(4)]


class Both(NamedTuple):
    one: torch.Tensor
    two: torch.Tensor


class Nest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, more: Any = None, scale: float = 2.0) -> Any:
        y = self.linear(x)
        return {"y": y, "pair": (y * scale, [y + (0 if more is None else more["z"]), None]), "name": "nest", "n": 3, "both": Both(y, 2 * y)}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.allclose(one, other, atol=1e-6)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_after_its_first_call_dynamo_is_not_asked_and_results_are_the_models() -> None:
    model, x = Nest().eval(), torch.randn(3, 4)
    fast = direct(model)
    assert same(fast(x), model(x))
    fast.compiled = lambda *_given: pytest.fail("through Dynamo")
    for given in (torch.randn(3, 4), torch.zeros(3, 4)):
        assert same(fast(given), model(given))
    model.linear.weight.mul_(3)
    model.linear.bias.data = torch.ones(4)
    assert same(fast(x), model(x)), "the same tensors with new values"
    assert not fast.recorded


def test_a_call_with_nests_finds_its_tensors_in_their_places() -> None:
    model, x, z = Nest().eval(), torch.randn(3, 4), torch.randn(3, 4)
    fast = direct(model)
    fast(x, more={"z": z})
    with pytest.raises(NotImplementedError, match="given an object"):
        direct(model)(x, more={"z": Cache()})
    fast.compiled = lambda *_given, **_named: pytest.fail("through Dynamo")
    assert same(fast(z, more={"z": x}), model(z, {"z": x}))


def test_other_strides_go_through_dynamo() -> None:
    model = Nest().eval()
    fast, seen = direct(model), []
    fast(torch.randn(3, 4))
    through = fast.compiled
    fast.compiled = lambda *given: (seen.append(1), through(*given))[1]
    turned = torch.randn(4, 3).t()
    assert same(fast(turned), model(turned)) and seen == [1] and not fast.recorded
    x = torch.randn(3, 4)
    assert same(fast(x), model(x)) and seen == [1]


class Breaks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.append(x * 2)
        return x + 1


class Cache:
    def __init__(self) -> None:
        self.steps = 0


class Caches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.steps += 1
        return x + 1


class Queues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept: deque[int] = deque()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.append(1)
        return x + 1


class Draws(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + random.random()


class StartsWith(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.start is None:
            self.start = x.mean()
        return x - self.start


class Elsewhere(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + ELSEWHERE[0]


class Moves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.sum(0))
        return x + 1


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)


class Returns(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x


def hooked() -> nn.Module:
    model = Nest().eval()
    model.register_forward_hook(lambda _module, _given, output: output)
    return model


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, other = x + 1, x - 1
        if x.sum() > 5:
            return one
        return other


class Reads(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        y = x + 1
        return y, y.sum().item()


class Checks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen(x)
        return x + 1


class Callable_(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Doubles()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class Doubles:
    last: Any = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x * 3
        return x * 2


class Globals(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global KEPT
        KEPT = x * 2
        return x + 1


class Keeps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x
        return x + 1


KEPT: Any = None


@torch.compiler.disable
def seen(x: torch.Tensor) -> None:
    SEEN.append(float(x.sum()))


SEEN: list[float] = []
CHANGES = "changes what the model is made of"


class Endless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own: list[Any] = []
        self.own.append(self.own)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@pytest.mark.parametrize(("model", "why"), [
    (Breaks(), "runs 2 compiled graphs"), (Counts(), CHANGES), (Remembers(), CHANGES), (Moves(), CHANGES), (Caches(), CHANGES),
    (Queues(), CHANGES), (Draws(), "from call to call|looking for its graph failed"), (StartsWith(), CHANGES), (Keeps(), CHANGES),
    (Elsewhere(), "neither given nor the model's"), (Branches(), "looking for its graph failed|gives more"), (Checks(), "looking for its"),
    (Reads(), "looking for its graph failed|gives more"), (Callable_(), CHANGES), (Globals(), "gives more than the model returns"),
    (nn.BatchNorm1d(4).train(), CHANGES), (Endless(), "has no end"), (InPlace(), "changes its inputs in place"),
    (Returns(), "returns what is no output of the graph"), (hooked(), "has hooks"), (lambda x: x + 1, "only an nn.Module"),
], ids=lambda value: None if isinstance(value, str) else type(value).__name__)
def test_what_dynamo_does_around_the_graph_is_never_left_out(model: Any, why: str) -> None:
    plain, given = copy.deepcopy(model), [torch.full((3, 4), float(number)) for number in range(4)]
    with pytest.raises(NotImplementedError, match=f"not applicable: .*({why})"):
        direct(copy.deepcopy(model))(given[0].clone())
    torch._dynamo.reset()
    fast = direct(model, strict=False)
    for number, x in enumerate(given):
        random.seed(3)
        expected = plain(x.clone())
        random.seed(3)
        assert same(fast(x.clone()), expected), f"what is shipped goes through Dynamo: call {number}"
    assert fast.graph is None and not fast.recorded
    for one, other in zip(*([*getattr(model, "buffers", list)()] for model in (model, plain)), strict=True):
        assert torch.equal(one, other), "nothing was done twice"


class Kernel:
    """As one of Triton: it leads to what is in its file."""

    def __init__(self, everything: dict[str, Any]) -> None:
        self.everything = everything

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Launches(nn.Module):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel, self.operator = kernel, torch.ops.aten.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.operator(self.kernel(x))


def test_what_kernels_and_operators_keep_is_no_part_of_the_model(monkeypatch) -> None:
    everything: dict[str, Any] = {"calls": []}
    monkeypatch.setattr(Kernel, "__module__", "triton.runtime.jit")
    model, x = Launches(Kernel(everything)).eval(), torch.randn(3, 4)
    fast = direct(model)
    through = fast.compiled
    fast.compiled = lambda *given: (everything["calls"].append(object()), through(*given))[1]
    assert same(fast(x), model(x)) and fast.graph is not None and everything["calls"]
    monkeypatch.setattr(Kernel, "__module__", "kernels")
    fast = direct(model)
    fast.compiled = lambda *given: (everything["calls"].append(object()), through(*given))[1]
    with pytest.raises(NotImplementedError, match=CHANGES):
        fast(x)


def test_one_tensor_given_twice_and_sizes_are_refused() -> None:
    x, model = torch.randn(3, 4), Nest()
    with pytest.raises(NotImplementedError, match="one of the model's own tensors"):
        direct(model)(model.linear.weight)
    with pytest.raises(NotImplementedError, match="one tensor twice"):
        direct(Nest())(x, more={"z": x})
    with pytest.raises(NotImplementedError, match="sizes, other numbers"):
        direct(Nest(), dynamic=True)(x)


def test_what_is_shipped_waits_for_a_call_that_shows_what_others_are_like() -> None:
    x, z = torch.randn(3, 4), torch.randn(3, 4)
    model = Nest().eval()
    fast = direct(model, strict=False)
    assert same(fast(x, more={"z": x}), model(x, {"z": x})) and fast.graph is None
    assert same(fast(x, more={"z": z}), model(x, {"z": z})) and fast.graph is not None
    assert same(fast(z, more={"z": z}), model(z, {"z": z})), "twice, later"


def test_a_failure_on_the_way_leaves_nothing_behind(monkeypatch) -> None:
    x = torch.randn(3, 4)
    fast = direct(Nest().eval(), strict=False)
    monkeypatch.setattr(fast, "in_one_piece", lambda *_given: (_ for _ in ()).throw(MemoryError("none left")))
    assert same(fast(x), fast.model(x)) and fast.settled and fast.graph is None and same(fast(x), fast.model(x)) and not fast.recorded
    broken = direct(Nest().eval(), strict=False)
    with pytest.raises(Exception, match=r"shape|size"):
        broken(torch.randn(3, 5))
    assert not broken.recorded and same(broken(x), broken.model(x)) and broken.graph is not None


def test_an_input_that_the_model_fills_goes_through_dynamo() -> None:
    class Fills(nn.Module):
        def forward(self, x: torch.Tensor, out: dict[str, torch.Tensor]) -> torch.Tensor:
            out["y"] = x * 2
            return x + 1

    fast = direct(Fills(), strict=False)
    for _ in range(3):
        out: dict[str, torch.Tensor] = {}
        fast(torch.ones(3), out)
        assert torch.equal(out["y"], 2 * torch.ones(3))


def test_random_numbers_go_on_from_where_one_call_left_them() -> None:
    class Noise(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand(3)

    model, x = Noise(), torch.zeros(3)
    torch.manual_seed(5)
    expected = [model(x) for _ in range(3)]
    torch.manual_seed(5)
    fast = direct(model)
    assert same([fast(x) for _ in range(3)], expected)


def test_a_generated_file_prepares_itself_anew_where_weights_moved_and_serves_other_calls(tmp_path: Path) -> None:
    """With Inductor, as it is shipped."""
    inputs = (TensorSpec(path="", shape=(3, 4), dtype="float32", device="cpu"),)
    text = render_source(WorkloadRef(path=tmp_path / "nest.py", name="nest"), facts(inputs=inputs), [
        CATALOGUE[name] for name in ("no_grad", "compile_default", "direct_calls")], device="cpu")
    spec = importlib.util.spec_from_file_location("direct_nest", write_source(tmp_path / "optimized.py", text))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model, x, built, build = Nest().eval(), torch.randn(3, 4), [], module.build
    module.build = lambda *given: (built.append(1), build(*given))[1]
    fast = module.optimize(model, x)
    assert same(fast(x), model(x)) and same(fast(x + 1), model(x + 1)) and same(fast(torch.ones(5, 4)), model(torch.ones(5, 4)))
    assert same(fast(x, scale=3.0), model(x, scale=3.0)) and len(built) == 1
    model.linear.weight.data = torch.ones(4, 4)
    assert same(fast(x), model(x)) and len(built) == 2
    assert "when their memory moves the next call prepares itself anew" in " ".join(module.__doc__.split())


def test_it_stands_beside_a_compile_mode_without_graphs() -> None:
    one = CATALOGUE["direct_calls"]
    assert one.refusal(context()) is None and one.conflicts == {"cuda_graph", "compile_reduce_overhead", "compile_max_autotune"}
    assert "training step" in one.refusal(context(training=True))
