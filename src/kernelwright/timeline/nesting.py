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
        self._groups: dict[tuple[int, int], tuple[Int64, Int64, Int64, Int64]] = {}
        rows = np.arange(len(table)) if keep is None else np.flatnonzero(keep)
        for thread, members in by_thread(table.process[rows], table.thread[rows]):
            group = rows[members]
            starts, ends = table.start_ns[group], table.end_ns[group]
            local = parents(starts, ends)
            self._groups[thread] = (group, local, starts, ends)
            self.parent[group] = np.where(local >= 0, group[local], -1)

    def innermost(self, process: Int64, thread: Int64, points: Int64) -> Int64:
        """Row of the innermost event that holds each point on its thread, -1 where none does. All shapes (m,)."""
        result = np.full(points.size, -1, dtype=np.int64)
        for key, chosen in by_thread(process, thread):
            if key not in self._groups:
                continue
            group, local, starts, ends = self._groups[key]
            found = innermost(starts, ends, local, points[chosen])
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
    return [thread for thread, _ in by_thread(table.process[rows], table.thread[rows])]


def by_thread(process: Int64, thread: Int64) -> list[tuple[tuple[int, int], Int64]]:
    """(process, thread) and the indices of its rows in their order, for each pair in order of its first row. Shapes (n,).

    One stable sort, whatever the number of threads.
    """
    if process.size == 0:
        return []
    if (process == process[0]).all():
        if (thread == thread[0]).all():
            return [((int(process[0]), int(thread[0])), np.arange(process.size))]
        order = np.argsort(thread, kind="stable")
    else:
        order = np.lexsort((thread, process))
    sorted_process, sorted_thread = process[order], thread[order]
    begins = np.flatnonzero(np.concatenate(([True], (np.diff(sorted_process) != 0) | (np.diff(sorted_thread) != 0))))
    groups = np.split(order, begins[1:])
    pairs = zip(sorted_process[begins].tolist(), sorted_thread[begins].tolist(), strict=True)
    return sorted(zip(pairs, groups, strict=True), key=lambda found: int(found[1][0]))
