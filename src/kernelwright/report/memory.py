"""The memory section of report.md and memory_timeline.csv."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from ..model.profile import MemoryUse, Profile
from .numbers import amount, pct, si, us
from .text import NA, Safe, cell

MOST_OWNERS = 6
CSV_FILE = "memory_timeline.csv"


@dataclass(frozen=True)
class Alive:
    """One row of what was alive at a peak, already written."""

    size: str
    share: str
    count: str
    operator: Safe
    module: Safe
    source: Safe


@dataclass(frozen=True)
class MemoryView:
    """One device: its figures, and what was alive at the peak."""

    use: MemoryUse
    when: str
    alive: list[Alive]


def memory_views(profile: Profile) -> list[MemoryView]:
    """One a device, as in the profile. What was alive is listed for the device that the profile is of."""
    kind = profile.capture_metadata.device
    return [MemoryView(use, f"step {use.peak_step}, {us(use.peak_ns)} us after the first step's start",
                       _alive(use) if use.device.startswith(kind) and use.peak_bytes > 0 else []) for use in profile.memory]


def memory_csv(profile: Profile) -> str:
    """The curves of profile.memory: device, time_ns (from the start of the first step), allocated_bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("device", "time_ns", "allocated_bytes"))
    writer.writerows((use.device, time, level) for use in profile.memory for time, level in use.timeline)
    return text.getvalue()


def _alive(use: MemoryUse) -> list[Alive]:
    none = Safe("")
    rows = []
    if use.before_bytes:
        rows.append((use.before_bytes, NA, Safe("(allocated before the first step)"), none, none))
    rows += [(owner.bytes, amount(owner.count), cell(owner.operator or "(outside any operator)", 60), cell(owner.module or NA, 60),
              cell(owner.source or NA, 60)) for owner in use.owners[:MOST_OWNERS]]
    rest = use.owners[MOST_OWNERS:]
    if rest or use.left_count:
        rows.append((use.left_bytes + sum(owner.bytes for owner in rest), amount(use.left_count + sum(owner.count for owner in rest)),
                     Safe("(all others)"), none, none))
    return [Alive(si(size, "B"), pct(100 * size / use.peak_bytes), count, operator, module, source)
            for size, count, operator, module, source in rows]
