"""The whole flow of one recording: what docs/timeline.md defines, from the tables of a Trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

import numpy as np

from ..model.flow import (
    GAP_CAUSES,
    MOST_GAPS,
    MOST_SITES,
    MOST_STEPS,
    MOST_STREAMS,
    CauseTime,
    DeviceFlow,
    Flow,
    Gap,
    GapSite,
    StepFlow,
    StreamFlow,
)
from ..model.table import EventTable, Int64
from ..model.trace import Trace
from .causes import OUTSIDE, SYNCHRONIZATION, TableName, Thread
from .concurrency import COPY, MEMSET, histogram, kinds_of, overlaps
from .gaps import Gaps, GapTable, by_stream
from .intervals import Openers, covered, union_by
from .launches import LaunchedWork, api_calls, calls_in_steps, launches, queue_depth
from .names import plain

LineOf = Callable[[TableName, int], str | None]
"""(table of the trace, row) -> the user's line of that event, "file.py:12", or None where it is not known."""
Event = tuple[TableName, int]
"""(table of the trace, row)."""
MOST_DEVICES = 64
MOST_PLACED = 2000
"""Gaps, the longest first, that are looked up for sites."""


def no_line(table: TableName, row: int) -> str | None:
    """Knows no line."""
    return None


def flow(trace: Trace, *, line_of: LineOf = no_line) -> Flow:
    """Busy, overlap, gaps with causes, launches and calls of the profiled steps. Pure; about n log n in the rows.

    line_of is asked for the few events that are shown, not for every row.
    """
    return FlowOf(trace, line_of).flow()


