"""What each piece of device work, and each moment of a host thread, had to wait for. Definitions: docs/timeline-structure.md."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from ..model.table import Int64
from ..model.trace import Trace
from .intervals import union
from .kernel_names import chosen
from .names import Mask, synchronizes, waits_for_event
from .nesting import by_thread
from .work import Work

LAUNCH, STREAM, EVENT = 0, 1, 2
"""Why device work began no earlier: its launch call, earlier work of its stream, work of another stream."""
Thread = tuple[int, int]
MOST_THREADS, MOST_STREAMS = 32, 64
_NEVER = np.iinfo(np.int64).min


class DeviceEdges:
    """For each place in Work, what arrived last before it began. All of shape (m,)."""

    def __init__(self, trace: Trace, work: Work) -> None:
        self.work = work
        self.blocking: Mask = _blocking(work)
        """Its launch call returned only when the work had ended (copies from and to pageable memory)."""
        # A call hands its work over until it returns, at the latest when the work begins; a blocking one at some time after it began.
        self.arrival: Int64 = np.where(self.blocking, work.called, np.minimum(work.returned, work.start)).astype(np.int64)
        self.by_end: Int64 = np.lexsort((np.arange(len(work)), work.start, work.end)).astype(np.int64)
        """Places from the first that ended to the last; together: by their start, then by place."""
        self.rank: Int64 = np.empty(len(work), dtype=np.int64)
        """Where each place stands in that order."""
        self.rank[self.by_end] = np.arange(len(work))
        own = _latest_on_stream(work, self.by_end, self.rank)
        other = _latest(self.by_end, work.end[self.by_end], work.start, self.rank)
        waits = (other >= 0) & (work.stream[other] != work.stream) & (work.called[other] < work.called) & _waits_for_event(trace, work)
        own_end = np.where(own >= 0, work.end[own], _NEVER)
        other_end = np.where(waits, work.end[other], _NEVER)
        self.why: Int64 = np.where((other_end > own_end) & (other_end > self.arrival), EVENT,
                                   np.where((own >= 0) & (own_end >= self.arrival), STREAM, LAUNCH)).astype(np.int64)
        self.before: Int64 = np.where(self.why == EVENT, other, np.where(self.why == STREAM, own, -1)).astype(np.int64)
        """Place of the work that it waited for; -1 for its launch call."""


def _latest(order: Int64, ends: Int64, points: Int64, rank: Int64) -> Int64:
    """Of the rows in order of their ends: the last that ended by each point and comes before that row itself; -1 for none."""
    found = np.minimum(np.searchsorted(ends, points, side="right"), rank) - 1
    return np.where(found >= 0, order[np.maximum(found, 0)] if order.size else -1, -1).astype(np.int64)


def _latest_on_stream(work: Work, by_end: Int64, rank: Int64) -> Int64:
    found = np.full(len(work), -1, dtype=np.int64)
    for rows in _by_stream(work, by_end):
        place = np.empty(rows.size, dtype=np.int64)
        place[np.argsort(rank[rows], kind="stable")] = np.arange(rows.size)
        found[rows] = _latest(rows, work.end[rows], work.start[rows], place)
    return found


def _by_stream(work: Work, order: Int64) -> list[Int64]:
    """The rows of each stream in the given order."""
    streams = order[np.argsort(work.stream[order], kind="stable")]
    return np.split(streams, np.flatnonzero(np.diff(work.stream[streams])) + 1) if streams.size else []


def _blocking(work: Work) -> Mask:
    return np.asarray(work.is_copy & (work.launch >= 0) & (work.returned >= work.end), dtype=bool)


def _waits_for_event(trace: Trace, work: Work) -> Mask:
    """Whether the host told some stream to wait for an event since it last launched onto this work's stream; shape (m,)."""
    runtime = trace.runtime
    calls = np.sort(runtime.start_ns[chosen(runtime.names, waits_for_event, runtime.name_id)])
    waits = np.zeros(len(work), dtype=bool)
    for rows in _by_stream(work, np.lexsort((work.start, work.called)).astype(np.int64)):
        called = work.called[rows]
        before = np.concatenate(([_NEVER], called[:-1]))
        waits[rows] = np.searchsorted(calls, called) > np.searchsorted(calls, before)
    return waits


@dataclass(frozen=True)
class Wait:
    """A call that waited for device work. It returned at `until`; the work at `place` had ended at `since`."""

    until: int
    since: int
    place: int
    name: str


@dataclass(frozen=True)
class Handover:
    """A moment at which a thread went on after silence in which another one, `thread`, had worked."""

    at: int
    thread: Thread


