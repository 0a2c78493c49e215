"""The user's lines of the host events that explain a timeline's gaps: waits, copies, allocations, loading, compiling, launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from ..model.table import EventTable
from ..model.trace import Trace
from ..timeline.causes import TableName
from ..timeline.names import allocates, copies, is_compiler, is_loader, loads_code, synchronizes
from ..timeline.steps import step_of
from .calls import Calls
from .moments import Chosen, Moments
from .sources import Places


def launches_work(name: str) -> bool:
    """Calls that launch kernels or graphs."""
    return "Launch" in name


class EventLines:
    """Look-ups by table and row; line_of is what timeline.flow.flow() asks for."""

    def __init__(self, calls: Calls, places: Places, moments: Moments) -> None:
        self._calls, self._places, self._moments = calls, places, moments
        self._trace: Trace = calls.trace

    def line_of(self, table: TableName, row: int) -> str | None:
        """Line of one event, "file.py:12"; None where it is not known."""
        if table == "operators":
            return self._places.of(row).source or self._operators.get(row)
        if table == "runtime":
            return self._places.of_runtime(row).source or self._runtime.get(row)
        return self._ranges.get(row) if table == "ranges" else self._of_overhead(row)

    @cached_property
    def _runtime(self) -> dict[int, str]:
        """Calls outside any operator. Kind by kind: a step in which other copies were made than in the one with stacks may have
        the same waits."""
        return self._lines(lambda trace: trace.runtime, launches_work, copies, allocates, loads_code, synchronizes)

    @cached_property
    def _operators(self) -> dict[int, str]:
        return self._lines(lambda trace: trace.operators, is_loader, is_compiler)

    @cached_property
    def _ranges(self) -> dict[int, str]:
        return self._lines(lambda trace: trace.ranges, is_loader, is_compiler)

    def _lines(self, table: Callable[[Trace], EventTable], *kinds: Chosen) -> dict[int, str]:
        return {row: line for kind in kinds for row, line in self._moments.lines(table, kind).items()}

    def _of_overhead(self, row: int) -> str | None:
        """Of what the step's own thread was in."""
        overheads, steps = self._trace.overheads, self._trace.steps
        points = overheads.start_ns[row:row + 1]
        step = step_of(self._trace, points)
        if step[0] < 0:
            return None
        operator = int(self._calls.nesting.innermost(steps.process[step], steps.thread[step], points)[0])
        return self._places.of(operator).source if operator >= 0 else None



