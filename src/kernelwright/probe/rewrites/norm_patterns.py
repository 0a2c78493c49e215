"""Where Dynamo's graph normalises: torch's own calls, and RMS norms written out. Copied into files that replace them."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .graphs import arguments, calls, tensor_of

NORM_ADDS, NORM_TIMES = (operator.add, torch.add, "add"), (operator.mul, torch.mul, "mul")
LIBRARY_NORMS = {
    (F.layer_norm, torch.layer_norm): "input normalized_shape weight bias eps",
    (getattr(F, "rms_norm", None), getattr(torch, "rms_norm", None)): "input normalized_shape weight eps",
    (F.group_norm, torch.group_norm): "input num_groups weight bias eps",
    (F.instance_norm, torch.instance_norm): "input running_mean running_var weight bias use_input_stats momentum eps"}
"""Their functions, and the arguments' names."""
Norm = tuple[bool, Any, Any, Any, float, list[int], list[torch.fx.Node]]
"""Whether it is an RMS norm, source, weight, bias, eps, geometry and nodes of a normalisation; the last node is its result."""


def library_norm(node: torch.fx.Node) -> Norm | None:
    """A call of torch's own normalisations."""
    source = tensor_of(node.args[0] if node.args else None)
    given = next((names.split() for targets, names in LIBRARY_NORMS.items() if calls(node, *targets)), None)
    if source is None or given is None:
        return None
    names = dict(zip(given, arguments(node, *given), strict=True))
    if names.get("running_mean") is not None or names.get("use_input_stats") is False:
        return None
    if any(isinstance(names.get(name), torch.fx.Node) for name in ("eps", "num_groups")):  # numbers that change from call to call
        return None
    rms = "bias" not in names
    if "normalized_shape" in names:
        shape = names["normalized_shape"]
        inner = source.shape[source.dim() - (1 if isinstance(shape, int) else len(shape)):]
        geometry = [inner.numel(), 1, 1]
    else:
        groups, each = names.get("num_groups") or source.shape[1], source.shape[2:].numel()
        geometry = [source.shape[1] // groups * each, each, groups]
    eps = names["eps"]
    if eps is None:
        eps = default_eps(source) if rms else 1e-5
    return rms, node.args[0], names["weight"], names.get("bias"), eps, geometry, [node]


def default_eps(x: torch.Tensor) -> float:
    """What rms_norm adds where it is given none: of x's dtype, or (newer torch) of float32. As this torch says."""
    small = torch.full((1,), 2.0**-10, dtype=x.dtype, device=x.device)
    said, square = float(F.rms_norm(small, (1,))), 2.0**-20
    return min((float(torch.finfo(dtype).eps) for dtype in (torch.float32, x.dtype)),
               key=lambda eps: abs((square / (square + eps)) ** 0.5 - said))


def rms_by_hand(root: torch.fx.Node) -> Norm | None:
    """x * rsqrt(mean(x^2) + eps) (or x / sqrt(...)) over the last dimension [cast] [* w], x as float32 or as it is. root: the root."""
    quotient = calls(root, torch.sqrt, "sqrt")
    if not quotient and not calls(root, torch.rsqrt, "rsqrt"):
        return None
    plus: Any = root.args[0] if root.args else None
    eps, mean = number_and_node(plus) if calls(plus, *NORM_ADDS) and not plus.kwargs else (None, None)
    if eps is None or not calls(mean, torch.mean, "mean"):
        return None
    square, dims, kept = arguments(mean, "input", "dim", "keepdim")
    powers = calls(square, operator.pow, torch.pow, "pow") and square.args[1:] in ((2,), (2.0,))
    twice = calls(square, *NORM_TIMES) and len(square.args) == 2 and square.args[0] is square.args[1]
    if not (powers or twice or calls(square, torch.square, "square")):
        return None
    base: Any = square.args[0] if square.args else None
    wide, product = tensor_of(base), only_user(root)
    last = [dims] if isinstance(dims, int) else list(dims or ())
    if wide is None or not wide.dim() or kept is not True or last not in ([-1], [wide.dim() - 1]):
        return None
    fits = calls(product, operator.truediv, torch.div, "div") and product.args == (base, root) if quotient else (
        calls(product, *NORM_TIMES) and product.args in ((base, root), (root, base)))
    if not fits or product.kwargs or any(only_user(one) is not two for one, two in ((square, mean), (mean, plus), (plus, root))):
        return None
    nodes, source, weight = [square, mean, plus, root, product], base, None
    narrow = tensor_of(base.args[0]) if calls(base, "float", "to") else None
    if narrow is not None and set(base.users) == {square, product} and same_but_dtype(narrow, wide) and wide.dtype == torch.float32:
        nodes, source = [base, *nodes], base.args[0]
    following = only_user(nodes[-1])
    if calls(following, "to", "type_as", "float", "half", "bfloat16") and following.args[0] is nodes[-1] and same_but_dtype(
            tensor_of(following), wide):
        nodes.append(following)
        following = only_user(following)
    if calls(following, *NORM_TIMES) and len(following.args) == 2 and not following.kwargs:
        (other,) = [item for item in following.args if item is not nodes[-1]] or [None]
        value = tensor_of(other)
        if value is not None and value.shape == wide.shape[-1:]:
            weight = other
            nodes.append(following)
    return True, source, weight, None, float(eps), [wide.shape[-1], 1, 1], nodes


def number_and_node(node: torch.fx.Node) -> tuple[Any, Any]:
    """The number and the node of a sum of both, (None, None) for any other."""
    number, other = sorted(node.args, key=lambda item: isinstance(item, torch.fx.Node)) if len(node.args) == 2 else (None, None)
    return (number, other) if isinstance(number, (int, float)) and isinstance(other, torch.fx.Node) else (None, None)


def only_user(node: torch.fx.Node) -> Any:
    """The one node that uses this one's result; None where there are more."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def same_but_dtype(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    """Whether a cast makes one of the other."""
    return one is not None and (one.shape, one.stride(), one.device) == (other.shape, other.stride(), other.device)
