"""Nesting of events per thread: which event encloses which, and which is innermost at a point in time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..model.table import EventTable, Int64
from .intervals import innermost, parents


class Nesting:
    """Parents and innermost look-ups of one table's events, each thread of each process on its own.

    table: in nesting order. keep: which rows take part, shape (n,); all by default.
    """

    def __init__(self, table: EventTable, keep: npt.NDArray[np.bool_] | None = None) -> None:
        self.table = table
        self.parent: Int64 = np.full(len(table), -1, dtype=np.int64)
        """Row of the innermost enclosing event on the same thread, -1 for none; shape (n,)."""
        self._groups: dict[tuple[int, int], tuple[Int64, Int64]] = {}
        rows = np.arange(len(table)) if keep is None else np.flatnonzero(keep)
        for thread in threads(table, rows):
            group = rows[_on(table, rows, thread)]
            local = parents(table.start_ns[group], table.end_ns[group])
            self._groups[thread] = (group, local)
            self.parent[group] = np.where(local >= 0, group[local], -1)

    def innermost(self, process: Int64, thread: Int64, points: Int64) -> Int64:
        """Row of the innermost event that holds each point on its thread, -1 where none does. All shapes (m,)."""
        result = np.full(points.size, -1, dtype=np.int64)
        for key, (group, local) in self._groups.items():
            chosen = np.flatnonzero((process == key[0]) & (thread == key[1]))
            found = innermost(self.table.start_ns[group], self.table.end_ns[group], local, points[chosen])
            result[chosen] = np.where(found >= 0, group[found], -1)
        return result

    def ancestors(self, row: int) -> list[int]:
        """Rows that enclose this one, innermost first."""
        chain: list[int] = []
        row = int(self.parent[row])
        while row >= 0:
            chain.append(row)
            row = int(self.parent[row])
        return chain


def threads(table: EventTable, rows: Int64) -> list[tuple[int, int]]:
    """The (process, thread) pairs of these rows, in order of their first event."""
    seen: dict[tuple[int, int], None] = {}
    pairs, first = np.unique(np.stack((table.process[rows], table.thread[rows])), axis=1, return_index=True)
    for column in np.argsort(first):
        seen[int(pairs[0, column]), int(pairs[1, column])] = None
    return list(seen)


def _on(table: EventTable, rows: Int64, thread: tuple[int, int]) -> npt.NDArray[np.bool_]:
    chosen: npt.NDArray[np.bool_] = (table.process[rows] == thread[0]) & (table.thread[rows] == thread[1])
    return chosen
