"""Linear layers whose results leave the model: bfloat16 operands, summed and written in float32. Lower precision.

A bfloat16 layer rounds its sums, and where the caller wants float32 another kernel reads them and writes them once more, wider. Here the
product writes float32 itself. The bias goes in as three more columns of the weights (its bfloat16 parts, exact together) against ones:
added behind the product it would cost a pass over the result. Where rows of the result do not start at 16 bytes (a vocabulary of 50257)
the library takes slow kernels; a Triton kernel is tried there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .casts import WORTH, layer_seconds, plain_layers, sharing_twin, with_attributes_of, with_layers
from .trees import leaves
from .wide_kernels import triton, wide_kernel

BIAS_PARTS = 3
"""Of 8 bits each: float32's 24."""
ALIGNED = 16
"""The weights are padded to a multiple of so many columns: 32 bytes, for which the library and Triton have fast loads."""
FLOATS_ALIGNED = 4
"""float32 numbers that make 16 bytes, the alignment of results that the library's fast kernels write."""
WIDE_TILES = ((128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (128, 128, 64, 4, 4), (64, 128, 64, 4, 4))
"""Rows x columns x depth of the kernel, warps, stages (H200, 512 x 50257 x 768: the first 100 us; the library's product 424)."""


class WideLinear(torch.nn.Module):  # type: ignore[misc]
    """x (..., K) -> x weight^T + bias (..., N) in float32, the operands rounded to bfloat16."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self.dtype = torch.bfloat16
        self.tile: list[int] = []
        weight, parts = layer.weight.detach(), []
        if layer.bias is not None:
            rest = layer.bias.detach()
            for _ in range(BIAS_PARTS):
                parts.append(rest.to(self.dtype))
                rest = rest - parts[-1].float()
        self.more = len(parts) + -(weight.shape[1] + len(parts)) % ALIGNED
        columns = torch.stack(parts, dim=1) if parts else weight.new_empty((len(weight), 0), dtype=self.dtype)
        wide = torch.cat([weight.to(self.dtype), columns], dim=1)
        self.register_buffer("wide", F.pad(wide, (0, self.more - len(parts))).contiguous(), persistent=False)
        for name, parameter in layer.named_parameters(recurse=False):
            self.register_parameter(name, parameter)  # others may read them: tied weights
        self.training = layer.training
        with_attributes_of(layer, self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1]).to(self.dtype)
        if self.more:
            rows = F.pad(rows, (0, self.more), value=1.0)
        whole = tiled_product(rows, self.wide, self.tile) if self.tile else product(rows, self.wide)
        return whole.view(*x.shape[:-1], len(self.wide))


def product(rows: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    """rows (M, K) wide (N, K)^T in float32, both bfloat16: no product of two of them is rounded."""
    return torch.mm(rows, wide.t(), out_dtype=torch.float32) if rows.is_cuda else rows.float() @ wide.float().t()


def tiled_product(rows: torch.Tensor, wide: torch.Tensor, tile: Sequence[int]) -> torch.Tensor:
    """The same by the Triton kernel. tile: BM, BN, BK, warps, stages."""
    watched = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or type(rows) is not torch.Tensor
    return torch.ops.wide_outputs.product(rows, wide, tile) if watched else launched_product(rows, wide, tile)


def launched_product(rows: torch.Tensor, wide: torch.Tensor, tile: Sequence[int]) -> torch.Tensor:
    """The same now."""
    if not rows.is_cuda or not rows.numel():
        return product(rows, wide)
    return by_kernel(rows.contiguous(), wide, tile)


def by_kernel(rows: torch.Tensor, wide: torch.Tensor, tile: Sequence[int]) -> torch.Tensor:
    """The same by one launch; rows and wide contiguous."""
    bm, bn, bk, warps, stages = tile
    out = rows.new_empty((len(rows), len(wide)), dtype=torch.float32)
    kernel: Any = wide_kernel
    with torch.cuda.device_of(rows):  # Triton launches on the current one
        kernel[(-(-len(rows) // bm) * -(-len(wide) // bn),)](
            rows, wide, out, len(rows), len(wide), rows.shape[1], BM=bm, BN=bn, BK=bk, GROUP=8, MASKED=rows.shape[1] % bk != 0,
            num_warps=warps, num_stages=stages)
    return out


torch.library.custom_op("wide_outputs::product", launched_product, mutates_args=(),
                        schema="(Tensor rows, Tensor wide, int[] tile) -> Tensor").register_fake(
    lambda rows, wide, tile: rows.new_empty((len(rows), len(wide)), dtype=torch.float32))


def wide_tiles_for(rows: int, columns: int) -> list[list[int]]:
    """Tiles worth trying for a result of this size; none where the library's kernels are fast."""
    if triton is None or columns % FLOATS_ALIGNED == 0:
        return []
    return [list(tile) for tile in WIDE_TILES if rows > tile[0] // 2 and columns > tile[1] // 2]


def wide_is_faster(layer: torch.nn.Module, wide: WideLinear, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether it is faster than the library's float32, and than the library's bfloat16 with the cast behind it. The operands come as
    bfloat16 for both: that cast is fused with what comes before, or made once. Its fastest tile is chosen on the way."""
    (x,) = (*args, *kwargs.values())
    narrow_x = x.to(wide.dtype)
    weight, bias = (None if tensor is None else tensor.to(wide.dtype) for tensor in (layer.weight, layer.bias))
    ways: tuple[Callable[[], Any], ...] = (lambda: wide(narrow_x), lambda: F.linear(narrow_x, weight, bias).float(), lambda: layer(x))
    for way in ways:
        way()
    took, *others = (layer_seconds(way, cuda=x.is_cuda) for way in ways)
    for tile in wide_tiles_for(x.numel() // max(1, x.shape[-1]), len(wide.wide)) if x.is_cuda else ():
        before, wide.tile = wide.tile, tile
        try:
            ways[0]()
            tile_s = layer_seconds(ways[0], cuda=True)
        except (RuntimeError, triton.errors.TritonError):  # no room for this tile on the device
            tile_s = took
        took, wide.tile = (tile_s, tile) if tile_s < took else (took, before)
    return bool(took * WORTH < min(others))


def wide_outputs(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], faster: Callable[..., bool] = wide_is_faster,
) -> torch.nn.Module:
    """A copy of the model (float32 weights shared) whose last linear layers, those whose results are the model's, compute so where that is
    faster."""
    if not hasattr(torch.ops.aten.mm, "dtype"):
        raise NotImplementedError("not applicable: torch.mm of this torch can't write a wider type (torch 2.8 can)")
    twin = sharing_twin(model)
    found = with_layers(twin, args, kwargs, last_layers(twin, args, kwargs), WideLinear, faster)
    if found is None:
        raise NotImplementedError("not applicable: no linear layer whose result leaves the model is faster with bfloat16 operands")
    return found


def last_layers(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.nn.Module]:
    """The linear layers of which every result is a result of the model, as it is."""
    results: dict[torch.nn.Module, list[Any]] = {}

    def look(layer: torch.nn.Module, _given: tuple[Any, ...], result: Any) -> None:
        results.setdefault(layer, []).append(weakref.ref(result))  # the results of all layers together may not fit

    watches = [layer.register_forward_hook(look) for layer in plain_layers(model, {torch.nn.Linear})]
    with torch.no_grad():
        outputs = [leaf for _path, leaf in leaves(model(*args, **kwargs))]
    for watch in watches:
        watch.remove()
    return [layer for layer, seen in results.items() if all(any(one() is leaf for leaf in outputs) for one in seen)]
