"""The last linear layers straight from bfloat16 operands to float32."""

from __future__ import annotations

from .base import LAYER_CAST, Context, Pass, Prediction
from .conditions import HALF_TIMES, PRODUCTS, first, narrow_words, needs_float32, needs_gpu, needs_module, not_yet_compiled


def _refuse(context: Context) -> str | None:
    none = None if context.runs(*PRODUCTS) else "the profile shows no matrix product"
    wide = any(spec.dtype == "float32" for spec in context.facts.outputs)
    return first(needs_gpu(context), needs_module(context), needs_float32(context), not_yet_compiled(context), none,
                 None if wide else "no result is float32")


def _predict(context: Context) -> Prediction:
    return narrow_words(context, "bfloat16 products that write float32 where a layer's result leaves the model", HALF_TIMES)


PASS = Pass(
    name="wide_outputs", layer=LAYER_CAST, level="module", dimension="precision",
    precision="bf16", training=False, refuse=_refuse, predict=_predict, copies_weights=True, measures=True,
    conflicts=frozenset({"scaled_fp16", "split_products"}),
    takes="sizes",
    why="Linear layers whose results leave the model multiply in bfloat16 and write float32 at once, bias included: no cast behind them.",
)
