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
from .side_calls import on_the_side
from .trees import leaves, map_tensors


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
    if model._forward_hooks or model._forward_pre_hooks or "forward" in vars(model):
        raise NotImplementedError("not applicable: the model has a hook or a forward of its own, which tracing would leave out")
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
    own = [(module, dict(vars(module))) for module in model.modules()]
    loader, autocast = torch.utils.data.DataLoader, torch.autocast
    begin, enter = loader.__iter__, autocast.__enter__
    loader.__iter__, autocast.__enter__ = _load_nothing, _cast_nothing
    try:
        with Constants():
            graph = tracer.trace(model, concrete_args=fixed or None)
        traced = torch.fx.GraphModule(tracer.root, graph, type(model).__name__)
    except (AssertionError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise NotImplementedError(f"not applicable: torch.fx can't trace the model ({type(error).__name__}: {error})") from error
    finally:
        loader.__iter__, autocast.__enter__ = begin, enter
        altered = [module for module, before in own if put_back(module, before)]
    if altered:
        raise NotImplementedError("not applicable: the model sets attributes of its own, which tracing would do once for all calls")
    if not model.training and not does_the_same(traced, model, args, kwargs):
        raise NotImplementedError("not applicable: what torch.fx traced gives something else than the model")
    return traced


def put_back(module: torch.nn.Module, before: dict[str, Any]) -> bool:
    """Gives a module the attributes that it had. Returns whether it had others, beside the constants that tracing keeps there."""
    now = dict(vars(module))
    vars(module).clear()
    vars(module).update(before)
    own = {name: value for name, value in now.items() if name in before or not name.startswith("_tensor_constant")}
    return own.keys() != before.keys() or any(own[name] is not value for name, value in before.items())


def does_the_same(traced: Any, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether both give the same on this call: control flow that looks at values or types goes another way while tracing."""
    found = []
    parameters = inspect.signature(model.forward).parameters.values()
    for function in (model, traced):
        own_args, own_kwargs = map_tensors(torch.clone, (args, kwargs))
        if function is traced and not any(item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD) for item in parameters):
            bound = inspect.signature(model.forward).bind(*own_args, **own_kwargs)
            bound.apply_defaults()
            own_args, own_kwargs = tuple(bound.arguments.values()), {}  # tracing may name them otherwise
        try:
            with on_the_side(model), torch.no_grad():  # each draws the same random numbers
                found.append([part for _path, part in leaves(function(*own_args, **own_kwargs)) if isinstance(part, torch.Tensor)])
        except NotImplementedError:
            raise
        except Exception as error:
            raise NotImplementedError(f"not applicable: what torch.fx traced does not run ({type(error).__name__}: {error})") from error
    return len(found[0]) == len(found[1]) and all(map(is_close, *found))


def is_close(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two results are of one kind, and differ by what kernels differ from call to call."""
    if (one.shape, one.dtype, one.device) != (two.shape, two.dtype, two.device):
        return False
    if one.is_meta:
        return True
    if not (one.is_floating_point() or one.is_complex()):
        return bool(torch.equal(one, two))
    known = one.isfinite()
    first, second = (torch.where(known, part, 0.0).to(torch.promote_types(part.dtype, torch.float32)) for part in (one, two))
    return bool(torch.equal(known, two.isfinite())) and float((first - second).norm()) <= 1e-2 * float(first.norm())


def _load_nothing(_loader: Any) -> Any:
    raise RuntimeError("a DataLoader's batches would be constants, loaded once for all calls")


def _cast_nothing(_autocast: Any) -> Any:
    raise RuntimeError("an autocast of the model's own would be left out")


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
