"""The heaviest stage, when it is far below its own roof."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ...roofline.stages import is_real
from ..common import NO_TIMELINE, Outcome, bounded, share_words, stage_roof, stage_share_pct

NAME = "stage_far_from_roof"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Amdahl: share of the call x (1 - fraction of the binding roof: by counters among pipes, DRAM, L2 and L1, else analytic)."""
    if profile.timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    stage = next((stage for stage in profile.stages if is_real(stage)), None)
    if stage is None:
        return Abstained(name=NAME, reason="no stage has attributed time")
    best = stage_roof(stage)
    share = stage_share_pct(profile, stage)
    if best is None or share is None:
        return Abstained(name=NAME, reason=f"neither FLOPs nor bytes of the heaviest stage, {stage.name}, are known")
    if best[0] >= rule.thresholds["best_pct"] or share < rule.thresholds["share_pct"]:
        return None
    return Finding(
        rule=NAME, name=rule.name.format(stage=stage.name), stage=stage.name, where=stage.source,
        detail=rule.detail.format(stage=stage.name, share=share, best=share_words(best[0]), roof=best[1]),
        estimated_gain_pct=bounded(share * (1 - best[0] / 100)), evidence=stage.roof_evidence or "analytic", hint=rule.hint,
        trigger=f"stage_{best[1].replace(' ', '_')}_roof_share={share_words(best[0])}", ncu_estimate_pct=stage.ncu_estimate_pct)
