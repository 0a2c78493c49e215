"""Fusion beyond Inductor's limits."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass
from .conditions import first, fusion_words, not_yet_compiled
from .shares import fusible_pct, worth


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), worth(fusible_pct(context), "elementwise operators and norms"))


PASS = Pass(
    name="inductor_fuse_more", layer=LAYER_COMPILE, level="inductor", dimension="fusion", cost="compile",
    refuse=_refuse, predict=fusion_words,
    why="Longer chains become one kernel: intermediate results are computed again rather than stored.",
)
