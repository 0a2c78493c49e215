"""Which kernel each attention takes: measured on its own queries, keys and values, kept for the next process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F

from .attention import Attention, can_attend
from .attention_kernels import triton
from .choices import Choices, machine_of
from .float32_flags import float32_flags, products_as, under_flags
from .measuring import ROUNDING_ROOM, errors, seconds
from .product_choice import GAIN, LEAST_WORK, SAMPLE
from .products import MODES

MOST_SCORES = 2**24
"""Scores, about, that are computed in float64 to measure errors."""
ATTENTION_CHOICES = Choices("tensor_core_attention", MODES, (5,))


def attention_tiles(depth: int, mode: str) -> list[list[int]]:
    """Tiles worth trying for heads this wide: queries, keys, warps, stages, registers a thread at most (0: no limit)."""
    if mode == "fp16x1":
        return [[128, 64, 8, 2, 0], [128, 64, 4, 2, 0], [64, 64, 4, 2, 0], [128, 32, 8, 2, 0]]
    if depth > 64:
        return {"fp16x3": [[128, 32, 8, 2, 0], [64, 32, 4, 2, 0]]}.get(mode, [[64, 32, 4, 2, 0]])
    if mode == "fp16x3":
        return [[128, 64, 8, 2, 0], [64, 32, 4, 2, 0], [64, 64, 4, 2, 168], [128, 32, 8, 2, 128]]
    return [[64, 32, 4, 2, 0], [128, 32, 8, 2, 0]]


def exact_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, scale: float, every: int,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Heads (N, T, D) of queries, (N, S, D) of keys and values, their mask (N, T, S): each `every`-th query alone, step by step."""
    scores = query[:, ::every].to(dtype) @ key.to(dtype).transpose(1, 2) * scale
    if mask is not None:
        given = mask[:, ::every]
        scores = scores.masked_fill(~given, -math.inf) if mask.dtype == torch.bool else scores + given.to(dtype)
    if is_causal:
        seen = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool, device=query.device).tril()[::every]
        scores = scores.masked_fill(~seen, -math.inf)
    weights = torch.softmax(scores, dim=2).masked_fill((scores == -math.inf).all(dim=2, keepdim=True), 0.0)
    return weights @ value.to(dtype)


