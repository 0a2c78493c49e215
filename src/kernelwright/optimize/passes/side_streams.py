"""Independent branches on streams of their own."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import first, needs_gpu, not_yet_compiled
from .shares import half_empty_pct, worth

STREAMS = 4
"""As many as the rewrite uses at most."""


def _refuse(context: Context) -> str | None:
    return first(needs_gpu(context), not_yet_compiled(context),
                 worth(half_empty_pct(context), "kernels that leave multiprocessors free"))


def _predict(context: Context) -> Prediction:
    share = half_empty_pct(context)
    if share is None:
        return Prediction("kernels that leave multiprocessors free: share not measured")
    hidden = share * (1 - 1 / STREAMS)
    return Prediction(f"kernels with fewer blocks than multiprocessors hold {share:.0f}% of the measured time",
                      (1.0, 100.0 / (100.0 - hidden)))


PASS = Pass(
    name="side_streams", layer=LAYER_COMPILE, level="runtime", dimension="graph capture",
    training=False, refuse=_refuse, predict=_predict, partners=frozenset({"cuda_graph"}),
    conflicts=frozenset({"piecewise_graphs", "compile_default", "compile_reduce_overhead", "compile_max_autotune",
                         "compile_max_autotune_no_cudagraphs"}),
    why="Branches that do not need each other run on CUDA streams of their own, and small kernels fill the device together.",
)
