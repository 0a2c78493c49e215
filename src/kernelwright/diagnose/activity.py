"""What the rules on waits, copies, streams, data loading and compilation share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..model.activity import Activity
from ..model.base import Abstained
from ..model.profile import Profile, TimelineSummary
from ..roofline.knowledge import Rule
from .common import NO_TIMELINE, bounded, call_share_pct, is_cpu_timeline

NO_ACTIVITY = "this document is from before waits and copies were recorded; profile again"
NO_GPU = "no GPU in this capture"
MOST_PLACES = 3


def recorded(name: str, profile: Profile, *, gpu: bool = True) -> tuple[TimelineSummary, Activity] | Abstained:
    """The timeline and its activity, or why the rule can't be decided. gpu: the rule needs device work."""
    timeline = profile.timeline
    if timeline is None:
        return Abstained(name=name, reason=NO_TIMELINE)
    if gpu and is_cpu_timeline(profile):
        return Abstained(name=name, reason=NO_GPU)
    if timeline.activity is None:
        return Abstained(name=name, reason=NO_ACTIVITY)
    return timeline, timeline.activity


def idle_share_pct(timeline: TimelineSummary, idle_ns: int) -> float:
    """Share of a call that some idle device time of the steps is, with the profiler's overhead taken out as in idle_share_pct."""
    if timeline.span_ns <= 0:
        return 0.0
    share = 100.0 * idle_ns / timeline.span_ns
    if timeline.profiled_idle_share_pct and timeline.idle_share_pct is not None:
        share *= timeline.idle_share_pct / timeline.profiled_idle_share_pct
    return bounded(share)


def share_of_call_pct(profile: Profile, duration_ns: int) -> float:
    """Share of the whole call, 0 where the whole is not known."""
    return call_share_pct(profile, duration_ns) or 0.0


def kind_of(rule: Rule, text: str, default: str) -> str:
    """The first of the rule's patterns that matches."""
    return next((kind for kind, pattern in rule.patterns.items() if re.search(pattern, text)), default)


def by_line(rows: Iterable[tuple[str | None, int]]) -> Mapping[str, int]:
    """Known lines -> their sum, the largest first."""
    sums: dict[str, int] = {}
    for where, amount in rows:
        if where is not None:
            sums[where] = sums.get(where, 0) + amount
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
