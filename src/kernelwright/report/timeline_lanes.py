"""Lanes of the timeline page: which events stand in which row, and what is merged where there are too many. Pure, vectorised.

Within a row no two events overlap, so a page can look up the events of a pixel by binary search. Where a recording has more events than
a page should hold, the shortest ones of a row are merged into blocks that carry their number and their summed time: nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..model.table import Int64
from ..timeline.intervals import nesting_order, parents

MOST_EVENTS = 600_000
"""Events and blocks of one page, about 8 bytes each after compression."""
MOST_ROWS = 24
"""Rows of one lane; what is nested deeper is counted and left out."""


@dataclass(frozen=True)
class Lane:
    """Events of one stream or thread, before they are set in rows. Arrays have shape (n,)."""

    group: str
    label: str
    kind: str
    """"device", "runtime", "operators", "ranges", "steps", "gaps" or "overheads"."""
    recording: int
    start_ns: Int64
    end_ns: Int64
    kind_id: Int64
    """Which of the page's kinds of events."""
    table_row: Int64
    """Row of the table that the events come from."""


@dataclass(frozen=True)
class Placed:
    """A lane's rows. Arrays have shape (m,), row by row, each row in time order without overlaps."""

    lane: Lane
    rows: tuple[int, ...]
    """Entries of each row."""
    start_ns: Int64
    end_ns: Int64
    kind_id: Int64
    """-1: a block of events of several kinds."""
    count: Int64
    """1: an event. More: a block of so many."""
    busy_ns: Int64
    """Time covered within the entry."""
    event: Int64
    """Index of the (first) event in the lane."""
    deeper: int
    """Events nested too deep to be shown."""


def depths(starts: Int64, ends: Int64) -> Int64:
    """How many intervals are around each one. Input in nesting order; about log2 of the deepest nesting rounds.

    Intervals of equal depth never overlap, also where intervals overlap in part: the innermost open one is the parent.
    """
    jump = parents(starts, ends)
    depth = (jump >= 0).astype(np.int64)
    open_rows = np.flatnonzero(jump >= 0)
    while open_rows.size:
        # All jumps of a round are read before any is written.
        further = jump[jump[open_rows]]
        depth[open_rows] += depth[jump[open_rows]]
        jump[open_rows] = further
        open_rows = open_rows[further >= 0]
    return depth


@dataclass(frozen=True)
class _Set:
    """A lane's events in rows, nothing merged yet."""

    lane: Lane
    order: Int64
    """Events by row, then by time; shape (n - deeper,)."""
    depth: Int64
    """In that order."""
    deeper: int


def place(lanes: Sequence[Lane], most: int = MOST_EVENTS) -> tuple[list[Placed], int]:
    """(every lane in rows, the duration in ns up to which events were merged or -1). At most about `most` entries.

    Half of the room is the device's, half the host's; what one does not need is the other's.
    """
    sets = [_in_rows(lane) for lane in lanes]
    low = min((int(lane.start_ns.min()) for lane in lanes if lane.start_ns.size), default=0)
    high = max((int(lane.end_ns.max()) for lane in lanes if lane.end_ns.size), default=0)
    device = [one for one in sets if one.lane.kind == "device"]
    host = [one for one in sets if one.lane.kind != "device"]
    needs = [sum(one.order.size for one in part) for part in (device, host)]
    rooms = [max(most // 2, most - need) for need in reversed(needs)]
    merged = -1
    placed: dict[int, Placed] = {}
    for part, need, room in zip((device, host), needs, rooms, strict=True):
        cutoff, width = _level(part, room, high - low) if need > room else (-1, 1)
        merged = max(merged, cutoff)
        placed.update((id(one), _merged(one, cutoff, low, width)) for one in part)
    return [placed[id(one)] for one in sets], merged


def _in_rows(lane: Lane) -> _Set:
    order = nesting_order(lane.start_ns, lane.end_ns)
    depth = depths(lane.start_ns[order], lane.end_ns[order])
    kept = depth < MOST_ROWS
    deeper = int(np.count_nonzero(~kept))
    order, depth = order[kept], depth[kept]
    by_row = np.argsort(depth, kind="stable")
    return _Set(lane, order[by_row], depth[by_row], deeper)


def _level(sets: Sequence[_Set], room: int, span: int) -> tuple[int, int]:
    """(duration up to which events are merged, width of the stretches that they are merged in), both in ns."""
    durations = np.concatenate([one.lane.end_ns[one.order] - one.lane.start_ns[one.order] for one in sets])
    alone = room // 3
    cutoff = int(np.partition(durations, durations.size - alone - 1)[durations.size - alone - 1])
    rows = sum(int(one.depth[-1]) + 1 for one in sets if one.depth.size)
    # Each event that stays alone may end a block: 2 * alone entries, and one for each stretch of each row.
    return cutoff, max(1, span // max(1, (room - 2 * alone) // max(rows, 1)) + 1)


def _merged(one: _Set, cutoff: int, low: int, width: int) -> Placed:
    lane, order = one.lane, one.order
    start, end, kind = lane.start_ns[order], lane.end_ns[order], lane.kind_id[order]
    if order.size == 0:
        return Placed(lane, (), start, end, kind, start, start, order, one.deeper)
    duration = end - start
    short = duration <= cutoff
    stretch = (start - low) // width
    begins = np.ones(order.size, dtype=bool)
    begins[1:] = ~(short[1:] & short[:-1]) | (stretch[1:] != stretch[:-1]) | (one.depth[1:] != one.depth[:-1])
    first = np.flatnonzero(begins)
    last = np.append(first[1:], order.size) - 1
    alike = np.minimum.reduceat(kind, first) == np.maximum.reduceat(kind, first)
    return Placed(
        lane=lane, rows=tuple(np.bincount(one.depth[first]).tolist()), start_ns=start[first], end_ns=end[last],
        kind_id=np.where(alike, kind[first], -1), count=last - first + 1, busy_ns=np.add.reduceat(duration, first), event=order[first],
        deeper=one.deeper)
