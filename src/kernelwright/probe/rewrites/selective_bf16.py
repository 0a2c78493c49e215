"""bfloat16 at the layers that are faster in it; norms, softmax, reductions and all other operators stay float32. Lower precision."""

from __future__ import annotations

from typing import Any

import torch

from .casts import narrow_layers


def selective_bf16(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A copy of the model with bfloat16 layers where each was measured to be faster."""
    return narrow_layers(model, args, kwargs, torch.bfloat16)
