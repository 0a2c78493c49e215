"""torch.compile's backend made of passes over its graphs, and what such passes share. Copied into files that hold one.

Three places to change what is compiled: Dynamo's graph (torch functions; weights are placeholders or attributes), the ATen graph of an
inference call that AOTAutograd hands to Inductor, and Inductor's configuration.
"""

from __future__ import annotations

import contextlib
import operator
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch._functorch.config
import torch._inductor.compile_fx
import torch.fx
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.source import LocalSource

from .assignments import ASSIGNS

WIDER = ((torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float32, torch.float64), (torch.float16, torch.float64),
         (torch.bfloat16, torch.float64))
"""Casts that lose nothing: what they give can be cast back."""
WRITTEN = "memory_that_is_written"
"""Of a graph: how many nodes it had, and the memory that its calls write to (is_written)."""
FROZEN = "weights_are_constants"
"""Of a graph: whether its weights and buffers are constants of what is compiled from it, so that a pass may look at their values."""


class GraphBackend:
    """A backend for torch.compile(model, backend=..., mode=...): passes first, then Inductor with the mode's own settings.

    functional, aten: (graph module, its example inputs) -> places changed, in order. inductor: () -> {option: value}. calls: (model, the
    compiled callable, where the calls of its graphs are noted, strict) -> what is called in its place. strict: a pass that finds nothing to
    change raises NotImplementedError, as a candidate's does; what is kept runs on without it.
    Raises NotImplementedError when this torch's Inductor lacks an option.
    """

    def __init__(
        self, functional: Sequence[Callable[..., int]] = (), aten: Sequence[Callable[..., int]] = (),
        inductor: Sequence[Callable[[], dict[str, Any]]] = (), calls: Sequence[Callable[..., Callable[..., Any]]] = (),
        strict: bool = True,
    ) -> None:
        self.functional, self.aten, self.calls, self.strict = functional, aten, calls, strict
        self.recorded: list[Any] = []
        self.options = {option: value for patch in inductor for option, value in patch().items()}
        for option in self.options:
            try:
                operator.attrgetter(option)(torch._inductor.config)
            except AttributeError:
                raise NotImplementedError(f"not applicable: this torch's Inductor has no option {option}") from None
        self.found = {change.__name__: 0 for change in (*functional, *aten)}
        self.graphs, self.whole = 0, False

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: Sequence[Any], mode: str = "default") -> Callable[..., Any]:
        reason = getattr(graph, "compile_subgraph_reason", None)
        self.whole = not self.graphs and reason is not None and not reason.graph_break
        self.graphs += 1
        before = [tensor_of(output) for output in outputs_of(graph)]
        graph.meta[FROZEN] = bool(self.options.get("freezing"))
        self._apply(self.functional, graph, example_inputs)
        keep_strides(graph, before)
        options = {**torch._inductor.list_mode_options(mode), **self.options}
        if options.get("freezing"):
            weights_into_graph(graph, example_inputs)
        compiled = self.compiled(graph, example_inputs, options)
        return self.noted(compiled) if self.calls else compiled

    def noted(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """A compiled graph whose calls are recorded: (it, its inputs, what it gave)."""

        def call(*inputs: Any) -> Any:
            outputs = compiled(*inputs)
            self.recorded.append((compiled, inputs, outputs))
            return outputs

        return call

    def compiled(self, graph: torch.fx.GraphModule, example_inputs: Sequence[Any], options: dict[str, Any]) -> Callable[..., Any]:
        """What Inductor makes of the graph under these options, the ATen passes on the way."""
        with contextlib.ExitStack() as stack:
            # AOTAutograd's cache knows nothing of passes inside the inner compile: a hit would skip them.
            if hasattr(torch._functorch.config, "enable_autograd_cache"):
                stack.enter_context(torch._functorch.config.patch(enable_autograd_cache=False))
            compiled: Callable[..., Any] = torch._inductor.compile_fx.compile_fx(
                graph, example_inputs, inner_compile=self._inner_compile, config_patches=options)
        return compiled

    def _inner_compile(self, graph: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        if self.aten and not kwargs.get("is_inference"):
            raise NotImplementedError("not applicable: passes on the ATen graph take inference calls, and this one goes backward")
        self._apply(self.aten, graph, example_inputs)
        return torch._inductor.compile_fx.compile_fx_inner(graph, example_inputs, **kwargs)

    def _apply(self, changes: Sequence[Callable[..., int]], graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        for change in changes:
            places = change(graph, example_inputs)
            self.found[change.__name__] += places
            if places:
                # No dead-code removal here: on Dynamo's graph it would take calls like x.add_(1), whose result nobody reads.
                graph.graph.lint()
                graph.recompile()
                if change in self.functional:
                    know_values_anew(graph)
        if self.whole:  # no other graph will come: the compilation can be spared
            self._refuse_idle(changes)

    def _refuse_idle(self, changes: Sequence[Callable[..., int]]) -> None:
        idle = [change.__name__ for change in changes if not self.found[change.__name__]]
        if idle and self.strict:
            raise NotImplementedError(f"not applicable: found nothing to change in the compiled graphs: {', '.join(idle)}")

    def checked(self, compiled: Callable[..., Any], model: Any = None) -> Callable[..., Any]:
        """The compiled callable. Its first call, which compiles, raises NotImplementedError when a pass found nothing to change."""
        for change in self.calls:
            compiled = change(model, compiled, self.recorded, self.strict)
        waiting = [True]

        def call(*args: Any, **kwargs: Any) -> Any:
            if not waiting:
                return compiled(*args, **kwargs)
            try:
                output = compiled(*args, **kwargs)
            except BackendCompilerFailed as error:
                if isinstance(error.inner_exception, NotImplementedError):
                    raise error.inner_exception from None
                raise
            waiting.clear()
            self._refuse_idle([*self.functional, *self.aten])
            return output

        return call


READS = ("item", torch.Tensor.item, torch.ops.aten._local_scalar_dense.default)
"""Of a number that changed from call to call, and is a tensor in Dynamo's graph: a fake one has no value to read."""


class FakeRun(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs Dynamo's graph on fake values and notes at each node what its value looks like."""

    def run_node(self, node: torch.fx.Node) -> Any:
        known = node.meta.get("example_value")
        if node.op == "placeholder" and isinstance(known, torch.Tensor):
            # Not the known value itself: a call may reshape it in place.
            return torch.empty_strided(known.shape, known.stride(), dtype=known.dtype, device=known.device)
        if known is not None and (node.op in ("placeholder", "get_attr") or node.target in READS):
            return known
        value = super().run_node(node)
        if node.op != "output":
            node.meta["example_value"] = value
        return value


def know_values_anew(graph: torch.fx.GraphModule) -> None:
    """Brings what the graph says of its values (shapes, strides) up to date after a change."""
    with torch.no_grad(), fake_mode_of(graph):
        FakeRun(graph, garbage_collect_values=False).run(*[None for node in graph.graph.nodes if node.op == "placeholder"])


def outputs_of(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The nodes whose values the graph returns, in order; one that is returned twice stands there twice."""
    found: list[torch.fx.Node] = []
    end = next(node for node in graph.graph.nodes if node.op == "output")
    torch.fx.node.map_arg(end.args, found.append)
    return found


def keep_strides(graph: torch.fx.GraphModule, before: Sequence[torch.Tensor | None]) -> None:
    """Lays outputs out as they were before the passes: callers may view them, or mind."""
    end = next(node for node in graph.graph.nodes if node.op == "output")
    for output, old in zip(outputs_of(graph), before, strict=True):
        new = tensor_of(output)
        if old is None or new is None or new.stride() == old.stride() or new.shape != old.shape:
            continue
        order = sorted(range(old.dim()), key=lambda dim, old=old: -old.stride(dim))  # type: ignore[misc]
        dense = call_function(graph, end, torch.Tensor.contiguous, call_function(graph, end, torch.permute, output, order))
        end.replace_input_with(output, call_function(graph, end, torch.permute, dense, [order.index(dim) for dim in range(old.dim())]))
    graph.recompile()


def weights_into_graph(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """Makes the weights that Dynamo passes in as inputs attributes of the graph: Inductor's freezing takes only those as constant."""
    for node in list(graph.graph.nodes):
        if node.op == "placeholder" and node.users:
            weight = weight_of(node, graph, example_inputs)
            if weight is not None:
                node.replace_all_uses_with(constant_node(graph, f"frozen_{node.name}", weight))
    graph.recompile()


def weight_of(node: Any, graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> torch.Tensor | None:
    """The live tensor of a node of Dynamo's graph that stands for a parameter or buffer of the model; None for any other, and for
    one that the graph writes to."""
    if not isinstance(node, torch.fx.Node) or node.op not in ("get_attr", "placeholder") or is_written([node], graph):
        return None
    if node.op == "get_attr":
        value: Any = operator.attrgetter(str(node.target))(graph)
        return value if isinstance(value, torch.Tensor) else None
    value = example_inputs[[other for other in graph.graph.nodes if other.op == "placeholder"].index(node)]
    static = "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})
    return value if isinstance(value, torch.nn.Parameter) or (static and isinstance(value, torch.Tensor)) else None


def constant_node(graph: torch.fx.GraphModule, name: str, value: torch.Tensor) -> torch.fx.Node:
    """A new node, before all others that compute, for a tensor that the graph module keeps under (about) this name."""
    while hasattr(graph, name):
        name += "_"
    # Detached: a tensor that is an input too would be taken for the same argument given twice.
    graph.register_buffer(name, value.detach())
    if hasattr(graph, "_param_name_to_source"):  # AOTAutograd asks where each came from
        graph._param_name_to_source[name] = LocalSource(f"graph_{name}")
    first = next(node for node in graph.graph.nodes if node.op != "placeholder")
    with graph.graph.inserting_before(first):
        node = graph.graph.get_attr(name)
    mode = fake_mode_of(graph)
    node.meta[value_key(graph)] = mode.from_tensor(value.detach(), static_shapes=True) if hasattr(mode, "from_tensor") else value.detach()
    return node


def tensor_of(node: Any) -> torch.Tensor | None:
    """What the node's value looks like (shape, dtype, device; no data), on Dynamo's or the ATen graph. None: no tensor, or unknown."""
    meta = node.meta if isinstance(node, torch.fx.Node) else {}
    value = meta.get("example_value", meta.get("val"))
    return value if isinstance(value, torch.Tensor) else None


def call_function(
    graph: torch.fx.GraphModule, before: torch.fx.Node, target: Callable[..., Any], *args: Any, **kwargs: Any,
) -> torch.fx.Node:
    """A new call before a node; what its value looks like is found by running it on its arguments' fake values."""
    with graph.graph.inserting_before(before):
        node = graph.graph.call_function(target, args, kwargs)
    key = value_key(graph)
    fake_args, fake_kwargs = torch.fx.node.map_arg((args, kwargs), lambda item: item.meta[key])
    with fake_mode_of(graph):
        node.meta[key] = target(*fake_args, **fake_kwargs)
    return node


def value_key(graph: torch.fx.GraphModule) -> str:
    """Under which key the graph's nodes keep their fake values: Dynamo's graph has another than the ATen graph."""
    return "example_value" if any("example_value" in node.meta for node in graph.graph.nodes) else "val"


def fake_mode_of(graph: torch.fx.GraphModule) -> Any:
    """The mode that the graph's fake values live in; a context that does nothing when it has none."""
    modes = (getattr(tensor_of(node), "fake_mode", None) for node in graph.graph.nodes)
    return next((mode for mode in modes if mode is not None), contextlib.nullcontext())


def writes(node: torch.fx.Node) -> bool:
    """Whether a call may change one of its arguments in place (rather said too often than too seldom)."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        return bool(schema.is_mutable)
    if node.target in (torch.nn.functional.embedding, torch.nn.functional.embedding_bag):
        return arguments(node, "input", "weight", "padding_idx", "max_norm")[3] is not None or node.kwargs.get("max_norm") is not None
    if node.target is torch.nn.functional.dropout:  # whose True may be "training"
        return bool(arguments(node, "input", "p", "training", "inplace")[3])
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    trailing = name.endswith("_") and not name.endswith("__") and node.target not in (operator.and_, operator.or_)
    in_place = node.op in ("call_method", "call_function") and (trailing or name in ASSIGNS)
    flagged = node.op == "call_function" and name not in ("scaled_dot_product_attention", "softmax") and any(
        item is True for item in (*node.args, node.kwargs.get("inplace"), node.kwargs.get("training")))
    return in_place or flagged or "out" in node.kwargs


def undisturbed(graph: torch.fx.GraphModule, nodes: Sequence[torch.fx.Node], *, between: bool = False) -> bool:
    """Whether nothing from the first to the last of these nodes (between: without these two) writes in place, or turns autocast on or
    off, so that they may be moved together."""
    order = list(graph.graph.nodes)
    places = [order.index(node) for node in nodes]
    return not any(writes(node) or switches_autocast(node) for node in order[min(places) + between : max(places) + 1 - between])


def switches_autocast(node: torch.fx.Node) -> bool:
    """Whether what comes after a call computes in other types."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") in ("_enter_autocast", "_exit_autocast")


def has_autocast(graph: torch.fx.GraphModule) -> bool:
    """Whether parts of the graph run under an autocast of the model's own: what is computed beforehand would not."""
    return any(map(switches_autocast, graph.graph.nodes))


def is_written(nodes: Iterable[torch.fx.Node], graph: torch.fx.GraphModule) -> bool:
    """Whether a call of the graph writes to one of these, by whatever view."""
    count, known = graph.meta.get(WRITTEN, (0, set()))
    if count != len(graph.graph.nodes):
        known = {storage_of(item) for node in graph.graph.nodes if writes(node) for item in node.all_input_nodes} - {0}
        graph.meta[WRITTEN] = len(graph.graph.nodes), known
    return any(storage_of(node) in known or any(map(writes, node.users)) for node in nodes)


def storage_of(node: torch.fx.Node) -> int:
    """What a node's value has in common with its views; 0 where that is unknown."""
    look = tensor_of(node)
    try:
        return 0 if look is None else int(look.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # kinds of tensors without one
        return 0


def arguments(node: torch.fx.Node, *names: str) -> list[Any]:
    """The arguments of a call under these names in the order of its signature, given by position or by name; None for one left out."""
    return [node.args[place] if place < len(node.args) else node.kwargs.get(name) for place, name in enumerate(names)]


def calls(node: Any, *targets: Any) -> bool:
    """Whether a node calls one of these functions, or (a name) one of these tensor methods."""
    return isinstance(node, torch.fx.Node) and node.op in ("call_function", "call_method") and any(
        node.target == target for target in targets)


def is_layer(weight: torch.Tensor | None, bias: torch.Tensor | None) -> bool:
    """Whether these are the weights of a linear layer as nn.Linear has them: (outputs, inputs), and (outputs,) or none."""
    return weight is not None and weight.dim() == 2 and (bias is None or bias.shape == weight.shape[:1])


def replace(node: torch.fx.Node, new: torch.fx.Node) -> None:
    """Every use of a node becomes one of the new node; the old one goes, with the calls whose results nothing else needs."""
    node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    unused, erased = [node], set()
    while unused:
        gone = unused.pop()
        if gone not in erased and not gone.users and (gone is node or (gone.op in ("call_function", "call_method") and not writes(gone))):
            inputs = gone.all_input_nodes
            erased.add(gone)
            gone.graph.erase_node(gone)
            unused += inputs


def random_like(tensor: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Random numbers of a fake tensor's shape, strides, dtype and device, without touching the global generator."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    if not made.is_floating_point():
        return made.fill_(1)
    return made.normal_(generator=torch.Generator(device=tensor.device).manual_seed(seed))


def median_us(call: Callable[[], Any], device: torch.device, repeats: int = 15) -> float:
    """Median time of a call in microseconds after a warm-up: by the GPU's events there, by the clock on a CPU."""
    times = []
    for _ in range(3):
        call()
    for _ in range(repeats):
        if device.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(2_000_000)  # a millisecond: the host queues the whole call behind it, so that its own time stays out
            start.record()
            call()
            end.record()
            torch.cuda.synchronize(device)
            times.append(1e3 * start.elapsed_time(end))
        else:
            begin = time.perf_counter()
            call()
            times.append(1e6 * (time.perf_counter() - begin))
    return float(statistics.median(times))
