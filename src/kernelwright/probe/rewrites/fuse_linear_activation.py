"""Linear layer and activation in one cuBLASLt call: ReLU, or GELU in its tanh form, applied while the product is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .graphs import (
    arguments,
    call_function,
    calls,
    constant_node,
    has_autocast,
    is_layer,
    median_us,
    random_like,
    replace,
    tensor_of,
    undisturbed,
    weight_of,
)


def fuse_linear_activation(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Replaces each pair where one call measures faster than two at this place's shape. Returns how many."""
    fused = 0
    for node in [] if has_autocast(graph) else list(graph.graph.nodes):
        tanh_gelu = calls(node, F.gelu) and arguments(node, "input", "approximate")[1] == "tanh"
        linear: Any = node.args[0] if tanh_gelu or calls(node, F.relu, torch.relu, "relu") else None
        if not calls(linear, F.linear) or len(linear.users) != 1 or not undisturbed(graph, [linear, node], between=True):
            continue
        source, weight, bias = arguments(linear, "input", "weight", "bias")
        value, x, y = weight_of(weight, graph, example_inputs), tensor_of(source), tensor_of(node)
        bias_value = weight_of(bias, graph, example_inputs)
        if value is None or x is None or y is None or x.dim() < 2 or (bias is not None and bias_value is None):
            continue
        if not is_layer(value, bias_value):
            continue
        if tanh_gelu and value.device.type != "cuda":
            continue  # elsewhere this operator's GELU is the exact one
        shift = torch.zeros(len(value), dtype=value.dtype, device=value.device) if bias_value is None else bias_value.detach()
        if not fused_is_faster(x, value.detach(), shift, tanh_gelu):
            continue
        rows = call_function(graph, node, torch.reshape, source, (-1, x.shape[-1]))
        turned = call_function(graph, node, torch.t, weight)
        if bias is None:
            bias = constant_node(graph, "zero_bias", shift)
        new = call_function(graph, node, torch.ops.aten._addmm_activation.default, bias, rows, turned, use_gelu=tanh_gelu)
        replace(node, call_function(graph, node, torch.reshape, new, tuple(y.shape)))
        fused += 1
    return fused


def fused_is_faster(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, tanh_gelu: bool) -> bool:
    """Measured on random numbers of this shape: against the product without bias and one more pass over its result."""
    sample = random_like(x).reshape(-1, x.shape[-1])
    with torch.no_grad():
        one = median_us(lambda: torch._addmm_activation(bias, sample, weight.t(), use_gelu=tanh_gelu), weight.device)
        two = median_us(lambda: torch.relu_(torch.mm(sample, weight.t())), weight.device)
    return one < 0.97 * two
