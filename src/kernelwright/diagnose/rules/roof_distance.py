"""How far one call is from the roof that binds it."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..bottleneck import binding_roof, in_cache
from ..common import Outcome, best_of, bounded, peak_origin, share_words

NAME = "roof_distance"


def check(profile: Profile, rule: Rule) -> Outcome:
    """At the roof the call would take best% of its time, so 100 - best is the most there is to gain."""
    work = profile.work
    best = binding_roof(work.compute_pct, work.bandwidth_pct) if work is not None else None
    if best is None:
        return Abstained(name=NAME, reason=rule.texts["unknown"].format(reason=_unknown(profile, rule)))
    share, roof = best
    gain = bounded(100.0 - share)
    near = share >= rule.thresholds["near_pct"]
    return Finding(
        rule=NAME, name=rule.name, detail=rule.detail.format(best=share_words(share), roof=roof, origin=peak_origin(profile), gain=gain),
        estimated_gain_pct=gain, trigger=f"{roof}_roof_share={share_words(share)}", evidence="analytic",
        hint=rule.texts["near"] if near else rule.hint)


def _unknown(profile: Profile, rule: Rule) -> str:
    work, roof = profile.work, profile.roofline
    if profile.timing is None:
        return rule.texts["no_time"]
    if work is None or (work.flops is None and work.min_bytes is None):
        return rule.texts["no_work"]
    alone = best_of(work.compute_pct, None if in_cache(work.bandwidth_pct) else work.bandwidth_pct)
    if alone is not None:
        other = "memory" if alone[1] == "compute" else "compute"
        return rule.texts["one_roof"].format(roof=alone[1], share=share_words(alone[0]), other=other)
    if in_cache(work.bandwidth_pct):
        return rule.texts["in_cache"]
    has_peaks = roof is not None and any((roof.peak_compute, roof.peak_bandwidth, roof.datasheet_compute, roof.datasheet_bandwidth))
    return rule.texts["no_work" if has_peaks else "no_peaks"]
