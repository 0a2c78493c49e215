"""A trace taken apart for comparisons: the steps' work by operator, input shapes and kernel. Vectorised: a recording may hold millions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..model.table import Int64, RowDetails
from ..model.trace import Trace
from ..timeline.difference import MOST_CELLS, Breakdown, Shape, Use, named_alike
from ..timeline.intervals import nesting_order, parents, self_times
from ..timeline.nesting import threads
from ..timeline.numbering import dense
from ..timeline.steps import device_work
from ..timeline.summary import operator_intervals
from .calls import Calls
from .cuda import GRAPH_LAUNCH


def breakdown(trace: Trace) -> Breakdown:
    """The uses of a trace's steps. Their sum is all device work that the steps launched (CPU: all operators' self time)."""
    calls = Calls(trace)
    return _device(calls) if trace.is_cuda else _cpu(calls)


def _device(calls: Calls) -> Breakdown:
    trace = calls.trace
    work = device_work(trace)
    owner = np.full(work.rows.size, -1, dtype=np.int64)
    known = work.launch >= 0
    launch = work.launch[known]
    owner[known] = calls.nesting.innermost(trace.runtime.process[launch], trace.runtime.thread[launch], trace.runtime.start_ns[launch])
    graph = np.zeros(work.rows.size, dtype=bool)
    is_graph = np.array([name.startswith((GRAPH_LAUNCH, "cuGraphLaunch")) for name in trace.runtime.names], dtype=bool)
    if is_graph.size:
        graph[known] = is_graph[trace.runtime.name_id[launch]]
    names = np.where(owner >= 0, calls.table.name_id[owner] if len(calls.table) else -1, np.where(graph, -2, -1))

    def operator(name: int) -> str:
        return calls.table.names[name] if name >= 0 else GRAPH_LAUNCH if name == -2 else ""

    return _grouped(calls, owner, names, trace.device.name_id[work.rows], trace.device.duration_ns[work.rows], work.step, operator,
                    lambda name: trace.device.names[name])


def _cpu(calls: Calls) -> Breakdown:
    trace, table = calls.trace, calls.table
    rows, starts, ends = operator_intervals(trace)
    own = np.zeros(rows.size, dtype=np.int64)
    for process, thread in threads(table, rows):
        mine = np.flatnonzero((table.process[rows] == process) & (table.thread[rows] == thread))
        mine = mine[nesting_order(starts[mine], ends[mine])]
        own[mine] = self_times(starts[mine], ends[mine], parents(starts[mine], ends[mine]))
    names = table.name_id[rows]
    return _grouped(calls, rows, names, names, own, calls.step[rows], lambda name: table.names[name],
                    lambda name: table.names[name])


def _grouped(calls: Calls, owner: Int64, operator: Int64, kernel: Int64, time_ns: Int64, step: Int64,
             operator_name: Callable[[int], str], kernel_name: Callable[[int], str]) -> Breakdown:
    """One use for each operator, shapes and kernel. All arrays of shape (m,); owner: row of trace.operators or -1."""
    steps = len(calls.trace.steps)
    if not owner.size:
        return Breakdown((), steps, np.zeros((0, steps), dtype=np.int64), False)
    which = _shapes_id(calls, owner)
    group = dense((operator, which, kernel))
    _, first = np.unique(group, return_index=True)
    totals, counts = np.zeros(first.size, dtype=np.int64), np.bincount(group, minlength=first.size)
    np.add.at(totals, group, time_ns)
    by_step = None
    if first.size * steps <= MOST_CELLS:
        cells = np.zeros(first.size * steps, dtype=np.int64)
        np.add.at(cells, group * steps + step, time_ns)
        by_step = cells.reshape(first.size, steps)
    shapes: dict[int, tuple[Shape, ...]] = {}
    uses = []
    columns = (column[first].tolist() for column in (owner, which, operator, kernel))
    for row, number, operator_id, kernel_id, total, count in zip(*columns, totals.tolist(), counts.tolist(), strict=True):
        if number not in shapes:
            shapes[number] = calls.shapes(row) if row >= 0 else ()
        uses.append(Use(named_alike(operator_name(operator_id)), shapes[number], kernel_name(kernel_id), total, count))
    return Breakdown(tuple(uses), steps, by_step, any(use.shapes for use in uses))


def _shapes_id(calls: Calls, owner: Int64) -> Int64:
    """Numbers that are equal only for rows of equal shapes, -1 for none; shape (m,)."""
    args = calls.table.args
    if isinstance(args, RowDetails) and args.which is not None and len(calls.table):
        return np.where(owner >= 0, args.which[owner], -1)
    numbers: dict[tuple[Shape, ...], int] = {}
    return np.array([numbers.setdefault(calls.shapes(row), len(numbers)) if row >= 0 and args else -1 for row in owner.tolist()],
                    dtype=np.int64)
