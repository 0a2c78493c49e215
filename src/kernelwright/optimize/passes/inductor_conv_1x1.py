"""1x1 convolutions as matrix products."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import first, needs_gpu, not_yet_compiled, share_words
from .shares import pointwise_convolutions_pct, worth


def _none(context: Context) -> str | None:
    share = pointwise_convolutions_pct(context)
    return worth(share, "1x1 convolutions") if share else "the profile shows no 1x1 convolution"


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), needs_gpu(context), _none(context))


def _predict(context: Context) -> Prediction:
    return share_words(context, pointwise_convolutions_pct(context), "1x1 convolutions")


PASS = Pass(
    name="inductor_conv_1x1", layer=LAYER_COMPILE, level="inductor", dimension="algorithms", cost="autotune",
    refuse=_refuse, predict=_predict,
    why="1x1 convolutions become matrix products, with measured kernels and fused epilogues.",
)
