"""float32 scaled_dot_product_attention as float16 products of scaled rows, one for each of its two: 11 bits, as TF32 has. Lower precision.

Each place is measured on its own queries, keys and values, and stays as it is where torch's kernel is faster or TF32 more exact.
"""

from __future__ import annotations

from typing import Any

import torch

from .attention_choice import AttentionChooser
from .attention_modules import replaced_attention
from .product_choice import need_tensor_cores


def scaled_fp16_attention(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A copy of the model (weights shared) with its float32 attention as float16 products where that pays."""
    need_tensor_cores()
    return replaced_attention(model, args, kwargs, AttentionChooser(("fp16x1",), tf32=True))
