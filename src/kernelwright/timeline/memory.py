"""Allocated memory over the profiled steps: the peak, what was alive then, and a curve of few points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.table import Int64, MemoryEvents
from ..model.trace import Trace

CPU = 0
MOST_POINTS = 400


@dataclass(frozen=True)
class Usage:
    """One device's memory. Rows are rows of trace.memory."""

    device_type: int
    device: int
    start_bytes: int
    peak_bytes: int
    peak_ns: int
    peak_step: int
    end_bytes: int
    before_bytes: int
    """Of the peak, what was allocated before the first step."""
    alive: Int64
    """Rows of the allocations since the first step began that were alive at the peak; shape (k,)."""
    made: Int64
    """Rows of all allocations in the window from the first step's start to the last one's end; shape (m,)."""
    points: tuple[tuple[int, int], ...]
    """(ns, allocated bytes)."""


def usages(trace: Trace) -> list[Usage]:
    """One for each device with allocations or frees in the steps, the CPU last."""
    events = trace.memory
    keys = sorted({(int(kind), int(device)) for kind, device in zip(events.device_type, events.device, strict=True)},
                  key=lambda key: (key[0] == CPU, key))
    found = (_usage(trace, np.flatnonzero((events.device_type == kind) & (events.device == device)), kind, device) for kind, device in keys)
    return [usage for usage in found if usage is not None]


def _usage(trace: Trace, rows: Int64, kind: int, device: int) -> Usage | None:
    events = trace.memory
    low, high = int(trace.steps.start_ns.min()), int(trace.steps.end_ns.max())
    time, change = events.time_ns[rows], events.change_bytes[rows]
    # The totals after each event, from the changes: events of two threads may be out of order by the allocator's own count.
    level = np.concatenate(([0], np.cumsum(change))) + int(events.total_bytes[rows[0]] - change[0])
    first, last = int(np.searchsorted(time, low)), int(np.searchsorted(time, high, side="right"))
    if first == last:
        return None
    window = slice(first, last)
    # A moment for each step's start (with what is left from between the steps) and one after each event.
    starts = trace.steps.start_ns
    times = np.concatenate((starts, time[window]))
    applied = np.concatenate((np.searchsorted(time[window], starts), np.arange(1, last - first + 1)))
    order = np.lexsort((applied, times))
    times, applied = times[order], applied[order]
    levels = level[first + applied]
    inside, steps = _inside_steps(trace, times)
    candidates = np.flatnonzero(inside)
    place = int(candidates[np.argmax(levels[candidates])])
    alive, freed_before = _alive(events, rows[first:first + int(applied[place])])
    return Usage(
        device_type=kind, device=device, start_bytes=int(levels[0]), peak_bytes=int(levels[place]), peak_ns=int(times[place]),
        peak_step=int(steps[place]), end_bytes=int(levels[-1]), before_bytes=int(levels[0]) - freed_before, alive=alive,
        made=rows[window][change[window] > 0], points=thinned(times, levels, MOST_POINTS, keep=place))


def _inside_steps(trace: Trace, times: Int64) -> tuple[Int64, Int64]:
    """1 where a moment lies in a step, its end included; and which step. Shapes (n,)."""
    starts, ends = trace.steps.start_ns, trace.steps.end_ns
    step = np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)
    return (times <= ends[step]).astype(np.int64), step.astype(np.int64)


def _alive(events: MemoryEvents, rows: Int64) -> tuple[Int64, int]:
    """Of the events in these rows: allocations not freed again, and the bytes freed that were allocated earlier."""
    living: dict[int, int] = {}
    freed_before = 0
    for row in rows.tolist():
        address, change = int(events.address[row]), int(events.change_bytes[row])
        if change > 0:
            # An address given out twice without a free between them: the free went unrecorded.
            if address in living:
                freed_before -= int(events.change_bytes[living[address]])
            living[address] = row
        elif change < 0:
            owner = living.pop(address, None)
            freed_before += -change if owner is None else -change - int(events.change_bytes[owner])
    return np.array(sorted(living.values()), dtype=np.int64), freed_before


def thinned(times: Int64, levels: Int64, most: int, *, keep: int = 0) -> tuple[tuple[int, int], ...]:
    """At most `most` (at least 5) of the points: the first, the last, number `keep`, and the lowest and highest of each stretch."""
    if times.size <= most:
        kept = np.arange(times.size)
    else:
        stretches = np.array_split(np.arange(times.size), (most - 3) // 2)
        extremes = [stretch[pick(levels[stretch])] for stretch in stretches for pick in (np.argmin, np.argmax)]
        kept = np.unique(np.array([0, keep, *extremes, times.size - 1]))
    return tuple((int(time), int(level)) for time, level in zip(times[kept], levels[kept], strict=True))
