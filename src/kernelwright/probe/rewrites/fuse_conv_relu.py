"""Convolution, bias and ReLU in one cuDNN call: the result goes through memory once, not twice or three times."""

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
    median_us,
    random_like,
    replace,
    tensor_of,
    undisturbed,
    weight_of,
)

RELUS = (F.relu, torch.relu, "relu")


def conv_relu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """relu(conv2d(x)) in one cuDNN call; on a CPU in two."""
    if x.is_cuda:
        return torch.cudnn_convolution_relu(x, weight, bias, stride, padding, dilation, groups)
    return torch.relu(torch.conv2d(x, weight, bias, stride, padding, dilation, groups))


def conv_relu_operator() -> Any:
    """conv_relu as an operator that compilers take as it is; its result is channels_last. Registered once a process."""
    operators: Any = torch.ops.kernel_rewrites
    if not hasattr(operators, "conv_relu"):
        library = torch.library.Library("kernel_rewrites", "FRAGMENT")
        library.define("conv_relu(Tensor x, Tensor weight, Tensor bias, int[] stride, int[] padding, int[] dilation, int groups) -> Tensor")
        for device in ("CUDA", "CPU"):
            library.impl("conv_relu", conv_relu, device)
        library.impl("conv_relu", conv_relu_shape, "Meta")
        operators.library = library  # else it would go with this module
    return operators.conv_relu.default


def conv_relu_shape(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *rest: Any) -> torch.Tensor:
    """What the result looks like."""
    return torch.empty_like(torch.conv2d(x, weight, bias, *rest), memory_format=torch.channels_last)


def fuse_conv_relu(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Replaces each convolution and ReLU where one call measures faster than two at this place's shape. Returns how many."""
    fused = 0
    x: Any
    y: Any
    value: Any
    for relu in [] if has_autocast(graph) else list(graph.graph.nodes):
        conv: Any = relu.args[0] if calls(relu, *RELUS) else None
        if not calls(conv, torch.conv2d) or len(conv.users) != 1 or not undisturbed(graph, [conv, relu], between=True):
            continue
        source, weight, bias, *given = arguments(conv, "input", "weight", "bias", "stride", "padding", "dilation", "groups")
        value, bias_value = weight_of(weight, graph, example_inputs), weight_of(bias, graph, example_inputs)
        x, y = tensor_of(source), tensor_of(relu)
        known = value is not None and x is not None and y is not None and (bias is None or bias_value is not None)
        if not known or x.dim() != 4 or isinstance(given[1], str):
            continue
        stride, padding, dilation = ([item, item] if isinstance(item, int) else list(item) for item in (
            default if item is None else item for item, default in zip(given[:3], (1, 0, 1), strict=True)))
        settings = (stride, padding, dilation, given[3] or 1)
        with torch.no_grad():
            laid_out = value.contiguous(memory_format=torch.channels_last)
            shift = value.new_zeros(len(value)) if bias_value is None else bias_value
        if not one_call_is_faster(x, value, laid_out, shift, settings):
            continue
        operator = conv_relu_operator()
        before = source.args[0] if calls(source, "contiguous") and calls(source.args[0], operator) else call_function(
            graph, relu, torch.Tensor.contiguous, source, memory_format=torch.channels_last)
        new = call_function(graph, relu, operator, before, constant_node(graph, "nhwc_weight", laid_out),
                            constant_node(graph, "conv_bias", shift), *settings)
        if y.is_contiguous():
            with graph.graph.inserting_before(relu):
                back = graph.graph.call_method("contiguous", (new,))
            back.meta["example_value"] = y
            new = back
        replace(relu, new)
        fused += 1
    return fused


def one_call_is_faster(x: torch.Tensor, weight: torch.Tensor, laid_out: torch.Tensor, bias: torch.Tensor, settings: Any) -> bool:
    """Measured on random numbers of this shape: against a convolution in the better layout and one more pass for bias and ReLU."""
    sample, device = random_like(x), weight.device
    nhwc = sample.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        try:
            one = median_us(lambda: conv_relu(nhwc, laid_out, bias, *settings), device)
        except RuntimeError:  # cuDNN has no such kernel for this dtype or shape
            return False
        two = min(median_us(lambda: torch.relu_(torch.conv2d(sample, weight, None, *settings)), device),
                  median_us(lambda: torch.relu_(torch.conv2d(nhwc, laid_out, None, *settings)), device))
    return one < 0.97 * two
