"""Source lines of moments that no operator surrounds: explicit synchronisation, data loading, compilation.

The recording with stacks holds the same moments in the same order within its one step; there the probe's markers tell the line,
or, without them, the Python frames where its function begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..model.table import EventTable, Int64
from ..model.trace import Trace
from ..readers.lines import UserStack
from ..timeline.nesting import Nesting
from ..timeline.steps import step_of
from .sources import Markers, user_line

Chosen = Callable[[str], bool]
"""Which events, by name."""
Table = Callable[[Trace], EventTable]


class Moments:
    """Line look-ups in the recording with stacks; knows no line without one."""

    def __init__(self, trace: Trace, stacks: Trace | None, lines: Sequence[UserStack] = ()) -> None:
        self._trace = trace
        self._stacks = stacks
        self._markers = Markers(stacks.lines, lines) if stacks is not None else None
        self._frames = Nesting(stacks.python) if stacks is not None else None

    def lines(self, table: Table, chosen: Chosen) -> dict[int, str]:
        """Row of the chosen events inside the steps -> line of the user's; without the rows whose line is not known.

        A step in which other events were chosen than in the recording with stacks has none.
        """
        if self._stacks is None:
            return {}
        theirs = _chosen_rows(self._stacks, table, chosen, 0)
        lines = self._lines_at(table(self._stacks), theirs)
        names = [table(self._stacks).name(row) for row in theirs.tolist()]
        found: dict[int, str] = {}
        for step in range(len(self._trace.steps)):
            rows = _chosen_rows(self._trace, table, chosen, step).tolist()
            if [table(self._trace).name(row) for row in rows] == names:
                found.update((row, line) for row, line in zip(rows, lines, strict=True) if line is not None)
        return found

    def _lines_at(self, events: EventTable, rows: Int64) -> list[str | None]:
        assert self._frames is not None
        process, thread, start = events.process[rows], events.thread[rows], events.start_ns[rows]
        frames = self._frames.innermost(process, thread, start)
        return [self._marked(*moment) or self._line_of(frame) for *moment, frame in
                zip(process.tolist(), thread.tolist(), start.tolist(), frames.tolist(), strict=True)]

    def _marked(self, process: int, thread: int, point: int) -> str | None:
        place = self._markers.at(process, thread, point) if self._markers is not None else None
        return place.source if place is not None else None

    def _line_of(self, frame: int) -> str | None:
        assert self._stacks is not None and self._frames is not None
        around: Sequence[int] = [frame, *self._frames.ancestors(frame)] if frame >= 0 else []
        return next((line for row in around if (line := user_line(self._stacks.python.name(row))) is not None), None)


def _chosen_rows(trace: Trace, table: Table, chosen: Chosen, step: int) -> Int64:
    events = table(trace)
    wanted = np.array([chosen(name) for name in events.names], dtype=bool)
    return np.flatnonzero((step_of(trace, events.start_ns) == step) & wanted[events.name_id]) if len(events) else np.zeros(0, np.int64)
