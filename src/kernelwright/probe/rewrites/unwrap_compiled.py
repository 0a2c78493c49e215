"""The workload's own torch.compile taken off."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch


def unwrap_compiled(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Callable[..., Any]:
    """What torch.compile was put around; of a module that is compiled in place, or has compiled parts, a twin without. The weights are the
    same tensors, and the model stays as it is."""
    inner: Callable[..., Any] | None = uncompiled(model)
    if inner is None:
        raise NotImplementedError("not applicable: torch.compile is around neither the workload nor a module or a method of it")
    return inner


def uncompiled(model: Any) -> Any:
    """The model with torch.compile taken off wherever it can be seen from outside: around it (torch.compile(model)), in place
    (model.compile()), around its submodules and its methods. None where it is nowhere there."""
    plain = _without_compile(model, {})
    return None if plain is model else plain


def _under_wrapper(value: Any) -> Any:
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


def _without_compile(value: Any, known: dict[int, Any]) -> Any:
    """See `uncompiled`; the value itself where nothing is compiled. known: what was made of the modules that were seen, by id."""
    while (inner := _under_wrapper(value)) is not None:
        value = inner
    if not isinstance(value, torch.nn.Module) or isinstance(value, torch.jit.ScriptModule):
        return value
    if id(value) in known:
        return known[id(value)]
    known[id(value)] = value
    children = {name: None if child is None else _without_compile(child, known) for name, child in value._modules.items()}
    own = {name: item for name, item in vars(value).items() if isinstance(item, (types.FunctionType, types.MethodType))}
    if "forward" not in own and _under_wrapper(type(value).forward) is not None:  # @torch.compile above the method
        own["forward"] = types.MethodType(type(value).forward, value)
    bare = {name: _without_compile(item, known) for name, item in own.items() if name != "_compiled_call_impl"}
    changed = any(children[name] is not child for name, child in value._modules.items()) or any(
        item is not vars(value).get(name) for name, item in bare.items())
    if not changed and vars(value).get("_compiled_call_impl") is None:
        return value
    twin = known[id(value)] = object.__new__(type(value))  # a torch.fx.GraphModule makes a new class of itself
    twin.__dict__.update({**vars(value), **bare, "_modules": children})
    twin.__dict__.pop("_compiled_call_impl", None)
    for name, item in bare.items():
        if isinstance(item, types.MethodType) and item.__self__ is value:  # it would call the compiled parts of the original
            twin.__dict__[name] = types.MethodType(item.__func__, twin)
            if item.__func__ is getattr(type(value), name, None):
                del twin.__dict__[name]
    return twin
