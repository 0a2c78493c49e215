"""float32 matrix products that no nn.Linear makes as error-compensated products on tensor cores."""

from __future__ import annotations

from ...model.profile import Operator
from .base import LAYER_CAST, Context, Pass, Prediction, Products
from .conditions import (
    BUSY_CORES,
    CONVOLUTIONS,
    first,
    needs_float32,
    needs_gpu,
    needs_module,
    not_yet_compiled,
    plain_float32,
    share_words,
    shorter,
)
from .shares import worth
from .split_products import FASTEST

MATMULS = ("aten::mm", "aten::addmm", "aten::matmul", "aten::linear")
BATCHED = ("aten::bmm", "aten::baddbmm")


def _multiplies(item: Operator) -> bool:
    """Whether it is a product of two matrices, those inside convolutions and batched ones left out."""
    names = (item.operator_name, *item.parents)
    return item.operator_name not in BATCHED and any(name in MATMULS for name in names) and not any(
        word in name for name in names for word in CONVOLUTIONS)


def _under_linear(item: Operator) -> bool:
    return "aten::linear" in (item.operator_name, *item.parents)


def _outside_layers_pct(context: Context) -> float | None:
    """Share of products that no linear layer makes. A layer's own module runs nothing but products under aten::linear."""
    others = {item.module for item in context.seen.operators if not _under_linear(item)}
    return context.share_where_pct(
        lambda item: _multiplies(item) and (not _under_linear(item) or not item.module or item.module in others))


def _refuse(context: Context) -> str | None:
    none = None if context.runs(*MATMULS) else "the profile shows no product of two matrices"
    return first(needs_gpu(context), needs_module(context), needs_float32(context), not_yet_compiled(context), plain_float32(context), none,
                 worth(_outside_layers_pct(context), "products of two matrices that no linear layer makes"))


def _predict(context: Context) -> Prediction:
    share_pct = _outside_layers_pct(context)
    words = share_words(context, share_pct, "float32 products that no linear layer makes")
    if share_pct is None:
        return words
    high = 100.0 / (100.0 - share_pct * (1.0 - 1.0 / FASTEST))
    return Prediction(words.words, (1.0, high), (BUSY_CORES, *shorter(context, (1.0, high))))


PASS = Pass(
    name="split_matmuls", layer=LAYER_CAST, level="functional", dimension="precision", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True, measures=True,
    conflicts=frozenset({"tf32", "bf16", "bf16_autocast", "bf16_reverted", "scaled_fp16", "selective_bf16", "selective_fp16"}),
    products=Products("float16", times=3),
    why="Matrix products outside linear layers as sums of narrow ones: each was measured, and no less exact than the library's float32.",
)
