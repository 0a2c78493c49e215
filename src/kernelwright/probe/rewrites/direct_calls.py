"""What a compiled model's one graph gives, asked of it directly: at each call Dynamo's guards and its way to the graph are spared.

The file's own guard stands before every call: shapes, dtypes, kind of device, plain values, train mode, grad mode and the weights' places.
Strides and the device's number are looked at here. What else Dynamo would look at (attributes, hooks, global settings) goes unseen, as in a
CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .trees import leaves, map_tensors, tensors_of

PLAIN_RESULTS = (bool, int, float, str, type(None))
Recorded = list[tuple[Callable[..., Any], tuple[Any, ...], Sequence[Any]]]
"""Calls of compiled graphs: (graph, its inputs, what it gave)."""


class DirectCalls:
    """The compiled model. Its first call goes through Dynamo, compiles, and shows where the graph's inputs come from and its outputs go."""

    def __init__(self, model: Any, compiled: Callable[..., Any], recorded: Recorded) -> None:
        self.model, self.compiled, self.recorded = model, compiled, recorded
        self.graph: Callable[..., Any] | None = None
        self.given: list[Any] = []
        """The graph's inputs; those of the call are put in their places."""
        self.places: list[tuple[int, int]] = []
        """(which of the graph's inputs, which of the call's tensors)."""
        self.layouts: list[Any] = []
        self.order: list[int] = []
        """Which of the graph's outputs each tensor of the result is."""
        self.nest: Any = None
        """The result with other tensors in it; None where it is one tensor."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.graph is None:
            return self.first(args, kwargs)
        tensors = tensors_of(args, kwargs)
        if [(tensor.stride(), tensor.get_device()) for tensor in tensors] != self.layouts:
            return self.through_dynamo(args, kwargs)
        given = self.given.copy()
        for place, which in self.places:
            given[place] = tensors[which]
        outputs = self.graph(*given)
        if self.nest is None:
            return outputs[self.order[0]]
        found = iter([outputs[which] for which in self.order])
        return map_tensors(lambda _other: next(found), self.nest)

    def through_dynamo(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As if it were not there."""
        result = self.compiled(*args, **kwargs)
        self.recorded.clear()
        return result

    def first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Raises NotImplementedError where what Dynamo does around the graph can't be left out."""
        if not isinstance(self.model, torch.nn.Module):
            raise NotImplementedError("not applicable: only an nn.Module shows what it is made of")
        if self.model._forward_hooks or self.model._forward_pre_hooks or torch.nn.modules.module._has_any_global_hook():
            raise NotImplementedError("not applicable: the model has hooks, which run outside of what is compiled")
        tensors = tensors_of(args, kwargs)
        which = {id(tensor): number for number, tensor in enumerate(tensors)}
        if len(which) < len(tensors):
            raise NotImplementedError("not applicable: the call is given one tensor twice")
        if any(id(tensor) in which for tensor in (*self.model.parameters(), *self.model.buffers())):
            raise NotImplementedError("not applicable: the call is given one of the model's own tensors")
        self.recorded.clear()
        before = [changes_of(tensor) for tensor in tensors]
        result = self.compiled(*args, **kwargs)
        if len(self.recorded) != 1:
            raise NotImplementedError(f"not applicable: the call runs {len(self.recorded)} compiled graphs, not one")
        graph, inputs, outputs = self.recorded.pop()
        if not all(isinstance(value, torch.Tensor) for value in inputs):
            raise NotImplementedError("not applicable: the graph takes sizes or other numbers")
        if [changes_of(tensor) for tensor in tensors] != before:
            raise NotImplementedError("not applicable: the call changes its inputs in place")
        known = {id(output): index for index, output in enumerate(outputs) if isinstance(output, torch.Tensor)}
        found = [leaf for _path, leaf in leaves(result)]
        if not all(id(leaf) in known if isinstance(leaf, torch.Tensor) else isinstance(leaf, PLAIN_RESULTS) for leaf in found):
            raise NotImplementedError("not applicable: the model returns what is no output of the graph")
        state, versions = state_of(self.model), [changes_of(value) for value in inputs]
        with torch.random.fork_rng(devices=sorted({tensor.get_device() for tensor in tensors if tensor.is_cuda})):
            self.through_dynamo(args, kwargs)
        if state_of(self.model) != state or [changes_of(value) for value in inputs] != versions:
            raise NotImplementedError("not applicable: the call changes what the model is made of")
        self.places = [(place, which[id(value)]) for place, value in enumerate(inputs) if id(value) in which]
        taken = {place for place, _which in self.places}
        self.given = [None if place in taken else value for place, value in enumerate(inputs)]
        self.layouts = [(tensor.stride(), tensor.get_device()) for tensor in tensors]
        self.order = [known[id(leaf)] for leaf in found if isinstance(leaf, torch.Tensor)]
        self.nest = None if isinstance(result, torch.Tensor) else map_tensors(lambda _tensor: torch.empty(0), result)
        self.graph = graph
        return result


def changes_of(tensor: torch.Tensor) -> int:
    """How often it was written to; a tensor of inference mode does not count."""
    return 0 if tensor.is_inference() else int(tensor._version)


def state_of(model: torch.nn.Module) -> list[Any]:
    """What the attributes of a model and its submodules are, and those of other objects among them, by identity."""
    found: list[Any] = []
    for module in model.modules():
        for path, leaf in leaves(dict(vars(module))):
            found.append((path, id(leaf)))
            if hasattr(leaf, "__dict__") and not isinstance(leaf, (torch.nn.Module, torch.Tensor)) and not callable(leaf):
                found += [(path, inner, id(part)) for inner, part in leaves(dict(vars(leaf)))]
    return found


def direct_calls(model: Any, compiled: Callable[..., Any], recorded: Recorded) -> Callable[..., Any]:
    """The compiled model, called so. recorded: where its backend notes each call of what it compiled."""
    return DirectCalls(model, compiled, recorded)
