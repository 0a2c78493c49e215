"""A model's copy in bfloat16, and the casts at its edges."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from .edges import narrowed, widened
from .trees import map_tensors
from .twins import twin_of


def bf16_twin(model: Any) -> torch.nn.Module:
    """A copy with float32 weights and buffers as bfloat16, tied ones tied; it takes and gives bfloat16."""
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("not applicable: only an nn.Module can be cast")
    cast: dict[int, Any] = {}
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        if tensor.dtype == torch.float32:
            lower = tensor.detach().to(torch.bfloat16)
            cast[id(tensor)] = torch.nn.Parameter(lower, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else lower
        else:
            cast[id(tensor)] = tensor
    twin = twin_of(model, cast)
    for module in twin.modules():
        if isinstance(module, torch.nn.RNNBase):
            module.flatten_parameters()
    return twin


class Bf16(torch.nn.Module):  # type: ignore[misc]
    """Such a copy that takes and gives float32."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.training = inner.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = map_tensors(narrowed, (args, kwargs))
        return map_tensors(widened, self.inner(*args, **kwargs))
