"""Linear layers whose sizes do not fit the fast kernels' alignment, padded with zeros: 50257 columns run as 50264."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from .graphs import arguments, call_function, calls, constant_node, is_layer, median_us, random_like, replace, tensor_of, weight_of


def pad_to_tiles(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Pads weights (columns also of the input) to a multiple of 16 bytes, or of 64 numbers, whichever measures faster, where that
    is faster at all. Zeros add nothing to a product. Returns how many layers."""
    padded = 0
    for node in [node for node in graph.graph.nodes if calls(node, F.linear)]:
        source, weight, bias = arguments(node, "input", "weight", "bias")
        value, bias_value = weight_of(weight, graph, example_inputs), weight_of(bias, graph, example_inputs)
        x = tensor_of(source)
        if value is None or x is None or (bias is not None and bias_value is None) or not is_layer(value, bias_value):
            continue
        best = best_padding(x, value.detach(), None if bias_value is None else bias_value.detach())
        if best is None:
            continue
        rows, columns = best
        with torch.no_grad():
            wide = constant_node(graph, "padded_weight", F.pad(value, (0, columns, 0, rows)))
            wide_bias = None if bias_value is None else constant_node(graph, "padded_bias", F.pad(bias_value, (0, rows)))
        given = call_function(graph, node, F.pad, source, (0, columns)) if columns else source
        product = call_function(graph, node, F.linear, given, wide, wide_bias)
        if rows:
            product = call_function(graph, node, torch.narrow, product, -1, 0, len(value))
            product = call_function(graph, node, torch.Tensor.contiguous, product)
        replace(node, product)
        padded += 1
    return padded


def best_padding(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> tuple[int, int] | None:
    """(rows, columns) of zeros to add to the weight; None where nothing gains 3% with the copies that it costs."""
    sample = random_like(x)
    with torch.no_grad():
        as_it_is = median_us(lambda: F.linear(sample, weight, bias), weight.device)
        times = []
        for multiple in {16 // weight.element_size(), 64}:
            rows, columns = (-size % multiple for size in weight.shape)
            if not rows and not columns:
                continue
            wide = F.pad(weight, (0, columns, 0, rows))
            wide_bias = None if bias is None else F.pad(bias, (0, rows))

            def call(wide: Any = wide, wide_bias: Any = wide_bias, columns: int = columns) -> Any:
                given = F.pad(sample, (0, columns)) if columns else sample
                return F.linear(given, wide, wide_bias)[..., : len(weight)].contiguous()

            times.append((median_us(call, weight.device), (rows, columns)))
    time, best = min(times, default=(as_it_is, None))
    return best if time < 0.97 * as_it_is else None
