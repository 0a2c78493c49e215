"""Convolution, bias and ReLU in one cuDNN call."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import LESS_TRAFFIC, first, needs_convolution, needs_gpu, not_yet_compiled, share_words

RELUS = ("aten::relu", "aten::clamp_min")


def _refuse(context: Context) -> str | None:
    none = None if context.runs(*RELUS) else "the profile shows no ReLU"
    return first(needs_gpu(context), needs_convolution(context), not_yet_compiled(context), none)


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*RELUS), "ReLUs, which go into the convolutions with the biases before them,",
                       LESS_TRAFFIC, removed=True)


PASS = Pass(
    name="fuse_conv_relu", layer=LAYER_COMPILE, level="functional", dimension="fusion", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True, measures=True,
    opened_by=frozenset({"fold_conv_bn", "fold_linear_bn", "few_channel_convolutions"}),
    why="Convolution, bias and ReLU run as one cuDNN call (NHWC) wherever that measured faster at its shape.",
)
