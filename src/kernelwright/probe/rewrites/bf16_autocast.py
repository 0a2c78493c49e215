"""Autocast to bfloat16: matrix products and convolutions in bfloat16, sensitive operators stay float32. Lower precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .trees import leaves, map_tensors


def bf16_autocast(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model under torch.autocast; bfloat16 outputs go back to float32."""
    device = next((leaf.device.type for _path, leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)), "cpu")

    def restore(value: torch.Tensor) -> torch.Tensor:
        return value.float() if value.dtype == torch.bfloat16 else value

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            output = model(*args, **kwargs)
        return map_tensors(restore, output)

    return call
