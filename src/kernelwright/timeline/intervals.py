"""Interval mathematics on int64 nanoseconds. An interval is [start, end): its end is outside it.

All functions are vectorised: about n log n time, a few arrays of n. Nothing here knows about kernels or operators.
"""

from __future__ import annotations

from itertools import pairwise
from math import isqrt

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


def nesting_order(starts: Int64, ends: Int64) -> Int64:
    """Permutation that puts intervals in start order, an enclosing interval before those inside it.

    Equal intervals keep their given order, which Kineto writes as "opened first comes first".
    """
    return np.lexsort((np.arange(starts.size), -ends, starts)).astype(np.int64)


def distinct(values: Int64) -> Int64:
    """The distinct values, in order. (numpy's own unique counts by a hash table, which took ten times as long on sorted times.)"""
    ordered = np.sort(values, kind="stable")
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if ordered.size else ordered


def union(starts: Int64, ends: Int64) -> tuple[Int64, Int64]:
    """Merged, disjoint intervals (starts, ends) that cover the same points; touching ones become one. Any input order."""
    keep = ends > starts
    order = np.argsort(starts[keep], kind="stable")
    first, last = starts[keep][order], ends[keep][order]
    if first.size == 0:
        return first, last
    reach = np.maximum.accumulate(last)
    opens = np.concatenate(([True], first[1:] > reach[:-1]))
    closes = np.concatenate((np.flatnonzero(opens)[1:] - 1, [first.size - 1]))
    return first[opens], reach[closes]


def union_by(groups: Int64, starts: Int64, ends: Int64) -> tuple[Int64, Int64, Int64]:
    """union() of each group on its own: (groups, starts, ends) in group order, then start order. One sort, however many groups.

    groups: non-negative, shape (n,).
    """
    keep = np.flatnonzero(ends > starts)
    keep = keep[np.argsort(starts[keep], kind="stable")]
    keep = keep[np.argsort(small(groups[keep]), kind="stable")]
    group, first, last = groups[keep], starts[keep], ends[keep]
    if keep.size == 0:
        return group, first, last
    # The running maximum of one group must not reach into the next: of (group, rank of the end) it can't.
    by_end = np.argsort(last, kind="stable")
    rank = np.empty(keep.size, dtype=np.int64)
    rank[by_end] = np.arange(keep.size)
    number = np.cumsum(np.concatenate(([0], np.diff(group) != 0)))
    reach = last[by_end][np.maximum.accumulate(number * keep.size + rank) % keep.size]
    opens = np.concatenate(([True], (group[1:] != group[:-1]) | (first[1:] > reach[:-1])))
    closes = np.concatenate((np.flatnonzero(opens)[1:] - 1, [keep.size - 1]))
    return group[opens], first[opens], reach[closes]


def small(values: Int64) -> npt.NDArray[np.int64] | npt.NDArray[np.int16]:
    """The same values in 16 bits where they fit: numpy then sorts them by their digits, in n."""
    return values.astype(np.int16) if values.size and int(values.min()) >= -(1 << 15) and int(values.max()) < 1 << 15 else values


def union_length(starts: Int64, ends: Int64) -> int:
    """Total length covered by at least one interval, ns."""
    first, last = union(starts, ends)
    return int((last - first).sum())


def gaps(starts: Int64, ends: Int64, low: int, high: int) -> tuple[Int64, Int64]:
    """What the intervals leave uncovered of [low, high): disjoint (starts, ends) in order, none of them empty."""
    first, last = union(np.clip(starts, low, high), np.clip(ends, low, high))
    gap_starts = np.concatenate((np.array([low], dtype=np.int64), last))
    gap_ends = np.concatenate((first, np.array([high], dtype=np.int64)))
    keep = gap_ends > gap_starts
    return gap_starts[keep], gap_ends[keep]


def covered(starts: Int64, ends: Int64, lows: Int64, highs: Int64) -> Int64:
    """Length of each [low, high) that at least one interval covers, ns; shape (m,). Any input order; high below low gives 0."""
    first, last = union(starts, ends)
    before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(last - first)))

    def until(points: Int64) -> Int64:
        """Covered length before each point."""
        row = np.searchsorted(first, points, side="right")
        # The part of the last begun interval that lies beyond the point does not count yet.
        beyond = np.where(row > 0, np.maximum(np.concatenate((np.zeros(1, dtype=np.int64), last))[row] - points, 0), 0)
        return (before[row] - beyond).astype(np.int64)

    return np.where(highs > lows, until(highs) - until(lows), 0).astype(np.int64)


