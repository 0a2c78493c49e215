"""What commutes with a pooling, done where the pooling has left fewer numbers.

It stands after fold_linear_bn (a folded batch norm costs nothing; moved away from its convolution it can't be folded) and before
fuse_conv_relu, which then takes the ReLUs that stand before no max pooling.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...diagnose.common import matching
from ...model.profile import Operator
from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import CONVOLUTIONS, LESS_TRAFFIC, first, needs_module, not_yet_compiled, share_words

MAXIMA = r"^aten::(adaptive_)?max_pool"
AVERAGES = r"^aten::(_?adaptive_)?avg_pool|^aten::mean$"
MONOTONE = r"batch_norm|^aten::((relu|clamp|clamp_min|hardtanh|leaky_relu)_?|add_)$"
"""What may stand before a max pooling; add_ is the bias of a convolution on a GPU."""


def _movable(context: Context) -> Callable[[Operator], bool]:
    """Of an operator: whether its result may be what a pooling reads, by shapes where the profile holds them."""
    maxima, averages, *others = (matching(context.seen.operators, kind) for kind in (MAXIMA, AVERAGES, MONOTONE, "|".join(CONVOLUTIONS)))
    largest, averaged = ({one.input_shapes[0] if one.input_shapes else () for one in poolings} for poolings in (maxima, averages))
    monotone, convolutions = ({id(one) for one in found} for found in others)

    def wanted(one: Operator) -> bool:
        shapes = one.input_shapes
        if id(one) in monotone:
            return (shapes[0] if shapes else ()) in largest
        if id(one) not in convolutions:
            return False
        if len(shapes) < 2:
            return () in averaged
        pointwise = len(shapes[1]) > 2 and math.prod(shapes[1][2:]) == 1
        return pointwise and (shapes[0][0], shapes[1][0], *shapes[0][2:]) in averaged

    return wanted


def _side_by_side(context: Context) -> bool:
    """Several max poolings of one shape: their windows may nest."""
    shapes = [(one.operator_name, one.input_shapes) for one in matching(context.seen.operators, MAXIMA) if one.step == 0]
    return len(shapes) > len(set(shapes))


def _refuse(context: Context) -> str | None:
    pooling = context.runs("max_pool", "avg_pool", "aten::mean")
    hidden = context.facts.already_compiled and context.uncompiled is None
    beside = hidden or any(map(_movable(context), context.seen.operators)) or _side_by_side(context)
    return first(needs_module(context), not_yet_compiled(context), None if pooling else "the profile shows no pooling",
                 None if beside else "the profile shows nothing before a pooling that could go behind it")


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_where_pct(_movable(context)), "what may go behind a pooling, and shrink with it,",
                       LESS_TRAFFIC, removed=not _side_by_side(context))


PASS = Pass(
    name="fuse_pooling", layer=LAYER_FOLD, level="functional", dimension="fusion", cost="compile",
    training=False, refuse=_refuse, predict=_predict, copies_weights=True,
    why="Bias, ReLU and batch norm go behind a max pooling, a 1x1 convolution behind an average: there they have fewer numbers to work on.",
)
