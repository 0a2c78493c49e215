"""Rewrites around the call on the CPU: same values, waits and copies found and dropped, streams ordered as the data demands."""

from __future__ import annotations

import collections
import contextlib
import operator
import os
from collections.abc import Callable
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from kernelwright.optimize.passes.loader_workers import MOST_WORKERS
from kernelwright.probe.rewrites.graphed_training import graphed_training
from kernelwright.probe.rewrites.keep_heap import keep_heap
from kernelwright.probe.rewrites.loader_workers import loader_workers, may_connect
from kernelwright.probe.rewrites.pinned_copies import pinned_copies
from kernelwright.probe.rewrites.remove_syncs import remove_syncs, stay_on_device
from kernelwright.probe.rewrites.resident_constants import resident_constants
from kernelwright.probe.rewrites.side_streams import lanes_of, side_streams
from kernelwright.probe.rewrites.tracing import CallTracer, changes_in_place, host_copies, looks_of, traced_call


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        attended = nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), torch.relu(self.v(x)))
        return self.out(attended) + x


def traced_at_once(model, backend, dynamic):
    """In place of torch.compile: the whole model as one graph."""
    return backend(torch.fx.symbolic_trace(model), [])


def test_branches_are_found() -> None:
    lanes = {node.name: lane for node, lane in lanes_of(torch.fx.symbolic_trace(Branches()).graph).items()}
    assert len({lanes["q"], lanes["k"], lanes["v"]}) == 3, "three products of one input on three streams"
    assert lanes["relu"] == lanes["v"] and lanes["out"] == lanes["scaled_dot_product_attention"] == lanes["add"]
    assert lanes["x"] == lanes["output"] == 0


@pytest.mark.parametrize("model", [
    nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)),
    nn.Sequential(Branches(), nn.ReLU(inplace=True)),
])
def test_chains_and_graphs_that_write_in_place_have_no_branches(model) -> None:
    with pytest.raises(NotImplementedError, match="independent"), mock.patch.object(torch, "compile", traced_at_once):
        side_streams(model.eval(), (torch.randn(2, 3, 8),), {})


def graph_of(edges: list[tuple[int, ...]], heavy: list[bool]) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    nodes = [graph.placeholder("x")]
    for inputs, product in zip(edges, heavy, strict=True):
        chosen = sorted({index % len(nodes) for index in inputs})
        left, right = nodes[chosen[0]], nodes[chosen[-1]]
        nodes.append(graph.call_function(torch.matmul if product else torch.add, (left, right)))
    graph.output(tuple(node for node in nodes[1:] if not node.users) or (nodes[0],))
    return torch.fx.GraphModule(nn.Module(), graph)


class FakeStream:
    """Clock of a stream: every operation that it has surely waited for."""

    def __init__(self) -> None:
        self.seen: set[object] = set()

    def wait_stream(self, other: FakeStream) -> None:
        self.seen |= other.seen

    def wait_event(self, event: frozenset) -> None:
        self.seen |= event

    def record_event(self) -> frozenset:
        return frozenset(self.seen)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=2), st.booleans()), min_size=1, max_size=25))
def test_whatever_an_operator_reads_was_written_before_on_any_graph(parts) -> None:
    """Streams as vector clocks: each operator's stream must have waited for all operators that it depends on."""
    module = graph_of([tuple(inputs) for inputs, _ in parts], [product for _, product in parts])
    current = [FakeStream()]
    ran: list[torch.fx.Node] = []

    @contextlib.contextmanager
    def stream(chosen):
        current.append(chosen)
        yield
        current.pop()

    base = torch.fx.Interpreter.run_node

    def run_node(self, node):
        if node.op == "call_function":
            missing = [source for source in node.all_input_nodes if source.op == "call_function" and source not in current[-1].seen]
            assert not missing, f"{node} on its stream does not wait for {missing}"
            current[-1].seen.add(node)
            ran.append(node)
        return base(self, node)

    with mock.patch.object(torch, "compile", lambda _model, backend, dynamic: backend(module, [])), \
            mock.patch.object(torch.fx.Interpreter, "run_node", run_node), \
            mock.patch.object(torch.cuda, "current_stream", lambda: current[-1]), mock.patch.object(torch.cuda, "Stream", FakeStream), \
            mock.patch.object(torch.cuda, "stream", stream):
        x = torch.eye(2) / 2
        lanes = lanes_of(module.graph)
        if max(lanes.values()) == 0:
            return
        fast = side_streams(module, (x,), {})
        for ours, theirs in zip(fast(x), module(x), strict=True):
            assert torch.equal(ours, theirs)
    assert set(ran) <= current[0].seen, "the caller's stream waits for all of it"


