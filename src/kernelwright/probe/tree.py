"""Tensors inside nested inputs and outputs: tuples, lists, dicts, dataclasses, named tuples, simple objects. CuPy arrays count as
tensors (over the same memory, by DLPack); the workload itself is still called with its own arrays."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch

_ATOMS = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size, torch.nn.Module, torch.Generator)


def leaves(obj: Any) -> list[tuple[str, torch.Tensor]]:
    """(path, tensor) of every tensor in `obj`, depth first. A lone tensor has the path ""; else e.g. "0", "batch.mask".

    A tensor that appears twice is listed twice; a container that holds itself is entered once.
    """
    found: list[tuple[str, torch.Tensor]] = []
    _collect(obj, "", found, set())
    return found


def is_cupy(obj: Any) -> bool:
    """A CuPy array, told without importing CuPy."""
    return type(obj).__module__.partition(".")[0] == "cupy" and hasattr(obj, "__dlpack__")


def as_tensor(obj: Any) -> torch.Tensor:
    """A tensor as it is; a CuPy array as a tensor over the same memory (DLPack)."""
    return obj if isinstance(obj, torch.Tensor) else torch.from_dlpack(obj)


def _as_cupy(value: Any, like: Any) -> Any:
    """A tensor as a CuPy array over the same memory, where it lies on a GPU as `like` does; anything else as it is."""
    if not isinstance(value, torch.Tensor) or value.device.type != as_tensor(like).device.type:
        return value
    return sys.modules["cupy"].from_dlpack(value.detach())


def tensors(obj: Any) -> list[torch.Tensor]:
    """The tensors of `leaves`, each object once."""
    return list({id(tensor): tensor for _, tensor in leaves(obj)}.values())


def _collect(obj: Any, path: str, found: list[tuple[str, torch.Tensor]], entered: set[int]) -> None:
    if isinstance(obj, torch.Tensor) or is_cupy(obj):
        found.append((path, as_tensor(obj)))
        return
    if isinstance(obj, _ATOMS) or callable(obj) or id(obj) in entered:
        return
    entered.add(id(obj))
    for name, child in _children(obj):
        _collect(child, f"{path}.{name}" if path else name, found, entered)
    entered.discard(id(obj))


def _children(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, Mapping):
        yield from ((str(key), value) for key, value in obj.items())
    elif isinstance(obj, tuple) and hasattr(obj, "_fields"):
        yield from zip(obj._fields, obj, strict=True)
    elif isinstance(obj, (tuple, list)):
        yield from ((str(index), value) for index, value in enumerate(obj))
    elif dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        yield from ((field.name, getattr(obj, field.name, None)) for field in dataclasses.fields(obj))
    elif hasattr(obj, "__dict__") and not isinstance(obj, type):
        yield from ((name, value) for name, value in vars(obj).items() if not name.startswith("__"))


def map_tensors(fn: Callable[[torch.Tensor], Any], obj: Any) -> Any:
    """A copy of `obj` with `fn` applied to every tensor; what holds no tensor is shared, not copied.

    A tensor or container that appears twice is mapped once, so shared inputs stay shared.
    """
    return _map(fn, obj, {})


def _map(fn: Callable[[torch.Tensor], Any], obj: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(obj, _ATOMS) or (callable(obj) and not isinstance(obj, torch.Tensor)):
        return obj
    if id(obj) in done:
        return done[id(obj)][1]
    if isinstance(obj, torch.Tensor):
        mapped = fn(obj)
    elif is_cupy(obj):
        view = as_tensor(obj)
        mapped = fn(view)
        mapped = obj if mapped is view else _as_cupy(mapped, obj)
    else:
        done[id(obj)] = (obj, obj)
        mapped = _rebuild(obj, {name: _map(fn, child, done) for name, child in _named(obj).items()})
    # The original is kept beside its copy: an id is only good while its object lives.
    done[id(obj)] = (obj, mapped)
    return mapped


def _named(obj: Any) -> dict[Any, Any]:
    """Children by their real keys (a mapping's keys need not be text)."""
    return dict(obj.items()) if isinstance(obj, Mapping) else dict(_children(obj))


def _rebuild(obj: Any, children: dict[Any, Any]) -> Any:
    old = _named(obj)
    if all(children[name] is old[name] for name in old):
        return obj
    if type(obj) in (list, tuple):
        return type(obj)(children.values())
    if isinstance(obj, tuple):
        return type(obj)(*children.values()) if hasattr(obj, "_fields") else type(obj)(children.values())
    duplicate = copy.copy(obj)
    if isinstance(obj, list):
        duplicate[:] = list(children.values())
    elif isinstance(obj, MutableMapping):
        for name, value in children.items():
            duplicate[name] = value
    elif isinstance(obj, Mapping):
        return dict(children)
    else:
        for name, value in children.items():
            object.__setattr__(duplicate, name, value)
    return duplicate


def to_device(obj: Any, device: str) -> Any:
    """`obj` with its tensors on `device` ("cuda" or "cpu"); shares those already there. Leaves stay leaves.

    A PackedSequence moves itself: it keeps its lengths on the CPU.
    """
    moved: dict[int, torch.Tensor] = {}

    def move(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == device:
            return tensor
        if id(tensor) not in moved:
            moved[id(tensor)] = tensor.detach().to(device).requires_grad_(tensor.requires_grad)
        return moved[id(tensor)]

    def walk(item: Any) -> Any:
        if isinstance(item, torch.nn.utils.rnn.PackedSequence):
            return item.to(device)
        if type(item) in (list, tuple):
            return type(item)(walk(child) for child in item)
        if type(item) is dict:
            return {key: walk(child) for key, child in item.items()}
        return map_tensors(move, item)

    return walk(obj)
