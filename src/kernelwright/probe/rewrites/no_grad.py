"""Inference-mode fix: no autograd graph is recorded. Saves the bookkeeping of every operator and the saved activations.

torch.no_grad, not torch.inference_mode: an inference tensor can't be used in autograd later, an ordinary one can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def no_grad(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Callable[..., Any]:
    """The model, called without recording gradients."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return model(*args, **kwargs)

    return call
