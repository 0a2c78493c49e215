"""The critical path through host and device: back from the end, from each piece of work to what it waited for last.

Definitions: docs/timeline-structure.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..model.structure import MOST_ON_PATH, CriticalPath, PathCategory, PathShare
from ..model.table import EventTable, Int64
from ..model.trace import Trace
from .intervals import distinct, gaps, innermost, nesting_order, parents, union
from .kernel_names import chosen
from .names import Chosen, Mask, is_compiler, is_loader
from .ordering import dense
from .owners import Owners
from .path_edges import EVENT, LAUNCH, STREAM, DeviceEdges, Handover, HostEdges, Thread, Wait
from .work import Work, codes, summed

_GAP_NAMES: dict[int, PathCategory] = {LAUNCH: "launch latency", STREAM: "stream gap", EVENT: "event wait"}


@dataclass
class Segments:
    """The parts of the path, from its end backwards."""

    work: list[tuple[int, int, int]] = field(default_factory=list)
    """(place, start, end) of device work."""
    before: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(why, place of the work that waited, start, end) between what arrived last and the work's start."""
    returns: list[tuple[str, int, int]] = field(default_factory=list)
    """(call, start, end) between the end of the work that a call waited for and its return."""
    host: dict[Thread, list[tuple[int, int]]] = field(default_factory=dict)
    """Stretches of host threads."""
    inferred: int = 0
    """Edges that the recording does not state."""

    def __len__(self) -> int:
        return len(self.work) + len(self.before) + len(self.returns) + sum(map(len, self.host.values()))


def critical_path(trace: Trace, work: Work, owners: Owners) -> CriticalPath:
    """The path over all steps, by category and with its largest parts. Needs device work."""
    low, high = bounds(trace, work)
    device = DeviceEdges(trace, work)
    segments = walk(trace, work, device, HostEdges(trace, work, device), low, high)
    shares = [*_device_shares(segments, work, owners), *_return_shares(segments), *_host_shares(trace, segments, owners)]
    by_category: dict[PathCategory, int] = {}
    for share in shares:
        by_category[share.category] = by_category.get(share.category, 0) + share.ns
    shares.sort(key=lambda share: (-share.ns, share.category, share.name))
    return CriticalPath(
        start_ns=low, end_ns=high, by_category=dict(sorted(by_category.items(), key=lambda item: (-item[1], item[0]))),
        segments=len(segments), largest=tuple(shares[:MOST_ON_PATH]), inferred_edges=segments.inferred)


def bounds(trace: Trace, work: Work) -> tuple[int, int]:
    """From the first step's start to the last step's end or the end of the steps' device work, whichever is later."""
    return int(trace.steps.start_ns.min()), max(int(trace.steps.end_ns.max()), int(work.end.max(initial=np.iinfo(np.int64).min)))


def walk(trace: Trace, work: Work, device: DeviceEdges, host: HostEdges, low: int, high: int) -> Segments:
    """The path's parts; they tile [low, high)."""
    found = Segments()
    starts, ends, why, before, arrival = (column.tolist() for column in (work.start, work.end, device.why, device.before, device.arrival))
    runtime = trace.runtime
    launch = work.launch
    last_step = int(np.argmax(trace.steps.end_ns))
    place = int(device.by_end[-1]) if len(work) else -1
    thread: Thread = (int(trace.steps.process[last_step]), int(trace.steps.thread[last_step]))
    if place < 0 or ends[place] < high:
        place = -1
    now, handed_over, rank = high, False, len(work)
    while now > low:
        if place >= 0:
            begun, rank = max(starts[place], low), int(device.rank[place])
            found.work.append((place, begun, now))
            cause, since = why[place], arrival[place]
            if cause != LAUNCH:
                since = ends[before[place]]
            since = max(min(since, begun), low)
            if since < begun:
                found.before.append((cause, place, since, begun))
            found.inferred += cause == EVENT
            now = since
            if cause != LAUNCH:
                place = before[place]
            else:
                row = int(launch[place])
                if row >= 0:
                    thread = (int(runtime.process[row]), int(runtime.thread[row]))
                place, handed_over = -1, False
            continue
        cause_of = host.last(thread, now, handed_over=handed_over, rank=rank)
        since = max(low, low if cause_of is None else cause_of.at if isinstance(cause_of, Handover) else cause_of.until)
        if since < now:
            found.host.setdefault(thread, []).append((since, now))
        now = since
        if isinstance(cause_of, Wait):
            ended = max(cause_of.since, low)
            if ended < now:
                found.returns.append((cause_of.name, ended, now))
            now, place, handed_over = ended, cause_of.place, False
        elif cause_of is not None:
            thread, handed_over = cause_of.thread, True
            found.inferred += 1
    return found


