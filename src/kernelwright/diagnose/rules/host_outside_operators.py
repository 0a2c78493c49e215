"""CPU: step time outside PyTorch's operators."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..common import NO_TIMELINE, Outcome, bounded, is_cpu_timeline

NAME = "host_outside_operators"


def check(profile: Profile, rule: Rule) -> Outcome:
    """On the GPU this time shows as launch gaps instead."""
    timeline = profile.timeline
    if timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    share = timeline.idle_share_pct
    if not is_cpu_timeline(profile) or share is None or share < rule.thresholds["share_pct"]:
        return None
    return Finding(
        rule=NAME, name=rule.name, detail=rule.detail.format(share=share), estimated_gain_pct=bounded(share),
        trigger=f"outside_share={share:.0f}%", evidence="timeline", hint=rule.hint)
