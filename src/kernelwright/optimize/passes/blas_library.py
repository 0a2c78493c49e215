"""cuBLAS or cuBLASLt for all matrix products, whichever measures faster."""

from __future__ import annotations

from .base import LAYER_FLAGS, Context, Pass, Prediction
from .conditions import first, needs_gpu, share_words
from .shares import products_pct, worth


def _refuse(context: Context) -> str | None:
    return first(needs_gpu(context), worth(products_pct(context), "matrix products"))


def _predict(context: Context) -> Prediction:
    return share_words(context, products_pct(context), "matrix products")


PASS = Pass(
    name="blas_library", layer=LAYER_FLAGS, level="runtime", dimension="algorithms",
    refuse=_refuse, predict=_predict, training=False, measures=True,
    why="Matrix products run by cuBLASLt or cuBLAS, whichever measured faster on this call; the setting holds during the call only.",
)