def _device_shares(segments: Segments, work: Work, owners: Owners) -> list[PathShare]:
    memset = ~work.is_kernel & ~work.is_copy

    def kind(place: int) -> PathCategory:
        if work.is_collective[place]:
            return "communication"
        return "copy" if work.is_copy[place] else "memset" if memset[place] else "kernel"

    groups: dict[tuple[PathCategory, int], list[tuple[int, int]]] = {}
    for place, start, end in segments.work:
        groups.setdefault((kind(place), int(work.name_id[place])), []).append((end - start, place))
    for cause, place, start, end in segments.before:
        groups.setdefault((_GAP_NAMES[cause], int(work.name_id[place])), []).append((end - start, place))
    return [PathShare(category=category, name=work.trace.device.names[name], ns=sum(ns for ns, _ in parts), count=len(parts),
                      where=owners.where(max(parts)[1])) for (category, name), parts in groups.items()]


def _return_shares(segments: Segments) -> list[PathShare]:
    groups: dict[str, list[int]] = {}
    for name, start, end in segments.returns:
        groups.setdefault(name, []).append(end - start)
    return [PathShare(category="sync return", name=name, ns=sum(parts), count=len(parts)) for name, parts in groups.items()]


def _host_shares(trace: Trace, segments: Segments, owners: Owners) -> list[PathShare]:
    """Host time by what the thread was doing."""
    groups: dict[tuple[PathCategory, str], list[tuple[int, int, int, int]]] = {}
    for thread, stretches in segments.host.items():
        array = np.array(stretches, dtype=np.int64)
        for category, name, *sums in _on_thread(trace, thread, array[:, 0], array[:, 1]):
            groups.setdefault((category, name), []).append((sums[0], sums[1], sums[2], sums[3]))
    rows = []
    for (category, name), parts in groups.items():
        known = owners.of_row(max(parts, key=lambda part: part[2])[3]) if category == "operator" else None
        rows.append(PathShare(category=category, name=name, ns=sum(part[0] for part in parts), count=sum(part[1] for part in parts),
                              where=known.source if known is not None else None))
    return rows


def _on_thread(trace: Trace, thread: Thread, starts: Int64, ends: Int64) -> list[tuple[PathCategory, str, int, int, int, int]]:
    """(category, name, ns, events, ns of the longest event, its row) of the stretches of one thread, by the innermost event."""
    begun, ended, source, row = _events(trace, thread)
    named = [(category, _special(trace, thread, test)) for category, test in _SPECIAL]
    outside = gaps(trace.steps.start_ns, trace.steps.end_ns, int(starts.min()), int(ends.max()))
    cuts = distinct(np.concatenate((begun, ended, starts, ends, *outside, *(part for _, spans in named for part in spans))))
    lows, highs = cuts[:-1], cuts[1:]
    inside = _within(union(starts, ends), lows)
    lows, highs = lows[inside], highs[inside]
    owner = innermost(begun, ended, parents(begun, ended), lows)
    label, key = np.full(lows.size, _HOST), np.full(lows.size, -1, dtype=np.int64)
    label[owner >= 0], key[owner >= 0] = source[owner[owner >= 0]], row[owner[owner >= 0]]
    for number, (_, spans) in reversed(list(enumerate(named))):
        label[_within(spans, lows)] = _FIRST_SPECIAL + number
    label[_within(outside, lows)] = _OUTSIDE
    key[label > _OPERATOR] = -1
    return _summed(trace, label, key, highs - lows, [category for category, _ in named])


