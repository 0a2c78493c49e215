"""Attention written by hand, softmax(scale * Q K^T + mask) V, as scaled_dot_product_attention: the scores are never stored."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .graphs import FROZEN, arguments, call_function, calls, is_written, replace, tensor_of, undisturbed, weight_of

SCORE_PRODUCTS = (operator.matmul, torch.matmul, torch.bmm, "matmul", "bmm")
SOFTMAXES = (F.softmax, torch.softmax, "softmax")
SIXTEEN_BITS = (torch.float16, torch.bfloat16)
OF_NUMBERS = (
    torch.ones, torch.zeros, torch.full, torch.arange, torch.tril, torch.triu, torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge,
    torch.logical_not, torch.unsqueeze, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.invert,
    operator.getitem, "tril", "triu", "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "view", "reshape", "unsqueeze", "bool", "to",
    "expand",
)
"""Calls that masks are made with, of numbers alone; none of them changes what it is given."""
LARGEST_MASK = 2**28
"""Numbers of a mask that is looked into: one of 16384 x 16384."""


def sdpa_substitution(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Replaces each attention that it is sure of; dropout must be off. A mask that the call makes, or that is frozen, and that hides what
    is to come, is no mask to the fused kernels but a way to compute half. Returns how many."""
    found = 0
    for product in list(graph.graph.nodes):
        matched = attention_of(product)
        if matched is None:
            continue
        chain, query, key, value, scale, masks = matched
        if not undisturbed(graph, [*chain, product]):
            continue
        look = tensor_of(query)
        assert look is not None
        causal = hides_what_is_to_come(masks, look, tensor_of(key), graph, example_inputs)
        mask = None if causal else joined_mask(graph, product, masks, look)
        key = call_function(graph, product, torch.transpose, key, -2, -1)
        if look.dim() == 3:  # the fused kernels want heads
            query, key, value = (call_function(graph, product, torch.unsqueeze, item, 1) for item in (query, key, value))
            mask = mask if mask is None or len(mask_shape(mask)) < 3 else call_function(graph, product, torch.unsqueeze, mask, 1)
        options = {"is_causal": True} if causal else {} if mask is None else {"attn_mask": mask}
        new = call_function(graph, product, F.scaled_dot_product_attention, query, key, value, scale=scale, **options)
        replace(product, call_function(graph, product, torch.squeeze, new, 1) if look.dim() == 3 else new)
        found += 1
    return found


def mask_shape(node: torch.fx.Node) -> tuple[int, ...]:
    """Shape of a mask's value."""
    look = tensor_of(node)
    return () if look is None else tuple(look.shape)


def attention_of(product: torch.fx.Node) -> Any:
    """(chain of calls, query, transposed key, value, scale, masks) of a product whose first factor is a softmax of scaled scores.

    None for any other node, and where a score is used elsewhere (it must be stored then anyway).
    """
    if not calls(product, *SCORE_PRODUCTS) or len(product.args) != 2:
        return None
    node, value = product.args
    chain: list[torch.fx.Node] = []

    def follow(item: Any) -> bool:
        if not isinstance(item, torch.fx.Node) or len(item.users) != 1:
            return False
        chain.append(item)
        return True

    while calls(node, F.dropout) and follow(node):
        given, share, training = arguments(node, "input", "p", "training")
        if training is not False and share != 0:
            return None
        node = given
    while (source := recast_of(node)) is not None and follow(node):
        node = source
    weights = tensor_of(node)
    if not calls(node, *SOFTMAXES) or not follow(node) or weights is None:
        return None
    node, dim = arguments(node, "input", "dim")
    if dim not in (-1, weights.dim() - 1):
        return None
    scale, masks, softmax_at = 1.0, [], len(chain) - 1
    while follow(node) and not calls(node, *SCORE_PRODUCTS):
        if tensor_of(node) is None or tensor_of(node).shape != weights.shape:  # type: ignore[union-attr]
            return None
        step = scaled(node) or masked(node, scale) or widening_step(node)
        if step is None:
            return None
        node, factor, mask = step
        scale *= factor
        masks += [mask] if mask else []
    if not calls(node, *SCORE_PRODUCTS) or node not in chain or len(node.args) != 2:
        return None
    query, turned = node.args
    chain += [query] if scaled(query) else []
    query, factor, _mask = scaled(query) or (query, 1.0, None)
    q, k, v, result = (tensor_of(item) for item in (query, turned, value, product))
    if q is None or k is None or v is None or result is None or not 3 <= q.dim() <= 4 or not q.dtype == k.dtype == v.dtype == result.dtype:
        return None
    after, scores = ({look.dtype for look in map(tensor_of, part) if look is not None} for part in (chain[:softmax_at], chain[softmax_at:]))
    is_wide = q.dtype in SIXTEEN_BITS and scores == {q.dtype, torch.float32} and weights.dtype == torch.float32
    if not (scores == {q.dtype} or is_wide) or not after <= {q.dtype, torch.float32}:
        return None
    if not all(mask_means_the_same(mask, q, is_wide) for mask in masks):
        return None
    same = q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and q.shape[-1] == v.shape[-1]
    return (chain, query, turned, value, scale * factor, masks) if same else None