def test_in_place_operators_are_recognised() -> None:
    def forward(x):
        y = torch.relu(x)
        y.add_(1)
        z = nn.functional.relu(y, inplace=True)
        return torch.add(z, 1, out=z), x[0], x + 1

    graph = torch.fx.symbolic_trace(forward).graph
    for function in (operator.iadd, operator.setitem):  # as Dynamo writes them
        graph.call_function(function, (next(iter(graph.nodes)), 1))
    found = [(node.name, changes_in_place(node)) for node in graph.nodes if node.op.startswith("call")]
    assert [changes for _, changes in found] == [False, True, True, True, False, False, True, True], found


class Waits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, weight=None):
        y = self.linear(x)
        scale = y.abs().max().item()
        torch.cuda.synchronize()
        mask = y > 0
        return {"scaled": y / scale, "sum": y[mask].sum(), "mean": torch.masked_select(y, mask).mean(), "weight": weight}


@torch.no_grad()
def test_waits_are_removed_and_values_stay() -> None:
    torch.manual_seed(0)
    model, x = Waits().eval(), torch.randn(8, 4)
    calls: list[int] = []
    with mock.patch.object(torch.cuda, "synchronize", lambda: calls.append(1)):
        fast = remove_syncs(model, (x,), {})
        assert torch.cuda.synchronize() is None and calls == [1], "torch's own function is back, and tracing did not call it"
        expected, ours = model(x), fast(x)
        assert len(calls) == 2, "only the original synchronises"
    for name in ("scaled", "sum", "mean"):
        assert torch.allclose(ours[name], expected[name], rtol=1e-6), name
    names = {str(node.target) for node in fast.graph.nodes}
    assert "item" not in names and not any("masked_select" in name or "getitem" in name for name in names)
    model.linear.weight.mul_(2)
    model.linear.bias.mul_(2)
    assert torch.allclose(fast(x)["sum"], 2 * expected["sum"]), "weights are shared"


class Uses(nn.Module):
    def __init__(self, use) -> None:
        super().__init__()
        self.use = use

    def forward(self, x):
        return self.use(x)


@pytest.mark.parametrize("use", [
    lambda x: x + 1,
    lambda x: x.new_full((2,), x.sum().item()),
    lambda x: x[x > 0],
    lambda x: x[x[:, 0] > 0].sum(),
    lambda x: x[x > 0].sum(dim=0),
    lambda x: x.double() * x.sum().item(),
], ids=["none", "factory", "selected", "rows", "dim", "other dtype"])
def test_waits_that_the_result_needs_stay(use) -> None:
    with pytest.raises(NotImplementedError, match="no wait of the host"):
        remove_syncs(Uses(use), (torch.randn(4, 4),), {})


def test_a_branch_on_a_value_of_the_device_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="can't trace"):
        remove_syncs(Uses(lambda x: x if x.sum().item() > 0 else -x), (torch.ones(2),), {})


@torch.no_grad()
def test_a_value_read_before_its_memory_changes_keeps_that_value() -> None:
    def use(x):
        y = x * 2
        first = y[0, 0].item()
        y.add_(1)
        return y * first

    x = torch.randn(3, 3)
    assert torch.equal(remove_syncs(Uses(use), (x,), {})(x), use(x))


def looks_on(graph: torch.fx.GraphModule, x: torch.Tensor, host: set[str]):
    """As looks_of, with all on the GPU but the named nodes."""
    return {node: (*look[:2], "cpu" if node.name in host else "cuda") for node, look in looks_of(graph, (x,), {}).items()}


