"""NHWC weights and inputs for convolutions."""

from __future__ import annotations

from .base import LAYER_LAYOUT, Context, Pass, Prediction
from .conditions import CONVOLUTIONS, needs_convolution, share_words


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*CONVOLUTIONS), "convolutions")


PASS = Pass(
    name="channels_last", layer=LAYER_LAYOUT, dimension="layout",
    refuse=needs_convolution, predict=_predict, copies_weights=True,
    takes="values",
    why="Convolutions get their weights and inputs as NHWC and skip layout changes of their own.",
)
