"""scaled_dot_product_attention in Dynamo's graph as the tensor cores' kernel, each place chosen on random numbers of its shapes and
strides: running the graph beside the call could change what the model keeps. Copied into files that replace it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .attention import Attention
from .attention_choice import AttentionCall
from .graphs import arguments, call_function, calls, random_like, replace, tensor_of


def attended_in_graph(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], choose: Callable[[AttentionCall], Attention | None],
) -> int:
    """Puts the attention that is chosen, where one is. Returns in how many places. None where gradients are asked for."""
    if torch.is_grad_enabled() and any(isinstance(item, torch.Tensor) and item.requires_grad for item in example_inputs):
        return 0
    changed = 0
    for node in list(graph.graph.nodes):
        call = sample_call(node) if calls(node, F.scaled_dot_product_attention) else None
        how = choose(call) if call is not None else None
        if call is None or how is None:
            continue
        query, key, value, mask = arguments(node, "query", "key", "value", "attn_mask")
        replace(node, call_function(graph, node, torch.ops.tensor_core_attention.attend.default, query, key, value, mask, call.is_causal,
                                    call.scale, call.rows_first, how.name))
        changed += 1
    return changed


def sample_call(node: torch.fx.Node) -> AttentionCall | None:
    """The attention of a node on random numbers that see all of each other; None for one that the kernel does not compute, whose result is
    of another type (autocast), whose sizes are not fixed, or that reads an element of a query, key or value in several places."""
    *given, dropout, causal, scale, gqa = arguments(
        node, "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    query, key, value, mask = (tensor_of(item) for item in given)
    result = tensor_of(node)
    if query is None or key is None or value is None or result is None or (mask is None) != (given[3] is None):
        return None
    known = [query, key, value, *([] if mask is None else [mask])]
    if result.dtype != query.dtype or any(type(number) is not int for look in known for number in (*look.shape, *look.stride())):
        return None
    if any(0 in look.stride() for look in known[:3]):
        return None
    q, k, v = (random_like(look, seed) for seed, look in enumerate((query, key, value)))
    try:
        return AttentionCall(q, k, v, None if mask is None else seeing(mask), dropout or 0.0, bool(causal), scale, bool(gqa))
    except NotImplementedError:
        return None


def seeing(mask: torch.Tensor) -> torch.Tensor:
    """A mask that hides nothing, repeated where this one is."""
    sizes = [1 if step == 0 else size for size, step in zip(mask.shape, mask.stride(), strict=True)]
    fill = torch.ones if mask.dtype == torch.bool else torch.zeros
    return fill(sizes, dtype=mask.dtype, device=mask.device).expand(mask.shape)
