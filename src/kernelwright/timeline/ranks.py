"""The ranks of a distributed run side by side: matched collectives, who waited for whom, and how each rank's time passed.

No clock of one rank is held against another's. A collective that all members must finish together ends at one moment on all of them; so
each rank's arrival lies its own time in the collective before that moment, and it waited for as long as its time exceeds the shortest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..model.ranks import (
    MOST_COLLECTIVES,
    MOST_KINDS,
    MOST_RANKS,
    MOST_STEPS,
    CollectiveKind,
    Exposure,
    RankRow,
    Ranks,
    Waited,
)
from ..model.table import Int64
from ..model.trace import Trace
from .collectives import Collectives, What, collectives, communicates
from .intervals import union, union_by, union_length
from .names import is_copy_work, is_memset, named
from .nesting import threads
from .numbering import dense
from .pace import step_times
from .steps import device_work

NOTABLE_NS = 10_000
"""A shorter wait names nobody as the last one: arrivals within it count as together."""


@dataclass(frozen=True)
class Matched:
    """The collectives of all ranks in one table. All arrays have shape (n,), one row a rank's part in a collective."""

    rank: Int64
    """Place of the rank, not its number."""
    start_ns: Int64
    end_ns: Int64
    step: Int64
    sequence: Int64
    what: Int64
    """Index into whats."""
    whats: tuple[What, ...]
    collective: Int64
    """Which collective, from 0; -1 where it could not be matched."""

    @property
    def duration_ns(self) -> Int64:
        """Time in the collective."""
        return self.end_ns - self.start_ns


def match(parts: Sequence[Collectives]) -> Matched:
    """Which parts of different ranks are the same collective.

    Those with a number in their process group: by group, kind and number (several of one number, as coalesced ones have, by their order).
    Those without: the n-th of a kind and group within a step, where all ranks that take part in any such have equally many in that step.
    A part that no other rank shares is not matched.
    """
    numbers: dict[What, int] = {}
    names: dict[tuple[str, str], int] = {}
    whats = [np.array([numbers.setdefault(what, len(numbers)) for what in part.whats], dtype=np.int64) for part in parts]
    what = _joined([number[part.what] for number, part in zip(whats, parts, strict=True)])
    name_of = np.array([names.setdefault((one.kind, one.group), len(names)) for one in numbers], dtype=np.int64)
    rank = np.repeat(np.arange(len(parts), dtype=np.int64), [part.start_ns.size for part in parts])
    start, end, step, sequence = (_joined([getattr(part, field) for part in parts]) for field in ("start_ns", "end_ns", "step", "sequence"))
    numbered = sequence >= 0
    keys = np.stack((name_of[what] if what.size else what, np.where(numbered, sequence, step), numbered.astype(np.int64)))
    collective = _same(keys, rank, start, numbered)
    return Matched(rank, start, end, step, sequence, what, tuple(numbers), collective)


def _same(keys: Int64, rank: Int64, start: Int64, numbered: np.ndarray) -> Int64:
    """Number of the collective of each part, -1 for those that stand alone. keys: shape (3, n)."""
    if not rank.size:
        return np.zeros(0, dtype=np.int64)
    cell = dense(keys)
    order = np.lexsort((start, rank, cell))
    pair = cell[order] * (int(rank.max()) + 1) + rank[order]
    opens = np.concatenate(([True], pair[1:] != pair[:-1]))
    begins = np.flatnonzero(opens)
    ordinal = np.empty(rank.size, dtype=np.int64)
    ordinal[order] = np.arange(rank.size) - np.repeat(begins, np.diff(np.append(begins, rank.size)))
    number = dense((cell, ordinal))
    # One row a rank within each number: members are counted by their rows.
    members = np.bincount(number)
    shared = members[number] > 1
    shared &= numbered | _even(keys, cell, rank)
    return np.where(shared, number, -1)