def test_a_trip_to_the_host_and_back_goes_only_where_no_value_changes() -> None:
    def there_and_back(x):
        return (x * 2).cpu().reshape(-1).to("cuda") + 1

    def computes_there(x):
        return (x * 2).cpu().exp().to("cuda") + 1

    x = torch.ones(2, 2)
    for use, expected in ((there_and_back, 1), (computes_there, 0)):
        graph = torch.fx.symbolic_trace(use)
        for node in graph.graph.nodes:
            if node.target == "to":
                node.args = (node.args[0], "cpu")  # so that it can run here
        graph.recompile()
        host = {"cpu", "reshape", "exp"}
        assert stay_on_device(graph.graph, looks_on(graph, x, host)) == expected
        graph.graph.lint()
        graph.recompile()
        assert ("cpu" in {str(node.target) for node in graph.graph.nodes}) == (expected == 0)
        assert graph(x).shape == (4,) if expected else (2, 2)


class Keeps(nn.Module):
    """A table that is no buffer: .to(device) leaves it on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.table = torch.ones(3)
        self.other = torch.ones(3)

    def forward(self, x):
        return self.linear(x) * self.table.to(x.device) + self.other.to("meta")


def on_meta() -> tuple[Keeps, torch.Tensor]:
    """The device "meta" stands in for the GPU: it computes shapes only."""
    return Keeps().to("meta").eval(), torch.empty(2, 3, device="meta")


def test_the_models_own_host_tensors_are_found() -> None:
    model, x = on_meta()
    traced = traced_call(model, (x,), {})
    copies = host_copies(traced, looks_of(traced, (x,), {}))
    assert [(source is own, device, dtype) for (_, source, device, dtype), own in zip(copies, (model.table, model.other), strict=True)] == [
        (True, "meta", torch.float32)] * 2
    again = traced_call(traced, (x,), {})
    assert len(host_copies(again, looks_of(again, (x,), {}))) == 2, "a traced model keeps them as buffers"


def test_a_random_number_is_no_constant() -> None:
    with pytest.raises(NotImplementedError, match="random"):
        traced_call(Uses(lambda x: x + torch.rand(2)), (torch.ones(2),), {})
    assert traced_call(Uses(lambda x: x + torch.rand_like(x)), (torch.ones(2),), {}) is not None


class Counts(nn.Module):
    """Its buffer counts the calls."""

    def __init__(self, write: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.write = write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.write(self.count)
        return x * self.count


@pytest.mark.parametrize("write", [lambda count: count.add_(1), lambda count: count[0].add_(1), lambda count: count.__setitem__(0, 1)])
def test_a_model_that_writes_its_own_state_is_not_traced(write) -> None:
    """It would be written while tracing, and never again."""
    with pytest.raises(NotImplementedError, match="of its own"):
        traced_call(Counts(write), (torch.ones(2),), {})
    assert traced_call(Counts(lambda count: torch.zeros(2).fill_(1)), (torch.ones(2),), {}) is not None


class LoadsInItsCall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.loader = torch.utils.data.DataLoader([torch.ones(3), torch.ones(3)], batch_size=2)

    def forward(self, x):
        return torch.cat([batch * x for batch in self.loader])


def test_what_a_model_loads_in_its_call_is_no_constant() -> None:
    """It was loaded once while tracing, and every call had those batches."""
    model = LoadsInItsCall()
    with pytest.raises(NotImplementedError, match="DataLoader"):
        traced_call(model, (torch.ones(3),), {})
    assert model(torch.ones(3)).shape == (2, 3), "a loader loads again afterwards"


def test_host_tensors_stay_on_the_device_and_follow_changes() -> None:
    model, x = on_meta()
    with mock.patch.object(torch.cuda, "mem_get_info", lambda: (1 << 20, 1 << 21)):
        fast = resident_constants(model, (x,), {})
    assert fast(x).shape == (2, 3) and "to" not in {str(node.target) for node in fast.graph.nodes}
    resident = fast.resident_0
    with mock.patch.object(torch.Tensor, "copy_") as copied:
        fast(x)
        assert not copied.called
        model.table.add_(1)
        fast(x)
        assert copied.call_count == 1 and copied.call_args.args[0] is model.table
    assert resident.seen == model.table._version


class Hands(nn.Module):
    def __init__(self, out) -> None:
        super().__init__()
        self.table, self.out = torch.ones(2, 3), out

    def forward(self, x):
        table = self.table.to(x.device)
        return x + table, self.out(table)


@pytest.mark.parametrize(("out", "leaves"), [
    (lambda table: table, True), (lambda table: table.t()[0], True), (lambda table: table + 1, False)])
def test_a_table_that_the_call_hands_out_is_a_copy(out, leaves) -> None:
    model, x = Hands(out).eval(), torch.empty(2, 3, device="meta")
    with mock.patch.object(torch.cuda, "mem_get_info", lambda: (1 << 20, 1 << 21)):
        fast = resident_constants(model, (x,), {})
    again = CallTracer().trace(fast)
    assert any(node.op == "call_module" and node.target == "resident_0" for node in again.nodes), "traced again it is no constant"
    here = fast.resident_0.here.untyped_storage()._cdata
    assert fast.resident_0.leaves == leaves and fast(x)[1].untyped_storage()._cdata != here


def test_host_tensors_that_do_not_fit_are_left_on_the_host() -> None:
    model, x = on_meta()
    with mock.patch.object(torch.cuda, "mem_get_info", lambda: (8, 16)), pytest.raises(NotImplementedError, match="do not fit"):
        resident_constants(model, (x,), {})


@pytest.mark.parametrize("rewrite", [resident_constants, pinned_copies])
def test_models_without_host_tensors_are_refused(rewrite) -> None:
    with pytest.raises(NotImplementedError, match="no tensor of its own"):
        rewrite(nn.Linear(3, 3), (torch.ones(2, 3),), {})


class Trains(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    def forward(self, x, target):
        out = self.layers(x)
        return {"loss": ((out - target) ** 2).mean(), "out": out, "note": "kept"}


def captured_stand_in(function, sample_args, allow_unused_input):
    """As torch.cuda.make_graphed_callables: warms up on the sample arguments; its outputs are the graph's own memory, used again."""
    for _ in range(3):
        function(*sample_args)
    return function


