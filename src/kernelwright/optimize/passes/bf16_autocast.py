"""Autocast to bfloat16."""

from __future__ import annotations

from .base import LAYER_FLAGS, Context, Pass, Prediction, Products
from .conditions import HALF_TIMES, narrow_words, needs_float32


def _predict(context: Context) -> Prediction:
    return narrow_words(context, "bfloat16 products; norms and softmax stay float32", HALF_TIMES)


PASS = Pass(
    name="bf16_autocast", layer=LAYER_FLAGS, level="runtime", dimension="precision",
    precision="bf16", refuse=needs_float32, predict=_predict,
    conflicts=frozenset({"tf32", "bf16"}),
    takes="values",
    products=Products("bfloat16"),
    why="Matrix products and convolutions run in bfloat16 under autocast; outputs go back to float32.",
)
