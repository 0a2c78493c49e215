"""Work that shows as redundant only on the ATen graph, where autocast has become casts and layers have become their operators.

Inductor (as of torch 2.13) computes a repeated call again in inference graphs (it shares them for training and under freezing), and
takes away pairs of casts and permutations only where one stands right behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from .aten_graphs import drop_unused, functional, is_view, memory_of, repeatable, returned, same_call, written
from .graphs import WIDER, call_function, calls, tensor_of

ATEN = torch.ops.aten
MOVES = (ATEN.view.default, ATEN._unsafe_view.default, ATEN.permute.default, ATEN.transpose.int, ATEN.t.default, ATEN.expand.default,
         ATEN.unsqueeze.default, ATEN.squeeze.dim, ATEN.squeeze.dims, ATEN.slice.Tensor, ATEN.select.int, ATEN.clone.default)
"""Operators of one tensor that move numbers and change none."""


def remove_redundant_aten(graph: torch.fx.GraphModule, _example_inputs: Sequence[Any]) -> int:
    """Takes away: a call that an earlier one made with the same arguments; a cast back from a wider type, also behind operators that only
    move numbers (these then work in the narrower type); clones of what lies as they do; permutations that cancel. Bit for bit the same
    values: casts that round stay, and so does what the graph returns. Returns how many calls went, views and
    constants not counted: they cost nothing."""
    if not functional(graph):
        return 0
    removed, kept, inputs_written = 0, returned(graph), written(graph)
    earlier: dict[Any, torch.fx.Node] = {}
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or not repeatable(node):
            continue
        join_permutations(node)
        same = None if node in kept else earlier.get(same_call(node)) or given_back(graph, node)
        if same is None or layout(same) != layout(node) or (memory_of(same) in inputs_written and not is_view(node)):
            earlier.setdefault(same_call(node), node)
            continue
        node.replace_all_uses_with(same)
        removed += bool(node.all_input_nodes) and not is_view(node)
    drop_unused(graph)
    return removed


def given_back(graph: torch.fx.GraphModule, node: torch.fx.Node) -> Any:
    """The earlier value that the call gives back if the layouts turn out equal; None for any other call."""
    if calls(node, ATEN.clone.default):
        return node.args[0]
    if calls(node, ATEN.permute.default) and list(node.args[1]) == list(range(len(node.args[1]))):
        return node.args[0]
    source = cast_from(node)
    if source is None:
        return None
    if tensor_of(source).dtype == tensor_of(node).dtype:  # type: ignore[union-attr]
        return source
    moves = []
    while calls(source, *MOVES):
        moves.append(source)
        source = source.args[0]
    narrow = cast_from(source)
    before, wide, after = tensor_of(narrow), tensor_of(source), tensor_of(node)
    if before is None or wide is None or after is None or before.stride() != wide.stride():
        return None
    if before.dtype != after.dtype or (before.dtype, wide.dtype) not in WIDER:
        return None
    for move in reversed(moves):
        narrow = call_function(graph, node, move.target, narrow, *move.args[1:], **move.kwargs)
    return narrow


def cast_from(node: Any) -> Any:
    """What a cast casts; None for other calls, and for casts that change the device or the layout too."""
    plain = calls(node, torch.ops.prims.convert_element_type.default) or (
        calls(node, ATEN._to_copy.default) and set(node.kwargs) == {"dtype"})
    return node.args[0] if plain and tensor_of(node.args[0]) is not None and tensor_of(node) is not None else None


def join_permutations(node: torch.fx.Node) -> None:
    """Makes a permutation of a permutation one of what was there before."""
    while calls(node, ATEN.permute.default) and calls(node.args[0], ATEN.permute.default):
        inner: Any = node.args[0]
        rank = len(inner.args[1])
        node.args = (inner.args[0], [inner.args[1][dim % rank] for dim in node.args[1]])


def layout(node: torch.fx.Node) -> Any:
    """How the value lies in memory (strides of dimensions of one element count for nothing); of several values the node's own."""
    look = tensor_of(node)
    if look is None:
        return "several values"
    strides = [stride for size, stride in zip(look.shape, look.stride(), strict=True) if size != 1]
    return look.shape, look.dtype, look.device, strides, look.storage_offset()
