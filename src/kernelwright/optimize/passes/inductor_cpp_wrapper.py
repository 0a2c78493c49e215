"""Compiled code called from C++ instead of Python."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import compiled_launch_words, first, not_yet_compiled
from .shares import worth


def _busy(context: Context) -> str | None:
    timeline = context.profile.timeline
    idle = timeline.idle_share_pct if timeline is not None and context.on_gpu else None
    return worth(idle, "idle times of the device")


def _refuse(context: Context) -> str | None:
    return first(not_yet_compiled(context), _busy(context))


def _predict(context: Context) -> Prediction:
    return compiled_launch_words(context) if context.on_gpu else Prediction("no Python between the kernels of a call")


PASS = Pass(
    name="inductor_cpp_wrapper", layer=LAYER_COMPILE, level="inductor", dimension="host", cost="autotune",
    refuse=_refuse, predict=_predict,
    # A graph's replay launches nothing from the host; each process pays for the first C++ that it compiles (H100, torch 2.11: 54 to 77 s).
    conflicts=frozenset({"cuda_graph", "compile_reduce_overhead", "compile_max_autotune"}),
    why="Kernels are launched from generated C++, not Python: less host time between them.",
)
