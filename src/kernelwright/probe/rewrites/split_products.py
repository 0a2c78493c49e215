"""float32 linear layers on tensor cores, error-compensated: faster than the library's float32 product, and no less exact.

Each layer is measured on its own weights and this call's inputs, and stays as it is where nothing is faster and as exact.
"""

from __future__ import annotations

from typing import Any

import torch

from .float32_flags import float32_flags, products_are_narrow
from .product_choice import COMPENSATED, Chooser, need_tensor_cores
from .product_layers import with_products


def split_products(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A copy of the model (weights shared) with its linear layers as sums of products of parts where that pays."""
    need_tensor_cores()
    if products_are_narrow(float32_flags()):
        raise NotImplementedError("not applicable: the library's own products are less exact than float32 here")
    return with_products(model, args, kwargs, Chooser(COMPENSATED))
