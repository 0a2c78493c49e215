"""Waits, copies, streams, data loading and compilation inside the steps, each with the user's line where it is known."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..model.activity import MOST_ROWS, Activity, Direction, HostCopy, HostMemory, HostWork, Overlap, Synchronization
from ..model.table import EventTable, Int64
from ..model.trace import Trace
from ..timeline.intervals import covered, union, union_length
from ..timeline.names import LOADING, is_compiler, is_loader
from ..timeline.schedule import COMPUTE, DOWNLOAD, UPLOAD, overlapped_ns
from ..timeline.steps import DeviceWork, device_work, step_of
from ..timeline.summary import device_idle, late_launches
from .calls import Calls
from .moments import Chosen, Moments, Table
from .sources import Places

SYNCHRONIZING = frozenset({
    "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize",
    "cuEventSynchronize", "cudaMemcpy", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2",
    "hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize", "hipMemcpy", "hipMemcpyWithStream"})
"""CUDA and HIP calls that return only when the device has finished something."""
_COPY = re.compile(r"^Memcpy (?P<direction>HtoD|DtoH)(?: \((?P<source>\w+) -> (?P<target>\w+)\))?")
COMPILING = "torch.compile"
MOST_OPERATORS = 8
Intervals = tuple[Int64, Int64]
Row = TypeVar("Row", Synchronization, HostCopy, HostWork)


def activity(calls: Calls, places: Places, moments: Moments, *, idle_of_calls: Int64 | None = None) -> Activity:
    """All tables of one trace. idle_of_calls: timeline.gaps's, from which the idle time after waits then comes."""
    return _Collector(calls, places, moments, idle_of_calls).collect()


@dataclass(frozen=True)
class _Copies:
    """Copies between host and device among the steps' work. All of shape (k,)."""

    place: Int64
    """Index into DeviceWork's arrays."""
    operator: Int64
    """Row of the innermost operator around the launch, -1 for none."""
    direction: list[Direction]
    memory: list[HostMemory | None]


