"""The attention kernel chosen by measuring."""

from __future__ import annotations

from .base import LAYER_LAYOUT, Context, Pass, Prediction
from .conditions import first, needs_gpu, not_yet_compiled, share_words

ATTENTION = ("scaled_dot_product", "_flash_attention", "_efficient_attention")


def _refuse(context: Context) -> str | None:
    by_hand = context.runs("softmax") and context.runs("aten::bmm", "aten::matmul")
    none = None if by_hand or context.runs(*ATTENTION) else "the profile shows no attention"
    return first(needs_gpu(context), not_yet_compiled(context), none)


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*ATTENTION), "attention kernels")


PASS = Pass(
    name="sdpa_backend", layer=LAYER_LAYOUT, level="functional", dimension="attention", cost="compile",
    training=False, refuse=_refuse, predict=_predict, measures=True,
    opened_by=frozenset({"sdpa_substitution"}),
    why="Each attention runs the kernel that measured fastest at its shape: flash, memory-efficient, cuDNN, or plain products.",
)
