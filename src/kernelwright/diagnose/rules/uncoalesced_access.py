"""Global memory accesses that use little of each 32-byte sector."""

from __future__ import annotations

from ...model.base import Abstained
from ...model.profile import Profile
from ...roofline.knowledge import Rule
from ..common import Outcome
from ..counters import Launch, Symptom, check_launches, memory_wait, missing

NAME = "uncoalesced_access"
SECTOR_BYTES = 32
WIDEST_SECTORS = 16
"""Sectors that a warp needs when each of its threads takes the 16 bytes that one instruction can."""


def check(profile: Profile, rule: Rule) -> Outcome:
    """Gain: the unused part of the sectors x the time that warps wait for memory x the part of the SMs that has a block.

    Bytes used of a sector, of loads or stores, whichever is worse; where only sectors a request are known, a request of more than
    16 sectors wastes part of them at any access width, and 16 / sectors is the most that it can use.
    """
    def measure(row: Launch) -> Symptom | Abstained | None:
        used = _used_pct(row)
        if used is None:
            return missing(row, "load_bytes_per_sector")
        share, what = used
        if share >= rule.thresholds["used_pct"]:
            return None
        return Symptom(share, (1 - share / 100) * memory_wait(row) * _spread(row), words={"what": what})

    return check_launches(profile, rule, NAME, measure, trigger="sector_use={value:.0f}%")


def _used_pct(row: Launch) -> tuple[float, str] | None:
    known: list[tuple[float, str]] = []
    for what in ("load", "store"):
        used, sectors = row.get(f"{what}_bytes_per_sector"), row.get(f"sectors_per_{what}")
        if used is not None:
            known.append((100.0 * used / SECTOR_BYTES if used > 0 else 100.0, f"{what}s"))
        elif sectors is not None:
            known.append((100.0 * min(1.0, WIDEST_SECTORS / sectors) if sectors > 0 else 100.0, f"{what}s"))
    return min(known) if known else None


def _spread(row: Launch) -> float:
    """Part of the SMs that has a block at all, 0..1: a few blocks wait for latency, which wider use of sectors does not shorten."""
    blocks, sms = row.get("blocks"), row.get("sm_count")
    return min(1.0, blocks / sms) if blocks is not None and sms else 1.0
