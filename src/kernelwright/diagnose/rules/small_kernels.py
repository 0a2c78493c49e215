"""Many kernels so short that starting them costs as much as running them."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..activity import by_line
from ..common import NO_TIMELINE, Outcome, all_kernels, bounded, call_share_pct, is_cpu_timeline

NAME = "small_kernels"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Device only. Merged into one, the n short kernels of a step could save at most (n - 1)/n of their time."""
    if profile.timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    if is_cpu_timeline(profile):
        return None
    limit_us = rule.thresholds["duration_us"]
    kernels = [kernel for kernel in all_kernels(profile) if kernel.category == "kernel"]
    small = [kernel for kernel in kernels if kernel.duration_ns < 1e3 * limit_us]
    steps = profile.timeline.steps
    count, share = len(small) / steps, call_share_pct(profile, sum(kernel.duration_ns for kernel in small))
    if share is None or count < rule.thresholds["count_per_step"] or share < rule.thresholds["share_pct"]:
        return None
    ids = {kernel.kernel_id for kernel in small}
    lines = by_line((operator.source, sum(kernel.kernel_id in ids for kernel in operator.kernels)) for operator in profile.operators)
    return Finding(
        rule=NAME, name=rule.name, where=next(iter(lines), None),
        detail=rule.detail.format(count=count, total=len(kernels) / steps, limit_us=limit_us, share=share),
        estimated_gain_pct=bounded(share * (1 - 1 / count)), trigger=f"kernels_below_{limit_us:.0f}us={count:.0f}",
        evidence="timeline", hint=rule.hint)
