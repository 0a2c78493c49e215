"""L2 hit rate: data that is read again from DRAM."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Operator, Profile
from ...roofline.counters import total
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import Launch, Symptom, check_launches, healthy, missing, room

NAME = "l2_hit"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: the part of the time that DRAM is busy x the part of its traffic beyond what the operator must move.

    An operator that moves no more than it must is healthy whatever its hit rate: a copy reads each byte once. Where the least
    traffic is not known, the part is at most 1 - hit rate / healthy, and a kernel at its roof is left alone: it may be such a copy.
    """
    limit, excesses = healthy(rule), {id(operator): _excess(operator) for operator in profile.operators}

    def measure(row: Launch) -> Symptom | Abstained | None:
        hit = row.get("l2_hit_pct")
        if hit is None:
            return missing(row, "l2_hit_pct")
        if limit.holds(hit):
            return None
        excess = excesses.get(id(row.operator))
        if excess is None:
            excess = (1.0 - hit / (limit.above or 100.0)) if room(row) > 0 else 0.0
        if excess < rule.thresholds["excess_pct"] / 100.0:
            return None
        dram = row.get("dram_pct")
        return Symptom(hit, excess * (dram / 100.0 if dram is not None else 1.0))

    return check_launches(profile, rule, NAME, measure, trigger="l2_hit={value:.0f}%")


def _excess(operator: Operator) -> float | None:
    """Part of an operator's DRAM traffic beyond its inputs and outputs touched once; None when either is not known."""
    if not operator.min_bytes:
        return None
    read, written = total("dram_read_bytes", operator.kernels), total("dram_write_bytes", operator.kernels)
    if read is None or written is None:
        return None
    return max(0.0, 1.0 - operator.min_bytes / (read + written)) if read + written > 0 else 0.0
