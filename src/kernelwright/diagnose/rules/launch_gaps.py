"""The device waits because the host has not launched the next work yet."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile, TimelineSummary
from ...roofline.knowledge import Rule
from ..activity import by_line, idle_share_pct
from ..common import NO_TIMELINE, Outcome, bounded, is_cpu_timeline
from ..idle import idle_causes, of_what, recorded_steps

NAME = "launch_gaps"


def check(profile: Profile, rule: Rule) -> Outcome:
    """The part of the idle time in which the device had nothing to do and the next launch call had not returned: all of it could go.

    What passed in data loading or compilation has rules of its own. The line is the one with the most launches. Mode nsys knows the causes
    of idle time one by one: there it is the time in which nothing but a launch call was missing, and the line is that of the next launch.
    """
    timeline = profile.timeline
    if timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    if is_cpu_timeline(profile) or timeline.cpu_bound_share_pct is None:
        return None
    if profile.flow is not None:
        late = next((row for row in idle_causes(profile) if row.cause == "host_bound"), None)
        share, where = (bounded(late.call_pct), late.where) if late is not None else (0.0, None)
        return _finding(profile, rule, share, where, trigger=f"late_launch_share={share:.0f}%")
    share = _late_pct(timeline)
    return _finding(profile, rule, share, None, trigger=f"cpu_bound_share={share:.0f}%")


def _finding(profile: Profile, rule: Rule, share: float, where: str | None, *, trigger: str) -> Finding | None:
    if share < rule.thresholds["share_pct"]:
        return None
    lines = by_line((operator.source, len(operator.kernels)) for operator in profile.operators)
    return Finding(
        rule=NAME, name=rule.name,
        detail=rule.detail.format(share=share, of=of_what(profile), launches=_launches(profile), steps=recorded_steps(profile)),
        where=where or next(iter(lines), None), estimated_gain_pct=share, trigger=trigger, evidence="timeline", hint=rule.hint)


def _launches(profile: Profile) -> int:
    whole = profile.flow.launches if profile.flow is not None else None
    return whole.order.launches if whole is not None else profile.timeline.launches if profile.timeline is not None else 0


def _late_pct(timeline: TimelineSummary) -> float:
    explained = timeline.activity.explained_late_ns if timeline.activity is not None else 0
    return bounded((timeline.cpu_bound_share_pct or 0.0) - idle_share_pct(timeline, explained))
