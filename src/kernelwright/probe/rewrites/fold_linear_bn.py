"""Batch norms in eval mode, and other numbers a channel, folded into the linear layer or convolution before them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .graphs import arguments, call_function, calls, constant_node, has_autocast, replace, tensor_of, undisturbed, weight_of

CONVOLUTIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
"""Each with the dimensions that it slides over: the channels are the one before those, with a batch before it or without."""


def fold_linear_bn(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Decided on Dynamo's graph: the layer's result must go nowhere else. Returns how many calls were folded away."""
    folded = 0
    for node in [] if has_autocast(graph) else list(graph.graph.nodes):
        layer: Any = node.args[0] if node.args else None
        if not calls(layer, F.linear, *CONVOLUTIONS) or len(layer.users) != 1 or not layer.args:
            continue
        _input, weight, bias = arguments(layer, "input", "weight", "bias")
        weight, bias_value = weight_of(weight, graph, example_inputs), weight_of(bias, graph, example_inputs)
        look = tensor_of(layer)
        if weight is None or weight.dim() < 2 or look is None or (bias is not None and bias_value is None):
            continue
        result = tensor_of(node)
        if result is None or result.dtype != look.dtype or not undisturbed(graph, [layer, node], between=True):
            continue
        channel = look.dim() - 1 - CONVOLUTIONS.get(layer.target, 0)
        factors = affine_of(node, look, channel, graph, example_inputs)
        if factors is None:
            continue
        with torch.no_grad():
            scale, shift = (part.to(weight.dtype).expand(len(weight)) for part in factors)
            new_weight = weight * scale.reshape(-1, *[1] * (weight.dim() - 1))
            new_bias = shift + (0 if bias_value is None else bias_value * scale)
        rest = layer.args[3:], {key: value for key, value in layer.kwargs.items() if key not in ("weight", "bias")}
        new = call_function(graph, node, layer.target, layer.args[0], constant_node(graph, "folded_weight", new_weight),
                            constant_node(graph, "folded_bias", new_bias), *rest[0], **rest[1])
        replace(node, new)
        folded += 1
    return folded


def affine_of(
    node: torch.fx.Node, look: torch.Tensor, channel: int, graph: torch.fx.GraphModule, example_inputs: Sequence[Any],
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """(scale, shift) a channel, in float64, of a batch norm in eval mode or an operation with a number or a weight a channel."""
    if calls(node, F.batch_norm):
        _x, *given, training, _momentum, eps = arguments(
            node, "input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
        mean, variance, gamma, beta = (weight_of(item, graph, example_inputs) for item in given)
        lost = [item for item, value in zip(given, (mean, variance, gamma, beta), strict=True) if item is not None and value is None]
        # A batch norm's channels are dimension 1; a linear layer's, and those of a convolution without a batch, may be another.
        if training or mean is None or variance is None or lost or channel != 1:
            return None
        scale = (1.0 if gamma is None else gamma.double()) / torch.sqrt(variance.double() + (1e-5 if eps is None else eps))
        return scale, (0.0 if beta is None else beta.double()) - mean.double() * scale
    if len(node.args) != 2 or node.kwargs:
        return None
    value = node.args[1]
    if isinstance(value, torch.fx.Node):
        weight = weight_of(value, graph, example_inputs)
        sizes = [] if weight is None else [1] * (look.dim() - weight.dim()) + list(weight.shape)
        if weight is None or len(sizes) != look.dim() or not weight.is_floating_point() or any(
                size != 1 and (place != channel or size != look.shape[channel]) for place, size in enumerate(sizes)):
            return None
        number = weight.detach().double().reshape(-1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = torch.tensor([float(value)], dtype=torch.float64, device=look.device)
    else:
        return None
    one, zero = torch.ones_like(number), torch.zeros_like(number)
    if calls(node, operator.mul, torch.mul, "mul"):
        return number, zero
    if calls(node, operator.truediv, torch.div, "div") and bool((number != 0).all()):
        return 1 / number, zero
    if calls(node, operator.add, torch.add, "add"):
        return one, number
    return (one, -number) if calls(node, operator.sub, torch.sub, "sub") else None
