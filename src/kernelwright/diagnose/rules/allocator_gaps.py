"""The device stands by while the host is in cudaMalloc, cudaFree or the like (mode nsys)."""

from __future__ import annotations

from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..activity import idle_share_pct
from ..common import Outcome

NAME = "allocator_gaps"


def check(profile: Profile, rule: Rule) -> Outcome:
    """The idle time in which the host was in an allocating call: all of it could go."""
    flow, timeline = profile.flow, profile.timeline
    if flow is None or timeline is None:
        return None
    idle_ns = sum(row.idle_ns for device in flow.devices for row in device.causes if row.cause == "allocator")
    share = idle_share_pct(timeline, idle_ns)
    if share < rule.thresholds["idle_share_pct"]:
        return None
    site = next((site for site in flow.sites if site.cause == "allocator"), None)
    return Finding(
        rule=NAME, name=rule.name, where=site.where if site is not None else None, estimated_gain_pct=share, evidence="timeline",
        detail=rule.detail.format(share=share, call=(site.call if site is not None else None) or rule.texts["calls"]),
        trigger=f"allocator_idle_share={share:.0f}%", hint=rule.hint)
