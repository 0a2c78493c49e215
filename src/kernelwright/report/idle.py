"""Idle stretches of whole devices as a table of events named after their causes, for what draws them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..model.flow import GAP_CAUSES, Flow, Gap
from ..model.table import EventTable, Int64
from ..timeline.gaps import GapTable


class IdleTable:
    """All gaps where their table is given, else those that the flow lists."""

    def __init__(self, flow: Flow | None, every: GapTable | None) -> None:
        self._known = {(gap.device, gap.start_ns): gap for gap in flow.gaps} if flow is not None else {}
        device, start, end, cause = _listed(list(self._known.values()))
        if every is not None:
            device, start, end, cause = every.device, every.start_ns, every.end_ns, every.cause
        none = np.full(device.size, -1, dtype=np.int64)
        self.table = EventTable(start_ns=start, end_ns=end, name_id=cause, stream=none, device=device, process=none, thread=none,
                                correlation=none, names=tuple(words(cause) for cause in GAP_CAUSES))
        self.left = max(0, sum(one.gap_count for one in flow.devices) - device.size) if flow is not None else 0
        """Gaps that are not in the table."""

    def detail(self, row: int) -> tuple[tuple[str, str], ...]:
        """(label, words) of what the flow says of a gap, if it lists it."""
        gap = self._known.get((int(self.table.device[row]), int(self.table.start_ns[row])))
        if gap is None:
            return ()
        named = (("in", gap.call), ("operator", gap.operator), ("line", gap.where), ("ended by", gap.next),
                 ("of operator", gap.next_operator), ("at line", gap.next_where if gap.next_where != gap.where else None))
        parts = gap.parts if len(gap.parts) > 1 else ()
        return (*((label, said) for label, said in named if said),
                *((f"of it {words(part.cause)}", f"{part.idle_ns / 1e3:,.3f} µs") for part in parts))


def words(cause: str) -> str:
    """A cause as it is shown."""
    return cause.replace("_", " ")


def _listed(gaps: Sequence[Gap]) -> tuple[Int64, Int64, Int64, Int64]:
    """Device, start, end, place of the cause."""
    rows = [(gap.device, gap.start_ns, gap.end_ns, GAP_CAUSES.index(gap.cause)) for gap in gaps]
    device, start, end, cause = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return device, start, end, cause
