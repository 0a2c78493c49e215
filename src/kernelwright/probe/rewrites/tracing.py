"""The model as a torch.fx graph for exactly this call, for rewrites that move or drop operators. Copied into files that hold one."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.utils.data
from torch.overrides import TorchFunctionMode

from .assignments import ASSIGNS
from .trees import leaves


class CallTracer(torch.fx.Tracer):  # type: ignore[misc]
    """Takes a module that launches a kernel of its own as one operator: it looks at what it is given, of which tracing knows nothing."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return getattr(m, "is_one_operator", False) or super().is_leaf_module(m, module_qualified_name)


def traced_call(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.fx.GraphModule:
    """A torch.fx copy of the model that shares its weights. Raises NotImplementedError where the model can't be traced.

    Arguments that hold no tensor are fixed while tracing: a None must stay None, else `if mask is None` goes the wrong way.
    """
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("not applicable: only an nn.Module can be traced")
    devices = {leaf.device for _path, leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}

    state = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    tracer = CallTracer()

    class Constants(TorchFunctionMode):  # type: ignore[misc]
        """What needs no input runs while tracing, and its result is a constant of the graph. Not so uploads, and random numbers."""

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name, own = getattr(function, "__name__", ""), args[0] if args and isinstance(args[0], torch.Tensor) else None
            if name in ("to", "cuda") and own is not None and devices and own.device not in devices:
                return tracer.create_proxy("call_method", name, args, kwargs or {})
            if name in ("rand", "randn", "randint", "randperm", "normal") and not any(isinstance(part, torch.fx.Proxy) for part in args):
                raise NotImplementedError("not applicable: a random number drawn while tracing would stay the same in every call")
            writes = (name.endswith("_") and not name.endswith("__")) or name in ("__setitem__", "__iadd__", "__isub__", "__imul__")
            if writes and own is not None and own.untyped_storage().data_ptr() in state:
                raise NotImplementedError("not applicable: the model writes a tensor of its own, which tracing would do once for all calls")
            return function(*args, **(kwargs or {}))

    signature = inspect.signature(model.forward)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    named = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    fixed = {name: bound.arguments[name] for name in named
             if not any(isinstance(leaf, torch.Tensor) for _path, leaf in leaves(bound.arguments[name]))}
    loader = torch.utils.data.DataLoader
    begin = loader.__iter__
    loader.__iter__ = _load_nothing
    try:
        with Constants():
            graph = tracer.trace(model, concrete_args=fixed or None)
        return torch.fx.GraphModule(tracer.root, graph, type(model).__name__)
    except (AssertionError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise NotImplementedError(f"not applicable: torch.fx can't trace the model ({type(error).__name__}: {error})") from error
    finally:
        loader.__iter__ = begin


def _load_nothing(_loader: Any) -> Any:
    raise RuntimeError("a DataLoader's batches would be constants, loaded once for all calls")


def looks_of(
    graph: torch.fx.GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any],
) -> dict[torch.fx.Node, tuple[torch.dtype, tuple[int, ...], str]]:
    """(dtype, shape, device type) of each tensor of the graph on this call, which is run once."""
    looks: dict[torch.fx.Node, tuple[torch.dtype, tuple[int, ...], str]] = {}

    class Watch(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: torch.fx.Node) -> Any:
            value = super().run_node(node)
            if isinstance(value, torch.Tensor):
                looks[node] = (value.dtype, tuple(value.shape), value.device.type)
            return value

    signature = inspect.signature(graph.forward)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    Watch(graph).run(*(bound.arguments[name] for name in signature.parameters))
    return looks


def changes_in_place(node: torch.fx.Node) -> bool:
    """Whether an operator writes to memory that others may read: then the order of the program is the only safe one."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if node.op == "call_module":
        module = node.graph.owning_module.get_submodule(str(node.target))
        return bool(getattr(module, "inplace", False))
    functional = getattr(node.target, "__module__", "") == "torch.nn.functional"
    return (name in ASSIGNS or (name.endswith("_") and not name.endswith("__")) or bool(node.kwargs.get("inplace")) or "out" in node.kwargs
            or (functional and any(argument is True for argument in node.args)))


def host_copies(
    graph: torch.fx.GraphModule, looks: dict[torch.fx.Node, tuple[torch.dtype, tuple[int, ...], str]],
) -> list[tuple[torch.fx.Node, torch.Tensor, str, torch.dtype]]:
    """(node, host tensor, device type, dtype) of each copy of the model's own host tensors to a device, in order of use."""
    found = []
    for node in graph.graph.nodes:
        source = node.args[0] if node.op == "call_method" and node.target in ("to", "cuda", "type_as") and node.args else None
        if not isinstance(source, torch.fx.Node) or source.op != "get_attr" or source not in looks or node not in looks:
            continue
        if looks[source][2] == "cpu" != looks[node][2]:
            found.append((node, operator.attrgetter(str(source.target))(graph), looks[node][2], looks[node][0]))
    return found
