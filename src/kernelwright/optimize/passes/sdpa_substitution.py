"""Attention written by hand as scaled_dot_product_attention."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import FEWER_KERNELS, LESS_TRAFFIC, first, needs_module, not_yet_compiled, share_words


def _refuse(context: Context) -> str | None:
    by_hand = context.runs("softmax") and context.runs("aten::bmm", "aten::matmul", "aten::baddbmm")
    return first(needs_module(context), not_yet_compiled(context), None if by_hand else "the profile shows no softmax between two products")


def _predict(context: Context) -> Prediction:
    """Softmax and masks go into the call; its products are still computed. How much of those goes, where what is hidden is not computed, is
    not predicted."""
    return share_words(context, context.share_pct("aten::softmax", "aten::_softmax", "aten::masked_fill"),
                       "softmax and masks, which go into one call with the products,", FEWER_KERNELS, LESS_TRAFFIC, removed=True)


PASS = Pass(
    name="sdpa_substitution", layer=LAYER_FOLD, level="functional", dimension="attention", cost="compile",
    training=False, refuse=_refuse, predict=_predict,
    why="Attention written by hand becomes scaled_dot_product_attention: the scores are never stored.",
)
