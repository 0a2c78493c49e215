"""The device stands by while the host is in cudaMalloc, cudaFree or the like (mode nsys)."""

from __future__ import annotations

from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..common import Outcome, bounded
from ..idle import idle_causes

NAME = "allocator_gaps"


def check(profile: Profile, rule: Rule) -> Outcome:
    """The idle time in which the host was in an allocating call: all of it could go."""
    row = next((row for row in idle_causes(profile) if row.cause == "allocator"), None)
    share = bounded(row.call_pct) if row is not None else 0.0
    if row is None or share < rule.thresholds["idle_share_pct"]:
        return None
    site = row.site
    return Finding(
        rule=NAME, name=rule.name, where=row.where, estimated_gain_pct=share, evidence="timeline",
        detail=rule.detail.format(share=share, call=(site.call if site is not None else None) or rule.texts["calls"]),
        trigger=f"allocator_idle_share={share:.0f}%", hint=rule.hint)
