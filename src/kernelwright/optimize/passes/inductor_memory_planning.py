"""Intermediate results in a few planned buffers."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import first, not_yet_compiled
from .shares import fusible_pct, worth


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), worth(fusible_pct(context), "elementwise operators and norms"))


def _predict(_context: Context) -> Prediction:
    return Prediction("one allocation for many intermediate results")


PASS = Pass(
    name="inductor_memory_planning", layer=LAYER_COMPILE, level="inductor", dimension="host", cost="compile",
    refuse=_refuse, predict=_predict,
    # torch 2.11's planner gives the semaphores of a reduction and its workspace one place: its blocks wait for each other for ever.
    conflicts=frozenset({"inductor_cooperative_reductions"}),
    why="Intermediate results share buffers that are planned when compiling: fewer allocations, and memory that is warm in the cache.",
)
