"""float32 products on 16-bit tensor cores: each operand as a sum of narrow parts, the parts' products summed in float32.

A row x of an operand is scaled by a power of two (float16 only: exact, and no part leaves the range), then x = hi + lo (+ lowest),
each part rounded to the nearest number of the narrow type. Of the products of parts those are summed that are not below float32's own
rounding, the small ones first:
  fp16x3: lo hi + hi lo + hi hi (11 bits a part; Ootomo and Yokota, IJHPCA 36(4), 2022, there without the scaling of rows)
  bf16x6, bf16x9: three parts of 8 bits each; the range is float32's own (Henry, Tang and Heinecke, ARITH 2019)
  tf32x3: Triton's own split of float32 tiles inside the kernel; no copy of the weights
  fp16x1: hi hi alone, as exact as TF32 (11 bits) at the speed of float16
Tensor cores cut off what an addition to a large sum drops, always towards zero: a sum over 4096 in one accumulator erred by 3.4e-6, where
the library's float32 erred by 8.1e-7 (H200). So each step's sum starts at zero and is added to the total in ordinary float32.
Rows that hold an infinity or NaN take part in the last product alone, so that 0 x inf does not turn an infinity into NaN.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice
except ImportError:
    triton = None

HI, LO, LOWEST, HI_FINITE = 0, 1, 2, 3
"""Parts of a row. HI_FINITE is HI, but zero where the row holds an infinity or NaN."""
MODES: dict[str, tuple[torch.dtype, tuple[tuple[int, int], ...]]] = {
    "fp16x3": (torch.float16, ((LO, HI), (HI_FINITE, LO), (HI, HI))),
    "bf16x6": (torch.bfloat16, ((LOWEST, HI), (HI_FINITE, LOWEST), (LO, LO), (LO, HI), (HI_FINITE, LO), (HI, HI))),
    "bf16x9": (torch.bfloat16, ((LOWEST, LOWEST), (LOWEST, LO), (LO, LOWEST),
                                (LOWEST, HI), (HI_FINITE, LOWEST), (LO, LO), (LO, HI), (HI_FINITE, LO), (HI, HI))),
    "tf32x3": (torch.float32, ((HI, HI),)),
    "fp16x1": (torch.float16, ((HI, HI),)),
}
"""Mode -> (type of the parts, products of a part of the inputs and a part of the weights, in the order in which they are summed)."""
WIDTH = 64
"""Parts are padded with zeros to a multiple of this many columns: a tile's depth, so that kernels need no mask there."""
LEAST_WORK = 2**24
"""Multiplications below which a product is left to the library: it takes less time than a launch."""
LEAST_ROWS = 32
"""Rows below which reading the weights is what takes the time, and parts hold as many bytes as float32."""
SAMPLE = 256
"""Rows, about, on which errors are measured."""
GAIN = 1.03
"""A product must be this much faster than the library's to be replaced: the timing's own noise."""

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def activated(value, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
        """torch's own formulas, in float32."""
        if ACTIVATION == "relu":
            value = tl.where(value < 0.0, 0.0, value)
        elif ACTIVATION == "gelu":
            value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
        elif ACTIVATION == "gelu_tanh":
            value = 0.5 * value * (1.0 + libdevice.tanh(0.7978845608028654 * (value + 0.044715 * value * value * value)))
        elif ACTIVATION == "silu":
            value = value / (1.0 + tl.exp(-value))
        elif ACTIVATION == "tanh":
            value = libdevice.tanh(value)
        return value

    @triton.jit  # type: ignore[untyped-decorator]
    def finished(value, rows, columns, row_scale, column_scale, bias, M, N,  # type: ignore[no-untyped-def]
                 SCALED: tl.constexpr, BIASED: tl.constexpr, ACTIVATION: tl.constexpr):
        """Scales taken back, bias added, activation applied; rows and columns broadcast to the value's shape."""
        if SCALED:
            # The weights' scale first: a row of large inputs would overflow before it.
            value = value * tl.load(column_scale + columns, mask=columns < N, other=0.0)
            value = value * tl.abs(tl.load(row_scale + rows, mask=rows < M, other=0.0))
        if BIASED:
            value = value + tl.load(bias + columns, mask=columns < N, other=0.0)
        return activated(value, ACTIVATION)

    @triton.jit  # type: ignore[untyped-decorator]
    def product_kernel(a, w, out, row_scale, column_scale, bias, M, N, K, a_stride, w_stride, splits,  # type: ignore[no-untyped-def]
                       A_CODE: tl.constexpr, W_CODE: tl.constexpr, TERMS: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr,
                       PROMOTED: tl.constexpr, PARTIAL: tl.constexpr, SCALED: tl.constexpr, BIASED: tl.constexpr, ACTIVATION: tl.constexpr,
                       BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
        """One BM x BN tile of the sum over terms of a_part (M, K) times w_part (N, K) transposed; PARTIAL: a share of its steps alone."""
        tile, share = tl.program_id(0), tl.program_id(1)
        tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
        # Tiles of GROUP rows of tiles run together, so that they share what they read in the L2 cache.
        group = tile // (GROUP * tiles_n)
        height = tl.minimum(tiles_m - group * GROUP, GROUP)
        tile_m = group * GROUP + (tile % (GROUP * tiles_n)) % height
        tile_n = (tile % (GROUP * tiles_n)) // height
        rows, columns = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
        depth = tl.arange(0, BK)
        a_rows = a + (rows % M).to(tl.int64)[:, None] * a_stride + depth[None, :]
        w_rows = w + (columns % N).to(tl.int64)[None, :] * w_stride + depth[:, None]
        steps = tl.cdiv(K, BK)
        first, last = 0, TERMS * steps
        if PARTIAL:
            length = tl.cdiv(TERMS * steps, splits)
            first = share * length
            last = tl.minimum(first + length, TERMS * steps)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(first, last):
            term = step // steps
            k = (step - term * steps) * BK
            a_at = ((A_CODE >> (2 * term)) & 3) * K + k
            w_at = ((W_CODE >> (2 * term)) & 3) * K + k
            if MASKED:
                left = tl.load(a_rows + a_at, mask=depth[None, :] < K - k, other=0.0)
                right = tl.load(w_rows + w_at, mask=depth[:, None] < K - k, other=0.0)
            else:
                left = tl.load(a_rows + a_at)
                right = tl.load(w_rows + w_at)
            if PROMOTED:
                total += tl.dot(left, right, input_precision=DOT)
            else:
                total = tl.dot(left, right, total, input_precision=DOT)
        if PARTIAL:
            out += share.to(tl.int64) * M * N
        else:
            total = finished(total, rows[:, None], columns[None, :], row_scale, column_scale, bias, M, N, SCALED, BIASED, ACTIVATION)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(out + rows.to(tl.int64)[:, None] * N + columns[None, :], total, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def three_products_kernel(a, w, out, row_scale, column_scale, bias, M, N, K, a_stride, w_stride, splits,  # type: ignore[no-untyped-def]
                              PARTIAL: tl.constexpr, BIASED: tl.constexpr, ACTIVATION: tl.constexpr,
                              BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
        """fp16x3 with the three products of one step together: four tiles are read for them, not six. a, w: (rows, HI and LO, each K).

        A row with an infinity or NaN (its scale is negative) takes a second way, through HI HI alone.
        """
        tile, share = tl.program_id(0), tl.program_id(1)
        tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
        group = tile // (GROUP * tiles_n)
        height = tl.minimum(tiles_m - group * GROUP, GROUP)
        tile_m = group * GROUP + (tile % (GROUP * tiles_n)) % height
        tile_n = (tile % (GROUP * tiles_n)) // height
        rows, columns = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
        depth = tl.arange(0, BK)
        a_rows = a + (rows % M).to(tl.int64)[:, None] * a_stride + depth[None, :]
        w_rows = w + (columns % N).to(tl.int64)[None, :] * w_stride + depth[:, None]
        steps = tl.cdiv(K, BK)
        first, last = 0, steps
        if PARTIAL:
            length = tl.cdiv(steps, splits)
            first = share * length
            last = tl.minimum(first + length, steps)
            out += share.to(tl.int64) * M * N
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(first, last):
            k = step * BK
            a_hi, a_lo = tl.load(a_rows + k), tl.load(a_rows + K + k)
            w_hi, w_lo = tl.load(w_rows + k), tl.load(w_rows + K + k)
            part = tl.dot(a_lo, w_hi)
            part = tl.dot(a_hi, w_lo, part)
            total += tl.dot(a_hi, w_hi, part)
        strange = tl.load(row_scale + rows, mask=rows < M, other=0.0) < 0.0
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        places = out + rows.to(tl.int64)[:, None] * N + columns[None, :]
        if not PARTIAL:
            total = finished(total, rows[:, None], columns[None, :], row_scale, column_scale, bias, M, N, True, BIASED, ACTIVATION)
        tl.store(places, total, mask=inside)
        if tl.max(strange.to(tl.int32), axis=0) > 0:
            again = tl.zeros((BM, BN), dtype=tl.float32)
            for step in tl.range(first, last, num_stages=1):
                again = tl.dot(tl.load(a_rows + step * BK), tl.load(w_rows + step * BK), again)
            if not PARTIAL:
                again = finished(again, rows[:, None], columns[None, :], row_scale, column_scale, bias, M, N, True, BIASED, ACTIVATION)
            tl.store(places, again, mask=inside & strange[:, None])

    @triton.jit  # type: ignore[untyped-decorator]
    def finish_kernel(partial, out, row_scale, column_scale, bias, M, N, size, splits,  # type: ignore[no-untyped-def]
                      SCALED: tl.constexpr, BIASED: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
        """Sums the shares of a product in their order and finishes it. partial (splits, M, N) -> out (M, N)."""
        place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = place < size
        value = tl.zeros((BLOCK,), dtype=tl.float32)
        for share in range(splits):
            value += tl.load(partial + share * size + place, mask=inside, other=0.0)
        value = finished(value, place // N, place % N, row_scale, column_scale, bias, M, N, SCALED, BIASED, ACTIVATION)
        tl.store(out + place, value, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def split_kernel(x, parts, scale, K, WIDTH, CODE: tl.constexpr, BLOCKS: tl.constexpr, HALF: tl.constexpr,  # type: ignore[no-untyped-def]
                     BLOCK: tl.constexpr):
        """split_rows for one row a program: x (M, K) float32 -> parts (M, BLOCKS x WIDTH), scale (M)."""
        ROUND: tl.constexpr = 0x1000 if HALF else 0x8000
        KEEP: tl.constexpr = -0x2000 if HALF else -0x10000
        row = tl.program_id(0).to(tl.int64)
        top = tl.zeros((BLOCK,), dtype=tl.int32)
        for start in range(0, K, BLOCK):
            at = start + tl.arange(0, BLOCK)
            value = tl.load(x + row * K + at, mask=at < K, other=0.0)
            top = tl.maximum(top, value.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
        exponent = tl.max(top, axis=0) >> 23
        finite = exponent < 255
        factor = 1.0
        if HALF:
            field = tl.minimum(tl.maximum(268 - exponent, 1), 253)
            factor = (field << 23).to(tl.float32, bitcast=True)
            inverse = ((254 - field) << 23).to(tl.float32, bitcast=True)
            tl.store(scale + row, tl.where(finite, inverse, -inverse))
        for start in range(0, WIDTH, BLOCK):
            at = start + tl.arange(0, BLOCK)
            value = tl.load(x + row * K + at, mask=at < K, other=0.0) * factor
            rounded = ((value.to(tl.int32, bitcast=True) + ROUND) & KEEP).to(tl.float32, bitcast=True)
            hi = tl.where(finite, rounded, value)
            hi_finite = tl.where(finite, rounded, 0.0)
            rest = tl.where(finite, value - rounded, 0.0)
            lo = ((rest.to(tl.int32, bitcast=True) + ROUND) & KEEP).to(tl.float32, bitcast=True)
            lowest = rest - lo
            for block in tl.static_range(BLOCKS):
                part = hi
                if ((CODE >> (2 * block)) & 3) == 1:
                    part = lo
                elif ((CODE >> (2 * block)) & 3) == 2:
                    part = lowest
                elif ((CODE >> (2 * block)) & 3) == 3:
                    part = hi_finite
                tl.store(parts + row * WIDTH * BLOCKS + block * WIDTH + at, part.to(parts.dtype.element_ty), mask=at < WIDTH)


def split_rows(x: torch.Tensor, blocks: Sequence[int], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor | None]:
    """x (M, K) float32 -> (parts (M, len(blocks) x width) of dtype, what each row was divided by (M), None for bfloat16).

    The divisor of a row with an infinity or NaN is negative.

    In plain torch, so that torch.compile fuses it with what comes before. Rounded by bits: a compiler may leave out a cast to the
    narrow type and back.
    """
    half = dtype == torch.float16
    top = (x.view(torch.int32) & 0x7FFFFFFF).amax(dim=1, keepdim=True) >> 23
    finite, scale = top < 255, None
    if half:
        field = (268 - top).clamp(1, 253)
        x = x * (field << 23).view(torch.float32)
        inverse = ((254 - field) << 23).view(torch.float32)
        scale = torch.where(finite, inverse, -inverse).squeeze(1)
    add, keep = (0x1000, -0x2000) if half else (0x8000, -0x10000)
    zero = torch.zeros((), device=x.device)
    rounded = ((x.view(torch.int32) + add) & keep).view(torch.float32)
    rest = torch.where(finite, x - rounded, zero)
    low = ((rest.view(torch.int32) + add) & keep).view(torch.float32)
    parts = {HI: torch.where(finite, rounded, x), LO: low, LOWEST: rest - low, HI_FINITE: torch.where(finite, rounded, zero)}
    padding = -x.shape[1] % WIDTH
    chosen = [parts[block].to(dtype) for block in blocks]
    return torch.cat([F.pad(part, (0, padding)) if padding else part for part in chosen], dim=1), scale


@torch.library.custom_op(  # type: ignore[untyped-decorator]
    "tensor_core_products::split", mutates_args=(), schema="(Tensor x, int[] blocks, bool half) -> (Tensor, Tensor)")
def split(x: torch.Tensor, blocks: Sequence[int], half: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """split_rows as one kernel; scale is empty for bfloat16."""
    dtype = torch.float16 if half else torch.bfloat16
    x = x.contiguous()
    rows, depth = x.shape
    if not x.is_cuda or triton is None:
        parts, scale = split_rows(x, blocks, dtype)
        return parts, x.new_empty(0) if scale is None else scale
    width = depth + -depth % WIDTH
    parts, scale = x.new_empty((rows, len(blocks) * width), dtype=dtype), x.new_empty(rows if half else 0)
    if rows:
        block = min(4096, triton.next_power_of_2(width))
        code = sum(block_code << (2 * place) for place, block_code in enumerate(blocks))
        split_kernel[(rows,)](x, parts, scale, depth, width, CODE=code, BLOCKS=len(blocks), HALF=half, BLOCK=block, num_warps=4)
    return parts, scale


@split.register_fake  # type: ignore[untyped-decorator]
def split_shapes(x: torch.Tensor, blocks: Sequence[int], half: bool) -> tuple[torch.Tensor, torch.Tensor]:
    width = x.shape[1] + -x.shape[1] % WIDTH
    parts = x.new_empty((x.shape[0], len(blocks) * width), dtype=torch.float16 if half else torch.bfloat16)
    return parts, x.new_empty(x.shape[0] if half else 0)


@torch.library.custom_op("tensor_core_products::product", mutates_args=(), schema=(  # type: ignore[untyped-decorator]
    "(Tensor a, Tensor w, Tensor? row_scale, Tensor? column_scale, Tensor? bias, str activation, int[] terms, int[] tile) -> Tensor"))
def product(
    a: torch.Tensor, w: torch.Tensor, row_scale: torch.Tensor | None, column_scale: torch.Tensor | None, bias: torch.Tensor | None,
    activation: str, terms: Sequence[int], tile: Sequence[int],
) -> torch.Tensor:
    """activation(sum over terms of a_block w_block^T, rows and columns scaled back, + bias): (M, N) float32.

    a (M, blocks x K), w (N, blocks x K); terms: block of a, block of w, block of a, ... in their order; tile: BM, BN, BK, warps, stages,
    splits of the Triton kernel and whether its three products go together, or [] for the library's product of a and w as they lie
    (their blocks are the terms).
    """
    a, w = a.contiguous(), w.contiguous()
    rows, columns = a.shape[0], w.shape[0]
    depth = w.shape[1] // (max(terms[1::2]) + 1)
    if not a.is_cuda or triton is None:
        blocks = [(a[:, i * depth : (i + 1) * depth].float(), w[:, j * depth : (j + 1) * depth].float())
                  for i, j in zip(terms[::2], terms[1::2], strict=True)]
        found = [left @ right.t() for left, right in blocks]
        total = torch.stack(found).sum(0)
        if tile and tile[6] and row_scale is not None:
            total = torch.where(row_scale[:, None] < 0, found[-1], total)
        return activate(finish(total, row_scale, column_scale, bias), activation)
    out = torch.empty((rows, columns), dtype=torch.float32, device=a.device)
    if not out.numel():
        return out
    flags = {"SCALED": row_scale is not None, "BIASED": bias is not None, "ACTIVATION": activation}
    pointers = (row_scale if row_scale is not None else a, column_scale if column_scale is not None else a, bias if bias is not None else a)
    if tile:
        bm, bn, bk, warps, stages, splits, together = tile
        a_code, w_code = (sum(code << (2 * place) for place, code in enumerate(terms[start::2])) for start in (0, 1))
        partial = out if splits == 1 else torch.empty((splits, rows, columns), dtype=torch.float32, device=a.device)
        grid = (triton.cdiv(rows, bm) * triton.cdiv(columns, bn), splits)
        given = (a, w, partial, *pointers, rows, columns, depth, a.stride(0), w.stride(0), splits)
        size = {"BM": bm, "BN": bn, "BK": bk, "GROUP": 8, "num_warps": warps, "num_stages": stages, "PARTIAL": splits > 1}
        if together:
            three_products_kernel[grid](*given, BIASED=bias is not None, ACTIVATION=activation, **size)
        else:
            product_kernel[grid](*given, A_CODE=a_code, W_CODE=w_code, TERMS=len(terms) // 2, MASKED=depth % bk != 0,
                                 DOT="tf32x3" if a.dtype == torch.float32 else "tf32",
                                 PROMOTED=len(terms) > 2, **flags, **size)
        if splits == 1:
            return out
    else:
        partial, splits = torch.mm(a, w.t(), out_dtype=torch.float32), 1
        if row_scale is None and bias is None and activation == "none":
            return partial
    count = rows * columns
    finish_kernel[(triton.cdiv(count, 1024),)](partial, out, *pointers, rows, columns, count, splits, **flags, BLOCK=1024, num_warps=4)
    return out


@product.register_fake  # type: ignore[untyped-decorator]
def product_shape(
    a: torch.Tensor, w: torch.Tensor, row_scale: torch.Tensor | None, column_scale: torch.Tensor | None, bias: torch.Tensor | None,
    activation: str, terms: Sequence[int], tile: Sequence[int],
) -> torch.Tensor:
    return a.new_empty((a.shape[0], w.shape[0]), dtype=torch.float32)


def finish(
    total: torch.Tensor, row_scale: torch.Tensor | None, column_scale: torch.Tensor | None, bias: torch.Tensor | None,
) -> torch.Tensor:
    """Scales taken back and bias added, in plain torch."""
    if row_scale is not None and column_scale is not None:
        total = total * column_scale[None, :] * row_scale[:, None].abs()
    return total if bias is None else total + bias


def activate(value: torch.Tensor, activation: str) -> torch.Tensor:
    """The activations that the kernel has, in plain torch."""
    if activation == "gelu_tanh":
        return F.gelu(value, approximate="tanh")
    known: dict[str, Callable[..., torch.Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh}
    return known[activation](value) if activation != "none" else value


class Product:
    """How to compute one product: a mode, and a tile of the Triton kernel (empty: the library's product of parts laid side by side)."""

    def __init__(self, mode: str, tile: Sequence[int] = ()) -> None:
        self.mode, self.tile = mode, [*tile, 0][:7] if tile else []
        self.dtype, pairs = MODES[mode]
        if self.tile and self.tile[6]:
            pairs = tuple((HI if left == HI_FINITE else left, right) for left, right in pairs)
        lefts, rights = [left for left, _right in pairs], [right for _left, right in pairs]
        self.a_blocks = sorted(set(lefts)) if tile else lefts
        self.w_blocks = sorted(set(rights)) if tile else rights
        places = [(self.a_blocks.index(left), self.w_blocks.index(right)) for left, right in pairs]
        self.terms = list(itertools.chain(*(places if tile else [(place, place) for place in range(len(pairs))])))

    def prepare(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Parts of the weights (N, K), and their scale."""
        weight = weight.detach().contiguous()
        return (weight, None) if self.mode == "tf32x3" else split_rows(weight, self.w_blocks, self.dtype)

    def __call__(
        self, x: torch.Tensor, w: torch.Tensor, column_scale: torch.Tensor | None, bias: torch.Tensor | None, activation: str = "none",
    ) -> torch.Tensor:
        """x (..., K) float32 -> (..., N) float32."""
        a, row_scale = x.reshape(-1, x.shape[-1]), None
        if self.mode != "tf32x3":
            if torch.compiler.is_compiling():
                a, row_scale = split_rows(a, self.a_blocks, self.dtype)
            else:
                half = self.dtype == torch.float16
                a, row_scale = torch.ops.tensor_core_products.split(a, self.a_blocks, half)
                row_scale = row_scale if half else None
        out = torch.ops.tensor_core_products.product(a, w, row_scale, column_scale, bias, activation, self.terms, self.tile)
        return out.view(*x.shape[:-1], w.shape[0])


class ProductLinear(torch.nn.Module):  # type: ignore[misc]
    """nn.Linear with its product computed as a Product; other dtypes and autocast go to the library."""

    def __init__(self, linear: torch.nn.Linear, how: Product) -> None:
        super().__init__()
        self.weight, self.bias, self.how = linear.weight, linear.bias, how
        self.training = linear.training
        self.parts, self.scale = how.prepare(linear.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or torch.is_autocast_enabled(x.device.type):
            return F.linear(x, self.weight, self.bias)
        return self.how(x, self.parts, self.scale, self.bias)


def tiles_for(rows: int, columns: int, depth: int, processors: int, mode: str) -> list[list[int]]:
    """Tiles worth trying for a product (M, N, K) on a device of so many multiprocessors: BM, BN, BK, warps, stages, splits, together."""
    large = {
        "fp16x1": [[128, 256, 64, 8, 3, 0], [128, 128, 64, 4, 4, 0]],
        "fp16x3": [[128, 128, 64, 8, 3, 1], [128, 128, 32, 8, 4, 1], [128, 64, 32, 4, 4, 1]],
        "tf32x3": [[128, 128, 32, 8, 3, 0], [128, 64, 32, 4, 3, 0]],
    }.get(mode, [[128, 128, 64, 8, 4, 0]])
    small = {
        "fp16x1": [[128, 128, 64, 4, 4, 0], [64, 128, 64, 4, 4, 0], [64, 64, 64, 4, 5, 0]],
        "fp16x3": [[128, 128, 64, 8, 3, 1], [64, 128, 64, 4, 3, 1], [64, 64, 64, 4, 3, 1]],
        "tf32x3": [[128, 64, 32, 4, 3, 0], [64, 64, 32, 4, 4, 0]],
    }.get(mode, [[64, 128, 64, 4, 4, 0], [64, 64, 64, 4, 5, 0]])
    # Each compilation takes a second or two: large tiles where there are enough of them, small ones or shares of K where there are not.
    enough = rows * columns >= 2 * processors * 128 * 128
    found = []
    for shape in large if enough else small:
        count = -(-rows // shape[0]) * -(-columns // shape[1])
        splits = max(1, min(processors // count, -(-depth // WIDTH) // 2, 16))
        found += [[*shape[:5], share, shape[5]] for share in sorted({splits, 1 if 2 * count > processors else splits})]
    return found


def need_tensor_cores() -> None:
    """Raises NotImplementedError where the kernels can't run."""
    if triton is None or not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        raise NotImplementedError("not applicable: needs Triton and a GPU with bfloat16 tensor cores (compute capability 8.0)")


def errors(got: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """(relative error in the norm, largest absolute error) against float64."""
    exact = exact.detach()
    difference = got.detach().double() - exact
    return float(difference.norm() / exact.norm().clamp_min(1e-300)), float(difference.abs().max())


def seconds(function: Callable[[], Any], calls: int = 10) -> float:
    """Device time of one call: median of three batches, queued behind a pause so that launches cost nothing."""
    found = []
    for _ in range(3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(10_000_000)
        start.record()
        for _ in range(calls):
            function()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / calls / 1e3)
    return float(statistics.median(found))


def choices_file() -> Path:
    """Where choices are kept from one process to the next: beside Triton's own compiled kernels."""
    folder = os.environ.get("TRITON_CACHE_DIR") or os.path.join(os.path.expanduser("~"), ".triton", "cache")
    return Path(folder) / "tensor_core_products.json"


def kept_choices() -> dict[str, list[tuple[str, list[int]]]]:
    """{key: [(mode, tile), ...]}; empty where there is no such file, or none that is in order."""
    try:
        stored = json.loads(choices_file().read_text()[:1_000_000])
        kept = {str(key): [(str(mode), [int(number) for number in tile]) for mode, tile in rows] for key, rows in stored.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    in_order = all(mode in MODES and len(tile) in (0, 7) for rows in kept.values() for mode, tile in rows)
    return kept if in_order else {}


def keep_choice(key: str, found: Sequence[Product]) -> None:
    """Adds one choice to the file; where it can't be written, the next process measures again."""
    file = choices_file()
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps({**kept_choices(), key: [(how.mode, how.tile) for how in found]}))
        os.replace(temporary, file)
    except OSError:
        return


class Chooser:
    """Decides for each linear layer, on its real weights and inputs: the fastest product that errs by no more than the library's.

    modes in order of preference: the first with a product that is faster is taken. Each layer's error is measured; equal shapes share
    one timing, which is kept for the next process. tf32: held against the library's TF32 instead of its float32.
    """

    def __init__(self, modes: Sequence[str], *, tf32: bool = False) -> None:
        self.modes, self.tf32 = modes, tf32
        self.timed: dict[str, list[Product]] = {}
        self.notes: list[str] = []

    def __call__(self, linear: torch.nn.Linear, x: torch.Tensor) -> Product | None:
        """The product to use, None for the library's own."""
        flat = x.detach().reshape(-1, x.shape[-1])
        rows, columns, depth = flat.shape[0], linear.out_features, linear.in_features
        if x.dtype != torch.float32 or linear.weight.dtype != torch.float32 or rows < LEAST_ROWS or rows * columns * depth < LEAST_WORK:
            return None
        if not bool(torch.isfinite(linear.weight).all()):
            return None
        key = self.key(linear, flat)
        if key not in self.timed:
            kept = kept_choices().get(key)
            self.timed[key] = self.faster(linear, flat) if kept is None else [Product(mode, tile) for mode, tile in kept]
            if kept is None:
                keep_choice(key, self.timed[key])
        return next((how for how in self.timed[key] if self.as_exact(linear, flat, how)), None)

    def key(self, linear: torch.nn.Linear, x: torch.Tensor) -> str:
        """What a choice depends on: device, versions, shape (M, N, K), whether a bias is added, modes, what it is held against."""
        device = torch.cuda.get_device_name(x.device) if x.is_cuda else "cpu"
        shape = f"{x.shape[0]}x{linear.out_features}x{linear.in_features}"
        return "|".join([device, torch.__version__, getattr(triton, "__version__", "none"), shape, str(linear.bias is not None),
                         *self.modes, str(self.tf32)])

    def library(self, linear: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        """What the library gives in the precision that is asked for."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.tf32 else "highest")
        try:
            return F.linear(x, linear.weight, linear.bias)
        finally:
            torch.set_float32_matmul_precision(before)

    def as_exact(self, linear: torch.nn.Linear, x: torch.Tensor, how: Product) -> bool:
        """Whether a product errs by no more than the library against float64, on up to SAMPLE of the rows."""
        stride = max(1, x.shape[0] // SAMPLE)
        exact = F.linear(x[::stride].double(), linear.weight.double(), None if linear.bias is None else linear.bias.double())
        limit = errors(self.library(linear, x)[::stride], exact)
        found = errors(how(x, *how.prepare(linear.weight), linear.bias)[::stride], exact)
        # Roundings of the same size to 11 bits: which of the two is a percent larger is chance.
        room = 1.1 if self.tf32 else 1.0
        return all(error <= room * most for error, most in zip(found, limit, strict=True))

    def faster(self, linear: torch.nn.Linear, x: torch.Tensor) -> list[Product]:
        """Products faster than the library and as exact, the fastest first: of the first mode that has one."""
        limit = seconds(lambda: self.library(linear, x)) / GAIN
        processors = torch.cuda.get_device_properties(x.device).multi_processor_count
        for mode in self.modes:
            tiles = tiles_for(x.shape[0], linear.out_features, linear.in_features, processors, mode)
            if mode != "tf32x3" and hasattr(torch.ops.aten.mm, "dtype"):
                tiles.append([])
            timed = [item for item in (self.time(linear, x, Product(mode, tile)) for tile in tiles) if item is not None and item[0] < limit]
            found = [how for _time, how in sorted(timed, key=lambda item: item[0]) if self.as_exact(linear, x, how)]
            if found:
                return found
        return []

    def time(self, linear: torch.nn.Linear, x: torch.Tensor, how: Product) -> tuple[float, Product] | None:
        """(seconds, product); None where the tile does not compile or the device has no room for it."""
        w, scale = how.prepare(linear.weight)
        try:
            how(x, w, scale, linear.bias)
            return seconds(lambda: how(x, w, scale, linear.bias)), how
        except (RuntimeError, triton.errors.TritonError) as error:
            self.notes.append(f"{how.mode} {how.tile}: {error}")
            return None


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
