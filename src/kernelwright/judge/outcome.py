"""What a verdict says of a timing: its rows and its sentence."""

from __future__ import annotations

import math

from ..model.verdict import ConditionTiming
from .timing import Timed


def timings(timed: Timed | None) -> tuple[ConditionTiming, ...]:
    """A row for each condition, warm first; none where the times are void."""
    if timed is None or timed.cheat is not None:
        return ()
    one = timed.comparison
    warm = ConditionTiming(condition="warm", reference_ns=one.reference.median_ns, candidate_ns=one.candidate.median_ns,
                           speedup=one.speedup, interval=one.interval, pairs=one.pairs, method=one.method)
    return (warm, *timed.conditions)


def words(timed: Timed) -> str:
    """One sentence on the speed-up, its interval and what could have been seen."""
    comparison, (low, high) = timed.comparison, timed.comparison.interval
    level, stopped = f"{100 * (1 - timed.alpha):.4g}%", f"; {timed.stopped}" if timed.stopped else ""
    interval = f"speed-up {comparison.speedup:.3f}x, {level} interval {low:.3f} to {high:.3f} over {comparison.pairs} pairs"
    seen = f"a difference of {comparison.smallest_detectable_effect_pct:.1f}% would have been seen"
    effect = 100 * math.expm1(abs(math.log(comparison.speedup)))
    if timed.decision == "AMBIGUOUS" and not low <= 1 <= high and effect < comparison.smallest_detectable_effect_pct:
        return (f"too noisy to tell: {interval}, which excludes 1; but the effect of {effect:.1f}% is below the smallest one that this "
                f"much noise would reliably show, {comparison.smallest_detectable_effect_pct:.1f}%{stopped}")
    if timed.decision == "AMBIGUOUS":
        return f"too noisy to tell: {interval}; {seen}, a smaller one may be there{stopped}"
    return f"{interval}; {seen}{stopped}"
