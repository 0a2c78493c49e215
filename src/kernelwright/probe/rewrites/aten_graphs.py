"""What passes on the ATen graph share. Copied into files that hold one.

After AOTAutograd such a graph is functional: only the last calls before its end may write, into inputs that the model changes in place.
"""

from __future__ import annotations

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
    found = [node for node in graph.graph.nodes if node.op == "call_function"]
    while found and writes(found[-1]):
        found.pop()
    return not any(writes(node) or not known(node) for node in found)


def known(node: torch.fx.Node) -> bool:
    """Whether torch says what the call does: an operator with a schema, or arithmetic on sizes; of operators on graphs only Triton
    kernels that return new tensors."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) or getattr(target, "__module__", "") in ("_operator", "torch", "math") or (
        getattr(target, "__name__", "") == "triton_kernel_wrapper_functional")


def repeatable(node: torch.fx.Node) -> bool:
    """Whether the call gives the same values for the same arguments and does nothing else: an ATen operator without random numbers."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return target is operator.getitem
    return (target.namespace in ("aten", "prims") and not target._schema.is_mutable
            and torch.Tag.nondeterministic_seeded not in target.tags and "empty" not in target.__name__)


def is_view(node: torch.fx.Node) -> bool:
    """Whether the call's result shares its argument's memory."""
    schema = getattr(node.target, "_schema", None)
    return calls(node, *VIEWS) or (schema is not None and any(item.alias_info is not None for item in schema.returns))


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
