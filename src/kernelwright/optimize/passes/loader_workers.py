"""Worker processes for a DataLoader that the model iterates over in its call."""

from __future__ import annotations

from ...diagnose.activity import idle_share_pct, share_of_call_pct
from .base import LAYER_FOLD, Context, Pass, Prediction
from .conditions import first, needs_module
from .shares import activity_of, at_most, less_waiting, worth

MOST_WORKERS = 4
"""As many as the rewrite starts at most: one a core, where there are fewer."""


def _loading_pct(context: Context) -> float | None:
    """Share of a call that waits for DataLoader.__next__ with nothing else to do."""
    activity, timeline = activity_of(context), context.seen.timeline
    if activity is None or timeline is None:
        return None
    idle_ns = activity.data_loader_idle_ns
    return idle_share_pct(timeline, idle_ns) if context.on_gpu else share_of_call_pct(context.seen, idle_ns)


def _refuse(context: Context) -> str | None:
    activity = activity_of(context)
    none = None if activity is not None and activity.data_loader_wait_ns else "the profile shows no DataLoader inside a call"
    return first(needs_module(context), none, worth(_loading_pct(context), "waits for a DataLoader"))


def _predict(context: Context) -> Prediction:
    """A call takes as long as what does not wait, or as its loading shared among the workers, whichever is more."""
    waiting_pct = _loading_pct(context)
    said = at_most(waiting_pct, "waits for a DataLoader")
    if waiting_pct is None or said.gain is None:
        return said
    most = 100.0 / max(100.0 - waiting_pct, waiting_pct / MOST_WORKERS)
    return Prediction(f"{said.words}, shared among {MOST_WORKERS} workers at most", (1.0, most), less_waiting(context, waiting_pct))


PASS = Pass(
    name="loader_workers", layer=LAYER_FOLD, dimension="host",
    training=False, refuse=_refuse, predict=_predict,
    why="The model's own DataLoader prepares batches in worker processes that stay, from the same sampler, pinned where there is a GPU.",
)
