"""Channels-last memory format: convolutions on tensor cores want NHWC, and skip their own layout changes when they get it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .trees import map_tensors
from .twins import own_tensors, twin_of


def channels_last(model: Callable[..., Any], _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> torch.nn.Module:
    """A copy (all but the 4-D weights shared) with 4-D weights and inputs as channels_last; outputs are contiguous again.

    Under grad mode (a training step) the model's own weights change their strides in place, since gradients must land there.
    """
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("not applicable: only an nn.Module has weights to lay out anew")
    convolutions = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    weights = {id(module.weight): module.weight for module in model.modules() if isinstance(module, convolutions)}
    if not weights:
        raise NotImplementedError("not applicable: the model has no 2-D convolution")
    if torch.is_grad_enabled():
        for weight in weights.values():
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
        twin = model
    else:
        shared = own_tensors(model)
        for key, weight in weights.items():
            shared[key] = torch.nn.Parameter(weight.detach().contiguous(memory_format=torch.channels_last), requires_grad=False)
        twin = twin_of(model, shared)

    def to_nhwc(value: torch.Tensor) -> torch.Tensor:
        return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value

    def to_nchw(value: torch.Tensor) -> torch.Tensor:
        return value.contiguous() if value.dim() == 4 else value

    class ChannelsLast(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.training = inner.training

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = map_tensors(to_nhwc, (args, kwargs))
            return map_tensors(to_nchw, self.inner(*args, **kwargs))

    return ChannelsLast(twin)
