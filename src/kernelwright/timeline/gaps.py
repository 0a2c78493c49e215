"""Gaps: stretches in which a device, or one stream of it, had nothing to run, and what each nanosecond of them passed in.

docs/timeline.md states every rule that is applied here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..model.flow import GAP_CAUSES
from ..model.table import EventTable, Int64
from ..model.trace import Trace
from .causes import COPY, DEPENDENCY, HOST_BOUND, LAUNCH_LATENCY, OUTSIDE, SYNCHRONIZATION, UNKNOWN, HostActivity, Intervals, Thread
from .intervals import covered, distinct, small, union, union_by
from .launches import LaunchedWork
from .names import named, waits_for_event
from .nesting import by_thread

MOST_CONTEXTS = 1000
"""Pairs of (launching thread, the step's thread) whose host activity is looked at, those with most gaps first; the host's part of the
gaps of others is unknown. Real programs have tens."""
Mask = npt.NDArray[np.bool_]
_FEW = 1 << 16
"""Identities as close together as this are numbered by a table, not by sorting."""
_NEVER = np.iinfo(np.int64).min
_NOTHING: Intervals = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class GapTable:
    """All gaps, by device (then stream) and start. Arrays have shape (n,)."""

    device: Int64
    stream: Int64
    """-1: the whole device."""
    start_ns: Int64
    end_ns: Int64
    cause: Int64
    """Index into model.flow.GAP_CAUSES: the one with most time in parts_ns, the earlier of equals."""
    parts_ns: Int64
    """Time by cause, shape (n, len(GAP_CAUSES)); each row's sum is the gap's length."""
    host_end_ns: Int64
    """Until when the gap was the host's: the return of the launching call, cut to the gap; its start where other work decided."""
    previous: Int64
    """Row of trace.device that ended last before the gap, on the device or stream; -1 before the first."""
    next: Int64
    """Row of trace.device that ended the gap."""
    place: Int64
    """The same as an index into LaunchedWork.work.rows."""
    launch: Int64
    """Row of trace.runtime that launched it, -1 where the recording does not hold it."""
    after_stream: Int64
    """Where part of it is dependency: the stream whose work ended last before the gap's end; else -1."""
    event_wait: Mask
    """Where part of it is dependency: the launching thread made a stream wait for an event since the stream's launch before."""

    def __len__(self) -> int:
        return int(self.start_ns.size)

    @property
    def duration_ns(self) -> Int64:
        """Length of each, shape (n,)."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class _Stretches:
    """Gaps before their causes are known; shape (n,)."""

    device: Int64
    stream: Int64
    start: Int64
    end: Int64
    place: Int64
    """Index into work.rows of the work that ended each."""


class Gaps:
    """The gaps of one recording's steps."""

    def __init__(self, trace: Trace, launched: LaunchedWork | None = None) -> None:
        self.trace = trace
        self.launched = launched if launched is not None else LaunchedWork(trace)
        work = self.launched.work
        self.host = HostActivity(trace, distinct(work.launch[work.launch >= 0]), self.launched.usual_interval_ns or 0)
        # Work of no length covers nothing, so no gap ends with it.
        self._places = np.flatnonzero(trace.device.duration_ns[work.rows] > 0)
        self._rows = work.rows[self._places]

    def of_devices(self) -> GapTable:
        """Gaps of whole devices, from the first step's start to the end of the steps' last work on each."""
        device, rows = self.trace.device, self._rows
        low = int(self.trace.steps.start_ns.min())
        index, number = _numbered(device.device[rows])
        # An empty stretch just before the span, so that its first gap lies between two.
        before = np.full(index.size, low)
        starts = np.concatenate((np.maximum(device.start_ns[rows], low), before - 1))
        merged = union_by(np.concatenate((number, np.arange(index.size))), starts, np.concatenate((device.end_ns[rows], before)))
        return self._table(index, np.full(index.size, -1), number, merged)

    def of_streams(self) -> GapTable:
        """Gaps of each stream between its own works, on devices where the steps use several streams."""
        device, rows = self.trace.device, self._rows
        devices, streams, number = by_stream(device, rows)
        index, count = np.unique(devices, return_counts=True)
        several = count[np.searchsorted(index, devices)] > 1
        used = rows if several.any() else rows[:0]
        group, first, last = union_by(number[: used.size], device.start_ns[used], device.end_ns[used])
        keep = several[group]
        return self._table(devices, streams, number, (group[keep], first[keep], last[keep]))

    def idle_of_calls(self, gaps: GapTable) -> Int64:
        """Time of these gaps of whole devices that each call that copies or waits explains, ns; shape (len(trace.runtime),).

        Its sum is that of the columns `copy` and `synchronization` of parts_ns.
        """
        found = np.zeros(len(self.trace.runtime), dtype=np.int64)
        has_any = gaps.parts_ns[:, COPY] + gaps.parts_ns[:, SYNCHRONIZATION] > 0
        for chosen, foreign in self._foreign(gaps.device, gaps.stream):
            for _, on_device in by_thread(gaps.device[chosen], gaps.stream[chosen]):
                rows = chosen[on_device][has_any[chosen[on_device]]]
                for threads, members in self._contexts(gaps.place[rows]):
                    mine = rows[members]
                    for calls, idle_ns in self.host.waits(threads, foreign, gaps.start_ns[mine], gaps.host_end_ns[mine]):
                        np.add.at(found, calls, idle_ns)
        return found

    def _table(self, devices: Int64, streams: Int64, number: Int64, merged: tuple[Int64, Int64, Int64]) -> GapTable:
        """devices, streams: of each group; number: group of each of self._rows; merged: the groups' work, by group and start."""
        group, first, last = merged
        inner = np.flatnonzero(group[1:] == group[:-1])
        of, start, end = group[inner], last[inner], first[inner + 1]
        device, rows = self.trace.device, self._rows
        place = self._places[_last_until(number, device.start_ns[rows], of, end, first_of_equals=True)]
        gaps = _Stretches(devices[of], streams[of], start, end, place)
        ended = _last_until(number, device.end_ns[rows], of, start)
        ended_last = self._ended_last(gaps)
        parts, host_end = self._parts(gaps, ended_last)
        depends = parts[DEPENDENCY] > 0
        work = self.launched.work
        return GapTable(
            device=gaps.device, stream=gaps.stream, start_ns=start, end_ns=end, cause=_most(parts),
            parts_ns=parts.T, host_end_ns=host_end, previous=_pick(rows, ended, -1), next=work.rows[place], place=place,
            launch=work.launch[place], after_stream=np.where(depends, _pick(device.stream, ended_last, -1), -1),
            event_wait=depends & self._event_waits(place))

    def _ended_last(self, gaps: _Stretches) -> Int64:
        """Row of any work of the device, whoever launched it, that had ended last when each gap ended; -1 for none."""
        device = self.trace.device
        index, number = _numbered(device.device)
        return _last_until(number, device.end_ns, np.searchsorted(index, gaps.device), gaps.end)

    # -- causes -----------------------------------------------------------------------------------------------------------

    def _parts(self, gaps: _Stretches, ended_last: Int64) -> tuple[Int64, Int64]:
        """(time by cause, end of the host's part)."""
        work, device = self.launched.work, self.trace.device
        launch, leading = work.launch[gaps.place], self.launched.leading[gaps.place]
        known = launch >= 0
        returned = _pick(self.trace.runtime.end_ns, launch, _NEVER)
        host_end = np.where(leading, np.clip(returned, gaps.start, gaps.end), gaps.start)
        # What was launched waits for other work if any ended since; else the launch itself takes that long.
        waits = ~leading | (_pick(device.end_ns, ended_last, _NEVER) > returned)
        usual = np.where(leading, np.clip(host_end, returned + self.launched.usual_latency_ns, gaps.end), host_end)
        latency_end = np.where(known, np.where(waits, usual, gaps.end), host_end)
        depends_end = np.where(known, gaps.end, host_end)
        parts = np.zeros((len(GAP_CAUSES), gaps.start.size), dtype=np.int64)
        for chosen, foreign in self._foreign(gaps.device, gaps.stream):
            self._host_parts(parts, chosen, foreign, gaps, host_end)
            for cause, low, high in ((LAUNCH_LATENCY, host_end, latency_end), (DEPENDENCY, latency_end, depends_end),
                                     (UNKNOWN, depends_end, gaps.end)):
                length = high[chosen] - low[chosen]
                if foreign[0].size:
                    elsewhere = covered(*foreign, low[chosen], high[chosen])
                    parts[OUTSIDE, chosen] += elsewhere
                    length -= elsewhere
                parts[cause, chosen] += length
        return parts, host_end

    def _foreign(self, devices: Int64, streams: Int64) -> list[tuple[Int64, Intervals]]:
        """(which gaps, when work that no step launched ran there). Most often: all of them, never. devices, streams: of each gap."""
        device = self.trace.device
        others = np.ones(len(device), dtype=bool)
        others[self.launched.work.rows] = False
        rows = np.flatnonzero(others & (device.end_ns > int(self.trace.steps.start_ns.min())))
        whole = not (streams >= 0).any()
        ran = dict(by_thread(device.device[rows], np.full(rows.size, -1) if whole else device.stream[rows]))
        if not ran:
            return [(np.arange(devices.size), _NOTHING)]
        return [(chosen, union(device.start_ns[rows[ran[key]]], device.end_ns[rows[ran[key]]]) if key in ran else _NOTHING)
                for key, chosen in by_thread(devices, streams)]

    def _host_parts(self, parts: Int64, chosen: Int64, foreign: Intervals, gaps: _Stretches, host_end: Int64) -> None:
        """Fill in the host's part of the chosen gaps."""
        rows = chosen[host_end[chosen] > gaps.start[chosen]]
        for count, (threads, members) in enumerate(self._contexts(gaps.place[rows])):
            low, high = gaps.start[rows[members]], host_end[rows[members]]
            if count < MOST_CONTEXTS:
                left = high - low
                for cause, share in self.host.shares(threads, foreign, low, high):
                    parts[cause, rows[members]] += share
                    left -= share
                parts[HOST_BOUND, rows[members]] = left
            else:
                elsewhere = covered(*foreign, low, high)
                parts[OUTSIDE, rows[members]] += elsewhere
                parts[UNKNOWN, rows[members]] += high - low - elsewhere

    def threads_of(self, place: int) -> tuple[Thread, ...]:
        """Threads whose activity explains why this work (an index into work.rows) was late: its launch's, and its step's own."""
        runtime, steps, work = self.trace.runtime, self.trace.steps, self.launched.work
        launch, step = work.launch[place], work.step[place]
        return _threads((int(runtime.process[launch]), int(runtime.thread[launch])), (int(steps.process[step]), int(steps.thread[step])))

    def _contexts(self, place: Int64) -> list[tuple[tuple[Thread, ...], Int64]]:
        """(threads, indices of the works whose lateness they explain), those with most works first."""
        work, runtime, steps = self.launched.work, self.trace.runtime, self.trace.steps
        launch, step = work.launch[place], work.step[place]
        found: list[tuple[tuple[Thread, ...], Int64]] = []
        for own, members in by_thread(runtime.process[launch], runtime.thread[launch]):
            for home, inside in by_thread(steps.process[step[members]], steps.thread[step[members]]):
                found.append((_threads(own, home), members[inside]))
        return sorted(found, key=lambda pair: -pair[1].size)

    def _event_waits(self, place: Int64) -> Mask:
        """Whether the launching thread made a stream wait for an event between the launch before on the work's stream and its own."""
        runtime, work, device = self.trace.runtime, self.launched.work, self.trace.device
        result = np.zeros(place.size, dtype=bool)
        waits = np.flatnonzero(named(runtime, waits_for_event))
        if not waits.size:
            return result
        _, _, number = by_stream(device, work.rows)
        order = np.argsort(small(number), kind="stable")
        same = number[order[1:]] == number[order[:-1]]
        earlier = np.full(number.size, -1, dtype=np.int64)
        earlier[order[1:][same]] = work.launch[order[:-1][same]]
        launch, step = work.launch[place], work.step[place]
        since = np.where(earlier[place] >= 0, _pick(runtime.start_ns, earlier[place], 0), self.trace.steps.start_ns[step])
        waiting = {thread: runtime.start_ns[waits[members]] for thread, members in by_thread(runtime.process[waits], runtime.thread[waits])}
        known = np.flatnonzero(launch >= 0)
        for thread, members in by_thread(runtime.process[launch[known]], runtime.thread[launch[known]]):
            if thread in waiting:
                mine, calls = known[members], waiting[thread]
                result[mine] = np.searchsorted(calls, runtime.start_ns[launch[mine]]) > np.searchsorted(calls, since[mine])
        return result


def _threads(own: Thread, home: Thread) -> tuple[Thread, ...]:
    return (own,) if home == own or min(home) < 0 else (own, home)


def device_gaps(trace: Trace) -> GapTable:
    """Gaps of whole devices, from the first step's start to the end of the steps' last work on each."""
    return Gaps(trace).of_devices()


def idle_of_calls(trace: Trace) -> Int64:
    """Idle time of all devices that each call that copies or waits explains, ns; shape (len(trace.runtime),)."""
    found = Gaps(trace)
    return found.idle_of_calls(found.of_devices())


def stream_gaps(trace: Trace) -> GapTable:
    """Gaps of each stream between its own works, on devices with several streams."""
    return Gaps(trace).of_streams()


def by_stream(device: EventTable, rows: Int64) -> tuple[Int64, Int64, Int64]:
    """(device, stream) of each stream that these rows of trace.device ran on, in this order, and the number of each row's."""
    devices, which_device = _numbered(device.device[rows])
    streams, which_stream = _numbered(device.stream[rows])
    pairs, number = _numbered(which_device * max(streams.size, 1) + which_stream)
    return devices[pairs // max(streams.size, 1)], streams[pairs % max(streams.size, 1)], number


def _numbered(values: Int64) -> tuple[Int64, Int64]:
    """(the distinct values, number of each among them)."""
    if values.size == 0:
        return values, values
    low, high = int(values.min()), int(values.max())
    if high - low < _FEW:
        present = np.zeros(high - low + 1, dtype=bool)
        present[values - low] = True
        return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[values - low]
    found, number = np.unique(values, return_inverse=True)
    return found, number.reshape(-1).astype(np.int64)


def _most(parts: Int64) -> Int64:
    """Index of the largest of each column, the first of equals. (argmax along the first axis takes several times as long.)"""
    found = np.zeros(parts.shape[1], dtype=np.int64)
    largest = parts[0].copy()
    for cause in range(1, parts.shape[0]):
        better = parts[cause] > largest
        found[better] = cause
        largest[better] = parts[cause, better]
    return found


def _pick(values: Int64, rows: Int64, otherwise: int) -> Int64:
    """values[rows], otherwise where a row is -1."""
    return np.append(values, otherwise)[rows].astype(np.int64)


def _last_until(number: Int64, values: Int64, groups: Int64, points: Int64, *, first_of_equals: bool = False) -> Int64:
    """Per (group, point): index of the last of the group's values at or before it, -1 for none. number: group of each value.

    first_of_equals: of equal values the first given, not the last.
    """
    if points.size == 0:
        return points
    if (number == number[:1]).all():
        # One group, as on a machine with one device.
        order = np.argsort(values, kind="stable")
        keys, sought = values[order], points
    else:
        order = np.lexsort((values, number))
        # Ranks of values make (group, value) one number that sorts as the pair does.
        known = distinct(np.concatenate((values, points)))
        keys = number[order] * known.size + np.searchsorted(known, values[order])
        sought = groups * known.size + np.searchsorted(known, points)
    place = np.searchsorted(keys, sought, side="right") - 1
    if first_of_equals:
        place = np.where(place >= 0, np.searchsorted(keys, keys[place]), -1)
    found = _pick(order.astype(np.int64), place, -1)
    return np.where(_pick(number, found, -1) == groups, found, -1)
