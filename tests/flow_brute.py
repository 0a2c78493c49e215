"""Random little traces, and the flow of them counted nanosecond by nanosecond: slow, obvious, from docs/timeline.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from kernelwright.model.table import EventTable, MemoryEvents, RowDetails
from kernelwright.model.trace import Trace

T = TypeVar("T")
HORIZON = 60
NOTHING = np.zeros(0, dtype=np.int64)
SYNCS = {"cudaStreamSynchronize", "cudaMemcpy"}
COPIES = {"cudaMemcpyAsync", "cudaMemcpy"}
ALLOCATIONS = {"cudaMalloc"}
LOADS = {"cuModuleLoadData"}
LOADER, COMPILER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "_compile.compile_inner (dynamo_timed)"


@dataclass(frozen=True)
class Row:
    """One event."""

    start: int
    end: int
    name: str
    process: int = 1
    thread: int = 1
    device: int = -1
    stream: int = -1
    correlation: int = -1


def pairs(items: list[T]) -> list[tuple[T, T]]:
    """Each with its next."""
    return list(pairwise(items))


def table(rows: list[Row]) -> EventTable:
    """Rows in nesting order as a table."""
    rows = in_order(rows)
    names = list(dict.fromkeys(row.name for row in rows))

    def column(values: list[int]) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    return EventTable(
        column([row.start for row in rows]), column([row.end for row in rows]), column([names.index(row.name) for row in rows]),
        column([row.stream for row in rows]), column([row.device for row in rows]), column([row.process for row in rows]),
        column([row.thread for row in rows]), column([row.correlation for row in rows]), tuple(names), RowDetails(len(rows)))


def in_order(rows: list[Row]) -> list[Row]:
    """As readers sort them."""
    return sorted(rows, key=lambda row: (row.start, -row.end))


def make(*, device: list[Row] = (), runtime: list[Row] = (), steps: list[Row], operators: list[Row] = (), ranges: list[Row] = (),
         overheads: list[Row] = ()) -> Trace:
    """A trace of these rows."""
    return Trace(device=table(list(device)), runtime=table(list(runtime)), operators=table(list(operators)), ranges=table(list(ranges)),
                 python=table([]), lines=table([]), steps=table(steps), overheads=table(list(overheads)),
                 memory=MemoryEvents(*[NOTHING] * 8), device_names=("GPU",), sm_counts=(1,), is_cuda=bool(device), source="made.json")


@st.composite
def traces(draw: st.DrawFn) -> dict[str, list[Row]]:
    """The rows of a little trace by table: two devices, three streams, two threads, all kinds of host events."""
    point = st.integers(-5, HORIZON)

    def span() -> tuple[int, int]:
        start = draw(point)
        return start, start + draw(st.integers(0, 14))

    cuts = sorted(draw(st.sets(st.integers(0, HORIZON), min_size=2, max_size=4)))
    home = draw(st.sampled_from([1, 2, -1]))
    steps = [Row(0, cuts[0] + 1, "kernelwright.step", thread=home)]
    steps += [Row(low + 2, high + 2, "kernelwright.step", thread=home) for low, high in pairs(cuts)]
    rows: dict[str, list[Row]] = {"steps": steps, "runtime": [], "device": [], "operators": [], "ranges": [], "overheads": []}
    for correlation in range(1, 1 + draw(st.integers(1, 7))):
        start, end = span()
        name = draw(st.sampled_from(["cudaLaunchKernel", "cudaLaunchKernel_v7000", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemcpy"]))
        if draw(st.integers(0, 9)):
            rows["runtime"].append(Row(start, end, name, thread=draw(st.sampled_from([1, 1, 2])), correlation=correlation))
        device, stream = draw(st.sampled_from([0, 0, 0, 1])), draw(st.sampled_from([7, 7, 8]))
        for _ in range(draw(st.integers(1, 3)) if name == "cudaGraphLaunch" else 1):
            begun = start + draw(st.integers(0, 20))
            work = draw(st.sampled_from(["kernel", "gemm", "ncclDevKernel_AllReduce", "Memcpy HtoD (Pageable -> Device)",
                                         "Memcpy DtoD (Device -> Device)", "Memset (Device)"]))
            rows["device"].append(Row(begun, begun + draw(st.integers(0, 9)), work, device=device, stream=stream, correlation=correlation))
    for _ in range(draw(st.integers(0, 6))):
        name = draw(st.sampled_from([*SYNCS, *ALLOCATIONS, *LOADS, "cudaStreamWaitEvent", "cudaEventRecord", "cudaMemcpyAsync"]))
        rows["runtime"].append(Row(*span(), name, thread=draw(st.sampled_from([1, 2])), correlation=draw(st.sampled_from([-1, 90, 91]))))
    for kind in ("operators", "ranges"):
        for _ in range(draw(st.integers(0, 2))):
            rows[kind].append(Row(*span(), draw(st.sampled_from([LOADER, COMPILER, "aten::mm"])), thread=draw(st.sampled_from([1, 2]))))
    for _ in range(draw(st.integers(0, 2))):
        process, thread = draw(st.sampled_from([(-1, 0), (1, 1), (1, 9)]))
        rows["overheads"].append(Row(*span(), draw(st.sampled_from(["Lazy Function Loading", "Buffer Flush"])), process, thread))
    return rows


class Brute:
    """The same figures, by looking at every nanosecond."""

    def __init__(self, rows: dict[str, list[Row]]) -> None:
        self.steps = in_order(rows["steps"])
        self.runtime, self.device = in_order(rows["runtime"]), in_order(rows["device"])
        self.others = {kind: in_order(rows[kind]) for kind in ("operators", "ranges", "overheads")}
        self.low = min(step.start for step in self.steps)
        self.work = [(row, launch, step) for row in self.device for launch, step in [self._placed(row)] if step is not None]
        self.calls = [call for call in self.runtime if any(launch is call for _, launch, _ in self.work)]
        self.latency, self.interval = self._usual()

    def _placed(self, row: Row) -> tuple[Row | None, int | None]:
        launch = next((call for call in self.runtime if call.correlation == row.correlation), None)
        if launch is not None:
            inside = [index for index, step in enumerate(self.steps) if step.start <= launch.start < step.end]
            return launch, inside[-1] if inside else None
        begun = [index for index, step in enumerate(self.steps) if step.start <= row.start]
        return None, begun[-1] if begun else None

    def first_of(self, call: Row) -> Row:
        return next(row for row, launch, _ in self.work if launch is call)

    def unqueued(self, call: Row) -> bool:
        first = self.first_of(call)
        earlier = self.device[:[row is first for row in self.device].index(True)]
        return all(row.end <= call.end for row in earlier if row.device == first.device)

    def call_latency(self, call: Row) -> int:
        return max(0, self.first_of(call).start - call.end)

    def _usual(self) -> tuple[int, int]:
        free = [self.call_latency(call) for call in self.calls if self.unqueued(call)]
        apart = []
        for thread in {call.thread for call in self.calls}:
            mine = [call for call in self.calls if call.thread == thread]
            apart += [after.start - before.start for before, after in pairs(mine)
                      if self._placed(self.first_of(before))[1] == self._placed(self.first_of(after))[1]]
        return (int(median(free)) if free else 0), (int(median(apart)) if apart else 0)

    def idle(self, device: int, stream: int | None = None) -> list[tuple[int, int]]:
        """Stretches without work; of a stream, between its own works."""
        mine = [row for row, _, _ in self.work if row.device == device and stream in (None, row.stream) and row.end > row.start]
        if not mine:
            return []
        low = self.low if stream is None else min(row.start for row in mine)
        free = [at for at in range(low, max(row.end for row in mine)) if not any(row.start <= at < row.end for row in mine)]
        found: list[tuple[int, int]] = []
        for at in free:
            found = [*found[:-1], (found[-1][0], at + 1)] if found and found[-1][1] == at else [*found, (at, at + 1)]
        return found

    def parts(self, device: int, stream: int | None, start: int, end: int) -> Counter[str]:
        """Cause of each nanosecond of one gap."""
        self._stream = stream
        row, launch, step = next((row, launch, step) for row, launch, step in self.work if row.device == device
                                 and stream in (None, row.stream) and row.start == end and row.end > row.start)
        found: Counter[str] = Counter()
        for at in range(start, end):
            found[self._cause(at, end, row, launch, step)] += 1
        return found

    def _cause(self, at: int, end: int, row: Row, launch: Row | None, step: int | None) -> str:
        known = {id(mine) for mine, _, _ in self.work}
        if any(other.start <= at < other.end and other.device == row.device and self._stream in (None, other.stream)
               for other in self.device if id(other) not in known):
            return "outside"
        if launch is None:
            return "unknown"
        leading = self.first_of(launch) is row
        if leading and at < launch.end:
            return self._host(at, launch, step)
        ended = [other.end for other in self.device if other.device == row.device and other.end <= end]
        if not leading or (max(ended, default=-99) > launch.end and at >= launch.end + self.latency):
            return "dependency"
        return "launch_latency"

    def _host(self, at: int, launch: Row, step: int | None) -> str:
        assert step is not None
        threads = {launch.thread, self.steps[step].thread} - {-1}

        def on(rows: list[Row], chosen: set[str]) -> bool:
            return any(row.start <= at < row.end and row.name in chosen and (row.thread in threads or row.process < 0) for row in rows)

        if not any(one.start <= at < one.end for one in self.steps):
            return "outside"
        if on(self.others["overheads"], {"Buffer Flush"}):
            return "profiler"
        if on(self.others["overheads"], {"Lazy Function Loading"}) or on(self.runtime, LOADS) \
                or on(self.others["operators"] + self.others["ranges"], {COMPILER}):
            return "first_use"
        if on(self.others["operators"] + self.others["ranges"], {LOADER}):
            return "data_loader"
        if on(self.runtime, ALLOCATIONS):
            return "allocator"
        if on([row for row in self.runtime if not self._stays(row)], COPIES):
            return "copy"
        if on([Row(row.start, self._back(row), row.name, row.process, row.thread) for row in self.runtime], SYNCS):
            return "synchronization"
        return "host_bound"

    def _stays(self, call: Row) -> bool:
        work = [row.name for row in self.device if row.correlation == call.correlation >= 0]
        return bool(work) and not any(name.startswith("Memcpy HtoD") for name in work)

    def _back(self, call: Row) -> int:
        """When a synchronising call's thread has come back from it."""
        if not any(step.start <= call.start < step.end for step in self.steps):
            return call.end
        following = [other.start for other in self.calls if other.thread == call.thread and other.start >= call.end]
        return min([call.end + (call.end - call.start) + self.interval, *following])
