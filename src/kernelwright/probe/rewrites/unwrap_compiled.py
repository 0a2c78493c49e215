"""The workload's own torch.compile, and CUDA graphs by torch.cuda.make_graphed_callables, taken off."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

GRAPHED = "make_graphed_callables.<locals>.make_graphed_forward.<locals>.new_fwd"
"""Of what torch.cuda.make_graphed_callables puts in the place of a module's forward."""


def unwrap_compiled(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Callable[..., Any]:
    """What torch.compile was put around; of a module that is compiled in place, or has compiled or graphed parts, a twin without. The
    weights are the same tensors, and the model stays as it is."""
    inner: Callable[..., Any] | None = uncompiled(model)
    if inner is None:
        raise NotImplementedError("not applicable: neither torch.compile nor torch.cuda.make_graphed_callables is around the workload, a "
                                  "module or a method of it")
    return inner


def uncompiled(model: Any) -> Any:
    """The model with torch.compile taken off wherever it can be seen from outside: around it (torch.compile(model)), in place
    (model.compile()), around its submodules and its methods; and with the forward methods that torch.cuda.make_graphed_callables replaced.
    None where there is nothing of either."""
    plain = _Unwrapped(model).plain
    return None if plain is model else plain


def is_graphed(model: Any) -> bool:
    """Whether a module's forward was replaced by torch.cuda.make_graphed_callables. What that makes of a function keeps nothing of it."""
    return _Unwrapped(model).graphs > 0


def is_wrapped(model: Any) -> bool:
    """Whether torch.compile can be seen from outside."""
    return _Unwrapped(model).compilers > 0


def _under_graph(value: Any) -> Any:
    """The forward that torch.cuda.make_graphed_callables replaced by this function; None for anything else."""
    if not isinstance(value, types.FunctionType) or value.__qualname__ != GRAPHED or value.__module__ != "torch.cuda.graphs":
        return None
    cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
    return cells["orig_fwd"].cell_contents if "orig_fwd" in cells else None


def _under_compiler(value: Any) -> Any:
    """What torch.compile was put around; None for anything else: what torch.compiler.disable was put around, and a decorator around
    something compiled, to which functools.wraps copied torch.compile's mark."""
    is_module = isinstance(value, torch.nn.Module)
    if not (isinstance(value, (types.FunctionType, types.MethodType)) or (is_module and "_orig_mod" in value._modules)):
        return None
    disabled = getattr(vars(value).get("forward") if is_module else value, "_torchdynamo_disable", False)
    inner = value._modules["_orig_mod"] if is_module else getattr(value, "_torchdynamo_orig_callable", None)
    if not callable(inner) or disabled or (not is_module and getattr(value, "__wrapped__", inner) is not inner):
        return None
    return types.MethodType(inner, value.__self__) if isinstance(value, types.MethodType) else inner


class _Unwrapped:
    """A model without what hides it, and how often either wrapper was seen."""

    def __init__(self, model: Any) -> None:
        self.compilers = self.graphs = 0
        self.known: dict[int, Any] = {}
        """What was made of the modules that were seen, by id."""
        self.plain = self.of(model)

    def of(self, value: Any) -> Any:
        """The value itself where nothing hides it or a part of it."""
        value = self.under(value)
        if not isinstance(value, torch.nn.Module) or isinstance(value, torch.jit.ScriptModule):
            return value
        if id(value) in self.known:
            return self.known[id(value)]
        self.known[id(value)] = value
        children = {name: None if child is None else self.of(child) for name, child in value._modules.items()}
        own = {name: item for name, item in vars(value).items() if isinstance(item, (types.FunctionType, types.MethodType))}
        if "forward" not in own and _under_compiler(type(value).forward) is not None:  # @torch.compile above the method
            own["forward"] = types.MethodType(type(value).forward, value)
        bare = {name: self.of(item) for name, item in own.items() if name != "_compiled_call_impl"}
        changed = any(children[name] is not child for name, child in value._modules.items()) or any(
            item is not vars(value).get(name) for name, item in bare.items())
        in_place = vars(value).get("_compiled_call_impl") is not None
        self.compilers += in_place
        if not changed and not in_place:
            return value
        twin = self.known[id(value)] = object.__new__(type(value))  # a torch.fx.GraphModule makes a new class of itself
        twin.__dict__.update({**vars(value), **bare, "_modules": children})
        twin.__dict__.pop("_compiled_call_impl", None)
        for name, item in bare.items():
            if isinstance(item, types.MethodType) and item.__self__ is value:  # it would call the compiled parts of the original
                twin.__dict__[name] = types.MethodType(item.__func__, twin)
                if item.__func__ is getattr(type(value), name, None):
                    del twin.__dict__[name]
        return twin

    def under(self, value: Any) -> Any:
        """What all wrappers together were put around."""
        while True:
            if (inner := _under_compiler(value)) is not None:
                self.compilers += 1
            elif (inner := _under_graph(value)) is not None:
                self.graphs += 1
            else:
                return value
            value = inner
