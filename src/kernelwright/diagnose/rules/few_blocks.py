"""Kernels with fewer thread blocks than the device has multiprocessors: most of the device stands by."""

from __future__ import annotations

from math import prod

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..activity import by_line, recorded, share_of_call_pct
from ..common import Outcome, all_kernels, bounded

NAME = "few_blocks"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Spread over all n multiprocessors, a kernel of b < n blocks could take b/n of its time at best.

    Kernels shorter than duration_us are bound by their launch, which other rules are about.
    """
    known = recorded(NAME, profile)
    if isinstance(known, Abstained):
        return known
    timeline, activity = known
    if activity.sm_count is None:
        return Abstained(name=NAME, reason="the trace does not say how many multiprocessors the device has")
    sized = [kernel for kernel in all_kernels(profile) if kernel.category == "kernel" and kernel.grid is not None]
    if not sized:
        return Abstained(name=NAME, reason="the trace holds no grid sizes")
    few = {kernel.kernel_id: prod(kernel.grid) for kernel in sized if kernel.grid is not None and prod(kernel.grid) < activity.sm_count
           and kernel.duration_ns >= 1e3 * rule.thresholds["duration_us"]}
    chosen = [kernel for kernel in sized if kernel.kernel_id in few]
    lost = sum(kernel.duration_ns * (1 - few[kernel.kernel_id] / activity.sm_count) for kernel in chosen)
    share, gain = share_of_call_pct(profile, sum(kernel.duration_ns for kernel in chosen)), share_of_call_pct(profile, round(lost))
    if gain < rule.thresholds["gain_pct"]:
        return None
    weight = sum(kernel.duration_ns for kernel in chosen)
    blocks = sum(kernel.duration_ns * few[kernel.kernel_id] for kernel in chosen) / weight
    rows = [(operator, kernel) for operator in profile.operators for kernel in operator.kernels if kernel.kernel_id in few]
    lines = by_line((operator.source, kernel.duration_ns) for operator, kernel in rows)
    stages = {operator.stage or operator.operator_name for operator, _ in rows}
    return Finding(
        rule=NAME, name=rule.name, where=next(iter(lines), None), stage=next(iter(stages)) if len(stages) == 1 else None,
        detail=rule.detail.format(share=share, count=len(chosen) / timeline.steps, blocks=blocks, sms=activity.sm_count,
                                  waves=blocks / activity.sm_count),
        estimated_gain_pct=bounded(gain), trigger=f"below_one_wave_share={share:.0f}%", evidence="timeline", hint=rule.hint)
