"""What passes on the ATen graph share. Copied into files that hold one.

After AOTAutograd such a graph is functional: only the last calls before its end may write, into inputs that the model changes in place.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
import torch._ops
import torch.fx

from .graphs import calls, outputs_of, writes

VIEWS = (torch.ops.aten._unsafe_view.default, operator.getitem)
"""Calls that may share their argument's memory though no schema says so."""


def functional(graph: torch.fx.GraphModule) -> bool:
    """Whether nothing is written before the last calls of the graph, so that calls may be moved and values shared among all others."""
    last = set(last_writes(graph))
    return not any(may_write(node) for node in graph.graph.nodes if node.op == "call_function" and node not in last)


def last_writes(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The calls at the end of the graph that write, into inputs, what was computed."""
    calls_made = reversed([node for node in graph.graph.nodes if node.op == "call_function"])
    return list(itertools.takewhile(may_write, calls_made))


def written(graph: torch.fx.GraphModule) -> set[torch.fx.Node]:
    """The inputs that the last calls write, or read. What shares memory with one must not become what another of them reads."""
    return {memory_of(node) for call in last_writes(graph) for node in call.all_input_nodes}


def memory_of(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory this one's value lies in."""
    while is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def may_write(node: torch.fx.Node) -> bool:
    """Whether the call writes into an argument, or torch does not say what it does: it has no schema, and is neither arithmetic on sizes
    nor a Triton kernel that returns new tensors."""
    found = schemas(node)
    if found:
        return any(schema.is_mutable for schema in found)
    plain = getattr(node.target, "__module__", "") in ("_operator", "torch", "math")
    return writes(node) or not (plain or getattr(node.target, "__name__", "") == "triton_kernel_wrapper_functional")


def schemas(node: torch.fx.Node) -> list[Any]:
    """The schemas of the operator that is called: several where Inductor names none of its overloads, none for another function."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return [target._schema]
    return [getattr(target, name)._schema for name in target.overloads()] if isinstance(target, torch._ops.OpOverloadPacket) else []


def repeatable(node: torch.fx.Node) -> bool:
    """Whether the call gives the same values for the same arguments and does nothing else: an ATen operator without random numbers that
    returns something (a check returns nothing)."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return target is operator.getitem
    return (target.namespace in ("aten", "prims") and not target._schema.is_mutable and bool(target._schema.returns)
            and torch.Tag.nondeterministic_seeded not in target.tags and "empty" not in target.__name__)


def is_view(node: torch.fx.Node) -> bool:
    """Whether the call's result shares its argument's memory."""
    return calls(node, *VIEWS) or any(item.alias_info is not None for schema in schemas(node) for item in schema.returns)


def returned(graph: torch.fx.GraphModule) -> set[torch.fx.Node]:
    """The nodes whose memory the graph returns, those behind views included: each keeps memory of its own, and its name."""
    found: set[torch.fx.Node] = set()
    waiting = outputs_of(graph)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes if is_view(node) else []
    return found


def same_call(node: torch.fx.Node) -> tuple[Any, str]:
    """What two calls have in common that compute the same from the same values (names of nodes are unique in a graph)."""
    return node.target, repr((node.args, node.kwargs))


def drop_unused(graph: torch.fx.GraphModule) -> None:
    """Takes off the calls whose results nothing needs."""
    for node in reversed(graph.graph.nodes):
        if node.op == "call_function" and not node.users and repeatable(node):
            graph.graph.erase_node(node)


def sort_calls(graph: torch.fx.GraphModule) -> None:
    """Moves each call that stands before one of its arguments right behind the last of them; the others keep their order."""
    pending, placed, last = list(reversed(graph.graph.nodes)), set(), None
    waiting: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    while pending:
        node = pending.pop()
        missing = [item for item in node.all_input_nodes if item not in placed]
        if missing:
            waiting.setdefault(missing[-1], []).append(node)
            continue
        placed.add(node)
        if last is not None and last.next is not node:
            last.append(node)
        last = node
        pending += reversed(waiting.pop(node, []))
