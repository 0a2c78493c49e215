"""Which operator launched each piece of work, and what attribution knows about that operator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ..model.profile import Operator
from ..model.table import Int64
from ..model.trace import Trace
from .nesting import Nesting
from .ordering import stable_order
from .steps import step_of
from .work import Work


class Owners:
    """Look-ups by place in Work's columns, or by row of trace.operators."""

    def __init__(self, trace: Trace, work: Work, operators: Sequence[Operator] = ()) -> None:
        self.trace, self.work = trace, work
        self._known = {operator.operator_id: operator for operator in operators}

    @cached_property
    def nesting(self) -> Nesting:
        """Of trace.operators."""
        return Nesting(self.trace.operators)

    @cached_property
    def row(self) -> Int64:
        """Row of the innermost operator around each launch call, -1 for none; shape (m,)."""
        runtime, launch = self.trace.runtime, self.work.launch
        owner = np.full(launch.size, -1, dtype=np.int64)
        known = launch >= 0
        launch = launch[known]
        owner[known] = self.nesting.innermost(runtime.process[launch], runtime.thread[launch], runtime.start_ns[launch])
        return owner

    @cached_property
    def call_index(self) -> Int64:
        """How many calls of the same name came before each one in the steps; -1 outside them; shape (n,)."""
        table = self.trace.operators
        index = np.full(len(table), -1, dtype=np.int64)
        rows = np.flatnonzero(step_of(self.trace, table.start_ns) >= 0)
        order = stable_order(table.name_id[rows])
        names = table.name_id[rows][order]
        index[rows[order]] = np.arange(rows.size) - np.searchsorted(names, names)
        return index

    def of_row(self, row: int) -> Operator | None:
        """What attribution says of an operator call."""
        if row < 0 or not self._known:
            return None
        return self._known.get(f"{self.trace.operators.name(row)}_{int(self.call_index[row])}")

    def where(self, place: int) -> str | None:
        """The user's line of a piece of work; None where it is not known."""
        operator = self.of_row(int(self.row[place])) if self._known else None
        return operator.source if operator is not None else None

    def rows_of(self, operators: Sequence[Operator]) -> Int64:
        """Row of each operator, -1 for those that have none (launches outside operators); shape (k,)."""
        index = self.call_index
        table = self.trace.operators
        inside = np.flatnonzero(index >= 0)
        rows = {(int(name), int(count)): int(row) for name, count, row in
                zip(table.name_id[inside].tolist(), index[inside].tolist(), inside.tolist(), strict=True)}
        names = {name: number for number, name in enumerate(table.names)}
        return np.array([rows.get((names.get(one.operator_name, -1), one.call_index), -1) if not one.own_launch else -1
                         for one in operators], dtype=np.int64)
