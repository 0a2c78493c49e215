"""The device stands by while DataLoader prepares the next batch."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..activity import by_line, idle_share_pct, recorded, share_of_call_pct
from ..common import Outcome, is_cpu_timeline

NAME = "data_loader_stall"


def check(profile: Profile, rule: Rule) -> Outcome:
    """At most the idle time inside DataLoader.__next__ could go; loading that hides behind device work costs nothing."""
    known = recorded(NAME, profile, gpu=False)
    if isinstance(known, Abstained):
        return known
    timeline, activity = known
    idle_ns = activity.data_loader_idle_ns
    share = share_of_call_pct(profile, idle_ns) if is_cpu_timeline(profile) else idle_share_pct(timeline, idle_ns)
    if share < rule.thresholds["idle_share_pct"]:
        return None
    lines = by_line((row.where, row.duration_ns) for row in activity.data_loader)
    return Finding(
        rule=NAME, name=rule.name, where=next(iter(lines), None), estimated_gain_pct=share, evidence="timeline", hint=rule.hint,
        detail=rule.detail.format(wait_us=activity.data_loader_wait_ns / timeline.steps / 1e3, share=share),
        trigger=f"data_loader_idle_share={share:.0f}%")
