"""A model's linear layers as products of parts. Copied into files with products."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .casts import with_attributes_of
from .products import Product, activate
from .twins import own_tensors, twin_of, with_parts


class ProductLinear(torch.nn.Module):  # type: ignore[misc]
    """nn.Linear, and the activation after it, as a Product; other dtypes, autocast and calls that want gradients go to the library."""

    def __init__(self, linear: torch.nn.Linear, how: Product) -> None:
        super().__init__()
        self.weight, self.bias, self.how, self.activation = linear.weight, linear.bias, how, "none"
        self.training = linear.training
        parts, scale = how.prepare(linear.weight)
        # Buffers: else Inductor's CUDA graphs take them for inputs, and copy them at each call.
        self.register_buffer("parts", parts, persistent=False)
        self.register_buffer("scale", scale, persistent=False)
        with_attributes_of(linear, self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wants_gradient = torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)
        if x.dtype != torch.float32 or wants_gradient or torch.is_autocast_enabled(x.device.type):
            return activate(F.linear(x, self.weight, self.bias), self.activation)
        return self.how(x, self.parts, self.scale, self.bias, self.activation)


def activation_of(module: torch.nn.Module) -> str:
    """The name of a module that is one of the activations a product can end with; "none" for any other."""
    if module._forward_hooks or module._forward_pre_hooks:
        return "none"
    if type(module) is torch.nn.GELU:
        return "gelu" if module.approximate == "none" else "gelu_tanh"
    return {torch.nn.ReLU: "relu", torch.nn.SiLU: "silu", torch.nn.Tanh: "tanh"}.get(type(module), "none")


def take_in_activations(
    sequences: Sequence[torch.nn.Module], calls: Mapping[torch.nn.Module, int], replaced: Mapping[torch.nn.Module, ProductLinear],
) -> None:
    """Moves an activation that follows its layer inside an nn.Sequential into the layer, where nobody else sees what is between them."""
    places = Counter(child for sequence in sequences for child in sequence._modules.values())
    for sequence in sequences:
        for name, following in itertools.pairwise(list(sequence._modules)):
            layer, activation = sequence._modules[name], activation_of(sequence._modules[following])
            if layer in replaced and activation != "none" and calls[sequence] == calls[layer] == places[layer] == 1:
                replaced[layer].activation = activation
                sequence._modules[following] = torch.nn.Identity()


def with_products(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], choose: Callable[[torch.nn.Linear, torch.Tensor], Product | None],
) -> torch.nn.Module:
    """A copy of the model (weights shared) whose linear layers compute what choose(layer, its input in this call) gives."""
    if not isinstance(model, torch.nn.Module):
        raise NotImplementedError("not applicable: only an nn.Module has linear layers to replace")
    twin = twin_of(model, own_tensors(model))
    chosen: dict[torch.nn.Module, Product | None] = {}
    calls: Counter[torch.nn.Module] = Counter()

    def look(module: torch.nn.Module, given: tuple[Any, ...]) -> None:
        calls[module] += 1
        if isinstance(module, torch.nn.Linear) and module not in chosen and given and isinstance(given[0], torch.Tensor):
            chosen[module] = choose(module, given[0])

    without_hooks = [module for module in twin.modules() if not (module._forward_hooks or module._forward_pre_hooks)]
    sequences = [module for module in without_hooks if type(module) is torch.nn.Sequential]
    watches = [module.register_forward_pre_hook(look) for module in without_hooks if type(module) in (torch.nn.Linear, torch.nn.Sequential)]
    with torch.no_grad():
        twin(*args, **kwargs)
    for watch in watches:
        watch.remove()
    replaced = {layer: ProductLinear(layer, how) for layer, how in chosen.items() if how is not None}
    if not replaced:
        raise NotImplementedError("not applicable: no linear layer is faster and at least as exact as the library's product")
    take_in_activations(sequences, calls, replaced)
    return with_parts(twin, replaced)
