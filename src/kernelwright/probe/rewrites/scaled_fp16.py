"""float32 linear layers as one float16 product of scaled rows: 11 bits an operand, as TF32 has, at twice its speed. Lower precision.

Each layer is measured on its own weights and this call's inputs, and stays as it is where TF32 is faster or more exact.
"""

from __future__ import annotations

from typing import Any

import torch

from .product_choice import Chooser, need_tensor_cores
from .product_layers import with_products


def scaled_fp16(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A copy of the model (weights shared) with its linear layers as float16 products where that beats TF32."""
    need_tensor_cores()
    return with_products(model, args, kwargs, Chooser(("fp16x1",), tf32=True))
