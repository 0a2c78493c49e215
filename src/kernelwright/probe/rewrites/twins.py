"""Copies of a model: other modules, with its own weights or with others. Copied into files that change parts of one."""

from __future__ import annotations

import copy
import itertools
import types
from typing import Any

import torch


def own_tensors(model: torch.nn.Module) -> dict[int, Any]:
    """What twin_of is given where the copy shall have the model's own weights and buffers."""
    return {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}


def twin_of(model: torch.nn.Module, instead: dict[int, Any] | None = None) -> torch.nn.Module:
    """A deep copy of a model. instead: id of an object in it -> what the copy has in its place.

    deepcopy leaves functions as they are, so that one which a module keeps (minGPT's `self.mlpf = lambda x: m.c_proj(...)`) would go on
    calling the model's own parts: in the copy it calls the copy's.
    """
    memo = dict(instead or {})
    twin = copy.deepcopy(model, memo)
    for module in twin.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType):
                vars(module)[name] = _rebound(value, memo)
    return twin


def _rebound(function: types.FunctionType, memo: dict[int, Any]) -> types.FunctionType:
    """The function with the copies of what was copied, where it is a closure over some of that."""
    cells = [_copied_cell(cell, memo) for cell in function.__closure__ or ()]
    defaults = tuple(_copy_of(value, memo) for value in function.__defaults__ or ())
    if all(new is old for new, old in itertools.chain(
            zip(cells, function.__closure__ or (), strict=True), zip(defaults, function.__defaults__ or (), strict=True))):
        return function
    twin = types.FunctionType(function.__code__, function.__globals__, function.__name__, defaults or None, tuple(cells))
    twin.__kwdefaults__, twin.__qualname__ = function.__kwdefaults__, function.__qualname__
    twin.__dict__.update(function.__dict__)
    return twin


def _copied_cell(cell: types.CellType, memo: dict[int, Any]) -> types.CellType:
    try:
        old = cell.cell_contents
    except ValueError:  # nothing was bound yet
        return cell
    new = _copy_of(old, memo)
    return cell if new is old else types.CellType(new)


def _copy_of(value: Any, memo: dict[int, Any]) -> Any:
    """The copy of a module or tensor that was copied, or of a nest that holds one; anything else as it is."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    if any(_was_copied(one, memo) for one in (value, *parts)):
        return copy.deepcopy(value, memo)
    return value


def _was_copied(value: Any, memo: dict[int, Any]) -> bool:
    return isinstance(value, (torch.nn.Module, torch.Tensor)) and id(value) in memo
