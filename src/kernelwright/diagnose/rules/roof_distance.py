"""How far one call is from the roof that binds it."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ...roofline.use import Counting, binding, shares
from ..bottleneck import binding_roof, in_cache
from ..common import Outcome, all_kernels, best_of, bounded, is_cpu_timeline, peak_origin, share_words

NAME = "roof_distance"


def check(profile: Profile, rule: Rule) -> Outcome:
    """At the roof the call would take best% of its time, so 100 - best is the most there is to gain.

    With counters on nearly all kernel time the roofs are what the launches really used of each pipe and memory level over the whole
    call's time; else the least work against the peaks. Mode nsys asks where the time between kernels goes: there the distance stands in the
    contract only where nothing was found.
    """
    if profile.recording is not None:
        return None
    counted = _by_counters(profile, rule)
    if counted is not None:
        return counted
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


def _by_counters(profile: Profile, rule: Rule) -> Finding | None:
    line, roof = profile.timeline, profile.roofline
    if line is None or roof is None or is_cpu_timeline(profile) or line.steps < 1:
        return None
    launches = [kernel for kernel in all_kernels(profile) if kernel.category == "kernel"]
    use = Counting.for_profile(profile).use(launches)
    covered = 100.0 * use.counted_ns / use.duration_ns if use.duration_ns else 0.0
    call_ns = profile.timing.median_ns * line.steps if profile.timing is not None else line.span_ns
    if covered < rule.thresholds["covered_pct"] or call_ns <= 0:
        return None
    nearest = binding(shares(use, roof, over_ns=float(call_ns)))
    if nearest is None:
        return None
    share, name = nearest
    gain = bounded(100.0 - share)
    return Finding(
        rule=NAME, name=rule.name, estimated_gain_pct=gain, evidence="counters",
        trigger=f"{name.replace(' ', '_')}_roof_share={share_words(share)}",
        detail=rule.texts["counted"].format(best=share_words(share), roof=name, origin=peak_origin(profile), covered=covered, gain=gain),
        hint=rule.texts["near"] if share >= rule.thresholds["near_pct"] else rule.hint)


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
