"""Copies, casts and layout conversions on the device that take a visible share of the time."""

from __future__ import annotations

import re

from ...model.base import Abstained
from ...model.profile import Finding, Kernel, Operator, Profile
from ...roofline.knowledge import Rule
from ..common import NO_TIMELINE, Outcome, bounded, call_share_pct, heaviest_source, ns_share_pct

NAME = "heavy_copies"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Copy operators, memory copies, and conversion kernels inside other operators; at most all of them could go.

    Copies between host and device are host_device_copies' subject.
    """
    if profile.timeline is None:
        return Abstained(name=NAME, reason=NO_TIMELINE)
    by_operator, by_kernel = re.compile(rule.patterns["operators"]), re.compile(rule.patterns["kernels"])
    to_host = re.compile(rule.patterns["host_copies"])
    owners: list[Operator] = []
    copies: list[Kernel] = []
    for operator in profile.operators:
        whole = by_operator.search(operator.operator_name) is not None
        rows = [k for k in operator.kernels if (whole or k.category == "memcpy" or by_kernel.search(k.kernel_name))
                and not to_host.search(k.kernel_name)]
        if rows:
            owners.append(operator)
            copies += rows
    copies += [k for k in profile.unattributed_kernels if k.category == "memcpy" and not to_host.search(k.kernel_name)]
    overhead = profile.timeline.operator_overhead_ns
    share = call_share_pct(profile, sum(row.duration_ns for row in copies)) if overhead is None else ns_share_pct(
        profile.timeline, sum(max(0.0, row.duration_ns - overhead) for row in copies))
    if share is None or share < rule.thresholds["share_pct"]:
        return None
    names = {operator.stage or operator.operator_name for operator in owners}
    return Finding(
        rule=NAME, name=rule.name, detail=rule.detail.format(share=share, count=len(copies) / profile.timeline.steps),
        stage=next(iter(names)) if len(names) == 1 else None, where=heaviest_source(owners), estimated_gain_pct=bounded(share),
        trigger=f"copy_share={share:.0f}%", evidence="timeline", hint=rule.hint)
