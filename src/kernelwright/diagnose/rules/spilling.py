"""Local memory traffic: registers that did not suffice."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import Launch, Symptom, check_launches, healthy, known_of, memory_wait, missing

NAME = "spilling"


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: the local share of all bytes that the kernel moves x the time that warps wait for memory.

    All bytes: those of the level that moves most, since asynchronous copies go past L1.
    """
    limit = healthy(rule)

    def measure(row: Launch) -> Symptom | Abstained | None:
        local = row.get("local_bytes")
        if local is None:
            return missing(row, "local_bytes")
        if limit.holds(local):
            return None
        through = max([local, *known_of(row, ("l1_bytes", "l2_bytes", "dram_read_bytes"))])
        words = {"megabytes": f"{local / 1e6:.3g}", "registers": f"{row.get('registers') or 0:.0f}"}
        return Symptom(local, local / through * memory_wait(row), words=words)

    return check_launches(profile, rule, NAME, measure, trigger="local_spilling={value:.3g} B")
