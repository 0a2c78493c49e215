"""Reader for Nsight Systems recordings, exported to SQLite (`nsys export --type sqlite`) -> the same Trace that Kineto's reader gives.

A device row belongs to the API call with its correlation id in its process. emit_nvtx's ranges become operators with shapes and sequence
numbers; NVTX holds no dtypes. Kernels have the names that nsys shows, copies and API calls those of Kineto. Schemas of 2023 to 2026, and
older ones as far as they have the same tables: a column that a version has not counts as unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..model.errors import BadInput
from ..model.table import Int64, MemoryEvents
from ..model.trace import LINE_PREFIX, STACKS_STEP_NAME, STAGE_PREFIX, Trace
from .nsys_devices import Gpu, gpus, numbered_devices
from .nsys_file import DEFAULT_MAX_BYTES, NsysFile, open_nsys
from .nsys_ranges import Ranges
from .nsys_rows import Rows, process_numbers, replaced
from .nsys_steps import Steps, choose_steps, named_like
from .nsys_tables import call_rows, device_rows, memory_events, overhead_rows

_CORRELATION_BITS = 40


def read_nsys(path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES, steps_range: str | None = None) -> tuple[Trace, Trace | None]:
    """(the timeline, the step with line markers and module ranges or None). All times are from the start of the first profiled step.

    The steps are the probe's; in other recordings the ranges named steps_range (which comes before all else), torch.profiler's
    ProfilerStep#N, or the whole recording as one. What began in the step with markers is in the second trace only.
    Raises BadInput for a file that is missing, larger than max_bytes, no such export, or with contents that can't be right; for one
    without any event; and where no range has the name steps_range.
    """
    with open_nsys(path, max_bytes) as file:
        recording = _read(file)
        return _traces(file, recording, steps_range)


def read_gpus(path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> tuple[Gpu, ...]:
    """What the recording says of the machine's GPUs. Raises BadInput as read_nsys."""
    with open_nsys(path, max_bytes) as file:
        return gpus(file)


@dataclass(frozen=True)
class _Recording:
    device: Rows
    calls: Rows
    operators: Rows
    annotations: Rows
    free: Rows
    overheads: Rows
    memory: MemoryEvents
    names: tuple[str, ...]
    """Of the GPUs, by device number."""
    sm_counts: tuple[int, ...]


def _read(file: NsysFile) -> _Recording:
    device, calls, overheads = device_rows(file), call_rows(file), overhead_rows(file)
    memory, memory_correlation = memory_events(file)
    ranges = Ranges(file)
    last = [int(rows.end.max()) for rows in (device, calls) if len(rows)]
    last += [moment for moment in (ranges.last_ns(),) if moment is not None]
    if not last:
        raise BadInput("empty_trace", "the recording holds neither CUDA work nor NVTX ranges", where=file.name,
                       fix="record with nsys profile --trace=cuda,nvtx, and see that the work lies inside the captured time")
    operators, annotations, free = ranges.rows(max(last))
    device, calls, memory_correlation = _own_correlations(device, calls, memory.process, memory_correlation)
    processes = process_numbers((device, calls, operators, annotations, free, overheads))
    names, sm_counts, device_number = numbered_devices(file)
    memory = replace(memory, thread=_threads_of(memory_correlation, calls),
                     device=device_number(memory.process, memory.device),
                     process=replaced(memory.process, {**{int(key): int(key) for key in memory.process}, **processes}))
    device = replace(device, device=device_number(device.process, device.device))
    device, calls, operators, annotations, free, overheads = (
        replace(rows, process=replaced(rows.process, processes)) for rows in (device, calls, operators, annotations, free, overheads))
    return _Recording(device, calls, operators, annotations, free, overheads, memory, names, sm_counts)


def _own_correlations(device: Rows, calls: Rows, memory_process: Int64, memory_ids: Int64) -> tuple[Rows, Rows, Int64]:
    """Correlation ids that no two processes share: the first process keeps nsys's, others have their number above them."""
    processes = sorted({int(key) for rows in (device, calls) for key in np.unique(rows.process)} - {-1})
    if len(processes) < 2:
        return device, calls, memory_ids
    above = {key: place << _CORRELATION_BITS for place, key in enumerate(processes)}

    def own(ids: Int64, process: Int64) -> Int64:
        known = (ids >= 0) & (ids < 1 << _CORRELATION_BITS) & np.isin(process, processes)
        return np.where(known, ids + replaced(np.where(known, process, processes[0]), above), -1)

    return (replace(device, correlation=own(device.correlation, device.process)),
            replace(calls, correlation=own(calls.correlation, calls.process)), own(memory_ids, memory_process))


