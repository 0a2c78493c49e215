"""Waits of the host for the device that the result does not need."""

from __future__ import annotations

from dataclasses import replace

from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import first, needs_gpu, needs_module, not_yet_compiled
from .shares import activity_of, at_most, less_waiting, waiting_pct


def _refuse(context: Context) -> str | None:
    activity = activity_of(context)
    none = "the profile shows no wait for the device" if activity is not None and activity.synchronization_count == 0 else None
    return first(needs_gpu(context), needs_module(context), not_yet_compiled(context), none)


def _predict(context: Context) -> Prediction:
    waiting = waiting_pct(context)
    guess = at_most(waiting, "idle time after waits of the host")
    return replace(guess, moves=less_waiting(context, waiting)) if guess.gain else guess


PASS = Pass(
    name="remove_syncs", layer=LAYER_FOLD, dimension="host",
    training=False, refuse=_refuse, predict=_predict, frees_capture=True, copies_weights=True,
    why="Values that only feed arithmetic stay on the device (.item(), x[mask].sum(), a trip to the host and back): no waiting.",
)
