"""The steps of a recording that the probe did not make: torch.profiler's own (ProfilerStep#N), or the whole recording as one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ..model.table import EventTable, Int64

_PROFILER_STEP = re.compile(r"ProfilerStep#\d+\Z")
WHOLE = "whole recording"
WORK = ("device", "runtime", "operators", "ranges", "python")
"""Tables that have work in them."""
Found = tuple[EventTable, EventTable, Literal["ProfilerStep", "whole"]]


def found_steps(tables: Mapping[str, EventTable]) -> Found | None:
    """(the steps, the ranges without them, what they are); None without any work. Tables by their names in Trace."""
    ranges = tables["ranges"]
    named = np.array([_PROFILER_STEP.match(name) is not None for name in ranges.names], dtype=bool)
    if named.any():
        rows = _apart(ranges, np.flatnonzero(named[ranges.name_id]))
        others = np.ones(len(ranges), dtype=bool)
        others[rows] = False
        return ranges.take(rows), ranges.take(np.flatnonzero(others)), "ProfilerStep"
    whole = _whole(tables)
    return None if whole is None else (whole, ranges, "whole")


def _apart(table: EventTable, rows: Int64) -> Int64:
    """Those of the rows, in start order, that begin after the ones before have ended: of several threads' steps the first one's."""
    chosen: list[int] = []
    for row in rows.tolist():
        if not chosen or table.start_ns[row] >= table.end_ns[chosen[-1]]:
            chosen.append(row)
    return np.array(chosen, dtype=np.int64)


def _whole(tables: Mapping[str, EventTable]) -> EventTable | None:
    """One step, from the first event to the last, on the thread with the most calls (without any: the most operators)."""
    found = [tables[name] for name in WORK if len(tables[name])]
    if not found:
        return None
    start, end = min(int(table.start_ns[0]) for table in found), max(int(table.end_ns.max()) for table in found)
    host = next((tables[name] for name in ("runtime", "operators", "ranges", "python") if len(tables[name])), None)
    process, thread = (-1, -1) if host is None else _busiest_thread(host)
    one: dict[str, Any] = {name: np.array([value], dtype=np.int64) for name, value in (
        ("start_ns", start), ("end_ns", end), ("name_id", 0), ("stream", -1), ("device", -1), ("process", process), ("thread", thread),
        ("correlation", -1))}
    return EventTable(**one, names=(WHOLE,))


def _busiest_thread(table: EventTable) -> tuple[int, int]:
    pairs, counts = np.unique(np.stack((table.process, table.thread)), axis=1, return_counts=True)
    most = int(counts.argmax())
    return int(pairs[0, most]), int(pairs[1, most])