class AttentionCall:
    """One call of scaled_dot_product_attention that the kernel can compute, with its tensors."""

    def __init__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> None:
        if not can_attend(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa):
            raise NotImplementedError("not applicable: an attention that the kernel does not compute")
        self.query, self.key, self.value, self.mask, self.is_causal = query, key, value, attn_mask, is_causal
        self.options: dict[str, Any] = {"scale": scale, **({"enable_gqa": True} if enable_gqa else {})}
        self.scale = 1.0 / math.sqrt(query.shape[3]) if scale is None else scale
        self.out = self.library()

    def library(self) -> torch.Tensor:
        """What torch gives."""
        return F.scaled_dot_product_attention(self.query, self.key, self.value, self.mask, 0.0, self.is_causal, **self.options)

    @property
    def work(self) -> int:
        """Multiplications of one of the two products."""
        return int(self.query.numel() * self.key.shape[2])

    @property
    def rows_first(self) -> bool:
        """Whether torch lays the result out as (B, T, H, D) in memory."""
        return bool(self.out.transpose(1, 2).is_contiguous())

    def ours(self, how: Attention) -> torch.Tensor:
        """What the kernel gives."""
        return how(self.query, self.key, self.value, self.mask, self.is_causal, self.scale, self.rows_first)

    def sampled_errors(self, *results: torch.Tensor, tf32: bool = False) -> list[tuple[float, float]]:
        """Errors of results against float64, on some heads and up to about SAMPLE queries of each. tf32: last, those of TF32 products."""
        batch, heads, rows, _depth = self.query.shape
        every = max(1, rows // SAMPLE)
        count = min(batch * heads, max(1, MOST_SCORES // (-(-rows // every) * self.key.shape[2])))
        places = torch.linspace(0, batch * heads - 1, count, device=self.query.device).long()
        b, h = places // heads, places % heads
        shared = h // (heads // self.key.shape[1])
        mask = None if self.mask is None else self.mask.expand(batch, heads, rows, self.key.shape[2])[b, h]
        given = (self.query[b, h], self.key[b, shared], self.value[b, shared], mask, self.is_causal, self.scale, every)
        exact = exact_attention(*given)
        found = [errors(result[b, h][:, ::every], exact) for result in results]
        if tf32:
            with under_flags(products_as(float32_flags(), True)):
                found.append(errors(exact_attention(*given, torch.float32), exact))
        return found

    def described(self) -> str:
        """What a choice depends on: device, versions, shapes, layout, mask."""
        shapes = "x".join(str(number) for number in (*self.query.shape, *self.key.shape[1:3], self.query.stride(2), self.key.stride(2)))
        mask = "none" if self.mask is None else f"{self.mask.dtype}{list(self.mask.shape)}"
        return "|".join([machine_of(self.query, triton), shapes, mask, str(self.is_causal)])


class AttentionChooser:
    """Decides for each attention, on its real tensors: the fastest kernel that errs by no more than torch's, as for linear layers.

    modes in order of preference: the first with a kernel that is faster is taken. Equal shapes share one timing, which is kept for the
    next process; each place's error is measured. tf32: that may be as large as torch's or that of both products in TF32, by ROUNDING_ROOM.
    """

    def __init__(self, modes: Sequence[str], *, tf32: bool = False) -> None:
        self.modes, self.tf32 = modes, tf32
        self.timed: dict[str, list[Attention]] = {}
        self.notes: list[str] = []

    def __call__(self, call: AttentionCall) -> Attention | None:
        """The kernel to use, None for torch's own."""
        if call.work < LEAST_WORK:
            return None
        key = "|".join([call.described(), *self.modes, str(self.tf32)])
        if key not in self.timed:
            kept = ATTENTION_CHOICES.kept().get(key)
            self.timed[key] = self.faster(call) if kept is None else [Attention(mode, tile) for mode, tile in kept]
            if kept is None:
                ATTENTION_CHOICES.keep(key, [(how.mode, how.tile) for how in self.timed[key]])
        return next((how for how in self.timed[key] if self.as_exact(call, how)), None)

    def as_exact(self, call: AttentionCall, how: Attention) -> bool:
        """Whether a kernel errs by no more than it may, against float64."""
        found, *limits = call.sampled_errors(call.ours(how), call.out, tf32=self.tf32)
        rooms = ROUNDING_ROOM if self.tf32 else (1.0, 1.0)
        return all(error <= room * max(most) for room, error, *most in zip(rooms, found, *limits, strict=True))

    def faster(self, call: AttentionCall) -> list[Attention]:
        """Kernels faster than torch's and exact enough, the fastest first: of the first mode that has one."""
        with under_flags(products_as(float32_flags(), True)) if self.tf32 else nullcontext():
            limit_s = seconds(call.library) / GAIN
        for mode in self.modes:
            timed = []
            for tile in attention_tiles(call.query.shape[3], mode):
                taken_s = self.time(call, how := Attention(mode, tile))
                if math.isfinite(taken_s) and not self.as_exact(call, how):
                    break  # tiles of a mode add the same products: none of them is compiled in vain
                if taken_s < limit_s:
                    timed.append((taken_s, how))
            found = [how for _taken_s, how in sorted(timed, key=lambda item: item[0])]
            if found:
                return found
        return []

    def time(self, call: AttentionCall, how: Attention) -> float:
        """Seconds; infinite where the tile does not compile or the device has no room for it."""
        try:
            call.ours(how)
            return seconds(lambda: call.ours(how))
        except (RuntimeError, triton.errors.TritonError) as error:
            self.notes.append(f"{how.name}: {error}")
            return math.inf
