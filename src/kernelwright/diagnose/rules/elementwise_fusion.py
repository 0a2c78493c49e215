"""Elementwise operators that run one by one, each reading and writing everything."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..common import NO_TIMELINE, Outcome, heaviest_source, is_cpu_timeline, matching, operators_share_pct
from ..fusible import fusion_gain_pct

NAME = "elementwise_fusion"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Those of an optimizer's step are optimizer_step's subject: no compiler of the model reaches them."""
    if profile.timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    found = [operator for operator in matching(profile.operators, rule.patterns["operators"])
             if not operator.is_fused and operator.optimizer is None]
    count, share = len(found) / profile.timeline.steps, operators_share_pct(profile, found)
    if share is None or count < rule.thresholds["count_per_step"] or share < rule.thresholds["share_pct"]:
        return None
    gain = fusion_gain_pct(profile, found, rule.thresholds["call_us"])
    detail = rule.detail.format(count=count, share=share) + (rule.texts["cpu"].format(gain=gain or 0.0) if is_cpu_timeline(profile) else "")
    names = {operator.stage or operator.operator_name for operator in found}
    return Finding(
        rule=NAME, name=rule.name, detail=detail, where=heaviest_source(found),
        stage=next(iter(names)) if len(names) == 1 else None, estimated_gain_pct=gain or 0.0,
        trigger=f"elementwise_share={share:.0f}%", evidence="timeline", hint=rule.hint)
