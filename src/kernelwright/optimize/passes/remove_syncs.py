"""Waits of the host for the device that the result does not need."""

from __future__ import annotations

from .base import LAYER_FOLD, Context, Move, Pass, Prediction
from .conditions import first, needs_gpu, needs_module, not_yet_compiled
from .shares import activity_of, at_most, waiting_pct


def _refuse(context: Context) -> str | None:
    activity = activity_of(context)
    none = "the profile shows no wait for the device" if activity is not None and activity.synchronization_count == 0 else None
    return first(needs_gpu(context), needs_module(context), not_yet_compiled(context), none)


def _predict(context: Context) -> Prediction:
    guess = at_most(waiting_pct(context), "idle time after waits of the host")
    return Prediction(guess.words, guess.gain, (Move("idle time", 0.0, 0.9),)) if guess.gain else guess


PASS = Pass(
    name="remove_syncs", layer=LAYER_FOLD, dimension="host",
    training=False, refuse=_refuse, predict=_predict,
    why="Values that only feed arithmetic stay on the device (.item(), x[mask].sum(), a trip to the host and back): no waiting.",
)
