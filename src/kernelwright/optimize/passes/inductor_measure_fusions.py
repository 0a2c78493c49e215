"""Fusions decided by measurement."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass
from .conditions import first, fusion_words, needs_gpu, not_yet_compiled
from .shares import fusible_pct, worth


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), needs_gpu(context), worth(fusible_pct(context), "elementwise operators and norms"))


PASS = Pass(
    name="inductor_measure_fusions", layer=LAYER_COMPILE, level="inductor", dimension="fusion", cost="autotune",
    refuse=_refuse, predict=fusion_words,
    why="Inductor measures each fusion of two kernels and keeps those that gain.",
)
