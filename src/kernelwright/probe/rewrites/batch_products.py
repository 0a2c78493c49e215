"""Independent matrix products of one shape as one product.

On the ATen graph, where the layers and cells (LSTMCell, einsum, attention's projections) that become products show as such. Inductor
(as of torch 2.13) has a batching of its own among `post_grad_fusion_options`, off by default; it stacks the weights of any such products
unmeasured, and knows neither a weight that they share nor inputs that lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
import torch.fx
from torch.utils._python_dispatch import _disable_current_modes

from .aten_graphs import drop_unused, functional, is_view, returned, same_call, sort_calls
from .graphs import call_function, calls, constant_node, median_us, random_like, tensor_of

MM, ADDMM = torch.ops.aten.mm.default, torch.ops.aten.addmm.default
MANY = 4
"""Products timed one after the other: as many as the host launches before the device has begun."""


def batch_products(graph: torch.fx.GraphModule, _example_inputs: Sequence[Any]) -> int:
    """Replaces each group of products, none of which needs another's result, where one product measures faster at their shapes: products
    with one weight by one product of all their rows (the input projections of an unrolled recurrent layer), others by a batched one.
    Returns how many groups."""
    joined = 0
    tried: set[torch.fx.Node] = set()
    while functional(graph) and (group := next_group(graph, tried)):
        tried.update(group)
        if together_is_faster(group):
            join_products(graph, group)
            sort_calls(graph)
            drop_unused(graph)
            joined += 1
    return joined


def next_group(graph: torch.fx.GraphModule, tried: set[torch.fx.Node]) -> list[torch.fx.Node]:
    """Two or more independent products that were not tried, those with one weight first; none when nothing is left."""
    found = [node for node in graph.graph.nodes if node not in tried and is_product(node)]
    bit = {node: 1 << place for place, node in enumerate(found)}
    needs: dict[torch.fx.Node, int] = {}
    for node in graph.graph.nodes:
        needs[node] = 0
        for other in node.all_input_nodes:
            needs[node] |= needs[other] | bit.get(other, 0)
    for key in (weight_key, shape_key):
        groups: dict[Any, list[list[torch.fx.Node]]] = {}
        for node in found:
            own = groups.setdefault(key(node), [])
            fitting = [group for group in own if not any(needs[node] & bit[other] for other in group)] or [[]]
            if not fitting[0]:
                own.append(fitting[0])
            fitting[0].append(node)
        several = [group for own in groups.values() for group in own if len(group) > 1]
        if several:
            return several[0]
    return []


def is_product(node: torch.fx.Node) -> bool:
    """Whether the call is a plain product of two matrices of known sizes, with a bias a column or none."""
    if not calls(node, MM, ADDMM) or node.kwargs:
        return False
    looks = [tensor_of(item) for item in node.all_input_nodes]
    bias, x, weight = (tensor_of(item) for item in operands(node))
    plain = all(look is not None and look.is_floating_point() and all(isinstance(size, int) for size in look.shape) for look in looks)
    return plain and x is not None and weight is not None and (bias is None or bias.shape == weight.shape[1:])


def operands(node: torch.fx.Node) -> tuple[Any, Any, Any]:
    """(bias or None, left, right) of a product."""
    return (None, *node.args) if calls(node, MM) else tuple(node.args)


def known_look(node: Any) -> torch.Tensor:
    """tensor_of, where is_product has seen to it that there is one."""
    look = tensor_of(node)
    assert look is not None
    return look


def shape_key(node: torch.fx.Node) -> Any:
    """What products that can be batched have in common."""
    bias, *sides = operands(node)
    x, weight = map(known_look, sides)
    return bias is None, x.shape, weight.shape, x.dtype, x.device


def weight_key(node: torch.fx.Node) -> Any:
    """What products with one weight (and one bias) have in common; views of a weight that are alike count as one."""
    bias, _, weight = operands(node)
    return shape_key(node), bias, same_call(weight) if is_view(weight) else weight


def join_products(graph: torch.fx.GraphModule, group: list[torch.fx.Node]) -> None:
    """Writes the one product before the last of the group, and gives each its part. The calls are to be sorted afterwards."""
    last, kept = group[-1], returned(graph)
    biases, inputs, weights = (list(column) for column in zip(*(operands(node) for node in group), strict=True))
    batch = stacked(graph, last, inputs)
    count, rows, inner = known_look(batch).shape
    if len({weight_key(node) for node in group}) == 1:
        flat = call_function(graph, last, torch.ops.aten.view.default, dense(graph, last, batch), [count * rows, inner])
        given = [flat, weights[-1]] if biases[-1] is None else [biases[-1], flat, weights[-1]]
        product = call_function(graph, last, last.target, *given)
        columns = known_look(product).shape[1]
        product = call_function(graph, last, torch.ops.aten.view.default, product, [count, rows, columns])
    elif biases[-1] is None:
        product = call_function(graph, last, torch.ops.aten.bmm.default, batch, stacked(graph, last, weights))
    else:
        bias = call_function(graph, last, torch.ops.aten.unsqueeze.default, stacked(graph, last, biases), 1)
        product = call_function(graph, last, torch.ops.aten.baddbmm.default, bias, batch, stacked(graph, last, weights))
    for place, node in enumerate(group):
        part = call_function(graph, last, torch.ops.aten.select.int, product, 0, place)
        if node in kept:  # what is returned lies in memory of its own
            node.target, node.args = torch.ops.aten.clone.default, (part,)
        else:
            node.replace_all_uses_with(part)


def stacked(graph: torch.fx.GraphModule, before: torch.fx.Node, nodes: list[Any]) -> torch.fx.Node:
    """The values along a new first dimension: without a copy where they lie side by side in one tensor or are one value, and beforehand
    where they are constants."""
    if all(node.op == "get_attr" for node in nodes):
        with torch.no_grad(), _disable_current_modes():
            return constant_node(graph, "stacked", torch.stack([attrgetter(str(node.target))(graph) for node in nodes]))
    first = nodes[0]
    if all(node is first for node in nodes):
        wide = call_function(graph, before, torch.ops.aten.unsqueeze.default, first, 0)
        return call_function(graph, before, torch.ops.aten.expand.default, wide, [len(nodes), *known_look(first).shape])
    if side_by_side(nodes):
        whole, dim, start = first.args
        part = call_function(graph, before, torch.ops.aten.slice.Tensor, whole, dim, start, start + len(nodes))
        others = [other for other in range(known_look(whole).dim()) if other != dim]
        return call_function(graph, before, torch.ops.aten.permute.default, part, [dim, *others])
    wide_ones = [call_function(graph, before, torch.ops.aten.unsqueeze.default, node, 0) for node in nodes]
    return call_function(graph, before, torch.ops.aten.cat.default, wide_ones)


def side_by_side(nodes: Sequence[Any]) -> bool:
    """Whether the nodes select neighbours of one tensor, in order (steps of a sequence)."""
    if not all(calls(node, torch.ops.aten.select.int) for node in nodes):
        return False
    whole, dim, start = nodes[0].args
    look = tensor_of(whole)
    return look is not None and min(dim, start) >= 0 and all(
        node.args == (whole, dim, start + place) for place, node in enumerate(nodes))


def dense(graph: torch.fx.GraphModule, before: torch.fx.Node, node: torch.fx.Node) -> torch.fx.Node:
    """The value in the order of its dimensions, copied only where it lies otherwise."""
    if known_look(node).is_contiguous():
        return node
    return call_function(graph, before, torch.ops.aten.clone.default, node, memory_format=torch.contiguous_format)


def together_is_faster(group: list[torch.fx.Node]) -> bool:
    """Measured on random numbers of these shapes, the stacking included unless it costs nothing; a few products stand for all."""
    shared = len({weight_key(node) for node in group}) == 1
    biases, inputs, weights = (list(column) for column in zip(*(operands(node) for node in group), strict=True))
    x, bias, different = tensor_of(inputs[0]), tensor_of(biases[0]), weights[:1] if shared else weights
    assert x is not None
    lies_stacked = len(set(inputs)) == 1 or (side_by_side(inputs) and (not shared or inputs[0].args[1] == 0))
    with torch.no_grad(), _disable_current_modes():
        batch = random_like(torch.empty((len(group), *x.shape), dtype=x.dtype, device=x.device))
        rights = [random_like(look) for look in map(tensor_of, different) if look is not None]
        shift = None if bias is None else random_like(bias)
        stacked_rights = torch.stack(rights) if all(node.op == "get_attr" for node in weights) else None
        few = [(shift, left, rights[place % len(rights)]) for place, left in enumerate(batch[:MANY])]

        def together() -> torch.Tensor:
            lefts = batch if lies_stacked else torch.stack(batch.unbind())
            if shared:
                return one_product(shift, lefts.flatten(0, 1), rights[0])
            right = torch.stack(rights) if stacked_rights is None else stacked_rights
            return torch.bmm(lefts, right) if shift is None else torch.baddbmm(torch.stack([shift] * len(group))[:, None], lefts, right)

        apart_us = len(group) / len(few) * median_us(lambda: [one_product(*sample) for sample in few], x.device)
        return median_us(together, x.device) < 0.97 * apart_us


def one_product(bias: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x @ weight, plus the bias where there is one."""
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)