def _calls_of(ids: Int64, calls: Rows) -> Int64:
    """Row of the first API call with each correlation id, -1 for none; shape of ids."""
    order = np.lexsort((calls.start, calls.correlation))
    order = order[calls.correlation[order] >= 0]
    if not order.size:
        return np.full(ids.size, -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(calls.correlation[order], ids), order.size - 1)
    found = order[place]
    return np.where(calls.correlation[found] == ids, found, -1)


def _threads_of(ids: Int64, calls: Rows) -> Int64:
    call = _calls_of(ids, calls)
    return np.where(call >= 0, calls.thread[call], -1) if len(calls) else call


def _traces(file: NsysFile, recording: _Recording, steps_range: str | None) -> tuple[Trace, Trace | None]:
    stacks = recording.annotations.take(named_like(recording.annotations, STACKS_STEP_NAME.__eq__)
                                        & (recording.annotations.columns["ended"] == 1))
    cut = int(stacks.start.min()) if len(stacks) else None
    timeline = recording if cut is None else _part(recording, lambda moments: moments < cut)
    steps = choose_steps(file, timeline.operators, timeline.annotations, timeline.free, (timeline.device, timeline.calls), steps_range)
    origin = int(steps.rows.start.min())
    main = _trace(file, timeline, steps, origin)
    if cut is None:
        return main, None
    marked = _part(recording, lambda moments: moments >= cut)
    return main, _trace(file, marked, Steps(stacks, "kernelwright"), origin)


def _part(recording: _Recording, inside: Callable[[Int64], npt.NDArray[np.bool_]]) -> _Recording:
    """The rows that began at certain times; device rows by their API call, where the recording has it."""
    call = _calls_of(recording.device.correlation, recording.calls)
    moment = np.where(call >= 0, recording.calls.start[call], recording.device.start) if len(recording.calls) else recording.device.start
    memory = recording.memory
    chosen = inside(memory.time_ns)
    tables = {name: getattr(recording, name) for name in ("calls", "operators", "annotations", "free", "overheads")}
    return replace(
        recording, device=recording.device.take(inside(moment)),
        memory=MemoryEvents(*(column[chosen] for column in (
            memory.time_ns, memory.change_bytes, memory.total_bytes, memory.address, memory.device_type, memory.device, memory.process,
            memory.thread))),
        **{name: rows.take(inside(rows.start)) for name, rows in tables.items()})


def _trace(file: NsysFile, part: _Recording, steps: Steps, origin: int) -> Trace:
    annotations = part.annotations
    lines = named_like(annotations, lambda name: name.startswith(LINE_PREFIX))
    ranges = annotations.take(~lines & ~named_like(annotations, steps.names.__contains__) & ~named_like(
        annotations, STACKS_STEP_NAME.__eq__))
    ranges = _without_twins(ranges)
    opened = {"opened": ranges.columns["opened"]}
    operators = replace(part.operators, columns={name: part.operators.columns[name] for name in ("sequence", "forward_thread", "opened")})
    memory = replace(part.memory, time_ns=part.memory.time_ns - origin)
    return Trace(
        device=part.device.table(origin), runtime=part.calls.table(origin), operators=operators.table(origin),
        ranges=replace(ranges, columns=opened).table(origin), python=_none(ranges).table(origin),
        lines=replace(annotations.take(lines), columns={}).table(origin), steps=replace(steps.rows, columns={}).table(origin),
        overheads=part.overheads.table(origin), memory=memory, device_names=part.names, sm_counts=part.sm_counts,
        is_cuda=len(part.device) > 0, source=file.name, recorder="nsys", steps_from=steps.source)


def _without_twins(ranges: Rows) -> Rows:
    """The annotations, a stage that was marked by NVTX once: the probe puts a range of torch.profiler's into it, with the same name."""
    stages = np.flatnonzero(named_like(ranges, lambda name: name.startswith(STAGE_PREFIX)))
    order = stages[np.lexsort((ranges.opened[stages], -ranges.end[stages], ranges.start[stages], ranges.thread[stages],
                               ranges.process[stages]))]
    outer, inner = order[:-1], order[1:]
    op_id = ranges.columns["opened"]
    twin = ((ranges.name_id[outer] == ranges.name_id[inner]) & (op_id[outer] < 0) & (op_id[inner] >= 0)
            & (ranges.thread[outer] == ranges.thread[inner]) & (ranges.process[outer] == ranges.process[inner])
            & (ranges.end[inner] <= ranges.end[outer]))
    kept = np.ones(len(ranges), dtype=bool)
    kept[outer[twin]] = False
    return ranges.take(kept)


def _none(rows: Rows) -> Rows:
    return replace(rows.take(np.zeros(0, dtype=np.int64)), names=(), columns={})


