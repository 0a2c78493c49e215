"""Generated kernels tuned further than Inductor's default."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import first, needs_gpu, not_yet_compiled, share_words
from .shares import fusible_pct, worth


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), needs_gpu(context), worth(fusible_pct(context), "elementwise operators and norms"))


def _predict(context: Context) -> Prediction:
    return share_words(context, fusible_pct(context), "elementwise operators and norms, whose generated kernels are tuned,")


PASS = Pass(
    name="inductor_tune_kernels", layer=LAYER_COMPILE, level="inductor", dimension="algorithms", cost="autotune",
    refuse=_refuse, predict=_predict,
    why="Inductor measures tile sizes and warps of its elementwise and reduction kernels, one coordinate at a time.",
)
