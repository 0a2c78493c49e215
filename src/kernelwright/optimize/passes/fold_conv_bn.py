"""Batch norms folded into the convolutions before them."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import FEWER_KERNELS, first, needs_convolution, share_words


def _refuse(context: Context) -> str | None:
    return first(needs_convolution(context), None if context.runs("batch_norm") else "the profile shows no batch norm")


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct("batch_norm"), "batch norms", FEWER_KERNELS, removed=True)


PASS = Pass(
    name="fold_conv_bn", layer=LAYER_FOLD, dimension="fusion",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True,
    takes="sizes",
    why="Each batch norm is folded into the convolution that it directly follows (eval mode).",
)