def _even(keys: Int64, cell: Int64, rank: Int64) -> np.ndarray:
    """Which parts are in a cell (kind and step) of which every rank that has the kind in any step has equally many."""
    cells, ranks = int(cell.max()) + 1, int(rank.max()) + 1
    counts = np.zeros((cells, ranks), dtype=np.int64)
    np.add.at(counts, (cell, rank), 1)
    kinds = np.zeros(cells, dtype=np.int64)
    kinds[cell] = dense((keys[0], keys[2]))
    takes_part = np.zeros((int(kinds.max()) + 1, ranks), dtype=bool)
    np.logical_or.at(takes_part, kinds, counts > 0)
    most = counts.max(axis=1, keepdims=True)
    even = ((counts == most) | ~takes_part[kinds]).all(axis=1)
    result: np.ndarray = even[cell]
    return result


@dataclass(frozen=True)
class Waits:
    """What the matched, aligned collectives say. Arrays over parts have shape (n,), over collectives (m,)."""

    wait_ns: Int64
    """Of each part; 0 where it is not known."""
    known: np.ndarray
    """Parts whose wait is known."""
    last: Int64
    """Of each collective the place of the rank that arrived last; -1 where it has no known waits."""
    transfer_ns: Int64
    longest_ns: Int64


def waits(matched: Matched) -> Waits:
    """How long each part waited: its time in the collective less the shortest one of all members'."""
    aligned = np.array([one.aligned for one in matched.whats], dtype=bool)
    known = (matched.collective >= 0) & (aligned[matched.what] if matched.what.size else matched.what.astype(bool))
    count = int(matched.collective.max(initial=-1)) + 1
    number, duration = matched.collective[known], matched.duration_ns[known]
    shortest = np.full(count, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(shortest, number, duration)
    wait = np.zeros(matched.rank.size, dtype=np.int64)
    wait[known] = duration - shortest[number]
    longest = np.zeros(count, dtype=np.int64)
    np.maximum.at(longest, number, wait[known])
    last = np.full(count, -1, dtype=np.int64)
    first_to_last = np.flatnonzero(known & (wait == 0))[::-1]
    last[matched.collective[first_to_last]] = matched.rank[first_to_last]  # of several with the shortest time the lowest rank
    return Waits(wait, known, last, np.where(last >= 0, shortest, 0), longest)


def compare_ranks(traces: Sequence[tuple[int, Trace]], *, leave_out: int = 0, notable_ns: int = NOTABLE_NS) -> Ranks:
    """The ranks side by side. traces: (rank, its recording), at least one, in rank order.

    leave_out: so many first steps of each rank are not compared, where it has more.
    """
    trimmed = [(rank, without_first_steps(trace, leave_out)) for rank, trace in traces]
    parts = [collectives(trace) for _, trace in trimmed]
    matched = match(parts)
    found = waits(matched)
    waits_for = _waits_for(matched, found, len(trimmed))
    rows = tuple(_rank(place, rank, trace, matched, found, int(waits_for[:, place].sum()), notable_ns)
                 for place, (rank, trace) in enumerate(trimmed))
    numbers = [rank for rank, _ in trimmed]
    size = max([trace.world_size or 0 for _, trace in trimmed] + [max(numbers) + 1, len(numbers)])
    counted = found.last >= 0
    alone = int(np.count_nonzero(matched.collective < 0))
    return Ranks(
        world_size=size, missing=tuple(sorted(set(range(min(size, MOST_RANKS))) - set(numbers))), recorder=trimmed[0][1].recorder,
        backend="device" if any(part.on_device for part in parts) else "host", left_out_steps=leave_out, ranks=rows,
        kinds=_kinds(matched, found, numbers, notable_ns), waits_for=_rows(waits_for),
        waits_by_step=_rows(_by_step(matched, found, len(trimmed), min(MOST_STEPS, max(len(trace.steps) for _, trace in trimmed)))),
        worst=_worst(matched, found, numbers, notable_ns), collectives=int(np.count_nonzero(counted)),
        waited=int(np.count_nonzero(counted & (found.longest_ns > notable_ns))), notable_ns=notable_ns, unmatched=alone,
        matched_by=_matched_by(matched), warnings=_warnings(trimmed, matched, alone, size))


def without_first_steps(trace: Trace, count: int) -> Trace:
    """The trace without its first steps, as far as it has more than those; times stay as they are."""
    count = min(count, len(trace.steps) - 1)
    return replace(trace, steps=trace.steps.take(np.arange(count, len(trace.steps)))) if count > 0 else trace


def exposure(trace: Trace, waiting: tuple[Int64, Int64], communication: tuple[Int64, Int64]) -> Exposure:
    """How a rank's time passed. waiting, communication: (starts, ends) of its waits and of its collectives."""
    rows = device_work(trace).rows
    high = int(np.concatenate((trace.device.end_ns[rows], trace.steps.end_ns)).max())
    low = min(_begin(trace, rows), high)
    compute, copies, fills = _work(trace)

    def within(pair: tuple[Int64, Int64]) -> tuple[Int64, Int64]:
        return union(np.clip(pair[0], low, high), np.clip(pair[1], low, high))

    def length(*pairs: tuple[Int64, Int64]) -> int:
        return union_length(np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs]))

    computing, talking, waited, copied, filled = (within(pair) for pair in (compute, communication, waiting, copies, fills))
    alone, both = length(computing), length(computing, talking)
    return Exposure(
        span_ns=high - low, compute_ns=alone, communication_ns=length(talking), overlapped_ns=alone + length(talking) - both,
        exposed_ns=both - alone, waiting_ns=length(waited), exposed_waiting_ns=length(computing, waited) - alone, copy_ns=length(copied),
        idle_ns=high - low - length(computing, talking, copied, filled))


