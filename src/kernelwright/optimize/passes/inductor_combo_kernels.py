"""Independent small kernels in one launch."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass
from .conditions import compiled_launch_words, first, needs_gpu, not_yet_compiled
from .shares import kernels_per_step

LEAST_LAUNCHES = 20
"""Below, there is nothing to put together."""


def _few(context: Context) -> str | None:
    kernels = kernels_per_step(context)
    return f"a call launches {kernels:.0f} kernels" if kernels is not None and kernels < LEAST_LAUNCHES else None


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), needs_gpu(context), _few(context))


PASS = Pass(
    name="inductor_combo_kernels", layer=LAYER_COMPILE, level="inductor", dimension="fusion", cost="compile",
    refuse=_refuse, predict=compiled_launch_words,
    why="Small generated kernels that do not need each other go into one launch, where that measures faster.",
)