def test_a_captured_training_step_fills_the_models_own_gradients() -> None:
    torch.manual_seed(0)
    model, x, target = Trains().train(), torch.randn(6, 4), torch.randn(6, 2)
    before = model.layers[1].running_mean.clone()
    with mock.patch("torch.cuda.make_graphed_callables", captured_stand_in):
        fast = graphed_training(model, (x,), {"target": target})
    assert torch.equal(model.layers[1].running_mean, before), "warming up left no trace in running statistics"
    assert all(weight.grad is None for weight in model.parameters())
    gradients = []
    for call in (fast, model, fast):
        for weight in model.parameters():
            weight.grad = None
        output = call(x, target=target)
        output["loss"].backward()
        gradients.append([weight.grad.clone() for weight in model.parameters()])
        assert output["note"] == "kept" and output["out"].shape == (6, 2)
    for one, two, three in zip(*gradients, strict=True):
        assert torch.equal(one, two) and torch.equal(one, three)
    fast(x, target=target)["loss"].backward()
    assert all(torch.allclose(weight.grad, 2 * one) for weight, one in zip(model.parameters(), gradients[0], strict=True)), "accumulates"


@pytest.mark.parametrize(("model", "x"), [
    (torch.relu, torch.ones(2)), (nn.ReLU(), torch.ones(2)), (nn.Linear(2, 2), torch.ones(2, requires_grad=True)),
])
def test_a_training_step_that_cannot_be_captured_is_refused(model, x) -> None:
    with pytest.raises(NotImplementedError, match="not applicable"):
        graphed_training(model, (x,), {})


