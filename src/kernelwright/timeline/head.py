"""The beginning of a recording, where all of it is too much to list launch by launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.table import EventTable
from ..model.trace import Trace
from .steps import device_work


def head_of_trace(trace: Trace, most: int) -> Trace:
    """The trace with at most `most` pieces of device work in its steps: its first whole steps, else the beginning of the first one.

    The same trace where all fits.
    """
    work = device_work(trace)
    if work.rows.size <= most:
        return trace
    upto = np.cumsum(np.bincount(work.step, minlength=len(trace.steps)))
    kept = int(np.searchsorted(upto, most, side="right"))
    if kept > 0:
        steps = head(trace.steps, kept)
        rows = int(work.rows[work.step < kept].max(initial=-1)) + 1
        return _cut(trace, steps, rows, int(steps.end_ns.max()))
    first = np.flatnonzero(work.step == 0)
    called = np.where(work.launch[first] >= 0, trace.runtime.start_ns[work.launch[first]], trace.device.start_ns[work.rows[first]])
    end = int(np.sort(called)[most])
    steps = head(trace.steps, 1)
    inside = first[called < end]
    rows = int(work.rows[inside].max(initial=-1)) + 1
    end = max(end, int(steps.start_ns[0]) + 1)
    return _cut(trace, replace(steps, end_ns=np.array([end], dtype=np.int64)), rows, end)


def _cut(trace: Trace, steps: EventTable, device_rows: int, end: int) -> Trace:
    memory = trace.memory
    count = int(np.searchsorted(memory.time_ns, end))
    early = {name: column[:count] for name, column in vars(memory).items() if isinstance(column, np.ndarray)}

    def before(table: EventTable) -> EventTable:
        return head(table, int(np.searchsorted(table.start_ns, end)))

    return replace(
        trace, steps=steps, device=head(trace.device, device_rows), memory=replace(memory, **early), runtime=before(trace.runtime),
        operators=before(trace.operators), ranges=before(trace.ranges), python=before(trace.python), lines=before(trace.lines),
        overheads=before(trace.overheads))


def head(table: EventTable, count: int) -> EventTable:
    """The first rows of a table."""
    return table.take(np.arange(count, dtype=np.int64))
