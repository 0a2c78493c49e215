"""float32 linear layers as error-compensated products on tensor cores."""

from __future__ import annotations

from .base import LAYER_CAST, Context, Pass, Prediction, Products
from .conditions import (
    BUSY_CORES,
    PRODUCTS,
    first,
    needs_float32,
    needs_gpu,
    needs_module,
    not_yet_compiled,
    plain_float32,
    share_words,
    shorter,
)


def _refuse(context: Context) -> str | None:
    none = None if context.runs(*PRODUCTS) else "the profile shows no matrix product"
    return first(needs_gpu(context), needs_module(context), needs_float32(context), not_yet_compiled(context), plain_float32(context), none)


def _predict(context: Context) -> Prediction:
    share_pct = context.share_pct(*PRODUCTS)
    words = share_words(context, share_pct, "float32 products")
    if share_pct is None:
        return words
    # Three, six or nine narrow products for one: at best FASTEST times as fast, and nothing where every layer stays as it was.
    high = 100.0 / (100.0 - share_pct * (1.0 - 1.0 / FASTEST))
    return Prediction(words.words, (1.0, high), (BUSY_CORES, *shorter(context, (1.0, high))))


FASTEST = 4.0
"""float16 tensor cores do 14.8 times the multiplications of float32's (H200 datasheet: 989 and 67 TFLOP/s), and a product takes three;
about 80% of that is what kernels reach."""
PASS = Pass(
    name="split_products", layer=LAYER_CAST, level="module", dimension="precision", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True, measures=True,
    conflicts=frozenset({"tf32", "bf16", "bf16_autocast", "scaled_fp16", "selective_bf16", "selective_fp16"}),
    products=Products("float16", times=3),
    why="Linear layers as sums of narrow products on tensor cores: each was measured, and no less exact than the library's float32.",
)
