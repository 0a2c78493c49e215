"""Depthwise and 1x1 convolutions in Triton kernels that write memory once."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Move, Pass, Prediction, Products
from .conditions import first, needs_convolution, needs_gpu, not_yet_compiled

DEPTHWISE = "_conv_depthwise2d"
BETWEEN = rf"{DEPTHWISE}|batch_norm|^aten::(relu|clamp_min|clamp|hardtanh|add_)_?$"
"""What the kernels take over whole: a depthwise convolution and what is elementwise after one."""
LEFT = 0.25
"""Part of that time that stays at best: a kernel that fuses them reads and writes each plane once, where four operators do."""


def _refuse(context: Context) -> str | None:
    none = None if context.runs(DEPTHWISE) else "the profile shows no depthwise convolution"
    return first(needs_gpu(context), needs_convolution(context), not_yet_compiled(context), none)


def _predict(context: Context) -> Prediction:
    share_pct = context.share_matching_pct(BETWEEN)
    if share_pct is None:
        return Prediction("depthwise convolutions and what follows them: share not measured")
    words = f"depthwise convolutions and what follows them hold {share_pct:.0f}% {context.whole}"
    return Prediction(words, (1.0, 100.0 / (100.0 - share_pct * (1.0 - LEFT))), (Move("DRAM bytes", 0.0, 0.9), Move("kernels", 0.0, 0.9)))


PASS = Pass(
    name="separable_convolutions", layer=LAYER_FOLD, level="module", dimension="fusion", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True, measures=True,
    conflicts=frozenset({"fold_conv_bn", "channels_last", "bf16_autocast"}),
    products=Products("tf32"),
    why="Depthwise and 1x1 convolutions, batch norm and ReLU in one kernel wherever that measured faster, and was as exact, at its shape.",
)
