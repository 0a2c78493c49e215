"""float32 linear layers as float16 products of scaled rows."""

from __future__ import annotations

from .base import LAYER_CAST, Context, Pass, Prediction, Products
from .conditions import PRODUCTS, first, needs_float32, needs_gpu, needs_module, not_yet_compiled, share_words


def _refuse(context: Context) -> str | None:
    none = None if context.runs(*PRODUCTS) else "the profile shows no matrix product"
    return first(needs_gpu(context), needs_module(context), needs_float32(context), not_yet_compiled(context), none)


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*PRODUCTS), "float32 products")


PASS = Pass(
    name="scaled_fp16", layer=LAYER_CAST, level="module", dimension="precision", cost="compile",
    precision="tf32", training=False, refuse=_refuse, predict=_predict, copies_weights=True, measures=True,
    conflicts=frozenset({"bf16", "bf16_autocast", "split_products", "selective_bf16", "selective_fp16"}),
    products=Products("float16"),
    why="Linear layers as float16 products of rows scaled by powers of two, where faster: TF32's 11 bits at float16's speed.",
)