def _begin(trace: Trace, rows: Int64) -> int:
    """The first step's start, or the end of what the device still ran for the steps before it. rows: the steps' own work."""
    low = int(trace.steps.start_ns.min())
    before = np.ones(len(trace.device), dtype=bool)
    before[rows] = False
    before &= trace.device.start_ns < low
    return max(low, int(trace.device.end_ns[before].max(initial=low)))


def _work(trace: Trace) -> tuple[tuple[Int64, Int64], ...]:
    """(starts, ends) of what computes, copies and fills; without device work, of operators that do not communicate."""
    if trace.is_cuda:
        rows = device_work(trace).rows
        copies, fills = named(trace.device, is_copy_work)[rows], named(trace.device, is_memset)[rows]
        talks = named(trace.device, communicates)[rows]
        return tuple((trace.device.start_ns[rows[mask]], trace.device.end_ns[rows[mask]])
                     for mask in (~(copies | fills | talks), copies, fills))
    none = np.zeros(0, dtype=np.int64)
    return _operators(trace), (none, none), (none, none)


def _operators(trace: Trace) -> tuple[Int64, Int64]:
    """Stretches in which some thread was in an operator and not, further in, in one that communicates."""
    table = trace.operators
    talks = named(table, communicates)
    starts, ends = [], []
    for process, thread in threads(table, np.arange(len(table))):
        mine = (table.process == process) & (table.thread == thread)
        busy = union(table.start_ns[mine & ~talks], table.end_ns[mine & ~talks])
        first, last = outside(*busy, table.start_ns[mine & talks], table.end_ns[mine & talks])
        starts.append(first)
        ends.append(last)
    return union(_joined(starts), _joined(ends))


def outside(starts: Int64, ends: Int64, cut_starts: Int64, cut_ends: Int64) -> tuple[Int64, Int64]:
    """What is covered by the first intervals and not by the others: disjoint (starts, ends). Any input order."""
    first, last = union(starts, ends)
    cut_first, cut_last = union(cut_starts, cut_ends)
    points = np.unique(np.concatenate((first, last, cut_first, cut_last)))
    if points.size < 2:
        return points[:0], points[:0]
    middle = points[:-1]

    def covers(low: Int64, high: Int64) -> np.ndarray:
        row = np.searchsorted(low, middle, side="right") - 1
        inside: np.ndarray = (row >= 0) & (high[np.maximum(row, 0)] > middle) if low.size else np.zeros(middle.size, dtype=bool)
        return inside

    keep = covers(first, last) & ~covers(cut_first, cut_last)
    return union(middle[keep], points[1:][keep])