class _Collector:
    """One trace's tables, one method each."""

    def __init__(self, calls: Calls, places: Places, moments: Moments, idle_of_calls: Int64 | None) -> None:
        self.calls, self.places, self.moments = calls, places, moments
        self.idle_of_calls = idle_of_calls
        self.trace = calls.trace
        self.work: DeviceWork = device_work(self.trace)
        runtime = self.trace.runtime
        is_sync = np.array([name in SYNCHRONIZING for name in runtime.names], dtype=bool)
        inside = step_of(self.trace, runtime.start_ns) >= 0
        self.syncs = np.flatnonzero(inside & is_sync[runtime.name_id]) if len(runtime) else np.zeros(0, dtype=np.int64)
        self.sync_operator = self._operator_at(runtime, self.syncs)
        self.copies = self._copies()

    def collect(self) -> Activity:
        """The finished tables."""
        loader, loader_rows = self._loader()
        compiled, compiled_rows = self._compilation()
        host = union(*(np.concatenate(pair) for pair in zip(loader, compiled, strict=True)))
        idle = device_idle(self.trace, self.work) if self.trace.is_cuda else None
        late = late_launches(self.trace, self.work, idle) if idle is not None else None
        rows, idle_ns = self._synchronizations(idle, host)
        counts = [count for count in self.trace.sm_counts if count > 0]
        return Activity(
            sm_count=counts[0] if counts and self.trace.is_cuda else None,
            streams=self._streams(),
            synchronization_count=int(self.syncs.size), synchronization_wait_ns=int(self.trace.runtime.duration_ns[self.syncs].sum()),
            synchronization_idle_ns=idle_ns, synchronizations=rows, host_copies=self._host_copies(),
            host_copy_exposed_ns=self._exposed_copies(), overlap=self._overlap(),
            data_loader_wait_ns=union_length(*loader), data_loader=loader_rows,
            data_loader_idle_ns=union_length(*loader) if idle is None else int(covered(*loader, *idle).sum()),
            compile_ns=union_length(*compiled), compilation=compiled_rows,
            explained_late_ns=0 if late is None else int(covered(*host, *late).sum()))

    def _streams(self) -> int:
        device, rows = self.trace.device, self.work.rows
        return len(set(zip(device.device[rows].tolist(), device.stream[rows].tolist(), strict=True)))

    # -- lines ------------------------------------------------------------------------------------------------------------

    def _operator_at(self, events: EventTable, rows: Int64) -> Int64:
        return self.calls.nesting.innermost(events.process[rows], events.thread[rows], events.start_ns[rows])

    def _line(self, operator: int) -> str | None:
        return self.places.of(operator).source if operator >= 0 else None

    def _chain(self, operator: int) -> tuple[str, ...]:
        """Names of the operators around a moment, outermost first."""
        return (*self.calls.parents(operator), self.calls.name(operator))[:MOST_OPERATORS] if operator >= 0 else ()

    # -- synchronisation --------------------------------------------------------------------------------------------------

    def _synchronizations(self, idle: Intervals | None, host: Intervals) -> tuple[tuple[Synchronization, ...], int]:
        runtime = self.trace.runtime
        idle_after = np.zeros(self.syncs.size, dtype=np.int64) if idle is None else self._idle_after(idle, host)
        direction = dict(zip(self.copies.operator.tolist(), self.copies.direction, strict=True))
        lines = self.moments.lines(lambda trace: trace.runtime, SYNCHRONIZING.__contains__)
        groups: dict[tuple[str, tuple[str, ...], Direction | None, str | None], list[int]] = defaultdict(list)
        for index, (row, operator) in enumerate(zip(self.syncs.tolist(), self.sync_operator.tolist(), strict=True)):
            where = self._line(operator) or lines.get(row)
            groups[runtime.name(row), self._chain(operator), direction.get(operator) if operator >= 0 else None, where].append(index)
        found = [Synchronization(
            call=call, operators=operators, copies=copied, where=where, count=len(members),
            wait_ns=int(runtime.duration_ns[self.syncs[members]].sum()), idle_ns=int(idle_after[members].sum()))
            for (call, operators, copied, where), members in groups.items()]
        return _largest(found, [row.wait_ns for row in found]), int(idle_after.sum())

    def _idle_after(self, idle: Intervals, host: Intervals) -> Int64:
        """Per synchronisation, the idle device time that it caused, shape (m,).

        A wait that returns inside an idle stretch of the device left it without queued work: the stretch is its doing (the
        first such wait's), but for what the host then spent in data loading or compilation. Where the engine has given every moment its
        one cause, each wait has the moments that are its own.
        """
        if self.idle_of_calls is not None:
            return self.idle_of_calls[self.syncs]
        caused = np.zeros(self.syncs.size, dtype=np.int64)
        returned = self.trace.runtime.end_ns[self.syncs]
        order = np.argsort(returned, kind="stable")
        first = np.searchsorted(returned[order], idle[0])
        usable = np.flatnonzero(first < order.size)
        usable = usable[returned[order][first[usable]] < idle[1][usable]]
        lost = idle[1][usable] - idle[0][usable] - covered(*host, idle[0][usable], idle[1][usable])
        np.add.at(caused, order[first[usable]], lost)
        return caused

    # -- copies and streams -----------------------------------------------------------------------------------------------

    def _copies(self) -> _Copies:
        device, runtime, work = self.trace.device, self.trace.runtime, self.work
        matches = {index: match for index, name in enumerate(device.names) if (match := _COPY.match(name))}
        place = np.flatnonzero(np.isin(device.name_id[work.rows], np.array(list(matches), dtype=np.int64)))
        operator = np.full(place.size, -1, dtype=np.int64)
        known = work.launch[place] >= 0
        operator[known] = self._operator_at(runtime, work.launch[place][known])
        found = [matches[int(name)] for name in device.name_id[work.rows[place]]]
        directions: list[Direction] = ["HtoD" if match["direction"] == "HtoD" else "DtoH" for match in found]
        return _Copies(place, operator, directions, [_memory(match) for match in found])

    def _host_copies(self) -> tuple[HostCopy, ...]:
        device, copies = self.trace.device, self.copies
        groups: dict[tuple[Direction, HostMemory | None, str | None, str | None], list[int]] = defaultdict(list)
        for index, operator in enumerate(copies.operator.tolist()):
            chain = self._chain(operator)
            groups[copies.direction[index], copies.memory[index], chain[0] if chain else None, self._line(operator)].append(index)
        found = []
        for (direction, memory, name, where), members in groups.items():
            rows = self.work.rows[copies.place[members]]
            sizes = [int(device.args[row]["bytes"]) for row in rows.tolist()]
            found.append(HostCopy(direction=direction, memory=memory, operator=name, where=where, count=len(members),
                                  bytes=sum(sizes) if min(sizes) >= 0 else None, duration_ns=int(device.duration_ns[rows].sum())))
        return _largest(found, [row.duration_ns for row in found])

    def _exposed_copies(self) -> int:
        device, rows = self.trace.device, self.work.rows
        is_copy = np.zeros(rows.size, dtype=bool)
        is_copy[self.copies.place] = True
        copying = union(device.start_ns[rows[is_copy]], device.end_ns[rows[is_copy]])
        hidden = covered(device.start_ns[rows[~is_copy]], device.end_ns[rows[~is_copy]], *copying)
        return int((copying[1] - copying[0]).sum() - hidden.sum())

    def _overlap(self) -> Overlap | None:
        """Streams step by step: pinned uploads, and pinned downloads that nobody waits for, could run beside kernels."""
        device, work, copies = self.trace.device, self.work, self.copies
        waited_for = set(self.sync_operator.tolist())
        kinds = np.full(work.rows.size, COMPUTE, dtype=np.int64)
        movable = [index for index, operator in enumerate(copies.operator.tolist()) if copies.memory[index] == "pinned"
                   and (copies.direction[index] == "HtoD" or operator < 0 or operator not in waited_for)]
        for index in movable:
            kinds[copies.place[index]] = UPLOAD if copies.direction[index] == "HtoD" else DOWNLOAD
        is_kernel = np.array([details["category"] == "kernel" for details in device.args], dtype=bool)[work.rows]
        key = np.stack((work.step, device.device[work.rows], device.stream[work.rows]))
        serial = together = 0
        moved: list[int] = []
        for group in np.unique(key[:, kinds != COMPUTE], axis=1).T:
            rows = np.flatnonzero((key == group[:, None]).all(axis=0))
            if not is_kernel[rows].any():
                continue
            durations = device.duration_ns[work.rows[rows]]
            serial, together = serial + int(durations.sum()), together + overlapped_ns(kinds[rows], durations)
            moved += np.flatnonzero(np.isin(copies.place, rows[kinds[rows] != COMPUTE])).tolist()
        if not moved:
            return None
        duration = device.duration_ns[work.rows[copies.place]]
        lines: dict[str, int] = defaultdict(int)
        for index in moved:
            if (line := self._line(int(copies.operator[index]))) is not None:
                lines[line] += int(duration[index])
        return Overlap(copies=len(moved), copy_ns=int(duration[moved].sum()), serial_ns=serial, overlapped_ns=together,
                       where=max(lines, key=lambda line: lines[line]) if lines else None)

    # -- host work --------------------------------------------------------------------------------------------------------

    def _loader(self) -> tuple[Intervals, tuple[HostWork, ...]]:
        ranges = self.trace.ranges
        rows = _inside(self.trace, ranges, is_loader)
        lines = self.moments.lines(lambda trace: trace.ranges, is_loader)
        return _host_work((ranges.name(row), lines.get(row), ranges, row) for row in rows)

    def _compilation(self) -> tuple[Intervals, tuple[HostWork, ...]]:
        """Ranges of torch's compiler (operators in newer versions, annotations in older ones), and module loading."""
        rows: list[tuple[str, str | None, EventTable, int]] = []
        tables: tuple[Table, ...] = (lambda trace: trace.operators, lambda trace: trace.ranges)
        for table in tables:
            events = table(self.trace)
            lines = self.moments.lines(table, is_compiler)
            chosen = _inside(self.trace, events, is_compiler)
            rows += [(COMPILING, lines.get(row), events, row) for row in chosen]
        loads = _inside(self.trace, self.trace.overheads, LOADING.__contains__)
        step = step_of(self.trace, self.trace.overheads.start_ns[loads])
        home = self.calls.nesting.innermost(self.trace.steps.process[step], self.trace.steps.thread[step],
                                            self.trace.overheads.start_ns[loads])
        rows += [(self.trace.overheads.name(row), self._line(int(operator)), self.trace.overheads, row)
                 for row, operator in zip(loads, home, strict=True)]
        return _host_work(rows)


