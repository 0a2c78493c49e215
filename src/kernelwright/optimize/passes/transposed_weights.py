"""The weights of linear layers transposed in memory. Not on a CPU: there freeze_weights has the library pack them, which gives more (an MLP
on two cores: 1.2x to 1.5x; transposed, 1.05x, and 1.00x by its confirmation)."""

from __future__ import annotations

import math

from ...model.profile import Operator
from .base import LAYER_LAYOUT, Context, Pass, Prediction
from .conditions import first, needs_float32, needs_gpu, needs_module, not_yet_compiled, share_words
from .shares import worth

LINEARS = ("aten::linear", "aten::addmm", "aten::mm")
MOST_ROWS = 128
"""With more rows a product is bound by its arithmetic, and libraries read both layouts alike."""


def _is_of_few_rows(operator: Operator) -> bool:
    matrices = [shape for shape in operator.input_shapes if len(shape) > 1]
    return operator.operator_name in LINEARS and bool(matrices) and math.prod(matrices[0][:-1]) <= MOST_ROWS


def _share_pct(context: Context) -> float | None:
    return context.share_where_pct(_is_of_few_rows)


def _refuse(context: Context) -> str | None:
    none = None if any(map(_is_of_few_rows, context.seen.operators)) else f"the profile shows no linear layer of at most {MOST_ROWS} rows"
    return first(needs_gpu(context), needs_module(context), needs_float32(context), not_yet_compiled(context), none,
                 worth(_share_pct(context), "linear layers of few rows"))


def _predict(context: Context) -> Prediction:
    return share_words(context, _share_pct(context), "linear layers of few rows, whose weights are transposed where that is faster,")


PASS = Pass(
    name="transposed_weights", layer=LAYER_LAYOUT, dimension="layout",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True, measures=True, takes="values",
    conflicts=frozenset({"freeze_weights", "tf32", "bf16", "bf16_autocast", "bf16_reverted", "scaled_fp16", "selective_tf32",
                         "selective_bf16", "selective_fp16", "split_products", "fuse_parallel_linears"}),
    why="Linear layers that measured faster so read a copy of their weights that lies transposed in memory: input features first.",
)
