"""torch.compile's backend made of passes over its graphs, and what such passes share. Copied into files that hold one.

Three places to change what is compiled: Dynamo's graph (torch functions; weights are placeholders or attributes), the ATen graph of an
inference call that AOTAutograd hands to Inductor, and Inductor's configuration.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._functorch.config
import torch._inductor.compile_fx
import torch.fx
from torch._dynamo.source import LocalSource


class GraphBackend:
    """A backend for torch.compile(model, backend=..., mode=...): passes first, then Inductor with the mode's own settings.

    functional, aten: (graph module, its example inputs) -> places changed, in order. inductor: () -> {option: value}.
    Raises NotImplementedError when this torch's Inductor lacks an option.
    """

    def __init__(
        self, functional: Sequence[Callable[..., int]] = (), aten: Sequence[Callable[..., int]] = (),
        inductor: Sequence[Callable[[], dict[str, Any]]] = (),
    ) -> None:
        self.functional, self.aten = functional, aten
        self.options = {option: value for patch in inductor for option, value in patch().items()}
        for option in self.options:
            try:
                operator.attrgetter(option)(torch._inductor.config)
            except AttributeError:
                raise NotImplementedError(f"not applicable: this torch's Inductor has no option {option}") from None
        self.found = {change.__name__: 0 for change in (*functional, *aten)}

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: Sequence[Any], mode: str = "default") -> Callable[..., Any]:
        self._apply(self.functional, graph, example_inputs)
        options = {**torch._inductor.list_mode_options(mode), **self.options}
        if options.get("freezing"):
            weights_into_graph(graph, example_inputs)
        return self.compiled(graph, example_inputs, options)

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
        if kwargs.get("is_inference"):
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

    def checked(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """The compiled callable. Its first call, which compiles, raises NotImplementedError when a pass found nothing to change."""
        waiting = [True]

        def call(*args: Any, **kwargs: Any) -> Any:
            output = compiled(*args, **kwargs)
            if waiting:
                waiting.clear()
                idle = [name for name, places in self.found.items() if not places]
                if idle:
                    raise NotImplementedError(f"not applicable: found nothing to change in the compiled graphs: {', '.join(idle)}")
            return output

        return call


def weights_into_graph(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> None:
    """Makes the weights that Dynamo passes in as inputs attributes of the graph: Inductor's freezing takes only those as constant."""
    for node in list(graph.graph.nodes):
        if node.op == "placeholder" and node.users:
            weight = weight_of(node, graph, example_inputs)
            if weight is not None:
                node.replace_all_uses_with(constant_node(graph, f"frozen_{node.name}", weight))
    graph.recompile()


def weight_of(node: Any, graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> torch.Tensor | None:
    """The live tensor of a node of Dynamo's graph that stands for a parameter or buffer of the model; None for any other."""
    if not isinstance(node, torch.fx.Node):
        return None
    if node.op == "get_attr":
        value: Any = operator.attrgetter(str(node.target))(graph)
        return value if isinstance(value, torch.Tensor) else None
    if node.op != "placeholder":
        return None
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
    node.meta["example_value"] = mode.from_tensor(value.detach(), static_shapes=True) if hasattr(mode, "from_tensor") else value.detach()
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
    key = "example_value" if any("example_value" in item.meta for item in graph.graph.nodes) else "val"
    fake_args, fake_kwargs = torch.fx.node.map_arg((args, kwargs), lambda item: item.meta[key])
    with fake_mode_of(graph):
        node.meta[key] = target(*fake_args, **fake_kwargs)
    return node


def fake_mode_of(graph: torch.fx.GraphModule) -> Any:
    """The mode that the graph's fake values live in; a context that does nothing when it has none."""
    modes = (getattr(tensor_of(node), "fake_mode", None) for node in graph.graph.nodes)
    return next((mode for mode in modes if mode is not None), contextlib.nullcontext())
