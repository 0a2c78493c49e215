"""Every configuration of Inductor's matrix product kernels."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import first, needs_gpu, not_yet_compiled, share_words
from .shares import product_shapes, products_pct, worth

MOST_SHAPES = 3
"""Every shape is searched apart, for minutes."""


def _many(context: Context) -> str | None:
    shapes = product_shapes(context)
    return f"{shapes} different matrix products: the search would take too long" if shapes > MOST_SHAPES else None


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), needs_gpu(context), worth(products_pct(context), "matrix products"), _many(context))


def _predict(context: Context) -> Prediction:
    return share_words(context, products_pct(context), "matrix products, whose kernels are all tried,")


PASS = Pass(
    name="inductor_search_products", layer=LAYER_COMPILE, level="inductor", dimension="algorithms", cost="autotune",
    refuse=_refuse, predict=_predict,
    why="Inductor tries every configuration of its matrix product kernels, not only the usual ones.",
)
