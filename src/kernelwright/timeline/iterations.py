"""Iterations: found by repetition when the recording marks none, and summed up. Definitions: docs/timeline-structure.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..model.base import Figure
from ..model.profile import Operator
from ..model.structure import MOST_ITERATIONS, FoundIterations, Iteration, IterationConfidence
from ..model.table import EventTable, Int64
from ..model.trace import Trace
from .intervals import parents, union_length
from .kernel_names import marks_step
from .names import plain
from .nesting import threads
from .pace import step_times
from .periods import LEAST_REPEATS, Period, Words, period_of
from .work import Work

HIGH_SHARE, MEDIUM_SHARE = 0.9, 0.75
"""Share of the launches that the iterations must hold."""
HIGH_BREAKS, MEDIUM_BREAKS = 0.1, 0.25
"""Interruptions allowed, as a share of the iterations; none where no host event confirms them."""
FEW_REPEATS = 10
_DEVICE_SYNCHRONIZATION = frozenset({"cudaDeviceSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize"})
Confirmation = tuple[str, bool]
"""(name of the event, whether layers of one iteration can be told from iterations by it)."""


def with_found_steps(trace: Trace) -> tuple[Trace, FoundIterations]:
    """The trace with steps that repetition of its launches gives (steps_from "found"), and how far to trust them.

    Times are moved so that 0 is the first found step. A trace whose steps are marked, in which nothing repeats, or in which what repeats
    is of low confidence comes back as it is; FoundIterations says which.
    """
    if trace.steps_from != "whole":
        return trace, given(trace)
    points = _launches(trace)
    words = Words(points.symbols)
    period = period_of(words, points.symbols)
    if period is None:
        return trace, FoundIterations(
            steps_from="whole", count=len(trace.steps), confidence="low", launches_total=len(points),
            note=f"no sequence of launches comes {LEAST_REPEATS} times in a row: the whole recording is one step")
    first = period.first + _phase(points, period)
    places = _apart(words.places_of(first, period.length), period.length)
    steps = _steps(points, places, period.length)
    found = _judged(trace, points, places, period.length, steps)
    return (trace, found) if found.confidence == "low" else (_retimed(trace, steps), found)


def given(trace: Trace) -> FoundIterations:
    """What there is to say of steps that the recording marks."""
    return FoundIterations(steps_from=trace.steps_from, count=len(trace.steps), confidence="given")


def iterations(trace: Trace, work: Work, *, operators: Sequence[Operator] = (), peak: Figure | None = None) -> tuple[Iteration, ...]:
    """One row a step. operators: with their FLOPs. peak: in TFLOP/s."""
    flops: dict[int, float] = {}
    for operator in operators:
        if operator.flops is not None:
            flops[operator.step] = flops.get(operator.step, 0.0) + operator.flops
    rows, times = [], step_times(trace)
    for step in range(min(len(trace.steps), MOST_ITERATIONS)):
        mine = work.of_step(step)
        wall = int(trace.steps.duration_ns[step])
        rows.append(Iteration(
            index=step, start_ns=int(trace.steps.start_ns[step]), wall_ns=wall, time_ns=int(times[step]),
            device_ns=int(work.duration[mine].sum()) if trace.is_cuda else None,
            device_busy_ns=union_length(work.start[mine], work.end[mine]) if trace.is_cuda else None,
            launches=mine.stop - mine.start, flops=flops.get(step), mfu_pct=mfu(flops.get(step), peak, wall)))
    return tuple(rows)


def mfu(flops: float | None, peak: Figure | None, ns: int) -> float | None:
    """Share of the peak (TFLOP/s) that these FLOPs in this time are, %."""
    return 100.0 * flops / (peak.value * 1e3 * ns) if flops is not None and peak is not None and peak.value > 0 and ns > 0 else None


@dataclass(frozen=True)
class _Points:
    """What is looked at for repetition: launches in call order (CPU: outermost operators of the busiest thread). All of shape (n,)."""

    symbols: Int64
    begun: Int64
    ended: Int64
    device_ns: Int64
    process: int
    thread: int

    def __len__(self) -> int:
        return int(self.symbols.size)


def _launches(trace: Trace) -> _Points:
    if trace.is_cuda:
        work = Work(trace)
        launch = work.launch[work.launch >= 0]
        home = (int(trace.runtime.process[launch[0]]), int(trace.runtime.thread[launch[0]])) if launch.size else (-1, -1)
        return _Points(work.name_id, work.called, work.returned, work.duration, *home)
    table = trace.operators
    groups = [(process, thread, np.flatnonzero((table.process == process) & (table.thread == thread)))
              for process, thread in threads(table, np.arange(len(table)))]
    if not groups:
        none = np.zeros(0, dtype=np.int64)
        return _Points(none, none, none, none, -1, -1)
    process, thread, rows = max(groups, key=lambda group: group[2].size)
    rows = rows[parents(table.start_ns[rows], table.end_ns[rows]) < 0]
    return _Points(table.name_id[rows], table.start_ns[rows], table.end_ns[rows], np.zeros(rows.size, dtype=np.int64), process, thread)


def _phase(points: _Points, period: Period) -> int:
    """Where in the period an iteration begins: before the launch that the host takes the longest to come to, over all repeats.

    With few repeats only where none of them is lost.
    """
    since = np.concatenate(([0], points.begun[1:] - np.maximum.accumulate(points.ended)[:-1]))
    inner = np.maximum(since[period.first + period.length:period.first + period.covered], 0)
    # At least LEAST_REPEATS - 1 whole rows; what is left over would favour the first phases.
    waits = inner[:inner.size - inner.size % period.length].reshape(-1, period.length).sum(axis=0)
    if period.covered // period.length < FEW_REPEATS:
        waits = waits[:period.covered % period.length + 1]
    return int(np.argmax(waits))


def _apart(places: Int64, length: int) -> Int64:
    """From left to right, each place that begins after the last one taken ended."""
    taken: list[int] = []
    at = 0
    while at < places.size:
        taken.append(int(places[at]))
        at = int(np.searchsorted(places, taken[-1] + length))
    return np.array(taken, dtype=np.int64)


def _steps(points: _Points, places: Int64, length: int) -> EventTable:
    """From each first launch call to the call after the last; without one to that call's own end."""
    after = places + length
    last = points.ended[places[-1]:places[-1] + length].max()
    ends = np.where(after < len(points), points.begun[np.minimum(after, len(points) - 1)], last)
    none = np.full(places.size, -1, dtype=np.int64)
    return EventTable(start_ns=points.begun[places], end_ns=ends.astype(np.int64), name_id=np.zeros(places.size, dtype=np.int64),
                      stream=none, device=none, process=np.full(places.size, points.process, dtype=np.int64),
                      thread=np.full(places.size, points.thread, dtype=np.int64), correlation=none, names=("iteration",))


