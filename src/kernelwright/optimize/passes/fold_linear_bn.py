"""Batch norms and channel factors folded into the linear layers and convolutions before them."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import CONVOLUTIONS, FEWER_KERNELS, PRODUCTS, first, needs_module, not_yet_compiled, share_words


def _refuse(context: Context) -> str | None:
    layers = None if context.runs(*PRODUCTS, *CONVOLUTIONS) else "the profile shows no linear layer or convolution"
    affine = None if context.runs("batch_norm", "aten::mul", "aten::div") else "the profile shows no batch norm or elementwise factor"
    return first(needs_module(context), not_yet_compiled(context), layers, affine)


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct("batch_norm"), "batch norms", FEWER_KERNELS, removed=True)


PASS = Pass(
    name="fold_linear_bn", layer=LAYER_FOLD, level="functional", dimension="fusion", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True,
    why="Batch norms (eval mode) and numbers a channel go into the weights of the layer before them.",
)
