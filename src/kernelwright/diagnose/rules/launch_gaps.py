"""The device waits because the host has not launched the next work yet."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..activity import by_line, idle_share_pct
from ..common import NO_TIMELINE, Outcome, bounded, is_cpu_timeline

NAME = "launch_gaps"


def check(profile: Profile, rule: Rule) -> Outcome:
    """The part of the idle time in which the device had nothing to do and the next launch call had not returned: all of it could go.

    What passed in data loading or compilation has rules of its own. The line is the one with the most launches.
    """
    timeline = profile.timeline
    if timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    if is_cpu_timeline(profile) or timeline.cpu_bound_share_pct is None:
        return None
    explained = timeline.activity.explained_late_ns if timeline.activity is not None else 0
    share = bounded(timeline.cpu_bound_share_pct - idle_share_pct(timeline, explained))
    if share < rule.thresholds["share_pct"]:
        return None
    lines = by_line((operator.source, len(operator.kernels)) for operator in profile.operators)
    return Finding(
        rule=NAME, name=rule.name, detail=rule.detail.format(share=share, launches=timeline.launches, steps=timeline.steps),
        where=next(iter(lines), None), estimated_gain_pct=share, trigger=f"cpu_bound_share={share:.0f}%", evidence="timeline",
        hint=rule.hint)
