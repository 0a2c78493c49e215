"""What the host was doing while a device had nothing to run: events of known kinds by thread. docs/timeline.md states every rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..model.flow import GAP_CAUSES
from ..model.table import EventTable, Int64
from ..model.trace import Trace
from .intervals import covered, gaps, union
from .names import LOADING, allocates, copies, crosses_host, is_compiler, is_loader, loads_code, named, synchronizes
from .nesting import by_thread
from .steps import step_of

TableName = Literal["runtime", "operators", "ranges", "overheads"]
EVENT_TABLES: tuple[TableName, ...] = ("runtime", "operators", "ranges", "overheads")
"""Tables of a trace that explaining events come from, by their index."""
Thread = tuple[int, int]
"""(process, thread)."""
NO_THREAD: Thread = (-1, -1)
Intervals = tuple[Int64, Int64]
_FAR = 1 << 61
"""73 years in ns: sums of three such do not overflow."""
OUTSIDE, PROFILER, FIRST_USE, DATA_LOADER, ALLOCATOR, COPY, SYNCHRONIZATION = range(7)
HOST_BOUND, LAUNCH_LATENCY, DEPENDENCY, UNKNOWN = range(7, 11)
"""Indices into GAP_CAUSES; up to SYNCHRONIZATION an earlier one wins a moment that both hold."""
assert GAP_CAUSES[SYNCHRONIZATION] == "synchronization" and GAP_CAUSES[UNKNOWN] == "unknown"


@dataclass(frozen=True)
class Events:
    """Host events of the kinds that explain gaps, in start order. All of shape (n,)."""

    start_ns: Int64
    end_ns: Int64
    """Of a synchronisation: with the way back from it (docs/timeline.md)."""
    cause: Int64
    table: Int64
    """Index into EVENT_TABLES."""
    row: Int64
    process: Int64
    thread: Int64
    """Both -1 for events on no thread, which hold everywhere."""

    def take(self, rows: Int64) -> Events:
        """Some of them."""
        return Events(self.start_ns[rows], self.end_ns[rows], self.cause[rows], self.table[rows], self.row[rows], self.process[rows],
                      self.thread[rows])


class HostActivity:
    """Look-ups of what the host did, by thread.

    launches: rows of trace.runtime that launched device work, in row order. interval_ns: the usual time between two of them.
    """

    def __init__(self, trace: Trace, launches: Int64, interval_ns: int) -> None:
        self._trace = trace
        self._interval_ns = interval_ns
        self._by_cause: dict[tuple[tuple[Thread, ...], int], tuple[Events, Int64]] = {}
        self._launch_starts = {
            thread: np.sort(trace.runtime.start_ns[launches[members]])
            for thread, members in by_thread(trace.runtime.process[launches], trace.runtime.thread[launches])}

    @cached_property
    def events(self) -> Events:
        """All explaining events of the trace."""
        trace = self._trace
        found = [
            self._of(trace.overheads, 3, PROFILER, lambda name: name not in LOADING),
            self._of(trace.overheads, 3, FIRST_USE, LOADING.__contains__),
            self._of(trace.runtime, 0, FIRST_USE, loads_code),
            self._of(trace.operators, 1, FIRST_USE, is_compiler), self._of(trace.ranges, 2, FIRST_USE, is_compiler),
            self._of(trace.operators, 1, DATA_LOADER, is_loader), self._of(trace.ranges, 2, DATA_LOADER, is_loader),
            self._of(trace.runtime, 0, ALLOCATOR, allocates), self._host_copies(), self._synchronizations()]
        joined = [np.concatenate([getattr(part, column) for part in found]) for column in Events.__dataclass_fields__]
        everything = Events(*joined)
        return everything.take(np.lexsort((everything.row, everything.table, everything.cause, everything.start_ns)))

    @cached_property
    def by_thread(self) -> dict[Thread, Events]:
        """The events of each thread; NO_THREAD has those that are on none."""
        events = self.events
        return {thread: events.take(members) for thread, members in by_thread(events.process, events.thread)}

    @cached_property
    def outside(self) -> Intervals:
        """Time in no step, as far as the recording reaches."""
        steps = self._trace.steps
        ends = [int(table.end_ns.max()) for table in (steps, self._trace.device, self._trace.runtime) if len(table)]
        return gaps(steps.start_ns, steps.end_ns, int(steps.start_ns.min()), max(ends))

    def around(self, threads: tuple[Thread, ...]) -> Events:
        """Events on any of these threads and on none, in start order."""
        wanted = dict.fromkeys((*threads, NO_THREAD))
        found = [self.by_thread[thread] for thread in wanted if thread in self.by_thread]
        if len(found) == 1:
            return found[0]
        joined = Events(*(np.concatenate([np.zeros(0, dtype=np.int64), *(getattr(part, column) for part in found)])
                          for column in Events.__dataclass_fields__))
        return joined.take(np.argsort(joined.start_ns, kind="stable"))

    def shares(self, threads: tuple[Thread, ...], foreign: Intervals, lows: Int64, highs: Int64) -> Iterator[tuple[int, Int64]]:
        """(cause, how much of each [low, high) passed in it, ns, shape (m,)), for the first seven causes. The earlier wins a moment.

        threads: whose events count. foreign: time that counts as outside beside the time in no step.
        """
        events = self.around(threads)
        starts, ends = (np.concatenate(pair) for pair in zip(self.outside, foreign, strict=True))
        before = np.zeros(lows.size, dtype=np.int64)
        for cause in range(SYNCHRONIZATION + 1):
            chosen = events.cause == cause
            if cause == OUTSIDE or chosen.any():
                starts, ends = union(np.concatenate((starts, events.start_ns[chosen])), np.concatenate((ends, events.end_ns[chosen])))
                reached = covered(starts, ends, lows, highs)
                yield cause, reached - before
                before = reached

    def waits(self, threads: tuple[Thread, ...], foreign: Intervals, lows: Int64, highs: Int64) -> Iterator[tuple[Int64, Int64]]:
        """(rows of trace.runtime, how much of the intervals [low, high) each explains, ns) for the calls that copy, then those that wait.

        The intervals are disjoint. The sums are those of shares(): a moment that two such calls hold is the one's that began first.
        """
        events = self.around(threads)
        low, high = int(lows.min()), int(highs.max())
        earlier = events.cause < COPY
        parts = (self.outside, foreign, gaps(lows, highs, low, high), (events.start_ns[earlier], events.end_ns[earlier]))
        starts, ends = union(*(np.concatenate(side) for side in zip(*parts, strict=True)))
        for cause in (COPY, SYNCHRONIZATION):
            mine = events.take(np.flatnonzero(events.cause == cause))
            last = np.clip(mine.end_ns, low, high)
            reach = np.concatenate((np.array([low], dtype=np.int64), np.maximum.accumulate(last)))[:-1]
            first = np.maximum(np.clip(mine.start_ns, low, high), reach)
            yield mine.row, np.maximum(last - first, 0) - covered(starts, ends, first, last)
            starts, ends = union(np.concatenate((starts, mine.start_ns)), np.concatenate((ends, mine.end_ns)))

    def culprit(self, threads: tuple[Thread, ...], cause: int, low: int, high: int) -> tuple[TableName, int] | None:
        """(table, row) of the event of this cause with most time in [low, high), the earliest of equals; None when there is none."""
        key = (threads, cause)
        if key not in self._by_cause:
            events = self.around(threads)
            chosen = events.take(np.flatnonzero(events.cause == cause))
            self._by_cause[key] = (chosen, np.maximum.accumulate(chosen.end_ns))
        events, reach = self._by_cause[key]
        begin, end = int(np.searchsorted(reach, low, side="right")), int(np.searchsorted(events.start_ns, high))
        if begin >= end:
            return None
        inside = np.minimum(events.end_ns[begin:end], high) - np.maximum(events.start_ns[begin:end], low)
        most = begin + int(np.argmax(inside))
        return EVENT_TABLES[int(events.table[most])], int(events.row[most])

    def _of(self, table: EventTable, number: int, cause: int, chosen: Callable[[str], bool]) -> Events:
        return self._rows(table, number, cause, np.flatnonzero(named(table, chosen)))

    def _rows(self, table: EventTable, number: int, cause: int, rows: Int64, ends: Int64 | None = None) -> Events:
        process, thread = table.process[rows], table.thread[rows]
        homeless = (process < 0) | (thread < 0)
        return Events(table.start_ns[rows], table.end_ns[rows] if ends is None else ends, np.full(rows.size, cause, dtype=np.int64),
                      np.full(rows.size, number, dtype=np.int64), rows, np.where(homeless, -1, process), np.where(homeless, -1, thread))

    def _host_copies(self) -> Events:
        """Copying calls, but for those whose work is known to stay on the device."""
        runtime, device = self._trace.runtime, self._trace.device
        calls: npt.NDArray[np.bool_] = named(runtime, copies)
        work = named(device, lambda name: not crosses_host(name))
        staying = np.isin(runtime.correlation, device.correlation[work]) & ~np.isin(runtime.correlation, device.correlation[~work])
        return self._rows(runtime, 0, COPY, np.flatnonzero(calls & ~(staying & (runtime.correlation >= 0))))

    def _synchronizations(self) -> Events:
        """Waits, each with the way back from it: until the thread's next launch, at most as long as the wait and one usual interval.

        A wait that began in no step (a profiler's own, before the first) has none.
        """
        runtime = self._trace.runtime
        rows = np.flatnonzero(named(runtime, synchronizes))
        ends = runtime.end_ns[rows].copy()
        most = np.minimum(runtime.duration_ns[rows], _FAR) + min(self._interval_ns, _FAR)
        limit = np.where(step_of(self._trace, runtime.start_ns[rows]) >= 0, np.minimum(ends, _FAR) + most, ends)
        for thread, members in by_thread(runtime.process[rows], runtime.thread[rows]):
            launches = self._launch_starts.get(thread, np.zeros(0, dtype=np.int64))
            place = np.searchsorted(launches, ends[members])
            following = np.append(launches, np.iinfo(np.int64).max)[place]
            ends[members] = np.minimum(limit[members], following)
        return self._rows(runtime, 0, SYNCHRONIZATION, rows, ends)
