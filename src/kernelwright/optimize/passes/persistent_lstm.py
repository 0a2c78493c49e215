"""LSTM layers in one kernel that keeps its weights on the chip."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Move, Pass, Prediction, Products
from .conditions import RECURRENT, first, needs_float32, needs_gpu, needs_module, not_yet_compiled, share_words

LEFT = 0.3
"""Part of the recurrent layers' time that stays at best (H200, two layers of 512 units in CUDA graphs: 637 us, cuDNN's under TF32 1396)."""


def _refuse(context: Context) -> str | None:
    none = None if context.runs("aten::lstm") else "the profile shows no LSTM"
    exact = None if context.environment.cudnn_tf32 else "TF32 is off for cuDNN: operands of 11 bits are less exact"
    return first(needs_gpu(context), needs_module(context), needs_float32(context), not_yet_compiled(context), none, exact)


def _predict(context: Context) -> Prediction:
    share_pct = context.share_pct(*RECURRENT)
    words = share_words(context, share_pct, "recurrent layers")
    if share_pct is None:
        return words
    return Prediction(words.words, (1.0, 100.0 / (100.0 - min(share_pct, 100.0) * (1.0 - LEFT))), (Move("kernels", 0.0, 0.9),))


PASS = Pass(
    name="persistent_lstm", layer=LAYER_FOLD, level="module", dimension="algorithms", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True, measures=True,
    conflicts=frozenset({"bf16_autocast", "selective_bf16", "selective_fp16"}),
    products=Products("float16"),
    why="LSTM layers in one kernel that keeps its weights on the chip for all steps; it was measured, and is as exact as cuDNN's.",
)
