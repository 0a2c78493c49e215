"""CPU attribution: the self time of each operator call, and what is left of each step outside operators."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..model.profile import Attribution, Kernel
from ..timeline.intervals import nesting_order, parents, self_times
from ..timeline.nesting import threads
from ..timeline.summary import operator_intervals, outside_operators
from .calls import Calls
from .owned import Owned

OUTSIDE = "(outside operators)"
"""Name of the one row a step that holds the time in which no thread was in an operator."""
OUTSIDE_ID = "outside_"
"""Before the step's number: the kernel_id of that row."""


def owned_work(calls: Calls) -> Owned:
    """One row for each operator call of the steps (its self time), one row a step for the time outside."""
    rows, starts, ends = operator_intervals(calls.trace)
    table = calls.table
    by_call: dict[int, list[Kernel]] = {}
    for process, thread in threads(table, rows):
        mine = np.flatnonzero((table.process[rows] == process) & (table.thread[rows] == thread))
        mine = mine[nesting_order(starts[mine], ends[mine])]
        own = self_times(starts[mine], ends[mine], parents(starts[mine], ends[mine]))
        for row, start, end, duration in zip(rows[mine].tolist(), starts[mine].tolist(), ends[mine].tolist(), own.tolist(), strict=True):
            by_call[row] = [_row(f"cpu_{row}", calls.name(row), start, end, duration, attributed=True)]
    return Owned(by_call, _outside(calls))


def outside_times(rows: Iterable[Kernel]) -> dict[int, int]:
    """Step -> time outside operators, ns, of the rows that `owned_work` made for it."""
    return {int(row.kernel_id.removeprefix(OUTSIDE_ID)): row.duration_ns for row in rows if row.kernel_name == OUTSIDE}


def _outside(calls: Calls) -> tuple[Kernel, ...]:
    steps = calls.trace.steps
    left = [int((high - low).sum()) for low, high in outside_operators(calls.trace)]
    return tuple(_row(f"{OUTSIDE_ID}{step}", OUTSIDE, int(steps.start_ns[step]), int(steps.end_ns[step]), duration, attributed=False)
                 for step, duration in enumerate(left) if duration > 0)


def _row(kernel_id: str, name: str, start: int, end: int, duration: int, *, attributed: bool) -> Kernel:
    attribution = Attribution(method="correlation", confidence="high") if attributed else Attribution(method="none", confidence="none")
    return Kernel(kernel_id=kernel_id, kernel_name=name, stream_id=None, device_id=None, start_ns=start, end_ns=end,
                  duration_ns=duration, category="cpu", attribution=attribution)
