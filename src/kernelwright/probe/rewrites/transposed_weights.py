"""The weights of linear layers transposed in memory, each where that measured faster. Libraries read both layouts; products of few rows
may be faster with the output features side by side (H200, layers of 1024 x 4096 and 4096 x 1024: with 128 rows 1.08x and 1.63x, with 8
0.90x to 1.02x). The numbers, what they are summed in and the layer's type stay what they are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from .casts import plain_layers, sharing_twin, whole_is_faster, with_layers
from .twins import own_tensors

ASKED = 3
"""Times that a layer must be faster: one timing of a short product is not enough on a busy host."""


def transposed(layer: torch.nn.Module) -> torch.nn.Module:
    """The same linear layer; its weight (N, K) is a view of a contiguous copy (K, N)."""
    new = copy.deepcopy(layer, own_tensors(layer))
    new._forward_pre_hooks.clear()  # those that look for layers while the model is read
    new.weight = torch.nn.Parameter(layer.weight.detach().t().contiguous().t(), requires_grad=False)
    return new


def transposed_weights(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], faster: Callable[..., bool] = whole_is_faster,
) -> torch.nn.Module:
    """A copy of the model whose linear layers have their weights transposed where that was measured to be faster; all else is shared."""
    found: dict[tuple[Any, ...], bool] = {}

    def is_faster(layer: torch.nn.Module, other: torch.nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> bool:
        x = given[0] if given else named["input"]
        kind = (layer.weight.shape, layer.bias is None, x.shape, x.stride(), x.dtype)
        if kind not in found:  # layers of one kind are timed once
            found[kind] = all(faster(layer, other, given, named) for _ in range(ASKED))
        return found[kind]

    twin = sharing_twin(model)
    layers = [layer for layer in plain_layers(twin, {torch.nn.Linear}) if not layer.weight.t().is_contiguous()]  # those lie so already
    changed = with_layers(twin, args, kwargs, layers, transposed, is_faster)
    if changed is None:
        raise NotImplementedError("not applicable: no linear layer is faster with its weight transposed")
    return changed