def mask_means_the_same(mask: tuple[float | None, torch.fx.Node], query: torch.Tensor, is_wide: bool) -> bool:
    """Whether the fused kernels make of a mask what the scores make of it, also where a whole row is masked (but there scores of 32 and
    more still count beside a fill of -1e9, and -inf gives 0, where softmax gives NaN). is_wide: the softmax of 16-bit scores is float32's:
    as CUDA's autocast has it, many a model, and the fused kernels. What is added is to be of the queries' type, and not float16: there no
    number is so small that a score beside it is rounded away."""
    fill, node = mask
    look = tensor_of(node)
    if look is None or look.dim() < 2:
        return False
    if fill is not None:
        return fill == -math.inf or not is_wide
    return bool(look.dtype == query.dtype and query.dtype != torch.float16)


def recast_of(node: Any) -> torch.fx.Node | None:
    """What a node is with its numbers in another floating type; None for any other node."""
    if not calls(node, "to", "float", "half", "bfloat16", "double", "type_as") or not isinstance(node.args[0], torch.fx.Node):
        return None
    own, given = tensor_of(node), tensor_of(node.args[0])
    if own is None or given is None or own.device != given.device or own.shape != given.shape:
        return None
    alike = own.is_floating_point() and given.is_floating_point() and own.stride() == given.stride()
    return node.args[0] if alike else None


def widening_step(node: torch.fx.Node) -> tuple[torch.fx.Node, float, None] | None:
    """(scores, 1, None) of a cast that loses none of them."""
    given = recast_of(node)
    own, look = tensor_of(node), tensor_of(given)
    if given is None or own is None or look is None:
        return None
    return (given, 1.0, None) if own.dtype == look.dtype or (look.dtype in SIXTEEN_BITS and own.dtype == torch.float32) else None


def scaled(node: Any) -> tuple[Any, float, None] | None:
    """(what is scaled, the factor, None) of a product or quotient with a number above zero; None for any other node."""
    divides = calls(node, operator.truediv, torch.div, "div")
    if not (divides or calls(node, operator.mul, torch.mul, "mul")) or len(node.args) != 2 or node.kwargs:
        return None
    left, right = node.args
    if isinstance(left, (int, float)) and not divides:
        left, right = right, left
    if not isinstance(left, torch.fx.Node) or not isinstance(right, (int, float)) or not 0 < right < math.inf:
        return None
    return left, (1.0 / right if divides else float(right)), None


def masked(node: torch.fx.Node, scale: float) -> tuple[Any, float, Any] | None:
    """(scores, 1, (fill or None, mask)) of a mask put on scores that are scaled by `scale` later; fill None: the mask is added."""
    if calls(node, operator.add, torch.add, "add") and len(node.args) == 2 and not node.kwargs and scale == 1.0:
        scores, mask = node.args if on_the_way(node.args[0]) else node.args[::-1]
        look, given = tensor_of(mask), tensor_of(node)
        return (scores, 1.0, (None, mask)) if look is not None and given is not None and look.dtype == given.dtype else None
    if not calls(node, torch.masked_fill, "masked_fill"):
        return None
    scores, mask, fill = arguments(node, "input", "mask", "value")
    # A smaller fill, or one that is scaled, leaves weight on masked places where a whole row is masked.
    sure = isinstance(fill, (int, float)) and (fill == -math.inf or (fill <= -1e9 and scale == 1.0))
    return (scores, 1.0, (fill, mask)) if sure and tensor_of(mask) is not None else None


