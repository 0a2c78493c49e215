"""Inference without an autograd graph."""

from __future__ import annotations

from .base import LAYER_GRAD, Context, Pass, Prediction


def _predict(_context: Context) -> Prediction:
    return Prediction("no autograd bookkeeping; small on large operators")


PASS = Pass(
    name="no_grad", layer=LAYER_GRAD, level="runtime", dimension="host",
    training=False, predict=_predict,
    takes="values",
    why="No gradients are recorded: saves autograd's bookkeeping on every operator.",
)