class HostEdges:
    """What host threads waited for. Threads: those of the steps, and the MOST_THREADS that launched most of the steps' work.

    Of more than MOST_STREAMS streams those with the most work are looked at for what a call waited for.
    """

    def __init__(self, trace: Trace, work: Work, device: DeviceEdges) -> None:
        self.trace, self.work, self._rank = trace, work, device.rank
        runtime, steps = trace.runtime, trace.steps
        launch = work.launch[work.launch >= 0]
        busiest = sorted(by_thread(runtime.process[launch], runtime.thread[launch]), key=lambda group: -group[1].size)[:MOST_THREADS]
        launching = [thread for thread, _ in busiest]
        homes = sorted(set(zip(steps.process.tolist(), steps.thread.tolist(), strict=True)))[:MOST_THREADS]
        self.threads: list[Thread] = [*homes, *(thread for thread in sorted(launching) if thread not in homes)]
        self._waits = {thread: self._find_waits(thread, device) for thread in self.threads}
        self._handovers = self._find_handovers()
        self._wait_ends = {thread: [wait.until for wait in waits] for thread, waits in self._waits.items()}
        self._handover_times = {thread: [one.at for one in found] for thread, found in self._handovers.items()}

    def last(self, thread: Thread, moment: int, *, handed_over: bool, rank: int) -> Wait | Handover | None:
        """The last wait or hand-over of a thread by a moment; hand-overs at that very moment do not count when it was reached by one.

        Nor do waits for work that stands at `rank` or later in the order of ends: the path has passed it.
        """
        waits, ends = self._waits.get(thread, []), self._wait_ends.get(thread, [])
        times = self._handover_times.get(thread, [])
        wait = bisect_right(ends, moment) - 1
        while wait >= 0 and self._rank[waits[wait].place] >= rank:
            wait -= 1
        handover = (bisect_left if handed_over else bisect_right)(times, moment) - 1
        if wait >= 0 and (handover < 0 or ends[wait] >= times[handover]):
            return waits[wait]
        return self._handovers[thread][handover] if handover >= 0 else None

    def _find_waits(self, thread: Thread, device: DeviceEdges) -> list[Wait]:
        """Synchronising calls in which device work ended that was launched before, and copies whose calls waited for them."""
        runtime, work = self.trace.runtime, self.work
        on_thread = (runtime.process == thread[0]) & (runtime.thread == thread[1])
        rows = np.flatnonzero(on_thread & chosen(runtime.names, synchronizes, runtime.name_id))
        begun, until = runtime.start_ns[rows], runtime.end_ns[rows]
        latest = np.full(rows.size, -1, dtype=np.int64)
        for order in sorted(_by_stream(work, device.by_end), key=lambda rows: -rows.size)[:MOST_STREAMS]:
            called = np.maximum.accumulate(work.called[order])
            last = np.minimum(np.searchsorted(work.end[order], until, side="right"), np.searchsorted(called, begun)) - 1
            latest = np.maximum(latest, np.where(last >= 0, device.rank[order[np.maximum(last, 0)]], -1))
        place = device.by_end[latest] if len(work) else latest
        since = np.where(latest >= 0, work.end[place] if len(work) else _NEVER, _NEVER)
        waited = since > begun
        found = [Wait(*each) for each in zip(until[waited].tolist(), since[waited].tolist(), place[waited].tolist(),
                                             [runtime.name(row) for row in rows[waited].tolist()], strict=True)]
        copies = np.flatnonzero(device.blocking)
        copies = copies[on_thread[work.launch[copies]] & (work.end[copies] > work.called[copies])]
        found += [Wait(*each) for each in zip(work.returned[copies].tolist(), work.end[copies].tolist(), copies.tolist(),
                                              [runtime.name(row) for row in work.launch[copies].tolist()], strict=True)]
        return sorted(found, key=lambda wait: (wait.until, wait.since, wait.place))

    def _find_handovers(self) -> dict[Thread, list[Handover]]:
        starts, busy = {}, {}
        for thread in self.threads:
            begun, ended = self._events(thread)
            starts[thread], busy[thread] = np.sort(begun), union(begun, ended)
        found: dict[Thread, list[Handover]] = {}
        for thread in self.threads:
            first, last = busy[thread]
            silent_since = np.concatenate(([_NEVER], last[:-1])) if first.size else first
            latest, other = np.full(first.size, _NEVER), np.full(first.size, -1, dtype=np.int64)
            for index, one in enumerate(self.threads):
                if one == thread or not starts[one].size:
                    continue
                at = np.searchsorted(starts[one], first) - 1
                start = np.where(at >= 0, starts[one][np.maximum(at, 0)], _NEVER)
                better = (start >= silent_since) & (start > latest)
                latest[better], other[better] = start[better], index
            found[thread] = [Handover(int(first[row]), self.threads[int(other[row])]) for row in np.flatnonzero(other >= 0).tolist()]
        return found

    def _events(self, thread: Thread) -> tuple[Int64, Int64]:
        tables = (self.trace.runtime, self.trace.operators)
        mine = [np.flatnonzero((table.process == thread[0]) & (table.thread == thread[1])) for table in tables]
        starts, ends = (np.concatenate([getattr(table, name)[rows] for table, rows in zip(tables, mine, strict=True)])
                        for name in ("start_ns", "end_ns"))
        return starts, np.maximum(ends, starts + 1)