def _memory(match: re.Match[str]) -> HostMemory | None:
    side = match["source"] if match["direction"] == "HtoD" else match["target"]
    return "pageable" if side == "Pageable" else "pinned" if side == "Pinned" else None


def _inside(trace: Trace, events: EventTable, chosen: Chosen) -> list[int]:
    """Rows of events that start in a step and whose name is chosen."""
    wanted = np.array([chosen(name) for name in events.names], dtype=bool)
    return np.flatnonzero((step_of(trace, events.start_ns) >= 0) & wanted[events.name_id]).tolist() if len(events) else []


def _host_work(rows: Iterable[tuple[str, str | None, EventTable, int]]) -> tuple[Intervals, tuple[HostWork, ...]]:
    """(the disjoint intervals of all rows, one HostWork a name and line; nested rows count once)."""
    groups: dict[tuple[str, str | None], list[tuple[int, int]]] = defaultdict(list)
    for name, where, table, row in rows:
        groups[name, where].append((int(table.start_ns[row]), int(table.end_ns[row])))
    found = []
    for (name, where), spans in groups.items():
        starts, ends = union(*_arrays(spans))
        found.append(HostWork(name=name, where=where, count=int(starts.size), duration_ns=int((ends - starts).sum())))
    everything = union(*_arrays([span for spans in groups.values() for span in spans]))
    return everything, _largest(found, [row.duration_ns for row in found])


def _arrays(spans: list[tuple[int, int]]) -> Intervals:
    matrix = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return matrix[:, 0], matrix[:, 1]


def _largest(rows: list[Row], sizes: list[int]) -> tuple[Row, ...]:
    order = sorted(range(len(rows)), key=lambda index: -sizes[index])
    return tuple(rows[index] for index in order[:MOST_ROWS])