class FlowOf:
    """One recording's flow, with the tables behind it."""

    def __init__(self, trace: Trace, line_of: LineOf = no_line) -> None:
        self.trace = trace
        self._line_of = line_of
        self._lines: dict[Event, str | None] = {}
        self._openers: dict[Thread, tuple[Int64, Openers]] = {}
        self.launched = LaunchedWork(trace)
        self._gaps = Gaps(trace, self.launched)

    @cached_property
    def device_gaps(self) -> GapTable:
        """All gaps of whole devices."""
        return self._gaps.of_devices()

    @cached_property
    def stream_gaps(self) -> GapTable:
        """All gaps of single streams."""
        return self._gaps.of_streams()

    def flow(self) -> Flow:
        """The document."""
        sites, sites_idle_ns = self._sites()
        return Flow(
            devices=self._devices(), launches=launches(self.launched),
            api_calls=api_calls(self.trace.runtime, calls_in_steps(self.trace)), gaps=self._longest(self.device_gaps),
            stream_gaps=self._longest(self.stream_gaps), sites=sites, sites_idle_ns=sites_idle_ns, steps=self._steps())

    # -- devices ----------------------------------------------------------------------------------------------------------

    def _devices(self) -> tuple[DeviceFlow, ...]:
        device, rows = self.trace.device, self.launched.work.rows
        found, count = np.unique(device.device[rows], return_counts=True)
        kept = sorted(found[np.argsort(-count, kind="stable")][:MOST_DEVICES].tolist())
        return tuple(self._device(index, rows[device.device[rows] == index]) for index in kept)

    def _device(self, index: int, rows: Int64) -> DeviceFlow:
        device, gaps = self.trace.device, self.device_gaps
        starts, ends = device.start_ns[rows], device.end_ns[rows]
        low = int(self.trace.steps.start_ns.min())
        high = int(ends[ends > starts].max(initial=low))
        mine = gaps.device == index
        idle = int(gaps.duration_ns[mine].sum())
        kinds = kinds_of(device)[rows]
        _, streams, number = by_stream(device, rows)
        group, first, last = union_by(number, np.maximum(starts, low), ends)
        return DeviceFlow(
            device=index, span_start_ns=low, span_end_ns=high, busy_ns=high - low - idle, idle_ns=idle, gap_count=int(mine.sum()),
            causes=causes(gaps, mine), overlaps=overlaps(starts, ends, kinds, low, high), concurrency_ns=histogram(first, last, low, high),
            stream_count=int(streams.size),
            streams=_streams(index, streams, number, kinds, (starts, ends), (group, first, last), high - low),
            stream_causes=causes(self.stream_gaps, self.stream_gaps.device == index),
            queue=queue_depth(self.launched.table, index, low, high))

    def _steps(self) -> tuple[StepFlow, ...]:
        trace, work = self.trace, self.launched.work
        starts, ends = trace.steps.start_ns, trace.steps.end_ns
        busy = covered(trace.device.start_ns, trace.device.end_ns, starts, ends)
        made = np.bincount(self.launched.table.step, minlength=starts.size)
        worked = np.zeros(starts.size, dtype=np.int64)
        np.add.at(worked, work.step, trace.device.duration_ns[work.rows])
        return tuple(
            StepFlow(step=step, start_ns=int(starts[step]), end_ns=int(ends[step]), busy_ns=int(busy[step]), launches=int(made[step]),
                     work_ns=int(worked[step])) for step in range(min(starts.size, MOST_STEPS)))

    # -- gaps -------------------------------------------------------------------------------------------------------------

    def _longest(self, gaps: GapTable) -> tuple[Gap, ...]:
        return tuple(self.described(gaps, longest(gaps, MOST_GAPS).tolist()))

    def described(self, gaps: GapTable, chosen: Sequence[int]) -> list[Gap]:
        """These rows of a table of gaps, each with what explains it."""
        culprits = [self._culprit(gaps, index) for index in chosen]
        launches: list[Event | None] = [("runtime", int(gaps.launch[index])) if gaps.launch[index] >= 0 else None for index in chosen]
        operators = self._operators_around({event for event in (*culprits, *launches) if event is not None})
        return [self._gap(gaps, index, culprit, launch, operators)
                for index, culprit, launch in zip(chosen, culprits, launches, strict=True)]

    def _gap(self, gaps: GapTable, index: int, culprit: Event | None, launch: Event | None, operators: Mapping[Event, str | None]) -> Gap:
        device, stream = self.trace.device, int(gaps.stream[index])
        previous, after = int(gaps.previous[index]), int(gaps.after_stream[index])
        blamed = culprit if culprit is not None else launch
        return Gap(
            device=int(gaps.device[index]), stream=stream if stream >= 0 else None, start_ns=int(gaps.start_ns[index]),
            end_ns=int(gaps.end_ns[index]), cause=GAP_CAUSES[int(gaps.cause[index])], parts=_parts(gaps.parts_ns[index]),
            call=self._name(culprit), call_ns=self._duration(culprit), operator=operators[blamed] if blamed is not None else None,
            where=self._line(blamed), previous=device.name(previous) if previous >= 0 else None,
            next=device.name(int(gaps.next[index])), next_call=self._name(launch),
            next_operator=operators[launch] if launch is not None else None, next_where=self._line(launch),
            after_stream=after if after >= 0 else None, event_wait=bool(gaps.event_wait[index]))

    def _culprit(self, gaps: GapTable, index: int) -> Event | None:
        """The host event behind a gap's cause."""
        cause = int(gaps.cause[index])
        if not OUTSIDE < cause <= SYNCHRONIZATION:
            return None
        threads = self._gaps.threads_of(int(gaps.place[index]))
        return self._gaps.host.culprit(threads, cause, int(gaps.start_ns[index]), int(gaps.host_end_ns[index]))

    def _name(self, event: Event | None) -> str | None:
        return plain(self._table(event[0]).name(event[1])) if event is not None else None

    def _duration(self, event: Event | None) -> int | None:
        return int(self._table(event[0]).duration_ns[event[1]]) if event is not None else None

    def _line(self, event: Event | None) -> str | None:
        if event is not None and event not in self._lines:
            self._lines[event] = self._line_of(*event)
        return self._lines[event] if event is not None else None

    def _table(self, name: TableName) -> EventTable:
        table: EventTable = getattr(self.trace, name)
        return table

    def _operators_around(self, events: Collection[Event]) -> dict[Event, str | None]:
        """Name of the innermost operator around the start of each event, on its thread; an operator's own for itself."""
        own, found = self.trace.operators, {}
        for name, row in events:
            table = self._table(name)
            at = row if table is own else self._operator_at((int(table.process[row]), int(table.thread[row])), int(table.start_ns[row]))
            found[name, row] = own.name(at) if at >= 0 else None
        return found

    def _operator_at(self, thread: Thread, point: int) -> int:
        """Row of the innermost operator on a thread at a moment, -1 for none."""
        operators = self.trace.operators
        if thread not in self._openers:
            rows = np.flatnonzero((operators.process == thread[0]) & (operators.thread == thread[1]))
            self._openers[thread] = (rows, Openers(operators.start_ns[rows], operators.end_ns[rows]))
        rows, openers = self._openers[thread]
        found = openers.at(point)
        return int(rows[found]) if found >= 0 else -1

    def _sites(self) -> tuple[tuple[GapSite, ...], int]:
        """(the longest gaps of whole devices by cause, event, operator and line; their idle time)."""
        members: dict[tuple[str, str | None, str | None, str | None], list[int]] = defaultdict(list)
        for gap in self.described(self.device_gaps, longest(self.device_gaps, MOST_PLACED).tolist()):
            members[gap.cause, gap.call, gap.operator, gap.where].append(gap.duration_ns)
        found = [GapSite.model_validate({"cause": cause, "call": call, "operator": operator, "where": where, "count": len(times),
                                         "idle_ns": sum(times), "longest_ns": max(times)})
                 for (cause, call, operator, where), times in members.items()]
        return (tuple(sorted(found, key=lambda site: -site.idle_ns)[:MOST_SITES]), sum(site.idle_ns for site in found))


