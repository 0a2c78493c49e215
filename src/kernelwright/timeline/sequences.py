"""Launch sequences that repeat on a stream, and those of them that a compiler could fuse. Definitions: docs/timeline-structure.md."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..model.structure import MOST_SEQUENCES, LaunchSequence
from ..model.table import Int64
from .intervals import covered
from .kernel_names import chosen, is_library
from .names import Mask
from .ordering import grouped
from .repeats import maximal_repeats
from .work import Work

Where = Callable[[int], str | None]


def sequences(work: Work, where: Where, *, fusible: bool, most: int = MOST_SEQUENCES) -> tuple[LaunchSequence, ...]:
    """Maximal repeats of kernel names, each inside one step and stream; the heaviest first, by time with the gaps inside.

    where: place in Work -> source line. fusible: only between what can't be fused (library kernels, copies, memsets, communication), and
    only launches that follow each other whatever the stream.
    """
    order = np.lexsort((work.start, work.stream, work.step)).astype(np.int64)
    breaks = ~fusible_launches(work)[order]
    border = np.concatenate(([True], (work.step[order][1:] != work.step[order][:-1]) | (work.stream[order][1:] != work.stream[order][:-1])
                             | (fusible & (np.diff(order) != 1))))
    segments = np.cumsum(border[:order.size] | (breaks & fusible)).astype(np.int64)
    after = idle_before(work, order)
    kept = ~breaks if fusible else np.ones(order.size, dtype=bool)
    order, segments = order[kept], segments[kept]
    # The gap behind each launch is the one before the next.
    joints = np.concatenate((after[kept][1:], np.zeros(min(order.size, 1), dtype=np.int64)))
    found = maximal_repeats(work.name_id[order], segments, work.duration[order], joints, most=most)
    between = np.concatenate(([0], np.cumsum(joints)))
    able = fusible_launches(work)
    rows = []
    for repeat in found:
        gap = int((between[repeat.places + repeat.length - 1] - between[repeat.places]).sum())
        first = order[repeat.places[0]:repeat.places[0] + repeat.length]
        rows.append(LaunchSequence(
            kernels=tuple(work.name(place) for place in first.tolist()), count=int(repeat.places.size), duration_ns=repeat.weight - gap,
            gap_ns=gap, first_start_ns=int(work.start[first[0]]), fusible=bool(able[first].all()), where=where(int(first[0]))))
    return tuple(rows)


def fusible_launches(work: Work) -> Mask:
    """Kernels but library and communication kernels; shape (m,)."""
    return work.is_kernel & ~work.is_collective & ~chosen(work.trace.device.names, is_library, work.name_id)


def idle_before(work: Work, order: Int64) -> Int64:
    """Of each launch in this order: time between the end of the one before it in the order and its start in which nothing ran on its
    device; 0 for the first; shape (m,)."""
    idle = np.zeros(order.size, dtype=np.int64)
    lows, highs, device = work.end[order][:-1], work.start[order][1:], work.device[order][1:]
    for one, mine in grouped(device):
        starts, ends = work.busy[one]
        idle[1 + mine] = np.maximum(highs[mine] - lows[mine], 0) - covered(starts, ends, lows[mine], highs[mine])
    return idle
