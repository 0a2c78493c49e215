"""The device idles because the host launches too slowly."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..common import NO_TIMELINE, Outcome, bounded, is_cpu_timeline

NAME = "launch_gaps"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Time in which the device had nothing to do and the next launch call had not returned: all of it could go."""
    timeline = profile.timeline
    if timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    if is_cpu_timeline(profile) or timeline.cpu_bound_share_pct is None:
        return None
    share = timeline.cpu_bound_share_pct
    if share < rule.thresholds["share_pct"]:
        return None
    return Finding(
        rule=NAME, name=rule.name, detail=rule.detail.format(share=share, launches=timeline.launches, steps=timeline.steps),
        estimated_gain_pct=bounded(share), trigger=f"cpu_bound_share={share:.0f}%", evidence="timeline", hint=rule.hint)
