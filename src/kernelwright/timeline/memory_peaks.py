"""The highest point of allocated memory in each step, and whose allocations were alive at the highest. See docs/timeline-structure.md."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..model.structure import MOST_OWNERS, MOST_PEAKS, MemoryPeak, RegionShare
from ..model.table import Int64, MemoryEvents
from ..model.trace import Trace
from .memory import CPU
from .nesting import by_thread
from .owners import Owners
from .regions import RangePlaces

MOST_DEVICES = 64
BEFORE, NO_REGION, OTHERS = "(before)", "(no region)", "(others)"


def memory_peaks(trace: Trace, owners: Owners, places: RangePlaces) -> tuple[MemoryPeak, ...]:
    """One row a step of each device that allocated or freed in them; the CPU last. Levels as in memory.usages()."""
    events = trace.memory
    groups = sorted(by_thread(events.device_type, events.device), key=lambda group: (group[0][0] == CPU, group[0]))
    regions = _Regions(trace, owners, places)
    found: list[MemoryPeak] = []
    for (kind, device), rows in groups[:MOST_DEVICES]:
        found += _of_device(trace, rows, "cpu" if kind == CPU else f"cuda:{device}", regions)
    return tuple(found[:MOST_PEAKS])


def _of_device(trace: Trace, rows: Int64, device: str, regions: _Regions) -> list[MemoryPeak]:
    events = trace.memory
    time, change = events.time_ns[rows], events.change_bytes[rows]
    level = np.concatenate(([0], np.cumsum(change))) + int(events.total_bytes[rows[0]] - change[0])
    first = np.searchsorted(time, trace.steps.start_ns)
    last = np.searchsorted(time, trace.steps.end_ns, side="right")
    if first.min() == last.max():
        return []
    # How many events of the device were applied at the highest moment of each step; the level at its start counts.
    applied = np.array([low + int(np.argmax(level[low:high + 1])) for low, high in zip(first.tolist(), last.tolist(), strict=True)],
                       dtype=np.int64)
    highest = int(np.argmax(level[applied]))
    shown = np.unique(np.append(np.argsort(-level[applied], kind="stable")[:MOST_PEAKS], highest))
    begins = applied == first
    names = regions.of(rows[np.maximum(applied[shown] - 1, 0)])
    found = []
    for step, name in zip(shown.tolist(), names, strict=True):
        count = int(applied[step])
        found.append(MemoryPeak(
            device=device, step=step, peak_bytes=int(level[count]), is_highest=step == highest,
            at_ns=int(trace.steps.start_ns[step]) if begins[step] else int(time[count - 1]), region=BEFORE if begins[step] else name,
            owners=_owners(trace, rows[:count], int(level[count]), regions) if step == highest else ()))
    return found


def _owners(trace: Trace, rows: Int64, peak_bytes: int, regions: _Regions) -> tuple[RegionShare, ...]:
    """What was alive after these events, by the region that allocated it; adds up to peak_bytes. Older ones, and what the recording does
    not say the allocation of, are "(before)"."""
    events = trace.memory
    living = rows[alive_after(events, rows)]
    living = living[events.time_ns[living] >= int(trace.steps.start_ns.min())]
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, size in zip(regions.of(living), events.change_bytes[living].tolist(), strict=True):
        sums[name][0] += size
        sums[name][1] += 1
    shares = sorted((RegionShare(region=name, bytes=size, count=count) for name, (size, count) in sums.items()),
                    key=lambda share: (-share.bytes, share.region))
    if len(shares) > MOST_OWNERS:
        rest = shares[MOST_OWNERS:]
        shares = [*shares[:MOST_OWNERS], RegionShare(
            region=OTHERS, bytes=sum(one.bytes for one in rest), count=sum(one.count for one in rest))]
    before = peak_bytes - sum(share.bytes for share in shares)
    return (*shares, *((RegionShare(region=BEFORE, bytes=before, count=0),) if before else ()))


def alive_after(events: MemoryEvents, rows: Int64) -> Int64:
    """Indices into rows (in time order) of the allocations that no later one of these events freed or replaced at their address."""
    if not rows.size:
        return rows
    order = np.lexsort((np.arange(rows.size), events.address[rows]))
    address = events.address[rows][order]
    is_last = np.concatenate((address[1:] != address[:-1], [True]))
    last = order[is_last]
    return np.sort(last[events.change_bytes[rows[last]] > 0]).astype(np.int64)


class _Regions:
    """Names of the places where memory was allocated."""

    def __init__(self, trace: Trace, owners: Owners, places: RangePlaces) -> None:
        self.trace, self.owners, self.places = trace, owners, places

    def of(self, rows: Int64) -> list[str]:
        """Ranges, then the innermost operator, " > " between them, of these rows of trace.memory."""
        events = self.trace.memory
        where = (events.process[rows], events.thread[rows], events.time_ns[rows])
        operators = self.owners.nesting.innermost(*where)
        return [" > ".join((*self.places.path(node), *((self.trace.operators.name(row),) if row >= 0 else ()))) or NO_REGION
                for node, row in zip(self.places.of(*where).tolist(), operators.tolist(), strict=True)]
