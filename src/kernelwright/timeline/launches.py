"""Launch calls and the work they launched: latency, queue depth, order; and sums of all runtime calls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..model.flow import MOST_CALLS, MOST_POINTS, ApiCall, Distribution, Launches, LaunchOrder, QueueDepth
from ..model.table import EventTable, Int64
from ..model.trace import Trace
from .concurrency import levels, time_at_level
from .memory import thinned
from .names import plain
from .nesting import by_thread
from .steps import DeviceWork, device_work, step_of


@dataclass(frozen=True)
class LaunchTable:
    """The steps' launch calls in start order. All of shape (n,)."""

    row: Int64
    """Of trace.runtime."""
    first: Int64
    """Row of trace.device that began first of what it launched."""
    call_ns: Int64
    returned_ns: Int64
    begun_ns: Int64
    device: Int64
    stream: Int64
    step: Int64

    def __len__(self) -> int:
        return int(self.row.size)

    @property
    def latency_ns(self) -> Int64:
        """From the call's return to the begin of its work, 0 where that came before."""
        waited: Int64 = np.maximum(self.begun_ns - self.returned_ns, 0)
        return waited


class LaunchedWork:
    """Device work of the steps with the calls that launched it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.work: DeviceWork = device_work(trace)

    @cached_property
    def leading(self) -> npt.NDArray[np.bool_]:
        """Whether each of work.rows is the first to begin of its launch; False without a known launch. Shape (m,)."""
        launch = self.work.launch
        first = np.zeros(launch.size, dtype=bool)
        # rows are in start order, so the first of each launch is the first met.
        calls, places = np.unique(launch, return_index=True)
        first[places[calls >= 0]] = True
        return first

    @cached_property
    def table(self) -> LaunchTable:
        """One row a launch call."""
        runtime, device = self.trace.runtime, self.trace.device
        places = np.flatnonzero(self.leading)
        # Rows of a table in start order: the order of the rows is that of the calls.
        places = places[np.argsort(self.work.launch[places], kind="stable")]
        row, first = self.work.launch[places], self.work.rows[places]
        return LaunchTable(row, first, runtime.start_ns[row], runtime.end_ns[row], device.start_ns[first], device.device[first],
                           device.stream[first], self.work.step[places])

    @cached_property
    def unqueued(self) -> npt.NDArray[np.bool_]:
        """Launches whose call returned when the device had nothing left to run of what began before; shape (n,)."""
        table, device = self.table, self.trace.device
        result = np.zeros(len(table), dtype=bool)
        all_rows = dict(by_thread(device.device, device.device))
        for index, mine in by_thread(table.device, table.device):
            rows = all_rows[index]
            reach = np.maximum.accumulate(device.end_ns[rows])
            before = np.searchsorted(rows, table.first[mine])
            result[mine] = np.append(reach, np.iinfo(np.int64).min)[before - 1] <= table.returned_ns[mine]
        return result

    @cached_property
    def usual_latency_ns(self) -> int:
        """Median latency with nothing in the way, ns; 0 where no launch had that."""
        found = self.table.latency_ns[self.unqueued]
        return int(np.median(found)) if found.size else 0

    @cached_property
    def usual_interval_ns(self) -> int | None:
        """Median time from one launch call's start to the next one's, on one thread in one step; None without two."""
        table, runtime = self.table, self.trace.runtime
        apart: list[Int64] = []
        for _, members in by_thread(runtime.process[table.row], runtime.thread[table.row]):
            same_step = np.diff(table.step[members]) == 0
            apart.append(np.diff(table.call_ns[members])[same_step])
        joined = np.concatenate([np.zeros(0, dtype=np.int64), *apart])
        return int(np.median(joined)) if joined.size else None


def launches(found: LaunchedWork) -> Launches | None:
    """Latency and order of the steps' launches; None without one."""
    table = found.table
    if not len(table):
        return None
    runtime = found.trace.runtime
    order = LaunchOrder(
        launches=len(table), threads=len(by_thread(runtime.process[table.row], runtime.thread[table.row])),
        stream_switches=int(np.count_nonzero((np.diff(table.stream) != 0) | (np.diff(table.device) != 0))), overtaken=_overtaken(table))
    return Launches(
        order=order, latency=distribution(table.latency_ns), unqueued_latency=distribution(table.latency_ns[found.unqueued]),
        begun_before_return=int(np.count_nonzero(table.begun_ns < table.returned_ns)), interval_ns=found.usual_interval_ns)


def _overtaken(table: LaunchTable) -> int:
    """Launches that began after one that was made later, on their device."""
    total = 0
    for _, mine in by_thread(table.device, table.device):
        begun = table.begun_ns[mine]
        earliest_later = np.minimum.accumulate(begun[::-1])[::-1]
        total += int(np.count_nonzero(earliest_later[1:] < begun[:-1]))
    return total


def queue_depth(table: LaunchTable, device: int, low: int, high: int) -> QueueDepth | None:
    """Launches that had returned and not begun, within [low, high); None without one on this device."""
    mine = table.device == device
    if not mine.any() or high <= low:
        return None
    points, depth = levels(table.returned_ns[mine], table.begun_ns[mine], low, high)
    times = time_at_level(points, depth, high)
    weighted = sum(level * time for level, time in enumerate(times.tolist()))
    return QueueDepth(deepest=int(depth.max()), mean=weighted / (high - low), empty_ns=int(times[0]),
                      points=thinned(points, depth, MOST_POINTS, keep=int(np.argmax(depth))))


def distribution(durations: Int64) -> Distribution | None:
    """Their figures; None of none."""
    if durations.size == 0:
        return None
    median, p90, p99 = (float(value) for value in np.percentile(durations, (50, 90, 99)))
    return Distribution(count=int(durations.size), total_ns=int(durations.sum()), median_ns=median, p90_ns=p90, p99_ns=p99,
                        min_ns=int(durations.min()), max_ns=int(durations.max()))


def api_calls(runtime: EventTable, rows: Int64, most: int = MOST_CALLS) -> tuple[ApiCall, ...]:
    """Sums over these rows of trace.runtime by function, most total time first."""
    if rows.size == 0:
        return ()
    names = [plain(name) for name in runtime.names]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    group = np.array([numbers[name] for name in names], dtype=np.int64)[runtime.name_id[rows]]
    durations = runtime.duration_ns[rows]
    order = np.lexsort((durations, group))
    begins = np.flatnonzero(np.concatenate(([True], np.diff(group[order]) != 0)))
    labels = list(numbers)
    found = [ApiCall(name=labels[int(group[part[0]])], count=int(part.size), total_ns=int(durations[part].sum()),
                     median_ns=float(np.median(durations[part])), min_ns=int(durations[part[0]]), max_ns=int(durations[part[-1]]))
             for part in np.split(order, begins[1:])]
    return tuple(sorted(found, key=lambda call: (-call.total_ns, call.name))[:most])


def calls_in_steps(trace: Trace) -> Int64:
    """Rows of trace.runtime that start in a step."""
    return np.flatnonzero(step_of(trace, trace.runtime.start_ns) >= 0)
