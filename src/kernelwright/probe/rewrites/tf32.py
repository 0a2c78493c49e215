"""TF32: float32 matrix products and convolutions on tensor cores, inputs rounded to 10 mantissa bits. Lower precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def tf32(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model with TF32 allowed during the call only (a backward pass after it keeps the caller's flags)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        matmul, convolution = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        try:
            return model(*args, **kwargs)
        finally:
            torch.set_float32_matmul_precision(matmul)
            torch.backends.cudnn.allow_tf32 = convolution

    return call
