"""Waits of the host for the device that the result does not need: the host runs ahead again, and the call can be captured.

Taken out: .item() that only feeds arithmetic (the value stays on the device), a sum or mean over x[mask] (computed over all of x, zero
where the mask is off), a trip to the host and back that changes no value, torch.cuda.synchronize() and empty_cache() inside the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from .tracing import changes_in_place, looks_of, traced_call

Looks = dict[torch.fx.Node, tuple[torch.dtype, tuple[int, ...], str]]


def remove_syncs(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A torch.fx copy of the model (weights shared) without such waits."""
    explicit = []
    kept = torch.cuda.synchronize, torch.cuda.empty_cache
    # While tracing they are only counted: they leave no trace in the graph.
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_args, **_kwargs: explicit.append(1)
    try:
        traced = traced_call(model, args, kwargs)
    finally:
        torch.cuda.synchronize, torch.cuda.empty_cache = kept
    looks = looks_of(traced, args, kwargs)
    graph = traced.graph
    found = len(explicit) + keep_scalars(graph, looks) + reduce_by_mask(graph, looks) + stay_on_device(graph, looks)
    if not found:
        raise NotImplementedError("not applicable: no wait of the host that the result does not need")
    graph.lint()
    traced.recompile()
    return traced


def look_of(looks: Looks, part: Any) -> tuple[torch.dtype, tuple[int, ...], str] | None:
    """(dtype, shape, device type) of an operator's argument; None where it is no tensor."""
    return looks.get(part) if isinstance(part, torch.fx.Node) else None


def keep_scalars(graph: torch.fx.Graph, looks: Looks) -> int:
    """x.item() whose value only meets tensors of its floating dtype and device in + - * /: a tensor without dimensions there."""
    arithmetic = (operator.add, operator.sub, operator.mul, operator.truediv, torch.add, torch.sub, torch.mul, torch.div, torch.true_divide)
    found = 0
    for node in list(graph.nodes):
        source = node.args[0] if node.op == "call_method" and node.target == "item" and node.args else None
        look = look_of(looks, source)
        if look is None or not look[0].is_floating_point or not node.users:
            continue
        if all(user.op == "call_function" and user.target in arithmetic and not user.kwargs and len(user.args) == 2
               and any((look_of(looks, other) or (None,))[::2] == look[::2] for other in user.args) for user in node.users):
            with graph.inserting_before(node):
                # A copy: what it is a view of may change before it is used.
                value = graph.call_method("reshape", (graph.call_method("clone", (source,)), ()))
            node.replace_all_uses_with(value)
            graph.erase_node(node)
            found += 1
    return found


def reduce_by_mask(graph: torch.fx.Graph, looks: Looks) -> int:
    """sum and mean of x[mask], for a mask of x's shape. How many values there are is no longer asked by the host."""
    found = 0
    for node in list(graph.nodes):
        picks = node.op == "call_function" and node.target in (operator.getitem, torch.masked_select) and len(node.args) == 2
        x, mask = node.args if picks else (None, None)
        of_x, of_mask = look_of(looks, x), look_of(looks, mask)
        if of_x is None or of_mask is None or of_mask[:2] != (torch.bool, of_x[1]) or not of_x[0].is_floating_point:
            continue
        reductions = [user for user in node.users if len(user.args) == 1 and not user.kwargs and (
            (user.op == "call_method" and user.target in ("sum", "mean")) or user.target in (torch.sum, torch.mean))]
        if not reductions or len(reductions) != len(node.users):
            continue
        with graph.inserting_before(node):
            picked = graph.call_function(torch.where, (mask, x, 0.0))
            new = {"sum": graph.call_method("sum", (picked,))}
            if any(user.target in ("mean", torch.mean) for user in reductions):
                # A sum of 16-bit numbers may not fit their type, where the mean does.
                wide = torch.float32 if of_x[0] in (torch.float16, torch.bfloat16) else of_x[0]
                total = graph.call_method("sum", (picked,), {"dtype": wide})
                mean = graph.call_function(torch.div, (total, graph.call_method("sum", (mask,))))
                new["mean"] = graph.call_method("to", (mean, of_x[0]))
        for user in reductions:
            user.replace_all_uses_with(new["mean" if user.target in ("mean", torch.mean) else "sum"])
            graph.erase_node(user)
        for item in new.values():
            if not item.users:
                graph.erase_node(item)
        graph.erase_node(node)
        found += 1
    return found


def stay_on_device(graph: torch.fx.Graph, looks: Looks) -> int:
    """x.cpu() whose values come back to x's device after nothing but operators that move values without changing them."""
    moves = ("view", "reshape", "permute", "transpose", "contiguous", "flatten", "unsqueeze", "squeeze", "clone", "detach", "expand", "t",
             "flip", "roll", "getitem", "unflatten", "repeat")
    if any(changes_in_place(node) for node in graph.nodes):
        return 0  # the host's copy stays as it was, the original may not
    found = 0
    for node in list(graph.nodes):
        source = node.args[0] if node.op == "call_method" and node.target in ("cpu", "to") and node.args else None
        look = look_of(looks, source)
        if look is None or look[2] == "cpu" or look_of(looks, node) != (*look[:2], "cpu"):
            continue
        inside, ends, waiting, leaves_it = [node], [], list(node.users), False
        while waiting:
            user = waiting.pop()
            name = user.target if isinstance(user.target, str) else getattr(user.target, "__name__", "")
            if user in inside or user in ends:
                continue
            there = look_of(looks, user)
            back = there is not None and (there[0], there[2]) == (look[0], look[2])
            if name in ("to", "cuda") and back and not any(reader.op == "output" for reader in user.users):
                ends.append(user)
            elif name in moves and there is not None and set(user.all_input_nodes) <= {*inside}:
                inside.append(user)
                waiting += user.users
            else:
                leaves_it = True
        if leaves_it or not ends:
            continue
        for end in ends:
            end.replace_all_uses_with(end.args[0])
            graph.erase_node(end)
        node.replace_all_uses_with(source)
        graph.erase_node(node)
        found += 1
    return found
