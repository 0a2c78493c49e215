"""Copies between host and device: how much, from what kind of memory, how fast."""

from __future__ import annotations

import re

from ...model.activity import Activity, HostCopy
from ...model.amounts import si
from ...model.base import Abstained
from ...model.profile import Finding, Profile, TimelineSummary
from ...roofline.knowledge import Rule
from ..activity import by_line, recorded, share_of_call_pct
from ..common import Outcome, bounded

NAME = "host_device_copies"


def check(profile: Profile, rule: Rule) -> Outcome:
    """At most the copies' time could go that no other device work hides: data that stays on the device needs none."""
    known = recorded(NAME, profile)
    if isinstance(known, Abstained):
        return known
    timeline, activity = known
    share = _exposed_share_pct(profile, timeline, activity)
    if not activity.host_copies or share < rule.thresholds["share_pct"]:
        return None
    # Rows are in order of their time, so the first is of the kind that the hint is about.
    kind = activity.host_copies[0]
    parts = [_part(rows, rule, timeline.steps) for rows in _by_kind(activity.host_copies)]
    lines = by_line((row.where, row.duration_ns) for row in activity.host_copies)
    stages = {operator.stage or operator.operator_name for operator in profile.operators
              if any(re.search(rule.patterns["kernels"], kernel.kernel_name) for kernel in operator.kernels)}
    return Finding(
        rule=NAME, name=rule.name, stage=next(iter(stages)) if len(stages) == 1 else None, where=next(iter(lines), None),
        detail=rule.detail.format(share=share, parts="; ".join(parts)),
        estimated_gain_pct=bounded(share), trigger=f"host_copy_share={share:.0f}%", evidence="timeline",
        hint=rule.texts[f"{kind.direction}_{kind.memory or 'unknown'}"])


def _exposed_share_pct(profile: Profile, timeline: TimelineSummary, activity: Activity) -> float:
    """Share of the time in which copies run and nothing else does.

    The host stages pageable memory itself and is slower under the profiler, so such copies are held against the profiled steps.
    """
    total = sum(row.duration_ns for row in activity.host_copies)
    if total == 0 or timeline.span_ns <= 0:
        return 0.0
    pageable = sum(row.duration_ns for row in activity.host_copies if row.memory == "pageable")
    share = share_of_call_pct(profile, total - pageable) + 100.0 * pageable / timeline.span_ns
    return bounded(share * min(activity.host_copy_exposed_ns / total, 1.0))


def _by_kind(rows: tuple[HostCopy, ...]) -> list[list[HostCopy]]:
    kinds: dict[tuple[str, str | None], list[HostCopy]] = {}
    for row in rows:
        kinds.setdefault((row.direction, row.memory), []).append(row)
    return list(kinds.values())


def _part(rows: list[HostCopy], rule: Rule, steps: int) -> str:
    """Copies of one direction and memory, in words; a size that the trace lacks is n/a."""
    duration, known = sum(row.duration_ns for row in rows), [row.bytes for row in rows if row.bytes is not None]
    size = sum(known) if len(known) == len(rows) else None
    first, count = rows[0], sum(row.count for row in rows) / steps
    return rule.texts["part"].format(
        direction=rule.texts[first.direction], memory=first.memory or rule.texts["unknown_memory"],
        size=si(None if size is None else size / steps, "B"), copies=f"{count:.3g} {'copy' if count == 1 else 'copies'}",
        bandwidth="n/a" if size is None or duration == 0 else f"{size / duration:.3g} GB/s")
