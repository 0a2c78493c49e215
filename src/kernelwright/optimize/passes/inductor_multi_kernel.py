"""Reductions in two forms, measured."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import first, needs_gpu, not_yet_compiled, share_words
from .shares import reductions_pct, worth


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), needs_gpu(context), worth(reductions_pct(context), "norms and reductions"))


def _predict(context: Context) -> Prediction:
    return share_words(context, reductions_pct(context), "norms and reductions, each in the faster of two forms,")


PASS = Pass(
    name="inductor_multi_kernel", layer=LAYER_COMPILE, level="inductor", dimension="algorithms", cost="autotune",
    refuse=_refuse, predict=_predict,
    why="Each reduction is compiled in two forms (whole row at once, or in a loop) and the faster one is used.",
)
