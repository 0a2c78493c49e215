"""Stretches of launches that one CUDA graph could replace, and what that could save. Definitions: docs/timeline-structure.md."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..model.structure import MOST_CANDIDATES, GraphCandidate
from ..model.table import Int64
from ..model.trace import Trace
from .alignment import align
from .intervals import covered
from .iteration_compare import typical_iteration
from .kernel_names import breaks_capture, chosen, copy_kind
from .names import Mask
from .ordering import grouped
from .work import Work, summed

Where = Callable[[int], str | None]
LEAST_LAUNCHES = 2
MOST_EDITS = 200
"""Launches in which an iteration may differ from the typical one."""
MOST_STEPS = 20_000
MOST_UNEVEN = 4
"""How many times the mean number of launches the typical iteration may have."""


def graph_candidates(trace: Trace, work: Work, where: Where) -> tuple[tuple[GraphCandidate, ...], str | None]:
    """(the candidates with the largest gain first, None) or ((), why there can be none). where: place in Work -> source line."""
    steps = len(trace.steps)
    if steps > MOST_STEPS:
        return (), f"more than {MOST_STEPS} iterations"
    if steps < 2:
        return (), "one iteration only: what repeats in each can't be told"
    stretches = common_stretches(trace, work)
    if stretches is None:
        return (), f"two iterations differ in more than {MOST_EDITS} launches"
    first, last, places = stretches
    # Places of all stretches in all steps, as rows (step, stretch).
    lows, highs = places[:, first].ravel(), places[:, last].ravel()
    busy = _Waits(work)
    duration = np.concatenate(([0], np.cumsum(work.duration)))
    wall = float(trace.steps.duration_ns.mean())
    idle, gain = (values.reshape(steps, -1).sum(axis=0) for values in busy.of(lows, highs))
    time = (duration[highs + 1] - duration[lows]).reshape(steps, -1).sum(axis=0)
    found = []
    for index in np.argsort(-gain, kind="stable")[:MOST_CANDIDATES].tolist():
        low, high = int(places[0, first[index]]), int(places[0, last[index]])
        mean_gain = int(gain[index]) // steps
        found.append(GraphCandidate(
            launches=high - low + 1, first_kernel=work.name(low), last_kernel=work.name(high), first_where=where(low),
            last_where=where(high), streams=int(np.unique(work.stream[low:high + 1]).size), duration_ns=int(time[index]) // steps,
            idle_ns=int(idle[index]) // steps, gain_ns=mean_gain, gain_pct=100.0 * mean_gain / wall if wall > 0 else None))
    return tuple(found), None


def common_stretches(trace: Trace, work: Work) -> tuple[Int64, Int64, Int64] | None:
    """(first, last) launches of the typical iteration of each stretch, and places[step, launch] in Work of its launches in each step.

    A stretch is the same in every step, launch after launch, and nothing in it, in any step, forbids capture. None when the steps differ
    in too much to be aligned.
    """
    steps, reference = len(trace.steps), work.of_step(typical_iteration(trace))
    count = reference.stop - reference.start
    none = np.zeros(0, dtype=np.int64)
    if steps * count > MOST_UNEVEN * (len(work) + 1):
        return None
    places = np.full((steps, count), -1, dtype=np.int64)
    for step in range(steps):
        mine = work.of_step(step)
        pairs = align(work.symbol[reference], work.symbol[mine], most_edits=MOST_EDITS)
        if pairs is None:
            return None
        places[step, pairs[0]] = pairs[1] + mine.start
    allowed = capturable(work)
    if count == 0:
        return none, none, places
    usable = np.asarray(((places >= 0) & allowed[np.maximum(places, 0)]).all(axis=0))
    joined = usable[:-1] & usable[1:] & (places[:, 1:] == places[:, :-1] + 1).all(axis=0)
    joined &= work.device[reference][1:] == work.device[reference][:-1]
    joined &= ~broken_after(trace, work)[np.maximum(places[:, :-1], 0)].any(axis=0)
    edges = np.diff(np.concatenate(([False], joined, [False])).astype(np.int64))
    first, last = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    long = last - first + 1 >= LEAST_LAUNCHES
    return first[long].astype(np.int64), last[long].astype(np.int64), places


def capturable(work: Work) -> Mask:
    """Launches that a graph can hold and does not hold yet; shape (m,)."""
    runtime = work.trace.runtime
    to_host_or_pageable = chosen(work.trace.device.names, _forbidden_copy, work.name_id)
    forbidden_call = chosen(runtime.names, breaks_capture, runtime.name_id)
    known = work.launch >= 0
    bad_call = np.zeros(len(work), dtype=bool)
    bad_call[known] = forbidden_call[work.launch[known]]
    return known & ~work.in_graph & ~to_host_or_pageable & ~bad_call


def broken_after(trace: Trace, work: Work) -> Mask:
    """Whether a call that forbids capture begins after each launch call and before the next launch's; shape (m,)."""
    runtime = trace.runtime
    calls = np.sort(runtime.start_ns[chosen(runtime.names, breaks_capture, runtime.name_id)])
    until = np.concatenate((work.called[1:], work.called[-1:]))
    return np.asarray(np.searchsorted(calls, until) > np.searchsorted(calls, work.called), dtype=bool)


