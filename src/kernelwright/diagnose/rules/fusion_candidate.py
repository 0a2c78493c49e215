"""Kernels that follow one another the same way many times and that a compiler could make one kernel of (mode nsys)."""

from __future__ import annotations

from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..common import Outcome, bounded, call_share_pct
from ..idle import recorded_steps

NAME = "fusion_candidate"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Of the n kernels of a sequence one pass must remain: the gain is at most (n - 1)/n of their time. The heaviest sequence is told."""
    structure, timeline = profile.structure, profile.timeline
    if structure is None or timeline is None:
        return None
    rows = [row for row in structure.fusion_candidates if len(row.kernels) > 1]
    if not rows:
        return None
    best = max(rows, key=lambda row: row.duration_ns * (1 - 1 / len(row.kernels)))
    steps = recorded_steps(profile)
    count = best.count / steps
    share = call_share_pct(profile, round(best.duration_ns * timeline.steps / steps))
    if share is None or share < rule.thresholds["share_pct"] or count < rule.thresholds["count_per_step"]:
        return None
    return Finding(
        rule=NAME, name=rule.name, where=best.where, estimated_gain_pct=bounded(share * (1 - 1 / len(best.kernels))), evidence="timeline",
        detail=rule.detail.format(kernels=len(best.kernels), first=best.kernels[0][:60], count=count, share=share),
        trigger=f"sequence_share={share:.0f}%", hint=rule.hint)
