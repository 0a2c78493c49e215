"""Elementwise operators that run one by one, each reading and writing everything."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..common import NO_TIMELINE, Outcome, bounded, call_share_pct, heaviest_source, matching, time_of

NAME = "elementwise_fusion"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Fused, one pass over the data of the n operators of a step must remain: the gain is at most (n - 1)/n of their time."""
    if profile.timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    found = [operator for operator in matching(profile.operators, rule.patterns["operators"]) if not operator.is_fused]
    count, share = len(found) / profile.timeline.steps, call_share_pct(profile, time_of(found))
    if share is None or count < rule.thresholds["count_per_step"] or share < rule.thresholds["share_pct"]:
        return None
    names = {operator.stage or operator.operator_name for operator in found}
    return Finding(
        rule=NAME, name=rule.name, detail=rule.detail.format(count=count, share=share), where=heaviest_source(found),
        stage=next(iter(names)) if len(names) == 1 else None, estimated_gain_pct=bounded(share * (1 - 1 / count)),
        trigger=f"elementwise_share={share:.0f}%", evidence="timeline", hint=rule.hint)
