"""Copies, casts and permutations that undo each other."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import COPIES, first, not_yet_compiled, share_words


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), None if context.runs(*COPIES) else "the profile shows no copy or cast")


def _predict(context: Context) -> Prediction:
    return share_words(context, context.share_pct(*COPIES), "copies and casts", removed=True)


PASS = Pass(
    name="remove_redundant", layer=LAYER_FOLD, level="functional", dimension="layout", cost="compile",
    training=False, refuse=_refuse, predict=_predict,
    why="Copies, casts and permutations that change nothing or undo each other are taken off the graph.",
)
