"""Copies, casts and permutations that undo each other or do nothing, taken off the graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from .graphs import WIDER, calls, replace, storage_of, tensor_of, writes

CASTS = ("to", "float", "half", "bfloat16", "double", "type")


def remove_redundant(graph: torch.fx.GraphModule, _example_inputs: Sequence[Any]) -> int:
    """Takes away: contiguous() and casts that change nothing; a cast up and down again; permutations that cancel; numbers added or
    multiplied that leave every value as it is. Bit for bit the same values. Returns how many calls went."""
    removed = 0
    for node in list(graph.graph.nodes):
        before = same_as(node)
        look, given = tensor_of(node), tensor_of(before)
        if before is None or look is None or given is None or not undisturbed_users(graph, node, before):
            continue
        if (look.shape, look.dtype, look.device, look.stride()) == (given.shape, given.dtype, given.device, given.stride()):
            replace(node, before)
            removed += 1
    return removed


def undisturbed_users(graph: torch.fx.GraphModule, node: torch.fx.Node, before: torch.fx.Node) -> bool:
    """Whether sharing the earlier value's memory can't be seen: nothing writes in place, and no view of it leaves the graph."""
    if any(writes(other) for other in graph.graph.nodes):
        return False
    waiting = [node]
    while waiting:
        for user in waiting.pop().users:
            look = tensor_of(user)
            if user.op == "output":
                return False
            shares = look is None or look._is_view() or storage_of(user) == storage_of(node)
            if shares or calls(user, "contiguous", "reshape", torch.reshape, *CASTS):
                waiting.append(user)
    return True


def same_as(node: torch.fx.Node) -> Any:
    """The earlier node whose value this call's is, if its shape, dtype and strides turn out equal; None for any other call."""
    source = node.args[0] if node.args else None
    if not isinstance(source, torch.fx.Node) or tensor_of(source) is None:
        return None
    if calls(node, "contiguous", "clone", torch.clone, torch.Tensor.contiguous, *CASTS):
        origin = source.args[0] if calls(source, *CASTS) and source.args else None
        a, b, c = tensor_of(origin), tensor_of(source), tensor_of(node)
        there_and_back = a is not None and b is not None and c is not None and a.dtype == c.dtype and (a.dtype, b.dtype) in WIDER
        return origin if there_and_back and calls(node, *CASTS) else source
    turns = ("transpose", torch.transpose, "permute", torch.permute, "t", torch.t)
    if calls(node, *turns) and calls(source, *turns) and source.args:
        return source.args[0]
    if len(node.args) == 2 and not node.kwargs and isinstance(node.args[1], (int, float)) and not isinstance(node.args[1], bool):
        number = node.args[1]
        if calls(node, operator.mul, torch.mul, operator.truediv, torch.div) and number == 1:
            return source
        # x + 0.0 turns -0.0 into 0.0; x - 0.0 and x + -0.0 change nothing.
        if (calls(node, operator.sub) and number == 0 and math.copysign(1, number) > 0) or (
                calls(node, operator.add) and number == 0 and math.copysign(1, number) < 0):
            return source
    return None