def longest(gaps: GapTable, most: int) -> Int64:
    """Indices of the longest gaps, the longest first, the earlier of equals first."""
    return np.argsort(-gaps.duration_ns, kind="stable")[:most]


def causes(gaps: GapTable, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[CauseTime, ...]:
    """Idle time and named gaps by cause, most time first; without causes that have neither."""
    named = np.bincount(gaps.cause[chosen], minlength=len(GAP_CAUSES)).tolist()
    times = [int(gaps.parts_ns[chosen, number].sum()) for number in range(len(GAP_CAUSES))]
    found = [CauseTime(cause=cause, idle_ns=time, gaps=count) for cause, time, count in zip(GAP_CAUSES, times, named, strict=True) if time]
    return tuple(sorted(found, key=lambda row: -row.idle_ns))


def _parts(times: Int64) -> tuple[CauseTime, ...]:
    found = [CauseTime(cause=cause, idle_ns=time, gaps=0) for cause, time in zip(GAP_CAUSES, times.tolist(), strict=True) if time]
    return tuple(sorted(found, key=lambda row: -row.idle_ns))


def _streams(device: int, streams: Int64, number: Int64, kinds: Int64, work: tuple[Int64, Int64], merged: tuple[Int64, Int64, Int64],
             span_ns: int) -> tuple[StreamFlow, ...]:
    """The busiest streams of one device. number, kinds, work: of each work (its stream, kind, start and end)."""
    busy = np.zeros(streams.size, dtype=np.int64)
    np.add.at(busy, merged[0], merged[2] - merged[1])
    copies, memsets = (np.bincount(number[kinds == kind], minlength=streams.size) for kind in (COPY, MEMSET))
    total = np.bincount(number, minlength=streams.size)
    first = np.full(streams.size, np.iinfo(np.int64).max)
    last = np.full(streams.size, np.iinfo(np.int64).min)
    np.minimum.at(first, number, work[0])
    np.maximum.at(last, number, work[1])
    return tuple(StreamFlow(
        device=device, stream=int(streams[at]), busy_ns=int(busy[at]), busy_share_pct=100.0 * int(busy[at]) / span_ns if span_ns else None,
        kernels=int(total[at] - copies[at] - memsets[at]), copies=int(copies[at]), memsets=int(memsets[at]), first_ns=int(first[at]),
        last_ns=int(last[at])) for at in np.argsort(-busy, kind="stable")[:MOST_STREAMS].tolist())