def _judged(trace: Trace, points: _Points, places: Int64, length: int, steps: EventTable) -> FoundIterations:
    inside = np.zeros(len(points) + 1, dtype=np.int64)
    inside[places] += 1
    np.subtract.at(inside, places + length, 1)
    outside = np.cumsum(inside[:-1]) == 0
    breaks = int((np.diff(places) != length).sum())
    share = 1.0 - float(outside.mean())
    confirmed = _confirmation(trace, steps)
    count = int(places.size)
    confidence: IterationConfidence = "low"
    if count >= LEAST_REPEATS and share >= MEDIUM_SHARE and breaks <= (MEDIUM_BREAKS * count if confirmed else 0):
        confidence = "medium"
        if confirmed is not None and confirmed[1] and share >= HIGH_SHARE and breaks <= HIGH_BREAKS * count:
            confidence = "high"
    notes = []
    if breaks:
        notes.append(f"other launches come between them {breaks} times: an iteration that differs, or these are parts of a longer one")
    if share < MEDIUM_SHARE:
        notes.append(f"they hold {100 * share:.0f}% of the launches only")
    if confidence != "high" and not (confirmed and confirmed[1]):
        notes.append("nothing on the host tells them from layers of one iteration")
    return FoundIterations(
        steps_from="whole" if confidence == "low" else "found", count=count, confidence=confidence, launches_each=length,
        launches_total=len(points), launches_left_out=int(outside.sum()), device_left_out_ns=int(points.device_ns[outside].sum()),
        confirmed_by=confirmed[0] if confirmed else None, note="; ".join(notes))


def _confirmation(trace: Trace, steps: EventTable) -> Confirmation | None:
    """A host event that comes exactly once in each step (in the last, which ends with its launches, at most once)."""
    sources: list[tuple[EventTable, Callable[[str], bool], bool]] = [
        (trace.ranges, marks_step, True), (trace.operators, marks_step, True),
        (trace.runtime, lambda name: plain(name) in _DEVICE_SYNCHRONIZATION, True),
        (trace.runtime, lambda name: plain(name).endswith("Synchronize"), False),
        (trace.device, lambda name: name.startswith(("Memcpy HtoD", "Memcpy DtoH")), False)]
    for table, test, strong in sources:
        for index in [index for index, name in enumerate(table.names) if test(name)]:
            times = np.sort(table.start_ns[table.name_id == index])
            counts = np.searchsorted(times, steps.end_ns) - np.searchsorted(times, steps.start_ns)
            if (counts[:-1] == 1).all() and counts[-1] <= 1:
                return table.names[index], strong
    return None


def _retimed(trace: Trace, steps: EventTable) -> Trace:
    """With these steps, and times from the first of them."""
    origin = int(steps.start_ns[0])

    def moved(table: EventTable) -> EventTable:
        return replace(table, start_ns=table.start_ns - origin, end_ns=table.end_ns - origin)

    return replace(
        trace, device=moved(trace.device), runtime=moved(trace.runtime), operators=moved(trace.operators), ranges=moved(trace.ranges),
        python=moved(trace.python), lines=moved(trace.lines), overheads=moved(trace.overheads), steps=moved(steps),
        memory=replace(trace.memory, time_ns=trace.memory.time_ns - origin), steps_from="found")