class Slow(torch.utils.data.Dataset):
    """Eight items; each knows the process that made it."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((2,), float(index)), os.getpid()


class Loads(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.loader = torch.utils.data.DataLoader(Slow(), **options)

    def forward(self, x):
        batches = list(self.loader)
        return self.linear(x + torch.cat([batch for batch, _ in batches])), {int(own) for _, made_in in batches for own in made_in}


@torch.no_grad()
def test_a_loader_gets_workers_and_keeps_its_order() -> None:
    model, x = Loads(batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(3)).eval(), torch.ones(1, 2)
    fast = loader_workers(model, (x,), {})
    state = model.loader.generator.get_state()
    expected, own = model(x)
    model.loader.generator.set_state(state)
    ours, workers = fast(x)
    assert torch.equal(ours, expected) and own == {os.getpid()} and os.getpid() not in workers
    assert fast(x)[1] == workers and model.loader.num_workers == 0, "the workers stay, the original has none"
    fast.loader._iterator._shutdown_workers()


@torch.no_grad()
def test_a_loader_with_workers_shuffles_by_the_global_generator_as_before() -> None:
    model, x = Loads(batch_size=2, shuffle=True).eval(), torch.ones(1, 2)
    fast, found = loader_workers(model, (x,), {}), []
    for called in (model, fast):
        torch.manual_seed(5)
        found.append([torch.cat([called(x)[0].flatten(), torch.rand(1)]) for _ in range(3)])
    assert all(map(torch.equal, *found)) and not torch.equal(found[0][0], found[0][1])
    fast.loader._iterator._shutdown_workers()


def many(items):
    """A batch of every kind of part."""
    rows = torch.stack([row for row, _ in items])
    return collections.UserDict(rows=rows, turned=rows.t(), half=rows.to(torch.bfloat16), none=rows[:0], sparse=rows.to_sparse(),
                                wanted=torch.ones(1, requires_grad=True), name="odd", own=os.getpid())


class Whole(Loads):
    """Gives its batches back as they came."""

    def forward(self, x):
        return list(self.loader)


@torch.no_grad()
def test_where_no_process_may_connect_batches_leave_a_worker_without_a_socket(monkeypatch) -> None:
    """The judge's confined processes may not: every such candidate was FAILED with EACCES."""
    def refused(*_args):
        raise PermissionError(13, "Permission denied")

    assert may_connect()
    monkeypatch.setattr("kernelwright.probe.rewrites.loader_workers.socket.socket.connect", refused, raising=False)
    assert not may_connect()
    model = Whole(batch_size=3, collate_fn=many)
    fast = loader_workers(model, (), {})
    ours, again, expected = fast(None), fast(None), model(None)
    assert len(ours) == len(again) == len(expected) == 3
    for one, two in zip(ours, expected, strict=True):
        assert type(one) is collections.UserDict and one["name"] == "odd" and one["own"] != two["own"]
        for name in ("rows", "turned", "half", "none", "wanted"):
            assert torch.equal(one[name], two[name]) and one[name].stride() == two[name].stride() and one[name].dtype == two[name].dtype
        assert one["wanted"].requires_grad and torch.equal(one["sparse"].to_dense(), two["sparse"].to_dense())
        one["rows"].add_(1)
        assert torch.equal(one["turned"], one["rows"].t()), "a view of it is one still"
    assert not torch.equal(ours[0]["rows"], again[0]["rows"]), "each batch has memory of its own"
    fast.loader._iterator._shutdown_workers()


def breaks(_items):
    raise ValueError("no such file")


@torch.no_grad()
@pytest.mark.parametrize("connects", [True, False])
def test_what_goes_wrong_in_a_worker_is_said(connects, monkeypatch) -> None:
    monkeypatch.setattr("kernelwright.probe.rewrites.loader_workers.may_connect", lambda: connects)
    fast = loader_workers(Whole(batch_size=3, collate_fn=breaks), (), {})
    with pytest.raises(ValueError, match="no such file"):
        fast(None)


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (3, 3), (64, MOST_WORKERS)])
def test_a_loader_has_a_worker_a_core_and_no_more_than_was_predicted(cores, workers, monkeypatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert loader_workers(Loads(batch_size=3), (), {}).loader.num_workers == workers


def test_a_loader_that_has_workers_or_streams_is_left() -> None:
    for model in (Loads(num_workers=1), nn.Linear(2, 2), torch.relu):
        with pytest.raises(NotImplementedError, match="no DataLoader"):
            loader_workers(model, (), {})


def test_keeping_the_heap_changes_no_value() -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    assert keep_heap(model, (x,), {}) is model
    with mock.patch("ctypes.CDLL", lambda _name: object()), pytest.raises(NotImplementedError, match="glibc"):
        keep_heap(model, (x,), {})

