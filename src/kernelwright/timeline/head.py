"""The beginning of a recording, where all of it is too much to list launch by launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from ..model.table import Details, EventTable
from ..model.trace import Trace
from .steps import device_work


class _Head(Sequence[Details]):
    """The first rows of some details, without making them."""

    def __init__(self, rows: Sequence[Details], count: int) -> None:
        self._rows, self._count = rows, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, row: int) -> Details: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Details]: ...
    def __getitem__(self, row: int | slice) -> Details | Sequence[Details]:
        if isinstance(row, slice):
            return [self._rows[at] for at in range(*row.indices(self._count))]
        if not -self._count <= row < self._count:
            raise IndexError(f"row {row} of {self._count}")
        return self._rows[row if row >= 0 else self._count + row]


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
    columns: dict[str, Any] = {name: column[:count] for name, column in vars(table).items() if isinstance(column, np.ndarray)}
    return replace(table, args=_Head(table.args, count) if len(table.args) else (), **columns)