def _joined(arrays: Sequence[Int64]) -> Int64:
    return np.concatenate(list(arrays)) if arrays else np.zeros(0, dtype=np.int64)


def _rank(place: int, rank: int, trace: Trace, matched: Matched, found: Waits, caused_ns: int, notable_ns: int) -> RankRow:
    mine = matched.rank == place
    starts, ends, wait = matched.start_ns[mine], matched.end_ns[mine], found.wait_ns[mine]
    last = (found.last == place) & (found.longest_ns > notable_ns)
    times = step_times(trace)
    device = ", ".join(dict.fromkeys(trace.device_names)) if trace.is_cuda else "CPU"
    return RankRow(
        rank=rank, source=trace.source, device=device, steps=len(trace.steps), step_ns=tuple(times[:MOST_STEPS].tolist()),
        step_median_ns=float(np.median(times)),
        exposure=exposure(trace, (starts, starts + wait), (starts, ends)), collectives=int(np.count_nonzero(mine)),
        matched=int(np.count_nonzero(mine & (matched.collective >= 0))), last=int(np.count_nonzero(last)),
        caused_ns=caused_ns)


def _waits_for(matched: Matched, found: Waits, ranks: int) -> Int64:
    """Time in which each rank waited for each other one, ns; shape (ranks, ranks). Waits at one moment count once."""
    rows = np.flatnonzero(found.known)
    return _waited(matched, found, rows, found.last[matched.collective[rows]], ranks, ranks)


def _by_step(matched: Matched, found: Waits, ranks: int, steps: int) -> Int64:
    """Time in which each rank waited, by the step of its collectives, ns; shape (ranks, steps). Waits at one moment count once."""
    rows = np.flatnonzero(found.known & (matched.step < steps))
    return _waited(matched, found, rows, matched.step[rows], ranks, steps)


def _waited(matched: Matched, found: Waits, rows: Int64, column: Int64, ranks: int, columns: int) -> Int64:
    starts = matched.start_ns[rows]
    group, first, last = union_by(matched.rank[rows] * columns + column, starts, starts + found.wait_ns[rows])
    table = np.zeros(ranks * columns, dtype=np.int64)
    np.add.at(table, group, last - first)
    return table.reshape(ranks, columns)


def _rows(table: Int64) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())


def _parts_of(matched: Matched) -> tuple[Int64, Int64]:
    """(rows of matched parts ordered by collective, where each collective's rows begin)."""
    rows = np.flatnonzero(matched.collective >= 0)
    rows = rows[np.lexsort((matched.rank[rows], matched.collective[rows]))]
    number = matched.collective[rows]
    return rows, np.flatnonzero(np.concatenate(([True], number[1:] != number[:-1]))) if rows.size else rows


def _sizes(matched: Matched) -> Int64:
    """Message of each row, bytes; -1 where it is not known."""
    sizes = np.array([-1 if one.bytes is None else one.bytes for one in matched.whats], dtype=np.int64)
    return sizes[matched.what] if matched.what.size else matched.what


