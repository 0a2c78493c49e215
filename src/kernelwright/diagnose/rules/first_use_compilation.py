"""Compilation or module loading inside the profiled steps, which a warm step would not have."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Finding, Profile
from ...roofline.knowledge import Rule
from ..activity import by_line, recorded
from ..common import Outcome, bounded

NAME = "first_use_compilation"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Share of the steps' wall time; all of it could go, by warming up or by compiling once."""
    known = recorded(NAME, profile, gpu=False)
    if isinstance(known, Abstained):
        return known
    timeline, activity = known
    wall = sum(timeline.step_wall_ns)
    share = bounded(100.0 * activity.compile_ns / wall) if wall > 0 else 0.0
    if share < rule.thresholds["share_pct"]:
        return None
    lines = by_line((row.where, row.duration_ns) for row in activity.compilation)
    largest = activity.compilation[0].name
    return Finding(
        rule=NAME, name=rule.name, where=next(iter(lines), None), estimated_gain_pct=share, evidence="timeline",
        detail=rule.detail.format(what=largest, duration_us=activity.compile_ns / timeline.steps / 1e3, share=share),
        trigger=f"compile_share={share:.0f}%", hint=rule.texts.get(largest, rule.hint))
