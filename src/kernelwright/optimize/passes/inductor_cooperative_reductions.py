"""Long reductions over many blocks."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import first, needs_gpu, not_yet_compiled, share_words
from .shares import reductions_pct, worth


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), needs_gpu(context), worth(reductions_pct(context), "norms and reductions"))


def _predict(context: Context) -> Prediction:
    return share_words(context, reductions_pct(context), "norms and reductions, split over blocks where rows are few,")


PASS = Pass(
    name="inductor_cooperative_reductions", layer=LAYER_COMPILE, level="inductor", dimension="algorithms", cost="compile",
    refuse=_refuse, predict=_predict,
    why="Reductions with few rows are shared by several blocks, so that they fill the device.",
)
