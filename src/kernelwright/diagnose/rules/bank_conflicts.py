"""Shared memory accesses that hit the same bank and are done one after another."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import Launch, Symptom, check_launches, missing

NAME = "bank_conflicts"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: the part of the time that shared memory is busy x the part of its passes that conflicts cost."""
    def measure(row: Launch) -> Symptom | Abstained | None:
        conflicts, busy = row.get("bank_conflict_pct"), row.get("shared_pipe_pct")
        if conflicts is None or busy is None:
            return missing(row, "bank_conflict_pct", "shared_pipe_pct")
        if conflicts < rule.thresholds["conflict_pct"]:
            return None
        return Symptom(conflicts, conflicts / 100 * min(busy, 100.0) / 100, words={"busy": f"{busy:.0f}"})

    return check_launches(profile, rule, NAME, measure, trigger="bank_conflicts={value:.0f}%")
