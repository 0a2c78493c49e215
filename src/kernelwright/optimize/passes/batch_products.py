"""Independent matrix products of one shape as one product.

Inductor (as of torch 2.13) does so only where `post_grad_fusion_options` asks for it, without measuring, and never as one product of
all rows where the weight is the same.
"""

from __future__ import annotations

from collections import Counter

from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import FEWER_KERNELS, first, needs_gpu, not_yet_compiled, share_words

PRODUCTS = ("aten::linear", "aten::addmm", "aten::mm")


def _refuse(context: Context) -> str | None:
    kinds = Counter((operator.step, operator.operator_name, operator.input_shapes) for operator in context.seen.operators
                    if operator.operator_name in PRODUCTS)
    none = None if any(count > 1 for count in kinds.values()) else "no two matrix products of the profile have one shape"
    return first(needs_gpu(context), not_yet_compiled(context), none)


def _predict(context: Context) -> Prediction:
    share = context.share_pct(*PRODUCTS)
    return share_words(context, share, "matrix products, of which independent ones of one shape become one,", FEWER_KERNELS)


PASS = Pass(
    name="batch_products", layer=LAYER_FOLD, level="aten", dimension="fusion", cost="compile",
    training=False, refuse=_refuse, predict=_predict, measures=True,
    why="Matrix products of one shape that do not need each other's results become one product wherever that measured faster.",
)
