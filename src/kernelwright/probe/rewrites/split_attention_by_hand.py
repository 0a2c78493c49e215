"""float32 attention in Dynamo's graph on tensor cores, error-compensated: what stood there by hand, after it became one call.

Each place is measured on its own queries, keys and values of the first call, for which the graph runs once as it is, and stays where
nothing is faster than torch's kernel and as exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .attention import Attention
from .attention_choice import AttentionCall, AttentionChooser
from .graphs import arguments, call_function, calls, replace, writes
from .product_choice import need_tensor_cores

Chosen = tuple[Attention, float, bool]
"""(how, scale of the scores, whether the result lies as (B, T, H, D) in memory)."""


class AttentionRun(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs Dynamo's graph on real tensors and chooses for each attention in it."""

    def __init__(self, graph: torch.fx.GraphModule, choose: Callable[[AttentionCall], Attention | None]) -> None:
        super().__init__(graph)
        self.choose = choose
        self.chosen: dict[torch.fx.Node, Chosen] = {}

    def run_node(self, node: torch.fx.Node) -> Any:
        """What torch gives; of each attention that the kernel can compute it is decided here."""
        if not calls(node, F.scaled_dot_product_attention):
            return super().run_node(node)
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        try:
            call = AttentionCall(*args, **kwargs)
        except NotImplementedError:
            return super().run_node(node)
        how = self.choose(call)
        if how is not None:
            self.chosen[node] = how, call.scale, call.rows_first
        return call.out


def split_attention_by_hand(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Puts the tensor cores' attention where that pays. Returns in how many places."""
    need_tensor_cores()
    return with_attention_in_graph(graph, example_inputs, AttentionChooser(("fp16x3", "bf16x6", "tf32x3")))


def with_attention_in_graph(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], choose: Callable[[AttentionCall], Attention | None],
) -> int:
    """Puts the attentions that choose gives. A graph that writes to a tensor is left alone: it can't be run once more."""
    nodes = [node for node in graph.graph.nodes if calls(node, F.scaled_dot_product_attention)]
    learns = torch.is_grad_enabled() and any(isinstance(item, torch.Tensor) and item.requires_grad for item in example_inputs)
    if not nodes or learns or any(writes(node) for node in graph.graph.nodes):
        return 0
    run = AttentionRun(graph, choose)
    with torch.random.fork_rng(), torch.no_grad():
        run.run(*example_inputs)
    for node, (how, scale, rows_first) in run.chosen.items():
        query, key, value, mask, _dropout, causal = arguments(node, "query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        replace(node, call_function(graph, node, torch.ops.tensor_core_attention.attend.default, query, key, value, mask, bool(causal),
                                    scale, rows_first, how.name))
    return len(run.chosen)
