"""Schedulers that are busy with instructions other than the arithmetic that counts."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import Launch, Symptom, check_launches, missing, room

NAME = "issue_rate"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: the part of the issue slots that its busiest arithmetic pipe has no use for. Silent at the roof."""
    def measure(row: Launch) -> Symptom | Abstained | None:
        issue, pipe = row.get("issue_pct"), row.pipe_pct
        if issue is None or pipe is None:
            return missing(row, "issue_pct", "tensor_pct", "fma_pct", "alu_pct", "fp64_pct")
        if issue < rule.thresholds["issue_pct"] or room(row) == 0.0:
            return None
        return Symptom(issue, max(0.0, 1.0 - pipe / issue), words={"pipe": f"{pipe:.0f}"})

    return check_launches(profile, rule, NAME, measure, trigger="issue_slots_busy={value:.0f}%")
