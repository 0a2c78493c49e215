"""float64 arithmetic in an operator that works on narrower numbers."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import Launch, Symptom, check_launches, missing

NAME = "fp64_promotion"
NARROW = ("float32", "float16", "bfloat16")


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: the time that the FP64 pipe is busy. Only where the operator's own dtype is known and narrower."""
    def measure(row: Launch) -> Symptom | Abstained | None:
        busy = row.get("fp64_pct")
        if busy is None:
            return missing(row, "fp64_pct")
        if row.operator is None or row.operator.dtype not in NARROW or busy < rule.thresholds["fp64_pct"]:
            return None
        return Symptom(busy, busy / 100, words={"dtype": row.operator.dtype})

    return check_launches(profile, rule, NAME, measure, trigger="fp64_pipe={value:.0f}%")
