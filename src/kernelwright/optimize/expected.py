"""What a candidate is expected to gain, and what a second of looking at it buys. Pure.

A call is the time in which the device works and the time in which it waits. Passes that fuse, fold or compute otherwise shorten the work,
each by the geometric middle of what it predicts, or by what a trial of it has shown; a CUDA graph takes most of the waiting, and adds the
copies of inputs and outputs. So a pass that makes the work much shorter is expected to pay most where the launches go too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from .passes import CATALOGUE, Context
from .passes.base import Pass, Prediction
from .passes.conditions import copies_share, fusion_words, idle_share, recurrent

UNKNOWN_GAIN = 1.01
"""Of a pass whose gain the profile gives no number for."""
WAITING_LEFT = 0.3
"""Part of the device's waiting that a CUDA graph was seen to leave (H200, convolution blocks: 0.2 to 0.5 of it)."""
LEAST_SHARE = 0.02
"""Of a call's work, at least so much is left whatever is predicted."""
T = TypeVar("T")
Factor = Callable[[str], "float | None"]
"""Pass -> by what factor a trial has shown it to shorten the call; None: not known."""


def middle(prediction: Prediction) -> float | None:
    """Geometric middle of the gain that is predicted; None without a number."""
    gain = prediction.gain
    return math.sqrt(gain[0] * gain[1]) if gain is not None and gain[0] > 0 and gain[1] > 0 else None


def modelled(context: Context, names: Iterable[str], shown: Factor) -> float:
    """Speed-up over the original that these passes together are expected to have."""
    passes = [CATALOGUE[name] for name in names]
    idle = min(max(_once(context, idle_share) or 0.0, 0.0), 1.0 - LEAST_SHARE) if context.on_gpu else 0.0
    work, waiting = 1.0 - idle, idle
    said: set[str] = set()
    for item in passes:
        prediction = _said(context, item)
        if (item.one_launch and not item.carrier) or prediction.words in said:
            continue  # the graph counts below; the same time can't go twice
        said.add(prediction.words)
        known, expected = shown(item.name), middle(prediction)
        if known is None and any(move.quantity == "idle share" for move in prediction.moves):
            waiting = max(0.0, waiting - (1.0 - 1.0 / (expected or 1.0)))
            continue
        work /= known if known is not None else expected or UNKNOWN_GAIN
    if any(item.one_launch and not (item.carrier and _once(context, recurrent)) for item in passes):
        waiting = WAITING_LEFT * waiting + _once(context, copies_share)
    return 1.0 / max(LEAST_SHARE, work + waiting)


def _said(context: Context, item: Pass) -> Prediction:
    """What a pass predicts; a compile mode with CUDA graphs of its own what its fusion does, since the graph counts beside it."""
    made = context.known.get(item.name)
    if not isinstance(made, Prediction):
        made = context.known[item.name] = fusion_words(context) if item.one_launch and item.carrier else item.predict(context)
    return made


def _once(context: Context, what: Callable[[Context], T]) -> T:
    """what(context), worked out once."""
    if what.__name__ not in context.known:
        context.known[what.__name__] = what(context)
    found: T = context.known[what.__name__]
    return found


def shown_by(evidence: Mapping[tuple[str, bool], float], graphed: bool) -> Factor:
    """What trials have shown of a pass, for a candidate with a CUDA graph or without one. A loss without a graph says nothing of the pass
    in one: it may be the launches'."""

    def factor(name: str) -> float | None:
        own = evidence.get((name, graphed))
        if own is None and graphed:
            other = evidence.get((name, False))
            return other if other is not None and other > 1.0 else None
        return own

    return factor


def is_graphed(names: Iterable[str]) -> bool:
    """Whether the host launches once: a CUDA graph of one's own or the compiler's."""
    return any(CATALOGUE[name].one_launch for name in names)


__all__ = ["UNKNOWN_GAIN", "is_graphed", "middle", "modelled", "shown_by"]
