"""The workload's own torch.compile taken off, so that another mode can be put on."""

from __future__ import annotations

from .base import Context, Pass, Prediction
from .conditions import first, not_yet_compiled

LAYER_UNWRAP = -1
"""Before all others: they work on what is under it."""


def _refuse(context: Context) -> str | None:
    return first(None if context.facts.already_compiled else "the workload is not compiled", not_yet_compiled(context))


def _predict(_context: Context) -> Prediction:
    return Prediction("nothing by itself: it lets another compile mode take the place of the workload's own")


PASS = Pass(
    name="unwrap_compiled", layer=LAYER_UNWRAP, level="module", dimension="fusion", refuse=_refuse, predict=_predict,
    takes="values",
    why="The workload's own torch.compile is taken off: the one below takes its place.",
)
