"""What belongs to the profiled steps: points in time, operators, and device work by the time of its launch call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.table import Int64
from ..model.trace import Trace
from .intervals import innermost, parents


def step_of(trace: Trace, points: Int64) -> Int64:
    """Index of the step that holds each point in time, -1 outside all steps. Shape (m,)."""
    starts, ends = trace.steps.start_ns, trace.steps.end_ns
    return innermost(starts, ends, parents(starts, ends), points)


@dataclass(frozen=True)
class DeviceWork:
    """The device rows that the steps launched. All arrays have shape (m,), in device start order."""

    rows: Int64
    """Rows of trace.device."""
    launch: Int64
    """Row of trace.runtime that launched each; -1 when the trace does not hold it."""
    step: Int64
    ambiguous: int
    """Rows whose correlation id more than one process used; their launch is -1."""


def device_work(trace: Trace) -> DeviceWork:
    """Device rows whose launch call lies in a step, whenever they ran.

    Rows without a launch call can only be placed by their own time: those that started after the first step began are
    kept (as unattributed work), earlier ones belong to the warm-up.
    """
    launch, ambiguous = _launches(trace)
    known = launch >= 0
    step = np.full(launch.size, -1, dtype=np.int64)
    step[known] = step_of(trace, trace.runtime.start_ns[launch[known]])
    orphan_starts = trace.device.start_ns[~known]
    step[~known] = np.searchsorted(trace.steps.start_ns, orphan_starts, side="right") - 1
    rows = np.flatnonzero(step >= 0)
    return DeviceWork(rows, launch[rows], step[rows], int(ambiguous[rows].sum()))


def _launches(trace: Trace) -> tuple[Int64, Int64]:
    """Runtime row per device row (-1: none), and 1 where the correlation id is not unique to one process."""
    runtime, device = trace.runtime, trace.device
    launch = np.full(len(device), -1, dtype=np.int64)
    ambiguous = np.zeros(len(device), dtype=np.int64)
    candidates = np.flatnonzero(runtime.correlation >= 0)
    if candidates.size == 0 or len(device) == 0:
        return launch, ambiguous
    # First call of each id: a driver call nested in a runtime call may repeat its id and starts later.
    order = candidates[np.argsort(runtime.correlation[candidates], kind="stable")]
    sorted_ids = runtime.correlation[order]
    again = sorted_ids[1:] == sorted_ids[:-1]
    begins = np.flatnonzero(np.concatenate(([True], ~again)))
    ids = sorted_ids[begins]
    shared = np.zeros(ids.size, dtype=bool)
    number = np.cumsum(np.concatenate(([0], ~again)))
    shared[number[1:][again & (runtime.process[order[1:]] != runtime.process[order[:-1]])]] = True
    place = np.minimum(np.searchsorted(ids, device.correlation), ids.size - 1)
    found = ids[place] == device.correlation
    ambiguous[found] = shared[place[found]]
    usable = found & (ambiguous == 0)
    launch[usable] = order[begins[place[usable]]]
    return launch, ambiguous


def launch_calls(trace: Trace) -> Int64:
    """Row of trace.runtime that launched each device row, in the steps or not; -1 where none is known. Shape (len(trace.device),)."""
    return _launches(trace)[0]
