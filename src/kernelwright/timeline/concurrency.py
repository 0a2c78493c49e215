"""What ran at the same time: busy time, streams at work at once, overlap of computing, copying and communicating. Exact, vectorised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..model.flow import DEEPEST, Overlaps
from ..model.table import EventTable, Int64
from .intervals import union, union_length
from .names import is_collective, is_copy_work, is_memset, named

COMPUTE, COMMUNICATION, COPY, MEMSET = 0, 1, 2, 3
"""Kinds of device work."""


def kinds_of(device: EventTable) -> Int64:
    """Kind of each row of trace.device, shape (n,). Kernels are told from copies and memsets by Kineto's names."""
    kinds = np.full(len(device), COMPUTE, dtype=np.int64)
    kinds[named(device, is_collective)] = COMMUNICATION
    kinds[named(device, is_copy_work)] = COPY
    kinds[named(device, is_memset)] = MEMSET
    return kinds


def levels(starts: Int64, ends: Int64, low: int, high: int) -> tuple[Int64, Int64]:
    """(points, levels): from points[i] on, levels[i] intervals are open; the first point is low. Points strictly increase, below high.

    Intervals in any order; parts outside [low, high) do not count, nor do empty ones. Nothing when high <= low.
    """
    if high <= low:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    first, last = np.clip(starts, low, high), np.clip(ends, low, high)
    keep = last > first
    first, last = np.sort(first[keep]), np.sort(last[keep])
    # Two sorted runs: a stable sort merges them.
    points = np.sort(np.concatenate((np.array([low], dtype=np.int64), first, last)), kind="stable")
    points = points[np.concatenate(([True], np.diff(points) > 0))]
    points = points[points < high]
    open_at = np.searchsorted(first, points, side="right") - np.searchsorted(last, points, side="right")
    return points, open_at.astype(np.int64)


def time_at_level(points: Int64, open_at: Int64, high: int, most: int | None = None) -> Int64:
    """Entry k: time with k intervals open, ns, from points[0] to high; the last of most + 1 entries holds that many and more."""
    if points.size == 0:
        return np.zeros(1, dtype=np.int64)
    lengths = np.diff(np.append(points, high))
    capped = open_at if most is None else np.minimum(open_at, most)
    result = np.zeros(int(capped.max()) + 1, dtype=np.int64)
    np.add.at(result, capped, lengths)
    return result


def histogram(starts: Int64, ends: Int64, low: int, high: int, most: int = DEEPEST) -> tuple[int, ...]:
    """Entry k: time in [low, high) with k intervals open, ns; the last of most + 1 entries holds that many and more.

    Of the merged work of each stream that is time with k streams at work.
    """
    points, open_at = levels(starts, ends, low, high)
    return tuple(int(time) for time in time_at_level(points, open_at, high, most))


@dataclass(frozen=True)
class _Kind:
    starts: Int64
    ends: Int64
    length: int


def overlaps(starts: Int64, ends: Int64, kinds: Int64, low: int, high: int) -> Overlaps:
    """Time of each kind, alone and beside another, within [low, high). All of shape (n,), in any order."""
    first, last = np.clip(starts, low, high), np.clip(ends, low, high)

    def of(*wanted: int) -> _Kind:
        chosen: npt.NDArray[np.bool_] = np.isin(kinds, wanted)
        merged = union(first[chosen], last[chosen])
        return _Kind(*merged, int((merged[1] - merged[0]).sum()))

    def together(*parts: _Kind) -> int:
        return union_length(np.concatenate([part.starts for part in parts]), np.concatenate([part.ends for part in parts]))

    compute, communication, copy, memset = of(COMPUTE), of(COMMUNICATION), of(COPY), of(MEMSET)
    computing = kinds == COMPUTE
    at_level = time_at_level(*levels(first[computing], last[computing], low, high), high, 2)
    kernels = together(compute, communication)
    return Overlaps(
        compute_ns=compute.length, communication_ns=communication.length, copy_ns=copy.length, memset_ns=memset.length,
        compute_compute_ns=int(at_level[2]) if at_level.size > 2 else 0,
        compute_copy_ns=compute.length + copy.length - together(compute, copy),
        compute_communication_ns=compute.length + communication.length - kernels,
        exposed_copy_ns=together(compute, communication, copy) - kernels, exposed_communication_ns=kernels - compute.length)
