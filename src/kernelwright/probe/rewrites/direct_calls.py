"""What a compiled model's one graph gives, asked of it directly: at each call Dynamo's guards and its way to the graph are spared.

The file's own guard stands before every call: shapes, dtypes, kind of device, plain values, train mode, grad mode and the weights' places.
Strides and the device's number are looked at here. What else Dynamo would look at (attributes, hooks, global settings) goes unseen, as in a
CUDA graph.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .trees import leaves, map_tensors, tensors_of

PLAIN_RESULTS = (bool, int, float, str, type(None))
CODE_TYPES = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType, type)
CODE_MODULES = ("triton.", "torch._ops", "torch._library.")
"""Objects of types from there are code too: a kernel of Triton leads to all that its file has, and operators keep how they dispatch."""
Recorded = list[tuple[Callable[..., Any], tuple[Any, ...], Sequence[Any]]]
"""Calls of compiled graphs: (graph, its inputs, what it gave)."""


class DirectCalls:
    """The compiled model. Its first call goes through Dynamo, compiles, and shows where the graph's inputs come from and its outputs go.

    recorded: where the compiled model's backend notes each call of a graph. strict: what can't be called directly raises
    NotImplementedError; else it goes through Dynamo.
    """

    def __init__(self, model: Any, compiled: Callable[..., Any], recorded: Recorded, strict: bool = True) -> None:
        self.model, self.compiled, self.recorded, self.strict = model, compiled, recorded, strict
        self.settled = False
        """It is called directly, or never will be."""
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
            return self.through_dynamo(args, kwargs) if self.settled else self.first(args, kwargs)
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
        return self.noted(args, kwargs)[0]

    def noted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Recorded]:
        """The result, and the calls of graphs on the way; nothing of them is kept."""
        self.recorded.clear()
        try:
            result = self.compiled(*args, **kwargs)
            return result, self.recorded.copy()
        finally:
            self.recorded.clear()

    def first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Through Dynamo, and what is to be known of the graph for the calls to come."""
        reason = self.unlike_others(args, kwargs)
        if reason:
            self.refuse(reason)
            return self.through_dynamo(args, kwargs)  # the next call may be another
        before = self.looked_through(args, kwargs)
        result, calls = self.noted(args, kwargs)
        self.settled = True
        try:
            reason = self.learn(calls, args, kwargs, result, before)
        except Exception as error:  # noqa: BLE001
            # What is only looked for must not end a call that succeeded.
            reason = f"looking for its graph failed ({type(error).__name__}: {str(error)[:200]})"
        if reason:
            self.refuse(reason)
        return result

    def refuse(self, reason: str) -> None:
        """Raises NotImplementedError where that is asked for."""
        if self.strict:
            raise NotImplementedError(f"not applicable: {reason}")

    def unlike_others(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Why this call does not show what others will be like; "" where it does."""
        if not isinstance(self.model, torch.nn.Module):
            return "only an nn.Module shows what it is made of"
        if self.model._forward_hooks or self.model._forward_pre_hooks or torch.nn.modules.module._has_any_global_hook():
            return "the model has hooks, which run outside of what is compiled"
        if not all(isinstance(leaf, (torch.Tensor, torch.dtype, torch.device, *PLAIN_RESULTS)) for _path, leaf in leaves((args, kwargs))):
            return "the call is given an object, in which more may change"
        tensors = tensors_of(args, kwargs)
        given = {id(tensor) for tensor in tensors}
        if len(given) < len(tensors):
            return "the call is given one tensor twice"
        if any(id(tensor) in given for tensor in (*self.model.parameters(), *self.model.buffers())):
            return "the call is given one of the model's own tensors"
        return ""

    def looked_through(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        """What the call is given and what the model is made of; nothing where that has no end."""
        try:
            return told_apart((args, kwargs)), told_apart(self.model)
        except RecursionError:  # a nest that holds itself
            return [], []

    def learn(
        self, calls: Recorded, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, before: tuple[list[Any], list[Any]],
    ) -> str:
        """Why what Dynamo does around the graph can't be left out; "" where the graph is known then. before: as looked_through gave it."""
        if not before[1]:
            return "what the model is made of has no end"
        given, own = self.looked_through(args, kwargs)
        if given != before[0]:
            return "the call changes its inputs in place"
        if own != before[1]:
            return "the call changes what the model is made of"
        if len(calls) != 1:
            return f"the call runs {len(calls)} compiled graphs, not one"
        graph, inputs, outputs = calls[0]
        tensors = tensors_of(args, kwargs)
        which = {id(tensor): number for number, tensor in enumerate(tensors)}
        known = {*which, *(id(leaf) for leaf in every_leaf(self.model, set()))}
        if not all(isinstance(value, torch.Tensor) and id(value) in known for value in inputs):
            return "the graph takes what is neither given nor the model's: sizes, other numbers, other tensors"
        places = {id(output): index for index, output in enumerate(outputs) if isinstance(output, torch.Tensor)}
        found = [leaf for _path, leaf in leaves(result)]
        if not all(id(leaf) in places if isinstance(leaf, torch.Tensor) else isinstance(leaf, PLAIN_RESULTS) for leaf in found):
            return "the model returns what is no output of the graph"
        if places.keys() - {id(leaf) for leaf in found}:
            return "the graph gives more than the model returns"
        with torch.random.fork_rng(devices=sorted({tensor.get_device() for tensor in tensors if tensor.is_cuda})):
            self.in_one_piece(args, kwargs)
            again, more = self.noted(args, kwargs)
        same = len(more) == 1 and more[0][0] is graph and list(map(id, more[0][1])) == list(map(id, inputs))
        if not same or plain_leaves(again) != plain_leaves(result) or self.looked_through(args, kwargs) != before:
            return "what the call does changes from call to call"
        self.places = [(place, which[id(value)]) for place, value in enumerate(inputs) if id(value) in which]
        self.given = [None if id(value) in which else value for value in inputs]
        self.layouts = [(tensor.stride(), tensor.get_device()) for tensor in tensors]
        self.order = [places[id(leaf)] for leaf in found if isinstance(leaf, torch.Tensor)]
        self.nest = None if isinstance(result, torch.Tensor) else map_tensors(lambda _tensor: torch.empty(0), result)
        self.graph = graph
        return ""

    def in_one_piece(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises where Dynamo breaks the call: what runs between the pieces (a branch on a value, a check, .item()) would be left out, also
        where only one of them has anything to compile."""
        torch.compile(self.model, backend=lambda graph, _example_inputs: graph.forward, fullgraph=True)(*args, **kwargs)


def plain_leaves(result: Any) -> list[Any]:
    """What of a result is no tensor."""
    return [leaf for _path, leaf in leaves(result) if not isinstance(leaf, torch.Tensor)]


def told_apart(value: Any) -> list[Any]:
    """What a nest is made of, the attributes of objects in it too: things by identity, and how often tensors were written to."""
    found: list[Any] = []
    for leaf in every_leaf(value, set()):
        counted = isinstance(leaf, torch.Tensor) and not leaf.is_inference()  # one of inference mode does not count
        found.append((id(leaf), leaf._version if counted else 0))
    return found


def every_leaf(value: Any, seen: set[int]) -> Iterator[Any]:
    """The leaves of a nest; of a set, a queue and an object, submodules among them, what is in them too."""
    for _path, leaf in leaves(value):
        yield leaf
        inside: Any = list(leaf) if isinstance(leaf, (set, frozenset, collections.deque)) else None
        if inside is None and hasattr(leaf, "__dict__") and not isinstance(leaf, torch.Tensor) and not is_code(leaf):
            inside = dict(vars(leaf))
        if inside is not None and id(leaf) not in seen:
            seen.add(id(leaf))
            yield from every_leaf(inside, seen)


def is_code(value: Any) -> bool:
    """Whether what is in it says what is done, not with what."""
    return isinstance(value, CODE_TYPES) or type(value).__module__.startswith(CODE_MODULES)


def direct_calls(model: Any, compiled: Callable[..., Any], recorded: Recorded, strict: bool) -> Callable[..., Any]:
    """The compiled model, called so."""
    return DirectCalls(model, compiled, recorded, strict)