def on_the_way(node: Any) -> bool:
    """Whether a node is scores: a product, or one that was scaled or masked."""
    steps = (operator.mul, torch.mul, "mul", operator.truediv, torch.div, "div", torch.masked_fill, "masked_fill", operator.add, "add",
             "to", "float")
    while calls(node, *steps) and node.args:
        node = node.args[0]
    return calls(node, *SCORE_PRODUCTS)


def hides_what_is_to_come(
    masks: Sequence[Any], query: torch.Tensor, turned: torch.Tensor | None, graph: torch.fx.GraphModule, example_inputs: Sequence[Any],
) -> bool:
    """Whether the one mask, on every head alike, is known to hide just the keys after each query. turned: the keys, transposed. A mask
    that the model keeps is known where its weights are constants of the compiled code; else another may be put into its buffer."""
    size = query.shape[-2]
    if len(masks) != 1 or turned is None or type(size) is not int or turned.shape[-1] != size:
        return False
    made: dict[torch.fx.Node, torch.Tensor] = {}
    (fill, node), kept = masks[0], example_inputs if graph.meta.get(FROZEN) else None
    mask = value_of(node, made, graph, kept)
    if mask is None or mask.shape[-2:] != (size, size) or (fill is not None and mask.dtype != torch.bool) or is_written(made, graph):
        return False
    gone = mask if fill is not None else mask == -math.inf
    shown_as_they_are = fill is not None or bool((mask.masked_fill(gone, 0.0) == 0.0).all())
    return shown_as_they_are and bool((gone == torch.ones(size, size, dtype=torch.bool, device=gone.device).triu(1)).all())


def value_of(
    node: torch.fx.Node, made: dict[torch.fx.Node, torch.Tensor], graph: torch.fx.GraphModule, kept: Sequence[Any] | None,
) -> torch.Tensor | None:
    """What a node is that is made of numbers alone, or, where `kept` are the graph's inputs, of the model's weights; None for anything
    else. made: gets the values of all that it is made of."""
    look = tensor_of(node)
    if look is None or any(type(size) is not int for size in look.shape) or look.numel() > LARGEST_MASK:
        return None
    weight = weight_of(node, graph, kept) if kept is not None else None
    if weight is not None:
        made[node] = weight.detach()
        return made[node]
    if not calls(node, *OF_NUMBERS) or any(value_of(item, made, graph, kept) is None for item in node.all_input_nodes if item not in made):
        return None
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda item: made[item])
    with torch.no_grad():
        found = getattr(args[0], node.target)(*args[1:], **kwargs) if node.op == "call_method" else node.target(*args, **kwargs)
    made[node] = found
    return found if isinstance(found, torch.Tensor) else None


def joined_mask(graph: torch.fx.GraphModule, before: torch.fx.Node, masks: Sequence[Any], query: torch.Tensor) -> Any:
    """One mask for all: booleans (True: seen) where each fill is -inf, else numbers to add: made in the order in which the scores get
    them, for a fill takes the place of what was there. None without masks."""
    joined: Any = None
    if all(fill == -math.inf for fill, _mask in masks):
        for _fill, mask in masks:
            seen = call_function(graph, before, torch.logical_not, mask)
            joined = seen if joined is None else call_function(graph, before, torch.logical_and, joined, seen)
        return joined
    for fill, mask in reversed(masks):
        if fill is None:
            joined = mask if joined is None else call_function(graph, before, torch.add, joined, mask)
            continue
        if joined is None:
            joined = call_function(graph, before, torch.zeros_like, mask, dtype=query.dtype)
        least = fill if fill == -math.inf else max(fill, torch.finfo(query.dtype).min)
        joined = call_function(graph, before, torch.where, mask, least, joined)
    return joined
