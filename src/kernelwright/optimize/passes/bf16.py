"""The whole model in bfloat16."""

from __future__ import annotations

from .base import LAYER_CAST, Context, Pass, Prediction, Products
from .conditions import HALF_TIMES, first, narrow_words, needs_float32, needs_module


def _refuse(context: Context) -> str | None:
    return first(needs_module(context), needs_float32(context))


def _predict(context: Context) -> Prediction:
    return narrow_words(context, "half the bytes of weights and activations, bfloat16 products", HALF_TIMES, 2.0)


PASS = Pass(
    name="bf16", layer=LAYER_CAST, dimension="precision",
    precision="bf16", training=False, refuse=_refuse, predict=_predict, copies_weights=True, casts_edges=True,
    conflicts=frozenset({"tf32", "bf16_autocast"}),
    takes="values",
    products=Products("bfloat16"),
    why="Weights and inputs are cast to bfloat16, outputs back to float32.",
)
