"""Nested inputs and outputs: tuples, lists, dicts and dataclasses of tensors. Copied into every generated file."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))


def tensors_alone(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is given tensors and nothing else, none in a nest: then its leaves need not be looked for. Asked at every call."""
    return PLAIN.issuperset(map(type, args)) and PLAIN.issuperset(map(type, kwargs.values()))


def tensors_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors of a call, in the order of its leaves."""
    if tensors_alone(args, kwargs):
        return [*args, *kwargs.values()]
    return [leaf for _path, leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """[(path, leaf)] in order; a path is like "0" or "batch.mask"."""
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, (list, tuple)):
        items = list(enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    else:
        return [(path, value)]
    return [leaf for key, part in items for leaf in leaves(part, f"{path}.{key}" if path else str(key))]


def map_tensors(fn: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """The same nest with fn(tensor) in place of every tensor; the given nest stays as it is."""
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, tuple):
        parts = [map_tensors(fn, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, list):
        return [map_tensors(fn, part) for part in value]
    if isinstance(value, dict):
        mapped = {key: map_tensors(fn, part) for key, part in value.items()}
        if type(value) is dict:
            return mapped
        subclass = copy.copy(value)
        for key, part in mapped.items():
            subclass[key] = part
        return subclass
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        record = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(record, field.name, map_tensors(fn, getattr(value, field.name)))
        return record
    return value
