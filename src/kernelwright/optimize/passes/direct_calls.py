"""The compiled graph called directly, without Dynamo's guards."""

from __future__ import annotations

from .base import LAYER_COMPILE, Context, Pass, Prediction
from .conditions import first, not_yet_compiled


def _refuse(context: Context) -> str | None:
    looped = "a generation loop: a call is more than one graph of one size" if context.facts.loop is not None else None
    return first(not_yet_compiled(context), looped)


PASS = Pass(
    name="direct_calls", layer=LAYER_COMPILE, level="calls", dimension="host", cost="compile", training=False, refuse=_refuse,
    predict=lambda _context: Prediction("no guards of torch.compile's at each call"), fixes_addresses=True,
    # In a CUDA graph nothing of it is left at a call anyway; the compiler's own graphs depend on how Dynamo calls them.
    conflicts=frozenset({"cuda_graph", "compile_reduce_overhead", "compile_max_autotune"}),
    why="The one compiled graph is called directly: torch.compile's guards are spared at each call, this file's own stand before it.",
)
