"""Numbers that emit_nvtx gives to operators and annotations, read off a Kineto recording of the same program.

emit_nvtx numbers every operator and annotation of the process in the order in which they begin, all threads together, from 1. The step's
own range opens first, so the N-th operator or annotation of a recorded step (its range being the first) has the number N in a run of the
same program whose step is the first thing under emit_nvtx. Measured: all of 148 ranges around the kernels of two programs, and of 104 of a
training step. Where threads race (data loaders, autograd) the order may differ: attach_counters compares names and shapes, and reports it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.table import EventTable, Int64
from ..model.trace import Trace
from ..readers.ncu import Shape, flat_shapes
from ..timeline.nesting import Nesting
from ..timeline.steps import step_of


@dataclass(frozen=True)
class Numbered:
    """One operator or annotation of the first step; its op_id is its place in StepRanges.rows plus 1."""

    name: str
    is_operator: bool
    """False: an annotation."""
    shapes: tuple[Shape, ...]


class StepRanges:
    """Operators and annotations of the first profiled step, numbered as under emit_nvtx."""

    def __init__(self, trace: Trace) -> None:
        tables = (trace.steps, trace.operators, trace.ranges)
        rows = [np.flatnonzero(step_of(trace, table.start_ns) == 0) for table in tables]
        kind = np.concatenate([np.full(chosen.size, place) for place, chosen in enumerate(rows)])
        start, end, process, thread = (np.concatenate([getattr(table, column)[chosen] for table, chosen in zip(tables, rows, strict=True)])
                                       for column in ("start_ns", "end_ns", "process", "thread"))
        row = np.concatenate(rows)
        # Kineto's own number decides between events of the same times; the step encloses all.
        opened = np.array([tables[k].args[r].get("opened", -1) if k else -1 for k, r in zip(kind, row, strict=True)], dtype=np.int64)
        order = np.lexsort((opened, -end, kind != 0, start))
        self.rows = tuple(self._numbered(tables[kind[at]], int(row[at]), int(kind[at]) == 1) for at in order)
        empty = np.full(order.size, -1, dtype=np.int64)
        self._nesting = Nesting(EventTable(
            start_ns=start[order], end_ns=end[order], name_id=empty, stream=empty, device=empty, process=process[order],
            thread=thread[order], correlation=empty, names=()))

    def _numbered(self, table: EventTable, row: int, is_operator: bool) -> Numbered:
        return Numbered(table.name(row), is_operator, flat_shapes(table.args[row].get("dims", ())) if is_operator else ())

    def innermost(self, process: Int64, thread: Int64, moments: Int64) -> Int64:
        """op_id of the innermost range open on a thread at a moment, 0 for none. All shapes (m,)."""
        return self._nesting.innermost(process, thread, moments) + 1

    def with_ancestors(self, op_id: int) -> tuple[int, ...]:
        """A range and those around it, innermost first, by op_id."""
        return (op_id, *(row + 1 for row in self._nesting.ancestors(op_id - 1)))
