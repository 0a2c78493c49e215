"""Host tensors that each call copies to the GPU stay there."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import first, needs_gpu, needs_module, not_yet_compiled
from .shares import activity_of, at_most, upload_pct


def _refuse(context: Context) -> str | None:
    activity = activity_of(context)
    copies = activity is None or any(row.direction == "HtoD" for row in activity.host_copies)
    return first(needs_gpu(context), needs_module(context), not_yet_compiled(context),
                 None if copies else "the profile shows no copy from the host")


def _predict(context: Context) -> Prediction:
    return at_most(upload_pct(context), "copies from the host")


PASS = Pass(
    name="resident_constants", layer=LAYER_FOLD, dimension="host",
    training=False, refuse=_refuse, predict=_predict, conflicts=frozenset({"pinned_copies"}),
    why="Tensors that the model keeps on the host and copies at each call are copied once (and again after they change).",
)