def _forbidden_copy(name: str) -> bool:
    kind = copy_kind(name)
    return kind is not None and (kind[0] == "DtoH" or "pageable" in kind[1:])


class _Waits:
    """Idle stretches of the devices, and which of them waited for a launch call."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.gap = np.zeros(len(work), dtype=np.int64)
        """Idle time of the device right before each piece of work; once where several begin together."""
        self.late = np.zeros(len(work), dtype=np.int64)
        """Of it, what waited for the launch call, less the usual gap of a queued launch."""
        for device, rows in work.by_device:
            starts, ends = work.busy[device]
            if not starts.size:
                continue
            at = np.searchsorted(starts, work.start[rows])
            begins = (at < starts.size) & (at > 0) & (starts[np.minimum(at, starts.size - 1)] == work.start[rows])
            rows, at = rows[begins], at[begins]
            _, one = np.unique(at, return_index=True)
            rows, at = rows[one], at[one]
            gap = starts[at] - ends[at - 1]
            waited = work.returned[rows] > ends[at - 1]
            usual = int(np.median(gap[~waited])) if (~waited).any() else 0
            self.gap[rows] = gap
            self.late[rows] = np.where(waited, np.maximum(gap - usual, 0), 0)

    def of(self, lows: Int64, highs: Int64) -> tuple[Int64, Int64]:
        """(idle ns, late ns) of the stretches [low, high] of launches; shapes (k,). One after the other; they do not overlap."""
        work = self.work
        stretch = np.zeros(len(work) + 1, dtype=np.int64)
        np.add.at(stretch, lows, 1)
        np.subtract.at(stretch, highs + 1, 1)
        inside = np.flatnonzero(np.cumsum(stretch)[:len(work)] > 0)
        order = np.argsort(lows, kind="stable")
        owner = order[np.searchsorted(lows[order], inside, side="right") - 1] if lows.size else np.zeros(0, dtype=np.int64)
        begins = np.full(lows.size, np.iinfo(np.int64).max, dtype=np.int64)
        ends = np.full(lows.size, np.iinfo(np.int64).min, dtype=np.int64)
        np.minimum.at(begins, owner, work.start[inside])
        np.maximum.at(ends, owner, work.end[inside])
        idle = np.zeros(lows.size, dtype=np.int64)
        for device, mine in grouped(work.device[lows]):
            starts, finished = work.busy[device]
            idle[mine] = ends[mine] - begins[mine] - covered(starts, finished, begins[mine], ends[mine])
        # What the device waited before the first of a stretch is not inside it.
        since_begin = work.start[inside] - begins[owner]
        return idle, summed(np.minimum(self.late[inside], since_begin), owner, lows.size)
