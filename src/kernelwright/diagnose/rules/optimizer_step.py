"""An optimizer that updates its parameters one by one, in several small operators each."""

from __future__ import annotations

import re

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..common import NO_TIMELINE, Outcome, heaviest_source, operators_share_pct
from ..fusible import fusion_gain_pct

NAME = "optimizer_step"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Operators inside torch's own ranges of an optimizer (Optimizer.step#NAME.step) that are neither foreach nor fused."""
    if profile.timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    together = re.compile(rule.patterns["together"])
    found = [operator for operator in profile.operators if operator.optimizer is not None and not operator.is_fused
             and not any(together.search(name) for name in (operator.operator_name, *operator.parents))]
    working = [operator for operator in found if re.search(rule.patterns["operators"], operator.operator_name)]
    count, share = len(working) / profile.timeline.steps, operators_share_pct(profile, found)
    if share is None or count < rule.thresholds["count_per_step"] or share < rule.thresholds["share_pct"]:
        return None
    gain = fusion_gain_pct(profile, found, rule.thresholds["call_us"])
    return Finding(
        rule=NAME, name=rule.name, where=heaviest_source(found), estimated_gain_pct=gain or 0.0, evidence="timeline", hint=rule.hint,
        detail=rule.detail.format(optimizer=found[0].optimizer, count=count, share=share), trigger=f"optimizer_share={share:.0f}%")
