"""Linear layers that read the same tensor (query, key and value; gate and up projection) as one product with their weights side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from .graphs import arguments, call_function, calls, constant_node, has_autocast, is_written, replace, undisturbed, weight_of


def fuse_parallel_linears(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Replaces each group by one linear and a split; the joined weights are copies. Returns how many groups."""
    groups: dict[Any, list[tuple[torch.fx.Node, torch.Tensor, torch.Tensor | None]]] = {}
    for node in graph.graph.nodes:
        if calls(node, torch.nn.functional.linear):
            source, weight, bias = arguments(node, "input", "weight", "bias")
            weight, value = weight_of(weight, graph, example_inputs), weight_of(bias, graph, example_inputs)
            if weight is not None and (bias is None or value is not None) and not is_written([node], graph):
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
            for user in node.users:
                if calls(user, "view"):
                    user.target = "reshape"  # the part is no longer contiguous; where a view is possible, reshape is one
            replace(node, part)
        fused += 1
    return fused
