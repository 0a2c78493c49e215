"""Persistent matrix products with TMA."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import first, needs_gpu, not_yet_compiled, share_words
from .shares import products_pct, worth


def _old(context: Context) -> str | None:
    capability = context.environment.compute_capability
    return None if capability is None or float(capability) >= 9.0 else f"compute capability {capability} has no tensor memory accelerator"


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), needs_gpu(context), _old(context), worth(products_pct(context), "matrix products"))


def _predict(context: Context) -> Prediction:
    return share_words(context, products_pct(context), "matrix products")


PASS = Pass(
    name="inductor_tma_products", layer=LAYER_COMPILE, level="inductor", dimension="algorithms", cost="autotune",
    refuse=_refuse, predict=_predict,
    why="Matrix products may use persistent kernels that load tiles through the tensor memory accelerator, where these measure faster.",
)
