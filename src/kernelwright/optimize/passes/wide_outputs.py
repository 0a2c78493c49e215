"""The last linear layers straight from bfloat16 operands to float32."""

from __future__ import annotations

from .base import LAYER_CAST, Context, Pass, Prediction, Products
from .conditions import (
    BUSY_CORES,
    HALF_TIMES,
    PRODUCTS,
    first,
    needs_float32,
    needs_gpu,
    needs_module,
    not_yet_compiled,
    share_words,
    shorter,
)


def _refuse(context: Context) -> str | None:
    none = None if context.runs(*PRODUCTS) else "the profile shows no matrix product"
    wide = any(spec.dtype == "float32" for spec in context.facts.outputs)
    return first(needs_gpu(context), needs_module(context), needs_float32(context), not_yet_compiled(context), none,
                 None if wide else "no result is float32")


def _predict(context: Context) -> Prediction:
    """At best all products as wide as a result of the model are those, and take a HALF_TIMES-th."""
    widths = {spec.shape[-1] for spec in context.facts.outputs if spec.dtype == "float32" and spec.shape}
    share_pct = context.share_where_pct(lambda item: item.operator_name in PRODUCTS and any(
        width in shape for shape in item.input_shapes for width in widths))
    words = share_words(context, share_pct, "products as wide as a result of the model")
    if share_pct is None or not context.on_gpu:
        return words
    gain = 1.0, 100.0 / (100.0 - share_pct * (1.0 - 1.0 / HALF_TIMES))
    return Prediction(words.words, gain, (BUSY_CORES, *shorter(context, gain)))


PASS = Pass(
    name="wide_outputs", layer=LAYER_CAST, level="module", dimension="precision",
    precision="bf16", training=False, refuse=_refuse, predict=_predict, copies_weights=True, measures=True,
    conflicts=frozenset({"scaled_fp16", "split_products"}),
    takes="sizes",
    products=Products("bfloat16"),
    why="Linear layers whose results leave the model multiply in bfloat16 and write float32 at once, bias included: no cast behind them.",
)
