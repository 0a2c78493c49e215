"""Copies, casts and repeated calls that show only once layers and autocast have become ATen operators.

Inductor (as of torch 2.13) shares repeated calls in training graphs and under freezing, not in inference graphs; and of casts and
permutations it takes away only pairs that stand right behind each other.
"""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import COPIES, LESS_TRAFFIC, first, not_yet_compiled, share_words


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), None if context.runs(*COPIES) else "the profile shows no copy or cast")


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*COPIES), "copies and casts, of which repeated ones are made once,", LESS_TRAFFIC,
                       removed=True)


PASS = Pass(
    name="remove_redundant_aten", layer=LAYER_FOLD, level="aten", dimension="layout", cost="compile",
    training=False, refuse=_refuse, predict=_predict,
    why="Calls that repeat an earlier one, and casts there and back, are taken off the ATen graph, where autocast has become casts.",
)
