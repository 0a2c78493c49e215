"""Folds each batch norm into the convolution that it directly follows: one kernel and one pass over memory less, in eval mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .batch_norms import fold_batch_norms
from .tracing import traced_call


def fold_conv_bn(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """A torch.fx copy of the model without the folded batch norms; all other weights are shared with the original."""
    if not isinstance(model, torch.nn.Module) or model.training:
        raise NotImplementedError("not applicable: folding needs an nn.Module in eval mode")
    traced = traced_call(model, args, kwargs)
    if not fold_batch_norms(traced, args, kwargs):
        raise NotImplementedError("not applicable: no convolution is directly followed by a batch norm alone")
    return traced
