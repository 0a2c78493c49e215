"""Peak memory by the operators that allocated it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..model.profile import MemoryOwner, MemoryUse
from ..model.table import Int64
from ..timeline.memory import CPU, Usage, usages
from .calls import Calls
from .sources import Place, Places

MOST_OWNERS = 30
_ALLOCATORS = frozenset(f"aten::{name}" for name in (
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "to", "_to_copy", "clone",
    "contiguous", "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full"))
"""Operators whose work is the allocation itself: the operator around them says more."""
Owner = tuple[str | None, Place]


def memory_uses(calls: Calls, places: Places) -> tuple[MemoryUse, ...]:
    """Memory of each device over the steps, with what was alive at the peak by operator and line."""
    return tuple(_use(calls, places, usage) for usage in usages(calls.trace))


def _use(calls: Calls, places: Places, usage: Usage) -> MemoryUse:
    events = calls.trace.memory
    sums: dict[Owner, list[int]] = defaultdict(lambda: [0, 0])
    for row, owner in zip(usage.alive.tolist(), _owners(calls, places, usage.alive), strict=True):
        sums[owner][0] += int(events.change_bytes[row])
        sums[owner][1] += 1
    ordered = sorted(sums.items(), key=lambda item: (-item[1][0], str(item[0])))
    left = ordered[MOST_OWNERS:]
    return MemoryUse(
        device="cpu" if usage.device_type == CPU else f"cuda:{max(usage.device, 0)}", complete=usage.device_type != CPU,
        start_bytes=usage.start_bytes, peak_bytes=usage.peak_bytes, peak_ns=usage.peak_ns, peak_step=usage.peak_step,
        end_bytes=usage.end_bytes, before_bytes=usage.before_bytes,
        owners=tuple(MemoryOwner(operator=name, module=place.module, source=place.source, source_kind=place.kind, bytes=size, count=count)
                     for (name, place), (size, count) in ordered[:MOST_OWNERS]),
        left_bytes=sum(size for _, (size, _) in left), left_count=sum(count for _, (_, count) in left),
        allocations=int(usage.made.size), allocated_bytes=int(events.change_bytes[usage.made].sum()), timeline=usage.points)


def _owners(calls: Calls, places: Places, rows: Int64) -> list[Owner]:
    events = calls.trace.memory
    found = calls.nesting.innermost(events.process[rows], events.thread[rows], events.time_ns[rows])
    return [_owner(calls, places, int(row)) for row in np.asarray(found)]


def _owner(calls: Calls, places: Places, row: int) -> Owner:
    if row < 0:
        return None, Place()
    telling = next((call for call in [row, *calls.nesting.ancestors(row)] if calls.name(call) not in _ALLOCATORS), row)
    # The stack would set apart what one line allocates: the line is what a reader needs.
    return calls.name(telling), places.of(telling)._replace(stack=None)
