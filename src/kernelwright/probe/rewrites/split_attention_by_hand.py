"""float32 attention in Dynamo's graph on tensor cores, error-compensated: what stood there by hand, after it became one call.

Each place is measured on random numbers of its shapes and strides, and stays where nothing is faster than torch's kernel and as exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.fx

from .attention_choice import AttentionChooser
from .attention_in_graph import attended_in_graph
from .product_choice import need_tensor_cores


def split_attention_by_hand(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Puts the tensor cores' attention where that pays. Returns in how many places. None where gradients are asked for."""
    need_tensor_cores()
    return attended_in_graph(graph, example_inputs, AttentionChooser(("fp16x3", "bf16x6", "tf32x3")))