def parents(starts: Int64, ends: Int64) -> Int64:
    """Index of the innermost interval still open when each one starts; -1 for roots. Input in nesting order.

    "Innermost" is the most recently opened one that has not ended, so partly overlapping intervals are defined too.
    """
    found = _nested_parents(starts, ends)
    return found if found is not None else _hopped_parents(starts, ends)


DEEPEST_NESTING = 1000
"""Levels that are taken one by one; what is nested deeper takes the general way."""


def _nested_parents(starts: Int64, ends: Int64) -> Int64 | None:
    """parents() of intervals that nest properly, level by level; None where they don't, or nest very deeply.

    How many are open at a start is its row number less how many have ended; the parent is then the last row one level higher.
    """
    rows = np.arange(starts.size, dtype=np.int64)
    empty = ends <= starts
    ended = np.searchsorted(np.sort(ends[~empty], kind="stable"), starts, side="right") + np.cumsum(empty) - empty
    depth = rows - ended
    if rows.size == 0 or int(depth.max()) > DEEPEST_NESTING:
        return None if rows.size else rows
    order = np.argsort(small(depth), kind="stable")
    levels = np.split(order, np.cumsum(np.bincount(depth))[:-1])
    found = np.full(rows.size, -1, dtype=np.int64)
    for above, level in pairwise(levels):
        found[level] = above[np.searchsorted(above, level) - 1]
    inner = np.flatnonzero(found >= 0)
    outer = found[inner]
    # Then every row has as many ancestors as rows are open, so they are those.
    proper = ((ends[inner] <= ends[outer]) & (starts[inner] < ends[outer])).all()
    return found if proper else None


def _hopped_parents(starts: Int64, ends: Int64) -> Int64:
    """parents() of any intervals. Each round hops over those that ended before; hops double in length: about log2(n) rounds."""
    candidate = np.arange(-1, starts.size - 1, dtype=np.int64)
    open_rows = np.arange(starts.size)
    while True:
        open_rows = open_rows[candidate[open_rows] >= 0]
        # A closed candidate's own candidate is a valid next guess: all rows between them closed before this start.
        open_rows = open_rows[ends[candidate[open_rows]] <= starts[open_rows]]
        if open_rows.size == 0:
            return candidate
        candidate[open_rows] = candidate[candidate[open_rows]]


def innermost(starts: Int64, ends: Int64, parent: Int64, points: Int64) -> Int64:
    """Index of the innermost interval that holds each point, -1 where none does. Intervals in nesting order."""
    row = np.searchsorted(starts, points, side="right").astype(np.int64) - 1
    pending = np.arange(points.size)
    while True:
        pending = pending[row[pending] >= 0]
        pending = pending[ends[row[pending]] <= points[pending]]
        if pending.size == 0:
            return row
        row[pending] = parent[row[pending]]


class Openers:
    """Look-ups of the innermost interval at few points: n to prepare, about the root of n each, without parents. In nesting order."""

    def __init__(self, starts: Int64, ends: Int64) -> None:
        self._starts, self._ends = starts, ends
        self._block = max(1, isqrt(starts.size))
        self._reach = np.maximum.reduceat(ends, np.arange(0, starts.size, self._block)) if starts.size else ends

    def at(self, point: int) -> int:
        """As innermost(), for one point."""
        end = int(np.searchsorted(self._starts, point, side="right"))
        blocks: Int64 = np.flatnonzero(self._reach[: -(-end // self._block)] > point)
        # The last block with a later end may have it among rows that start after the point.
        for block in blocks[::-1]:
            low = int(block) * self._block
            found: Int64 = np.flatnonzero(self._ends[low:min(low + self._block, end)] > point)
            if found.size:
                return low + int(found[-1])
        return -1


def self_times(starts: Int64, ends: Int64, parent: Int64) -> Int64:
    """Time in which each interval is the innermost one, ns, exact. Intervals in nesting order.

    The sum equals union_length(starts, ends) whatever the overlaps; for proper nesting it is the duration minus the
    children's union.
    """
    result = np.zeros(starts.size, dtype=np.int64)
    cuts = np.unique(np.concatenate((starts, ends)))
    if cuts.size < 2:
        return result
    owner = innermost(starts, ends, parent, cuts[:-1])
    lengths = np.diff(cuts)
    owned = owner >= 0
    np.add.at(result, owner[owned], lengths[owned])
    return result
