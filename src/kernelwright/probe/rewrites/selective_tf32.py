"""TF32 at the linear layers and convolutions that are faster in it; all else stays float32. Lower precision.

The flags are the process's: a layer sets them around its own call of the library, in an operator that compilers take as it is. So
torch.compile's max-autotune has no say in these products: under the global flag its Triton kernels cut operands to TF32's 11 bits, where
cuBLAS and cuDNN round them. Layers where TF32 brings nothing keep float32's accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .casts import CONVOLUTION_LAYERS, plain_layers, sharing_twin, whole_is_faster, with_attributes_of, with_layers
from .float32_flags import all_as, convolutions_are_tf32, float32_flags, products_are_narrow, under_flags


def tf32_linear_now(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """rows (M, K) -> rows weight^T + bias (M, N)."""
    with under_flags(all_as(float32_flags(), tf32=True)):
        return F.linear(rows, weight, bias)


def tf32_convolution_now(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> torch.Tensor:
    """aten::convolution: x (N, C, ...) -> (N, CO, ...)."""
    with under_flags(all_as(float32_flags(), tf32=True)):
        return torch.ops.aten.convolution.default(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


torch.library.custom_op("selective_tf32::linear", tf32_linear_now, mutates_args=(),
                        schema="(Tensor rows, Tensor weight, Tensor? bias) -> Tensor").register_fake(
    lambda rows, weight, bias: rows.new_empty((rows.shape[0], weight.shape[0])))
torch.library.custom_op(
    "selective_tf32::convolution", tf32_convolution_now, mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, "
           "SymInt[] output_padding, SymInt groups) -> Tensor").register_fake(torch.ops.aten.convolution.default)


def by_operator(x: torch.Tensor) -> bool:
    """Whether somebody looks into the call, who must see an operator."""
    return bool(torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or type(x) is not torch.Tensor)


class Tf32Linear(torch.nn.Module):  # type: ignore[misc]
    """x (..., K) -> x weight^T + bias (..., N), operands rounded to TF32; the layer's own weights."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self.dtype = torch.float32
        self.weight, self.bias = layer.weight, layer.bias
        self.training = layer.training
        with_attributes_of(layer, self)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        rows = input.reshape(-1, input.shape[-1])
        way = torch.ops.selective_tf32.linear if by_operator(input) else tf32_linear_now
        return way(rows, self.weight, self.bias).view(*input.shape[:-1], self.weight.shape[0])


class Tf32Convolution(torch.nn.Module):  # type: ignore[misc]
    """A convolution of any kind, operands rounded to TF32; the layer's own weights."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.dtype = torch.float32
        self.weight, self.bias = layer.weight, layer.bias
        sides = list(layer._reversed_padding_repeated_twice)  # last dimension first, left and right of each
        inside = layer.transposed or (layer.padding_mode == "zeros" and sides[::2] == sides[1::2])
        self.sides = [] if inside else sides
        self.mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        dims = len(layer.kernel_size)
        padding = [0] * dims if not inside else layer.padding if layer.transposed else sides[::-2]
        self.rest = (list(layer.stride), list(padding), list(layer.dilation), layer.transposed)
        self.output_padding, self.groups = layer.output_padding, layer.groups
        self.training = layer.training
        with_attributes_of(layer, self)

    def more_to(self, size: Sequence[int], given: Sequence[int]) -> list[int]:
        """Output padding with which a transposed convolution of this size gives the one asked for, both (..., L) or (..., H, W)."""
        stride, padding, dilation, _transposed = self.rest
        dims = len(stride)
        least = [(here - 1) * step - 2 * pad + by * (taps - 1) + 1 for here, step, pad, by, taps in zip(
            size[-dims:], stride, padding, dilation, self.weight.shape[2:], strict=True)]
        return [wanted - reached for wanted, reached in zip(given[-dims:], least, strict=True)]

    def forward(self, input: torch.Tensor, output_size: Sequence[int] | None = None) -> torch.Tensor:
        x = F.pad(input, self.sides, mode=self.mode) if self.sides else input
        alone = x.dim() < self.weight.dim()
        x = x.unsqueeze(0) if alone else x
        way = torch.ops.selective_tf32.convolution if by_operator(x) else tf32_convolution_now
        more = self.output_padding if output_size is None else self.more_to(input.shape, output_size)
        out = way(x, self.weight, self.bias, *self.rest, more, self.groups)
        return out.squeeze(0) if alone else out


def tf32_layer(layer: Any) -> torch.nn.Module:
    """The same layer in TF32."""
    return Tf32Linear(layer) if type(layer) is torch.nn.Linear else Tf32Convolution(layer)


def selective_tf32(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], faster: Callable[..., bool] = whole_is_faster,
) -> torch.nn.Module:
    """A copy of the model (weights shared) whose linear layers and convolutions compute in TF32 where the flags have it off, and where it
    was measured to be faster."""
    flags, twin = float32_flags(), sharing_twin(model)
    kinds = {*([] if products_are_narrow(flags) else [torch.nn.Linear]), *([] if convolutions_are_tf32(flags) else CONVOLUTION_LAYERS)}
    found = with_layers(twin, args, kwargs, plain_layers(twin, kinds), tf32_layer, faster)
    if found is None:
        raise NotImplementedError("not applicable: no layer without TF32 is faster with it")
    return found
