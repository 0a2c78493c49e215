"""What a compiled model's one graph gives, asked of it directly: at each call Dynamo's guards and its way to the graph are spared.

The file's own guard stands before every call: shapes, dtypes, device, plain values, train mode, grad mode and the weights' places. Strides
are looked at here. What else Dynamo would look at (attributes, hooks, global settings) goes unseen, as in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .trees import leaves, map_tensors, tensors_of

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
        self.strides: list[tuple[int, ...]] = []
        self.result: Any = None
        """The nest that the model returns, a number in the place of each tensor: of the graph's outputs."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.graph is None:
            return self.first(args, kwargs)
        tensors = tensors_of(args, kwargs)
        if [tensor.stride() for tensor in tensors] != self.strides:
            return self.through_dynamo(args, kwargs)
        given = self.given.copy()
        for place, which in self.places:
            given[place] = tensors[which]
        outputs = self.graph(*given)
        return outputs[self.result.index] if type(self.result) is OutputPlace else filled(self.result, outputs)

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
        if len({id(tensor) for tensor in tensors}) < len(tensors):
            raise NotImplementedError("not applicable: the call is given one tensor twice")
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
        state = state_of(self.model)
        with torch.random.fork_rng(devices={tensor.device.index for tensor in tensors if tensor.is_cuda}):
            self.through_dynamo(args, kwargs)
        if state_of(self.model) != state:
            raise NotImplementedError("not applicable: the call changes what the model is made of")
        which = {id(tensor): number for number, tensor in enumerate(tensors)}
        self.places = [(place, which[id(value)]) for place, value in enumerate(inputs) if id(value) in which]
        taken = {place for place, _which in self.places}
        self.given = [None if place in taken else value for place, value in enumerate(inputs)]
        self.strides = [tensor.stride() for tensor in tensors]
        self.result = numbered(result, outputs)
        self.graph = graph
        return result


class OutputPlace:
    """Which of a graph's outputs stands here."""

    def __init__(self, index: int) -> None:
        self.index = index


def numbered(result: Any, outputs: Sequence[Any]) -> Any:
    """The nest with the number of the graph's output in the place of each tensor. Raises NotImplementedError where one is none of them."""
    known = {id(output): index for index, output in enumerate(outputs) if isinstance(output, torch.Tensor)}
    plain = (torch.Tensor, bool, int, float, str, type(None))
    if not all(isinstance(leaf, plain) and (not isinstance(leaf, torch.Tensor) or id(leaf) in known) for _path, leaf in leaves(result)):
        raise NotImplementedError("not applicable: the model returns what is no output of the graph")
    return map_tensors(lambda tensor: OutputPlace(known[id(tensor)]), result)


def filled(nest: Any, outputs: Sequence[Any]) -> Any:
    """The same nest with the outputs in it."""
    if type(nest) is OutputPlace:
        return outputs[nest.index]
    if type(nest) in (tuple, list):
        return type(nest)([filled(part, outputs) for part in nest])
    if type(nest) is dict:
        return {key: filled(part, outputs) for key, part in nest.items()}
    return nest


def changes_of(tensor: torch.Tensor) -> int:
    """How often it was written to; a tensor of inference mode does not count."""
    return 0 if tensor.is_inference() else int(tensor._version)


def state_of(model: torch.nn.Module) -> list[Any]:
    """What the attributes of a model and its submodules are, by identity."""
    return [(name, path, id(leaf)) for module in model.modules() for name, value in vars(module).items() for path, leaf in leaves(value)]


def direct_calls(model: Any, compiled: Callable[..., Any], recorded: Recorded) -> Callable[..., Any]:
    """The compiled model, called so. recorded: where its backend notes each call of what it compiled."""
    return DirectCalls(model, compiled, recorded)
