"""The whole model in bfloat16, but for layers that are slower in it than in float32, casts included. Lower precision.

The library's bfloat16 kernels load 16 bytes at a time: a first convolution of 3 channels, or a product with K or N no multiple of 8, is
padded or takes slow kernels. Only such layers are timed. What stays in float32 runs under the flags as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .bf16_twin import Bf16, bf16_twin
from .casts import CONVOLUTION_LAYERS, plain_layers, sharing_twin, whole_is_faster, with_attributes_of, with_layers
from .edges import narrowed, widened
from .trees import map_tensors

BF16_ALIGNED = 8
"""Numbers that make 16 bytes."""


class Float32Island(torch.nn.Module):  # type: ignore[misc]
    """A float32 layer inside a bfloat16 model. narrow: the layer in its place, whose weights others may read (tied ones)."""

    def __init__(self, layer: torch.nn.Module, narrow: torch.nn.Module) -> None:
        super().__init__()
        self.dtype, self.inner = torch.bfloat16, sharing_twin(layer)
        for name, parameter in narrow.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        self.training = narrow.training
        with_attributes_of(narrow, self)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = map_tensors(widened, (args, kwargs))
        return map_tensors(narrowed, self.inner(*args, **kwargs))


def is_padded(layer: torch.nn.Module) -> bool:
    """Whether the weight is (N, K) or (output channels, input channels / groups, ...) with one of the two no multiple of 8; of a
    transposed convolution (input channels, output channels / groups, ...)."""
    return any(size % BF16_ALIGNED for size in layer.weight.shape[:2])


def bf16_reverted(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], edges: bool = True,
    faster: Callable[..., bool] = whole_is_faster, strict: bool = True,
) -> torch.nn.Module:
    """A bfloat16 copy of the model in which those layers are float32 (weights shared) that measure faster so, both casts included.

    edges: False leaves the casts of inputs and outputs to the caller. strict: False gives the copy alone where no layer is faster.
    """
    twin = bf16_twin(model)
    originals = {layer: model.get_submodule(name) for name, layer in twin.named_modules()}  # type: ignore[attr-defined]
    wide = {layer for layer in plain_layers(model, {torch.nn.Linear, *CONVOLUTION_LAYERS}) if is_padded(layer)}
    args, kwargs = map_tensors(narrowed, (args, kwargs))
    found = with_layers(twin, args, kwargs, [layer for layer, original in originals.items() if original in wide],
                        lambda layer: Float32Island(originals[layer], layer), faster)
    if found is None and strict:
        raise NotImplementedError("not applicable: no layer is faster in float32 than in bfloat16")
    made = twin if found is None else found
    return Bf16(made) if edges else made
