"""Everything in a workload's inputs that is no tensor but may follow the seed: numbers, words, switches inside the containers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import tree

Plain = tuple[str, Any]
PLAIN_TYPES = (int, float, str, bool, type(None))


def plain_leaves(inputs: Any) -> list[Plain]:
    """(path, value) of every int, float, str, bool and None, depth first, paths as in tree.leaves."""
    found: list[Plain] = []

    def note(path: str, value: Any) -> Any:
        found.append((path, value))
        return value

    _walk(note, inputs, "", set())
    return found


def with_plain(inputs: Any, values: list[Plain]) -> Any:
    """`inputs` with these plain values in their places; tensors are shared. Raises ValueError when the places differ."""
    if [path for path, _ in plain_leaves(inputs)] != [path for path, _ in values]:
        raise ValueError("other places")
    waiting = iter(values)

    def take(_path: str, value: Any) -> Any:
        given = next(waiting)[1]
        return value if type(given) is type(value) and given == value else given

    return _walk(take, inputs, "", set())


def same_layout(one: Any, two: Any) -> bool:
    """Tensors of the same shapes and dtypes, and the same plain values, in the same places: one can be refilled from the other."""
    mine, theirs = tree.leaves(one), tree.leaves(two)
    return ([_kind(path, leaf) for path, leaf in mine] == [_kind(path, leaf) for path, leaf in theirs]
            and repr(plain_leaves(one)) == repr(plain_leaves(two)))


def _kind(path: str, leaf: torch.Tensor) -> tuple[Any, ...]:
    return path, leaf.shape, leaf.dtype


def _walk(visit: Callable[[str, Any], Any], obj: Any, path: str, entered: set[int]) -> Any:
    if type(obj) in PLAIN_TYPES:
        return visit(path, obj)
    if isinstance(obj, (torch.Tensor, *tree._ATOMS)) or callable(obj) or id(obj) in entered:
        return obj
    entered.add(id(obj))
    children = {name: _walk(visit, child, f"{path}.{name}" if path else str(name), entered) for name, child in tree._named(obj).items()}
    entered.discard(id(obj))
    return tree._rebuild(obj, children)
