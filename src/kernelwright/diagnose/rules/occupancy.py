"""Achieved occupancy: too few resident warps to hide latency, and what keeps more away."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Profile
from ...roofline.counters import limiter
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import Launch, Symptom, check_launches, healthy, missing, room

NAME = "occupancy"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: how far it falls short of healthy x the part of the time that no pipe and no DRAM use. Silent at the roof."""
    limit = healthy(rule)
    least = limit.above or 0.0
    reasons: dict[int, tuple[str, str]] = {}

    def measure(row: Launch) -> Symptom | Abstained | None:
        achieved = row.get("occupancy_pct")
        if achieved is None:
            return missing(row, "occupancy_pct")
        if limit.holds(achieved):
            return None
        if id(row.memo) not in reasons:  # launches that inherit the same counters share it
            reasons[id(row.memo)] = _why(row, least, rule)
        case, words = reasons[id(row.memo)]
        return Symptom(achieved, (1.0 - achieved / least) * room(row), case, {"why": words})

    return check_launches(profile, rule, NAME, measure, trigger="achieved_occupancy={value:.3g}%")


def _why(row: Launch, least: float, rule: Rule) -> tuple[str, str]:
    theoretical, limits = row.get("theoretical_occupancy_pct"), limiter(row.kernel.metrics.raw)
    if theoretical is None or isinstance(limits, Abstained):
        return "", rule.texts["why_unknown"]
    if theoretical > least or not limits:
        return "few_warps", rule.texts["why_launch"].format(theoretical=theoretical)
    return limits[0].replace(" ", "_"), rule.texts["why_limit"].format(limit=" and ".join(limits), theoretical=theoretical)
