"""Copies of a model, and models with parts replaced. Copied into files that change parts of one."""

from __future__ import annotations

import copy
import functools
import itertools
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch

HOOKS = ("_forward_hooks", "_forward_pre_hooks")
NOT_BOUND = object()
LARGEST_NEST = 100_000
"""Members of a list, tuple, set or dict that is looked into: a vocabulary holds no layers."""


def own_tensors(model: torch.nn.Module) -> dict[int, Any]:
    """What twin_of is given where the copy shall have the model's own weights and buffers."""
    return {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}


def twin_of(model: torch.nn.Module, instead: Mapping[int, Any] | None = None) -> torch.nn.Module:
    """A deep copy of a model. instead: id of an object in it -> what the copy has in its place.

    deepcopy leaves functions as they are, so that one which a module keeps (minGPT's `self.mlpf = lambda x: m.c_proj(...)`) would go on
    calling the model's own parts: the copy's call the copy's.
    """
    memo = dict(instead or {})
    twin = copy.deepcopy(model, memo)
    follow(twin, memo)
    return twin


def with_parts(model: torch.nn.Module, new: Mapping[torch.nn.Module, torch.nn.Module]) -> torch.nn.Module:
    """The model with these modules of it replaced, in place: under each of their names, and where functions that modules keep call them."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in new:
                setattr(parent, name, new[child])
    follow(model, {id(old): part for old, part in new.items()})
    return new.get(model, model)


def follow(model: torch.nn.Module, instead: Mapping[int, Any]) -> None:
    """Functions that the model's modules keep, as attributes or as hooks, call what stands in the place of other objects."""
    found = Followed(instead)
    usual = vars(torch.nn.Module()).keys()
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if type(value) in (dict, list) and name not in usual:
                found.fill(value)
            elif name not in usual and not isinstance(value, (torch.nn.Module, torch.Tensor)):
                vars(module)[name] = found.of(value)
        for hooks in (vars(module).get(name, {}) for name in HOOKS):
            hooks.update({key: found.of(hook) for key, hook in hooks.items()})


class Followed:
    """Functions, methods, partials and plain nests of them with other objects in the place of those that they refer to (in closures,
    defaults and attributes). What refers to none stays the object that it is; objects of other kinds are not looked into."""

    def __init__(self, instead: Mapping[int, Any]) -> None:
        self.instead = instead
        self.made: dict[int, Any] = {}
        self.cells: dict[int, types.CellType] = {}
        self.clean: set[int] = set()
        self.alive: list[Any] = []
        """What the ids before are of: none is given to another object meanwhile."""

    def of(self, value: Any) -> Any:
        if isinstance(value, (torch.nn.Module, torch.Tensor)):
            return self.instead.get(id(value), value)
        if id(value) in self.made:
            return self.made[id(value)]
        if type(value) in (dict, list) and id(value) in self.instead:  # copied with the model
            self.keep(value, self.instead[id(value)])
            self.fill(self.instead[id(value)])
            return self.instead[id(value)]
        if not self.refers(value):
            return value
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, types.MethodType):
            owner = self.of(value.__self__)
            return types.MethodType(self.of(value.__func__), owner) if type(owner) is type(value.__self__) else value
        if isinstance(value, functools.partial):
            return functools.partial(self.of(value.func), *map(self.of, value.args), **{k: self.of(v) for k, v in value.keywords.items()})
        if type(value) in (dict, list):
            copied = self.keep(value, copy.copy(value))
            self.fill(copied)
            return copied
        return type(value)(self.of(one) for one in value)

    def keep(self, old: Any, new: Any) -> Any:
        """Notes, before it is filled, what stands in the place of an object: that may refer to itself."""
        self.made[id(old)] = self.made[id(new)] = new
        self.alive += [old, new]
        return new

    def fill(self, nest: dict[Any, Any] | list[Any]) -> None:
        """Members in the place of those that it has, in place."""
        if id(nest) not in self.clean and self.refers(nest):
            self.keep(nest, nest)
            for key, value in list(nest.items() if isinstance(nest, dict) else enumerate(nest)):
                nest[key] = self.of(value)

    def refers(self, value: Any) -> bool:
        """Whether it leads to something that another stands in the place of."""
        seen: set[int] = set()
        found = self.leads(value, seen)
        if not found:
            self.clean |= seen
            self.alive.append(value)
        return found

    def leads(self, value: Any, seen: set[int]) -> bool:
        if isinstance(value, (torch.nn.Module, torch.Tensor)):
            return self.instead.get(id(value), value) is not value
        if value is None or type(value) in (int, float, bool, str, bytes) or id(value) in seen or id(value) in self.clean:
            return False
        seen.add(id(value))
        return (type(value) in (dict, list) and id(value) in self.instead) or any(self.leads(part, seen) for part in parts_of(value))

    def function(self, old: types.FunctionType) -> types.FunctionType:
        cells = tuple(self.cell(cell) for cell in old.__closure__ or ())
        new: types.FunctionType = self.keep(old, types.FunctionType(old.__code__, old.__globals__, old.__name__, None, cells))
        for cell, own in zip(old.__closure__ or (), cells, strict=True):
            if own is not cell and content(own) is NOT_BOUND:
                own.cell_contents = self.of(content(cell))
        new.__defaults__ = tuple(map(self.of, old.__defaults__)) if old.__defaults__ else None
        new.__kwdefaults__ = {name: self.of(value) for name, value in (old.__kwdefaults__ or {}).items()}
        new.__dict__.update({name: self.of(value) for name, value in vars(old).items()})
        new.__qualname__, new.__module__ = old.__qualname__, old.__module__
        return new

    def cell(self, old: types.CellType) -> types.CellType:
        """The same cell where nothing in it changes (functions that share a variable go on sharing it), else an empty one."""
        if id(old) not in self.cells:
            self.alive.append(old)
            self.cells[id(old)] = types.CellType() if self.refers(content(old)) else old
        return self.cells[id(old)]


def content(cell: types.CellType) -> Any:
    """What a cell holds; NOT_BOUND where nothing was bound yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return NOT_BOUND


def parts_of(value: Any) -> Iterable[Any]:
    """What a function, a method, a partial or a plain nest refers to."""
    if isinstance(value, types.FunctionType):
        return (*map(content, value.__closure__ or ()), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(),
                *vars(value).values())
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    if type(value) not in (dict, list, tuple, set) or len(value) > LARGEST_NEST:
        return ()
    return list(value.values()) if isinstance(value, dict) else list(value)
