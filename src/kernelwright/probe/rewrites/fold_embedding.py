"""Work on looked-up embedding rows, done once on the whole table: gather(f(table)) in place of f(gather(table)).

Holds where f treats every row alone (linear, norm over the row, elementwise with weights) and its result is no wider than the
table's rows, so that the new table is no larger than the old one.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .graphs import arguments, call_function, calls, constant_node, has_autocast, is_written, replace, tensor_of, weight_of, writes


def row_by_row(node: torch.fx.Node, rows: dict[torch.fx.Node, int], graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether a call works on each row (last dimension) alone: its arguments are such rows, weights, or numbers."""
    elementwise = (F.gelu, F.relu, F.silu, F.tanh, F.sigmoid, torch.relu, torch.tanh, torch.sigmoid, torch.neg, torch.square,
                   "relu", "tanh", "sigmoid", "square", operator.neg, operator.add, operator.sub, operator.mul, operator.truediv,
                   torch.add, torch.sub, torch.mul, torch.div, "add", "sub", "mul", "div")
    off = calls(node, F.dropout) and arguments(node, "input", "p", "training")[2] is False
    if writes(node) or not (off or calls(node, F.linear, F.layer_norm, *elementwise)):
        return False
    if calls(node, F.layer_norm) and len(arguments(node, "input", "normalized_shape")[1]) != 1:
        return False
    inputs = [item for item in node.all_input_nodes if item not in rows]
    weights = [weight_of(item, graph, example_inputs) for item in inputs]
    if any(weight is None for weight in weights):
        return False
    if calls(node, F.linear):
        source, weight, bias = arguments(node, "input", "weight", "bias")
        table, shift = weight_of(weight, graph, example_inputs), weight_of(bias, graph, example_inputs)
        return source in rows and table is not None and table.dim() == 2 and (bias is None or (shift is not None and shift.dim() <= 1))
    first = next((item for item in node.all_input_nodes if item in rows), None)
    shape, given = tensor_of(node), tensor_of(first)
    # Weights of one dimension at most: one number a column, the same for every row. Broadcasting must not change the rows.
    return shape is not None and given is not None and shape.shape == given.shape and all(
        weight is not None and weight.dim() <= 1 for weight in weights)


def fold_embedding(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Replaces each embedding and the row-wise calls after it by a lookup in a table computed now. Returns how many tables."""
    folded = 0
    for lookup in [node for node in graph.graph.nodes if calls(node, F.embedding)]:
        ids, table_node, _padding, max_norm = arguments(lookup, "input", "weight", "padding_idx", "max_norm")
        table = weight_of(table_node, graph, example_inputs)
        if table is None or max_norm is not None or not isinstance(ids, torch.fx.Node) or has_autocast(graph):
            continue
        rows = {lookup: 0}
        for place, node in enumerate(graph.graph.nodes):
            if any(item in rows for item in node.all_input_nodes) and row_by_row(node, rows, graph, example_inputs):
                rows[node] = place
        narrow = [node for node in rows if node is not lookup and (look := tensor_of(node)) is not None
                  and look.shape[-1] * look.element_size() <= table.shape[1] * table.element_size()]
        if not narrow or is_written([ids, *rows], graph):
            continue
        last = narrow[-1]
        made = computed_table(graph, example_inputs, rows, lookup, last, table)
        new = call_function(graph, last, F.embedding, ids, constant_node(graph, "computed_table", made))
        replace(last, new)
        folded += 1
    return folded


def computed_table(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], rows: dict[torch.fx.Node, int], lookup: torch.fx.Node,
    last: torch.fx.Node, table: torch.Tensor, chunk: int = 4096,
) -> torch.Tensor:
    """The value of `last` for every row of the table, a chunk of rows at a time."""
    parts = []
    with torch.no_grad():
        for start in range(0, len(table), chunk):
            values: dict[torch.fx.Node, Any] = {lookup: table[start : start + chunk]}

            def value(item: torch.fx.Node, values: dict[torch.fx.Node, Any] = values) -> Any:
                return values[item] if item in values else weight_of(item, graph, example_inputs)

            for node in list(rows)[1:]:
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
                values[node] = getattr(args[0], node.target)(*args[1:], **kwargs) if isinstance(node.target, str) else node.target(
                    *args, **kwargs)
                if node is last:
                    break
            parts.append(values[last])
        return torch.cat(parts)
