"""The workload's own torch.compile, and graphs by make_graphed_callables, taken off: other passes see the model, and another mode can be
put on."""

from __future__ import annotations

from .base import Context, Pass, Prediction
from .conditions import call_ns, first, not_yet_compiled

LAYER_UNWRAP = -1
"""Before all others: they work on what is under it."""


def _refuse(context: Context) -> str | None:
    nothing = None if context.facts.already_compiled or context.facts.hidden else "the workload is neither compiled nor graphed"
    return first(nothing, not_yet_compiled(context))


def _predict(context: Context) -> Prediction:
    own_ns = call_ns(context)
    plain = context.uncompiled.timing if context.uncompiled is not None else None
    slower = f"; alone a call takes {plain.median_ns / own_ns:.3g} times as long" if plain is not None and own_ns else ""
    return Prediction(f"nothing by itself: it lets other passes see the model, and another compile mode or graph come in its place{slower}")


PASS = Pass(
    name="unwrap_compiled", layer=LAYER_UNWRAP, level="module", dimension="fusion", refuse=_refuse, predict=_predict,
    takes="values",
    why="The workload's own torch.compile, or its graphs by make_graphed_callables, are taken off: what follows works on the model itself.",
)
