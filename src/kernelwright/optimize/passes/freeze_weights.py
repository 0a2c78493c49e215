"""Weights as constants of the compiled code."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import CONVOLUTIONS, PRODUCTS, first, needs_module, not_yet_compiled, share_words


def _refuse(context: Context) -> str | None:
    none = None if context.runs(*PRODUCTS, *CONVOLUTIONS) else "the profile shows no product or convolution with weights"
    return first(needs_module(context), not_yet_compiled(context), none)


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*PRODUCTS, *CONVOLUTIONS), "products and convolutions, whose weights become constants,")


PASS = Pass(
    name="freeze_weights", layer=LAYER_COMPILE, level="inductor", dimension="layout", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True,
    why="Weights are constants for the compiler: what depends on them alone (a transposed copy, a cast) is computed once.",
)
