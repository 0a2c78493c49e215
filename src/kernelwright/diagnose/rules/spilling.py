"""Local memory traffic: registers that did not suffice."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import Launch, Symptom, check_launches, healthy, known_of, memory_wait, missing

NAME = "spilling"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: the local share of the bytes that go through L1 (or past it to L2) x the time that warps wait for memory."""
    limit = healthy(rule)

    def measure(row: Launch) -> Symptom | Abstained | None:
        local = row.get("local_bytes")
        if local is None:
            return missing(row, "local_bytes")
        if limit.holds(local):
            return None
        through = max([local, *known_of(row, ("l1_bytes", "l2_bytes"))])
        words = {"megabytes": f"{local / 1e6:.3g}", "registers": f"{row.get('registers') or 0:.0f}"}
        return Symptom(local, local / through * memory_wait(row), words=words)

    return check_launches(profile, rule, NAME, measure, trigger="local_spilling={value:.3g} B")
