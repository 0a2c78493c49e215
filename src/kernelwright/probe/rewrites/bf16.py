"""The whole model in bfloat16: half the bytes of weights and activations, bfloat16 tensor cores. Lower precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .bf16_twin import Bf16, bf16_twin


def bf16(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any], edges: bool = True) -> torch.nn.Module:
    """A copy with float32 weights, buffers and inputs as bfloat16; its outputs go back to float32.

    edges: False leaves the casts of inputs and outputs to the caller.
    """
    twin = bf16_twin(model)
    return Bf16(twin) if edges else twin
