"""Recordings whose clocks can't be believed: they are refused, since every gap and overlap would be wrong."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..model.errors import BadInput
from ..model.table import EventTable, Int64, MemoryEvents
from ..model.trace import RECORD_AGAIN

MAX_SPAN_NS = 7 * 24 * 3600 * 10**9
"""Nobody profiles for a week; Kineto keeps all events in memory."""
MAX_AHEAD_NS = 10**9
"""Kernels may seem to begin some microseconds before their launch, since two clocks are aligned; not a second."""


def check_clocks(tables: Mapping[str, EventTable], memory: MemoryEvents, file_name: str) -> None:
    """Raises BadInput where the events lie too far apart, or kernels begin before their launch. Tables by their names in Trace."""
    spans = [(int(table.start_ns[0]), int(table.end_ns.max())) for name, table in tables.items() if name != "overheads" and len(table)]
    if len(memory):
        spans.append((int(memory.time_ns[0]), int(memory.time_ns[-1])))
    first, last = min((one[0] for one in spans), default=0), max((one[1] for one in spans), default=0)
    if last - first > MAX_SPAN_NS:
        raise BadInput("bad_trace", f"the events lie {(last - first) / 86400e9:,.1f} days apart: a clock jumped, or a time is wrong",
                       where=file_name, fix=RECORD_AGAIN)
    ahead, row = _most_ahead(tables["device"], tables["runtime"])
    if ahead > MAX_AHEAD_NS:
        name = tables["device"].name(row)[:60]
        raise BadInput("bad_trace", f"a kernel begins {ahead / 1e9:,.1f} s before the call that launched it: a clock jumped",
                       where=f"{file_name}, {name}", fix=RECORD_AGAIN)


def _most_ahead(device: EventTable, runtime: EventTable) -> tuple[int, int]:
    """(how long before its call a device row begins, at most; that row). Only ids that one call alone has."""
    candidates = np.flatnonzero(runtime.correlation > 0)
    if not candidates.size or not len(device):
        return 0, -1
    ids, first, counts = np.unique(runtime.correlation[candidates], return_index=True, return_counts=True)
    place: Int64 = np.minimum(np.searchsorted(ids, device.correlation), ids.size - 1)
    known = (ids[place] == device.correlation) & (counts[place] == 1)
    if not known.any():
        return 0, -1
    ahead = np.where(known, runtime.start_ns[candidates[first[place]]] - device.start_ns, -MAX_SPAN_NS)
    row = int(ahead.argmax())
    return int(ahead[row]), row
