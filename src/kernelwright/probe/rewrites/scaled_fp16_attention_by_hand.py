"""float32 attention in Dynamo's graph as float16 products of scaled rows, where it stood by hand and became one call. Lower precision.

Each place is measured on random numbers of its shapes and strides, and stays where torch's kernel is faster or TF32 more exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.fx

from .attention_choice import AttentionChooser
from .attention_in_graph import attended_in_graph
from .product_choice import need_tensor_cores


def scaled_fp16_attention_by_hand(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> int:
    """Puts the tensor cores' attention where that pays. Returns in how many places. None where gradients are asked for."""
    need_tensor_cores()
    return attended_in_graph(graph, example_inputs, AttentionChooser(("fp16x1",), tf32=True))
