"""float32 scaled_dot_product_attention on tensor cores, error-compensated: faster than torch's kernel, and no less exact.

Each place is measured on its own queries, keys and values of this call, and stays as it is where nothing is faster and as exact.
"""

from __future__ import annotations

from typing import Any

import torch

from .attention_choice import AttentionChooser
from .attention_modules import replaced_attention
from .product_choice import need_tensor_cores


def split_attention(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A copy of the model (weights shared) with its float32 attention as sums of products of parts where that pays."""
    need_tensor_cores()
    return replaced_attention(model, args, kwargs, AttentionChooser(("fp16x3", "bf16x6", "tf32x3")))
