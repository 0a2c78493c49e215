"""Convolutions in the layout they come in."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import CONVOLUTIONS, first, needs_convolution, needs_gpu, not_yet_compiled, share_words


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), needs_gpu(context), needs_convolution(context))


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*CONVOLUTIONS), "convolutions")


PASS = Pass(
    name="inductor_keep_layout", layer=LAYER_COMPILE, level="inductor", dimension="layout", cost="compile",
    refuse=_refuse, predict=_predict,
    why="Inductor leaves convolutions in the layout they come in, and saves the conversions.",
)
