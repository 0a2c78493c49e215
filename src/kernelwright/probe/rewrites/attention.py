"""float32 attention on tensor cores: both products as sums of products of narrow parts, the scores never in memory.

Modes as for linear layers (products.py). fp16x3 and fp16x1: a query and a key are each scaled by a power of two, a tile's values by
column, and the weights, which lie in [0, 1], by 2^15, so that their parts stay in float16's range; all of it exact. Each tile's products
start a sum of their own, which is added in ordinary float32. An infinity or NaN in a query, or in a key or value that one sees, gives NaN
there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .attention_kernels import ATTENTION_MODES, attention_kernel, triton
from .products import MOST_SHAPES, Launch, allocator

WIDEST_HEAD = 128
"""Head dimension above which a tile no longer fits in registers."""
EMPTY_ROWS_ARE_ZERO = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)
"""Before, a query whose mask leaves no key gave NaN in some of torch's kernels."""
TERMS = {"fp16x1": ((0, 0),), "fp16x3": ((1, 0), (0, 1), (0, 0)), "bf16x6": ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)),
         "bf16x9": ((2, 2), (2, 1), (1, 2), (2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)), "tf32x3": ((1, 0), (0, 1), (0, 0))}
"""Mode -> products of a part of the left and a part of the right operand, in the order in which they are summed."""


def can_attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, dropout_p: float, is_causal: bool, gqa: bool,
) -> bool:
    """Whether the kernel computes this call of scaled_dot_product_attention; the library does any other."""
    given = (query, key, value)
    if dropout_p or any(tensor.is_nested or tensor.dim() != 4 or tensor.dtype != torch.float32 for tensor in given):
        return False
    tracked = query.requires_grad or key.requires_grad or value.requires_grad or (mask is not None and mask.requires_grad)
    if tracked and torch.is_grad_enabled():
        return False
    if torch.is_autocast_enabled(query.device.type) or len({tensor.device for tensor in given}) != 1:
        return False
    batch, heads, rows, depth = query.shape
    shared = key.shape[1]
    if key.shape != value.shape or key.shape[0] != batch or key.shape[3] != depth or not 0 < depth <= WIDEST_HEAD:
        return False
    if not rows or not batch or not key.shape[2] or not shared or (heads % shared if gqa else heads != shared):
        return False
    if mask is None:
        return True
    fits = mask.dim() <= 4 and all(size in (1, whole) for size, whole in zip(mask.shape[::-1], (key.shape[2], rows, heads, batch)))  # noqa: B905
    return fits and not is_causal and EMPTY_ROWS_ARE_ZERO and mask.dtype in (torch.bool, torch.float32) and mask.device == query.device


