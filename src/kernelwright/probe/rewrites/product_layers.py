"""A model's linear layers as products of parts. Copied into files with products."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .products import Product


class ProductLinear(torch.nn.Module):  # type: ignore[misc]
    """nn.Linear with its product computed as a Product; other dtypes, autocast and calls that need gradients go to the library."""

    def __init__(self, linear: torch.nn.Linear, how: Product) -> None:
        super().__init__()
        self.weight, self.bias, self.how = linear.weight, linear.bias, how
        self.training = linear.training
        parts, scale = how.prepare(linear.weight)
        # Buffers: else Inductor's CUDA graphs take them for inputs, and copy them at each call.
        self.register_buffer("parts", parts, persistent=False)
        self.register_buffer("scale", scale, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wants_gradient = torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)
        if x.dtype != torch.float32 or wants_gradient or torch.is_autocast_enabled(x.device.type):
            return F.linear(x, self.weight, self.bias)
        return self.how(x, self.parts, self.scale, self.bias)


def with_products(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], choose: Callable[[torch.nn.Linear, torch.Tensor], Product | None],
) -> torch.nn.Module:
    """A copy of the model (weights shared) whose linear layers compute what choose(layer, its input in this call) gives."""
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("not applicable: only an nn.Module has linear layers to replace")
    shared: dict[int, Any] = {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}
    twin = copy.deepcopy(model, shared)
    chosen: dict[torch.nn.Module, Product | None] = {}

    def look(layer: torch.nn.Module, given: tuple[Any, ...]) -> None:
        if layer not in chosen and given and isinstance(given[0], torch.Tensor):
            chosen[layer] = choose(layer, given[0])

    plain = [layer for layer in twin.modules() if type(layer) is torch.nn.Linear and not (layer._forward_hooks or layer._forward_pre_hooks)]
    watches = [layer.register_forward_pre_hook(look) for layer in plain]
    with torch.no_grad():
        twin(*args, **kwargs)
    for watch in watches:
        watch.remove()
    replaced = {layer: ProductLinear(layer, how) for layer, how in chosen.items() if how is not None}
    if not replaced:
        raise NotImplementedError("not applicable: no linear layer is faster and at least as exact as the library's product")
    for parent in list(twin.modules()):
        for name, child in list(parent._modules.items()):  # all names: a layer may have two
            if child in replaced:
                setattr(parent, name, replaced[child])
    return replaced.get(twin, twin)
