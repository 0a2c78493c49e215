"""One iteration beside another, launch by launch. Definitions: docs/timeline-structure.md."""

from __future__ import annotations

import numpy as np

from ..model.structure import MOST_DIFFERENCES, IterationComparison, LaunchDifference
from ..model.table import Int64
from ..model.trace import Trace
from .alignment import align
from .ordering import stable_order
from .work import Work, codes, summed

Pairs = tuple[Int64, Int64]


def typical_iteration(trace: Trace) -> int:
    """The one with the median wall time (of an even number the shorter of the middle two, of equal ones the first)."""
    order = np.argsort(trace.steps.duration_ns, kind="stable")
    return int(order[(order.size - 1) // 2])


def slowest_iteration(trace: Trace) -> int:
    """The one with the longest wall time, of equal ones the first."""
    return int(np.argmax(trace.steps.duration_ns))


def compare_iterations(trace: Trace, work: Work, a: int, b: int) -> IterationComparison:
    """Which launches two iterations do not share, and by how much the others differ.

    Launches are aligned in the order of their calls, by kernel, configuration and stream: as many as possible, in order. Where that takes
    too many edits, the i-th launch of a kind in one belongs to the i-th of that kind in the other.
    """
    left, right = work.of_step(a), work.of_step(b)
    first, second = work.symbol[left], work.symbol[right]
    pairs = align(first, second)
    aligned = pairs is not None
    mine, other = (column + part.start for column, part in zip(pairs if pairs is not None else by_count(first, second), (left, right),
                                                               strict=True))
    only_a = np.setdiff1d(np.arange(left.start, left.stop), mine)
    only_b = np.setdiff1d(np.arange(right.start, right.stop), other)
    difference = work.duration[other] - work.duration[mine]
    rows = [*_rows(work, "only in a", only_a, None), *_rows(work, "only in b", None, only_b),
            *_rows(work, "slower in b", mine[difference > 0], other[difference > 0]),
            *_rows(work, "faster in b", mine[difference < 0], other[difference < 0])]
    rows.sort(key=lambda row: (-abs(row.difference_ns), row.kernel, row.change))
    return IterationComparison(
        a=a, b=b, a_wall_ns=int(trace.steps.duration_ns[a]), b_wall_ns=int(trace.steps.duration_ns[b]),
        a_device_ns=int(work.duration[left].sum()), b_device_ns=int(work.duration[right].sum()), aligned=aligned, matched=int(mine.size),
        only_a=int(only_a.size), only_b=int(only_b.size), only_a_ns=int(work.duration[only_a].sum()),
        only_b_ns=int(work.duration[only_b].sum()), matched_difference_ns=int(difference.sum()), differences=tuple(rows[:MOST_DIFFERENCES]))


def by_count(a: Int64, b: Int64) -> Pairs:
    """Places in a and in b: the i-th occurrence of a symbol in one with the i-th in the other."""
    both = np.concatenate((a, b))
    side = np.concatenate((np.zeros(a.size, dtype=np.int64), np.ones(b.size, dtype=np.int64)))
    group = codes(both, side)
    order = stable_order(group)
    occurrence = np.zeros(both.size, dtype=np.int64)
    occurrence[order] = np.arange(both.size) - np.searchsorted(group[order], group[order])
    key = codes(both, occurrence)
    _, mine, other = np.intersect1d(key[:a.size], key[a.size:], assume_unique=True, return_indices=True)
    return mine.astype(np.int64), other.astype(np.int64)


def _rows(work: Work, change: str, a: Int64 | None, b: Int64 | None) -> list[LaunchDifference]:
    """One row a kernel name."""
    named = a if a is not None else b
    assert named is not None
    count = len(work.trace.device.names)
    names = work.name_id[named]
    counts = np.bincount(names, minlength=count)
    none = np.zeros(count, dtype=np.int64)
    a_ns = none if a is None else summed(work.duration[a], work.name_id[a], count)
    b_ns = none if b is None else summed(work.duration[b], names, count)
    return [LaunchDifference.model_validate({"kernel": work.trace.device.names[name], "change": change, "count": int(counts[name]),
                                             "a_ns": int(a_ns[name]), "b_ns": int(b_ns[name])})
            for name in np.flatnonzero(counts).tolist()]