class Attention:
    """How to compute one attention: a mode, and a tile (queries, keys, warps, stages, and registers a thread at most; 0: no limit)."""

    def __init__(self, mode: str, tile: Sequence[int]) -> None:
        self.mode, self.tile = mode, list(tile)
        self.name = f"{mode}:{','.join(str(number) for number in self.tile)}"
        self.kept: dict[tuple[Any, ...], Launch] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Attention, (self.mode, self.tile)  # a copy starts with no compiled kernels, which can't be copied

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, scale: float,
        rows_first: bool,
    ) -> torch.Tensor:
        """query (B, H, T, D), key and value (B, H or fewer, S, D) float32 -> (B, H, T, D); rows_first: laid out as (B, T, H, D)."""
        if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or type(query) is not torch.Tensor:
            found: torch.Tensor = torch.ops.tensor_core_attention.attend(query, key, value, mask, is_causal, scale, rows_first, self.name)
            return found
        return self.computed(query, key, value, mask, is_causal, scale, rows_first)

    def computed(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, scale: float,
        rows_first: bool,
    ) -> torch.Tensor:
        """The attention now, launched past torch's dispatcher."""
        if not query.is_cuda or triton is None:
            out = torch.empty_strided(query.shape, result_strides(query, rows_first), dtype=query.dtype, device=query.device)
            return out.copy_(attend_in_torch(self.mode, query, key, value, mask, is_causal, scale))
        if query.get_device() != torch.cuda.current_device():  # Triton launches on the current one
            with torch.cuda.device(query.device):
                return self.computed(query, key, value, mask, is_causal, scale, rows_first)
        query, key, value = (tensor if tensor.stride(3) == 1 else tensor.contiguous() for tensor in (query, key, value))
        batch, heads, rows, depth = query.shape
        if mask is not None:
            mask = mask.expand(batch, heads, rows, key.shape[2])
        out = allocator(query.device)((batch, heads, rows, depth), result_strides(query, rows_first), torch.float32)
        given = (query, key, value, query if mask is None else mask, out)
        unaligned = functools.reduce(lambda bits, tensor: bits | tensor.data_ptr(), given, 0) & 15
        known = (*(tensor.shape + tensor.stride() for tensor in given), mask is None or mask.dtype, is_causal, scale, query.get_device())
        launch = None if unaligned else self.kept.get(known)
        if launch is None:
            launch = self.launch(query, key, value, mask, out, is_causal, scale)
            if not unaligned:
                if len(self.kept) >= MOST_SHAPES:
                    self.kept.clear()
                self.kept[known] = launch
        launch(*given)
        return out

    def launch(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, out: torch.Tensor, is_causal: bool,
        scale: float,
    ) -> Launch:
        """The kernel of this tile for tensors of these shapes and strides."""
        bm, bn, warps, stages, registers = self.tile
        batch, heads, rows, depth = query.shape
        columns, wide = key.shape[2], max(16, triton.next_power_of_2(depth))
        numbers = (scale * math.log2(math.e), heads, heads // key.shape[1], rows, columns, depth, *query.stride()[:3], *key.stride()[:3],
                   *value.stride()[:3], *((0, 0, 0, 0) if mask is None else mask.stride()), *out.stride()[:3])
        limit = {"maxnreg": registers} if registers else {}
        return Launch(attention_kernel, (-(-rows // bm), batch * heads), numbers, MODE=ATTENTION_MODES.index(self.mode), CAUSAL=is_causal,
                      MASK=0 if mask is None else 1 if mask.dtype == torch.bool else 2, UNEVEN=columns % bn != 0, NARROW=depth != wide,
                      BM=bm, BN=bn, BD=wide, num_warps=warps, num_stages=stages, **limit)


def result_strides(query: torch.Tensor, rows_first: bool) -> tuple[int, int, int, int]:
    """Of the result (B, H, T, D): rows_first as torch's memory-efficient attention lays it out, so that heads side by side are a view."""
    _batch, heads, rows, depth = query.shape
    inner = (depth, heads * depth) if rows_first else (rows * depth, depth)
    return heads * rows * depth, *inner, 1


def parts_in_torch(x: torch.Tensor, mode: str, axis: int | None) -> tuple[list[torch.Tensor], torch.Tensor | float]:
    """(parts, what they were divided by along the axis; 1 without one), as the kernel splits."""
    scale: torch.Tensor | float = 1.0
    half = mode.startswith("fp16")
    if half and axis is not None:
        field = (268 - ((x.contiguous().view(torch.int32) & 0x7FFFFFFF).amax(dim=axis, keepdim=True) >> 23)).clamp(1, 253)
        x, scale = x * (field << 23).view(torch.float32), ((254 - field) << 23).view(torch.float32)
    if mode == "tf32x3":
        hi = (x.contiguous().view(torch.int32) & -0x2000).view(torch.float32)
        return [hi, x - hi], scale
    dtype = torch.float16 if half else torch.bfloat16
    parts, rest = [], x
    for _ in range(2 if half else 3):
        parts.append(rest.to(dtype).float())
        rest = rest - parts[-1]
    return parts, scale


def attend_in_torch(
    mode: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, scale: float,
) -> torch.Tensor:
    """The same sums in plain torch, with all keys in one tile."""
    group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group, dim=1) if group > 1 else tensor for tensor in (key, value))
    (q, q_scale), (k, k_scale), (v, v_scale) = (parts_in_torch(query, mode, 3), parts_in_torch(key, mode, 3),
                                                parts_in_torch(value, mode, 2))
    scores = torch.stack([q[left] @ k[right].transpose(2, 3) for left, right in TERMS[mode]]).sum(0)
    factors = q_scale * scale * math.log2(math.e) * (k_scale.transpose(2, 3) if isinstance(k_scale, torch.Tensor) else k_scale)
    scores = scores * factors
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + (mask * math.log2(math.e)).clamp_min(torch.finfo(torch.float32).min).masked_fill(mask == -math.inf, -math.inf)
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).tril(), -math.inf)
    top = scores.amax(dim=3, keepdim=True)
    weights = torch.exp2(scores - top.masked_fill(top == -math.inf, 0.0)) * (2.0**15 if mode.startswith("fp16") else 1.0)
    total = weights.sum(dim=3, keepdim=True)
    p, _one = parts_in_torch(weights, mode, None)
    found = torch.stack([p[left] @ v[right] for left, right in TERMS[mode]]).sum(0)
    return found * v_scale / total.masked_fill(total == 0.0, 1.0)


@functools.cache
def attention_named(name: str) -> Attention:
    """The attention of this name."""
    mode, _colon, tile = name.partition(":")
    return Attention(mode, [int(number) for number in tile.split(",")])


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, scale: float, rows_first: bool,
    how: str,
) -> torch.Tensor:
    """An attention as an operator that compilers take as it is: it reads the strides that it is given."""
    return attention_named(how).computed(query, key, value, mask, is_causal, scale, rows_first)


def attended_shape(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, scale: float, rows_first: bool,
    how: str,
) -> torch.Tensor:
    """What the result looks like."""
    return torch.empty_strided(query.shape, result_strides(query, rows_first), dtype=query.dtype, device=query.device)


torch.library.custom_op(
    "tensor_core_attention::attend", attend, mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor value, Tensor? mask, bool is_causal, float scale, bool rows_first, str how) -> Tensor",
).register_fake(attended_shape)


class SplitAttention(torch.nn.Module):  # type: ignore[misc]
    """scaled_dot_product_attention as an Attention; what that does not compute goes to the library."""

    def __init__(self, how: Attention, rows_first: bool) -> None:
        super().__init__()
        self.how, self.rows_first = how, rows_first

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> torch.Tensor:
        if not can_attend(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa):
            options = {"enable_gqa": True} if enable_gqa else {}  # torch 2.4 has no such argument
            return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **options)
        factor = 1.0 / math.sqrt(query.shape[3]) if scale is None else scale
        return self.how(query, key, value, attn_mask, is_causal, factor, self.rows_first)
