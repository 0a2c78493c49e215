"""Linear layers that read the same tensor (query, key and value; gate and up projection) as one product with their weights side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from .graphs import (
    arguments,
    call_function,
    calls,
    constant_node,
    has_autocast,
    is_layer,
    is_written,
    replace,
    storage_of,
    undisturbed,
    weight_of,
)

ASKS_LAYOUT = ("as_strided", "view_as_complex", "view_as", "set_", "stride", "is_contiguous", "storage_offset", "data_ptr",
               "untyped_storage")
"""What gives something else, or fails, where a tensor's numbers lie apart."""


def fuse_parallel_linears(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Replaces each group by one linear and a split; the joined weights are copies. Returns how many groups."""
    groups: dict[Any, list[tuple[torch.fx.Node, torch.Tensor, torch.Tensor | None]]] = {}
    for node in graph.graph.nodes:
        if calls(node, torch.nn.functional.linear):
            source, weight, bias = arguments(node, "input", "weight", "bias")
            weight, value = weight_of(weight, graph, example_inputs), weight_of(bias, graph, example_inputs)
            if weight is None or (bias is not None and value is None) or not is_layer(weight, value) or is_written([node], graph):
                continue
            if readers_that_view(node) is not None:
                groups.setdefault((source, weight.dtype), []).append((node, weight, value))
    fused = 0
    for (source, _dtype), members in groups.items():
        nodes, weights, biases = (list(column) for column in zip(*members, strict=True))
        if len(members) < 2 or has_autocast(graph) or not undisturbed(graph, nodes):
            continue
        with torch.no_grad():
            joined = constant_node(graph, "joined_weight", torch.cat(weights))
            bias = None
            if any(value is not None for value in biases):
                values = [weight.new_zeros(len(weight)) if value is None else value for weight, value in zip(weights, biases, strict=True)]
                bias = constant_node(graph, "joined_bias", torch.cat(values))
        product = call_function(graph, nodes[0], torch.nn.functional.linear, source, joined, bias)
        start, parts = 0, []
        for weight in weights:
            parts.append(call_function(graph, nodes[0], torch.narrow, product, -1, start, len(weight)))
            start += len(weight)
        for node, part in zip(nodes, parts, strict=True):
            for user in readers_that_view(node) or ():
                user.target = "reshape"  # the part is no longer contiguous; where a view is possible, reshape is one
            replace(node, part)
        fused += 1
    return fused


def readers_that_view(node: torch.fx.Node) -> list[torch.fx.Node] | None:
    """The calls of view(sizes) on this result or on a view of it; None where another call asks how its numbers lie."""
    views, shared = {node}, {storage_of(node)} - {0}
    for other in node.graph.nodes:  # each after what it reads
        off = calls(other, torch.nn.functional.dropout) and other.args[:1] and other.args[0] in views
        if storage_of(other) in shared or off:  # dropout that is off gives its argument; its fake value is another
            views.add(other)
            shared |= {storage_of(other)} - {0}
    found = []
    for user in {user: None for view in views for user in view.users}:
        name = user.target if isinstance(user.target, str) else getattr(user.target, "__name__", "").partition(".")[0]
        plain = calls(user, "view") and not user.kwargs and not any(isinstance(size, torch.dtype) for size in user.args)
        if name in ASKS_LAYOUT or (name == "view" and not plain):
            return None
        found += [user] if plain else []
    return found