_CALL, _OPERATOR, _HOST, _OUTSIDE, _FIRST_SPECIAL = 0, 1, 2, 3, 4


def _within(spans: tuple[Int64, Int64], points: Int64) -> Mask:
    """Which points lie in one of the disjoint spans, given in order; shape (m,)."""
    at = np.searchsorted(spans[0], points, side="right") - 1
    if not spans[0].size:
        return np.zeros(points.size, dtype=bool)
    return np.asarray((at >= 0) & (points < spans[1][np.maximum(at, 0)]), dtype=bool)


def _events(trace: Trace, thread: Thread) -> tuple[Int64, Int64, Int64, Int64]:
    """CUDA calls and operators of a thread in nesting order: start, end, which of the two, row."""
    tables = [(table, _of_thread(table, thread), kind) for table, kind in ((trace.runtime, _CALL), (trace.operators, _OPERATOR))]
    begun = np.concatenate([table.start_ns[mine] for table, mine, _ in tables])
    ended = np.concatenate([table.end_ns[mine] for table, mine, _ in tables])
    order = nesting_order(begun, ended)
    source = np.concatenate([np.full(mine.size, kind, dtype=np.int64) for _, mine, kind in tables])
    return begun[order], ended[order], source[order], np.concatenate([mine for _, mine, _ in tables])[order]


def _summed(trace: Trace, label: Int64, key: Int64, lengths: Int64,
            special: list[PathCategory]) -> list[tuple[PathCategory, str, int, int, int, int]]:
    # First by event, then by name.
    event = dense(label * (int(key.max(initial=0)) + 2) + key + 1)
    first = np.zeros(int(event.max(initial=-1)) + 1, dtype=np.int64)
    first[event] = np.arange(event.size)
    ns = summed(lengths, event, first.size)
    label, key = label[first], key[first]
    name = np.zeros(first.size, dtype=np.int64)
    for kind, table in ((_CALL, trace.runtime), (_OPERATOR, trace.operators)):
        name[label == kind] = table.name_id[key[label == kind]]
    group = codes(label, name)
    order = np.lexsort((-ns, group))
    found: list[tuple[PathCategory, str, int, int, int, int]] = []
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if order.size else []:
        kind, longest = int(label[rows[0]]), int(rows[0])
        sums = (int(ns[rows].sum()), int(rows.size), int(ns[longest]), int(key[longest]))
        if kind == _CALL:
            found.append(("runtime call", trace.runtime.names[int(name[longest])], *sums))
        elif kind == _OPERATOR:
            found.append(("operator", trace.operators.names[int(name[longest])], *sums))
        else:
            category: PathCategory = "host" if kind == _HOST else "between steps" if kind == _OUTSIDE else special[kind - _FIRST_SPECIAL]
            found.append((category, category, *sums))
    return found


def _special(trace: Trace, thread: Thread, test: Chosen) -> tuple[Int64, Int64]:
    """Stretches of a thread in ranges or operators with such a name."""
    starts, ends = [], []
    for table in (trace.ranges, trace.operators):
        rows = _of_thread(table, thread)
        rows = rows[chosen(table.names, test, table.name_id[rows])]
        starts.append(table.start_ns[rows])
        ends.append(table.end_ns[rows])
    return union(np.concatenate(starts), np.concatenate(ends))


def _of_thread(table: EventTable, thread: Thread) -> Int64:
    return np.flatnonzero((table.process == thread[0]) & (table.thread == thread[1]))


_SPECIAL: tuple[tuple[PathCategory, Chosen], ...] = (("data loader", is_loader), ("compile", is_compiler))
