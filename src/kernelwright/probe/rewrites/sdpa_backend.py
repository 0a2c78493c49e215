"""The kernel of each scaled_dot_product_attention chosen by measuring: flash, memory-efficient, cuDNN, or plain products and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from .graphs import arguments, calls, fake_mode_of, median_us, random_like, tensor_of


def plain_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None,
) -> torch.Tensor:
    """softmax(scale * Q K^T + mask) V as two batched products and a softmax that the compiler fuses with mask and scale. As the operator
    has it, the queries are scaled first (16-bit scores could overflow), and a query that may see no key gives 0. Without dropout."""
    *batch, rows, width = query.shape
    columns = key.shape[-2]
    assert not dropout_p
    query = query * (1.0 / math.sqrt(width) if scale is None else scale)
    flat = [item.reshape(-1, *item.shape[-2:]) for item in (query, key, value)]
    scores = torch.bmm(flat[0], flat[1].transpose(1, 2))
    scores = scores.reshape(*batch, rows, columns)
    if is_causal:
        seen = torch.ones(rows, columns, dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(seen.logical_not(), -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask.logical_not(), -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    weights = torch.softmax(scores, dim=-1)
    if attn_mask is not None:
        weights = weights.masked_fill(scores.amax(dim=-1, keepdim=True) == -math.inf, 0.0)
    return torch.bmm(weights.reshape(-1, rows, columns), flat[2]).reshape(*batch, rows, value.shape[-1])


def flash_attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Attention by the flash kernel (half precision only)."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(*args, **kwargs)


def memory_efficient_attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Attention by the memory-efficient kernel."""
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        return F.scaled_dot_product_attention(*args, **kwargs)


def cudnn_attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Attention by cuDNN's kernel (half precision only)."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(*args, **kwargs)


def sdpa_backend(graph: torch.fx.GraphModule, _example_inputs: Sequence[Any]) -> int:
    """Puts the fastest kernel at each attention where another than the usual one is faster by 3% or more. Returns how many."""
    changed = 0
    for node in graph.graph.nodes:
        if not calls(node, F.scaled_dot_product_attention) or node.kwargs.get("enable_gqa"):
            continue
        query, key, value, _mask, dropout, _causal = arguments(node, "query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        looks = [tensor_of(item) for item in (query, key, value)]
        if dropout or any(look is None for look in looks) or len({look.shape[:-2] for look in looks if look is not None}) != 1:
            continue
        best = fastest_attention(node, looks[0].device if looks[0] is not None else torch.device("cpu"))
        if best is not None:
            node.target = best
            with fake_mode_of(graph):
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda item: item.meta["example_value"])
                node.meta["example_value"] = best(*args, **kwargs)
            changed += 1
    return changed


def fastest_attention(node: torch.fx.Node, device: torch.device) -> Callable[..., torch.Tensor] | None:
    """The fastest kernel for the shapes of this call, on random numbers; None where the usual choice is as fast."""

    def sample(item: torch.fx.Node) -> Any:
        look = tensor_of(item)
        return item.meta.get("example_value") if look is None else random_like(look)

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), sample)
    choices = [flash_attention, memory_efficient_attention, cudnn_attention] if device.type == "cuda" else []
    times: list[tuple[float, Any]] = []
    with torch.no_grad():
        usual = median_us(lambda: F.scaled_dot_product_attention(*args, **kwargs), device)
        # The scores of float16 may not fit it: the fused kernels hold them in float32.
        query = tensor_of(arguments(node, "query")[0])
        for choice in (*choices, *([plain_attention] if query is not None and query.dtype != torch.float16 else [])):
            try:
                times.append((median_us(lambda choice=choice: choice(*args, **kwargs), device), choice))  # type: ignore[misc]
            except RuntimeError:  # this kernel does not take this dtype, shape or mask; or no memory for the scores
                continue
    time, best = min(times, key=lambda pair: pair[0], default=(math.inf, None))
    return best if time < 0.97 * usual else None