def _kinds(matched: Matched, found: Waits, numbers: Sequence[int], notable_ns: int) -> tuple[CollectiveKind, ...]:
    rows, begins = _parts_of(matched)
    if not rows.size:
        return ()
    number = matched.collective[rows[begins]]
    names: dict[tuple[str, str], int] = {}
    named_as = np.array([names.setdefault((one.kind, one.group), len(names)) for one in matched.whats], dtype=np.int64)
    name = named_as[matched.what[rows[begins]]]
    durations = np.maximum.reduceat(matched.duration_ns[rows], begins)
    sizes = np.maximum.reduceat(_sizes(matched)[rows], begins)
    waiting = np.add.reduceat(found.wait_ns[rows], begins)
    longest, last = found.longest_ns[number], found.last[number]
    made = []
    for (kind, group), place in names.items():
        mine = name == place
        if not mine.any():
            continue
        aligned = bool((last[mine] >= 0).all())
        held = mine & (last >= 0) & (longest > notable_ns)
        times = np.bincount(last[held], minlength=1)
        made.append(CollectiveKind(
            kind=kind, group=group, count=int(np.count_nonzero(mine)), aligned=aligned,
            transfer_ns=int((found.transfer_ns[number] if aligned else durations)[mine].sum()), waiting_ns=int(waiting[mine].sum()),
            longest_wait_ns=int(longest[mine].max()), bytes=int(sizes[mine].sum()) if bool((sizes[mine] >= 0).all()) else None,
            last_rank=numbers[int(times.argmax())] if held.any() else None, last_count=int(times.max()) if held.any() else 0,
            waited_count=int(np.count_nonzero(held))))
    return tuple(sorted(made, key=lambda row: (-row.waiting_ns - row.transfer_ns, row.kind, row.group))[:MOST_KINDS])


def _worst(matched: Matched, found: Waits, numbers: Sequence[int], notable_ns: int) -> tuple[Waited, ...]:
    order = np.argsort(-found.longest_ns, kind="stable")[:MOST_COLLECTIVES]
    sizes = _sizes(matched)
    made = []
    for number in order.tolist():
        if found.last[number] < 0 or found.longest_ns[number] <= notable_ns:
            continue
        rows = np.flatnonzero(matched.collective == number)
        late = rows[matched.rank[rows] == found.last[number]][0]
        waiting = rows[int(found.wait_ns[rows].argmax())]
        what = matched.whats[int(matched.what[late])]
        size = int(sizes[rows].max())
        made.append(Waited(
            kind=what.kind, group=what.group, step=int(matched.step[late]), bytes=size if size >= 0 else None,
            sequence=int(matched.sequence[late]) if matched.sequence[late] >= 0 else None, last_rank=numbers[int(found.last[number])],
            longest_wait_ns=int(found.longest_ns[number]), waiting_rank=numbers[int(matched.rank[waiting])],
            transfer_ns=int(found.transfer_ns[number])))
    return tuple(made)


def _matched_by(matched: Matched) -> Literal["sequence", "order", "mixed", "nothing"]:
    known = matched.sequence[matched.collective >= 0] >= 0
    if not known.size:
        return "nothing"
    return "sequence" if bool(known.all()) else "mixed" if bool(known.any()) else "order"


def _warnings(traces: Sequence[tuple[int, Trace]], matched: Matched, alone: int, size: int) -> tuple[str, ...]:
    found = []
    if len(traces) < size:
        found.append(f"{size - len(traces)} of {size} ranks have no recording: who waited for them is not known, and waits for others are "
                     "those among the recorded ranks")
    steps = sorted({len(trace.steps) for _, trace in traces})
    if len(steps) > 1:
        found.append(f"the ranks recorded {steps[0]} to {steps[-1]} steps: totals of ranks are not alike")
    if any(trace.steps_from == "whole" for _, trace in traces):
        found.append("the recordings have no steps: collectives without a number are matched by their order in the whole recording")
    if not matched.rank.size:
        found.append("no collective was recorded in the steps of any rank")
    elif alone:
        found.append(f"{alone} of {matched.rank.size} recorded collectives could not be matched between ranks; they count as "
                     "communication, and nothing is said of who waited in them")
    if len({trace.recorder for _, trace in traces}) > 1:
        found.append("the ranks were recorded by different profilers")
    if any(one.group == "" for one in matched.whats) and len(traces) > 2 and matched.rank.size:
        found.append("the recordings do not name process groups: collectives of different groups could be taken for one another")
    return tuple(found)
