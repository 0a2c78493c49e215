"""`trace.perfetto.gz`: the timeline in Perfetto's own format, for https://ui.perfetto.dev and its trace processor.

Field numbers are those of Perfetto's protos/perfetto/trace (TracePacket, TrackEvent, TrackDescriptor, InternedData); rules of track
events: https://perfetto.dev/docs/reference/synthetic-track-event.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..model.files import write_bytes_atomic
from ..model.flow import Flow
from ..model.profile import Operator
from ..model.table import Int64
from ..model.trace import Trace
from ..timeline.gaps import GapTable
from ..timeline.intervals import nesting_order, parents
from .protobuf import Rows, fixed64, message, messages, number, numbers, text
from .text import plain
from .timeline_events import WITH_DETAILS, Detail, Kinds, Recording, Source
from .timeline_lanes import Lane, depths

MOST_SLICES = 1_000_000
"""Later ones are left out, and the trace says so."""
MOST_FLOWS = 32
"""Arrows from one call; a graph's launch has as many kernels as the graph."""
_CHUNK = 1 << 15
_SEQUENCE = number(10, 1)
_NEEDS_NAMES = number(13, 2)
"""TracePacket.sequence_flags: SEQ_NEEDS_INCREMENTAL_STATE."""
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
"""TrackEvent.type."""
_GPU, _HOST, _NOTES, _FIRST_TRACK = 1, 2, 3, 16
"""Track uuids."""
_OPERATOR, _DETAILS = 1, 2
"""Interned names of debug annotations."""
_LAUNCHES, _BYTES = text(6, "launches"), number(3, 3)
"""CounterDescriptor.unit_name; CounterDescriptor.unit, SIZE_BYTES."""


def write_perfetto(path: Path, trace: Trace, *, operators: Sequence[Operator] | None = None, flow: Flow | None = None,
                   gaps: GapTable | None = None) -> int:
    """Streams, threads, flows from launch calls to kernels, counters of queue depth and memory. Raises NotWritable.

    operators: the attributed operators; None: the innermost operator around each launch call is looked up in the trace. flow, gaps: the
    idle time by cause becomes a track. Times are counted from the recording's first event. Equal traces give equal bytes. Returns how many
    events, the last ones, were left out because the trace would be too large.
    """
    pack = zlib.compressobj(6, zlib.DEFLATED, 31)
    made = _Made(Source(Recording(trace, operators, flow, gaps), 0, "", Kinds()))
    data = [pack.compress(part) for part in made.packets()]
    write_bytes_atomic(path, b"".join((*data, pack.flush())))
    return made.left


@dataclass(frozen=True)
class _Slices:
    """All slices in nesting order within their tracks. Arrays have shape (n,)."""

    track: Int64
    start: Int64
    end: Int64
    kind: Int64
    detail: Int64
    """Interned string, 0 for none."""
    flow: Int64
    """1 + row of trace.runtime for a kernel's call, else 0."""
    call: Int64
    """1 + row of trace.runtime for a call, else 0."""


class _Made:
    """One trace's packets."""

    def __init__(self, source: Source) -> None:
        self.source, self.kinds, self.trace = source, source.kinds, source.trace
        lanes = [lane for lane in source.lanes if lane.start_ns.size]
        self.base = min((int(lane.start_ns.min()) for lane in lanes), default=0)
        starts = np.sort(np.concatenate([lane.start_ns for lane in lanes])) if lanes else np.zeros(0, np.int64)
        self.until = int(starts[MOST_SLICES]) if starts.size > MOST_SLICES else None
        self.left = 0 if self.until is None else int(np.count_nonzero(starts >= self.until))
        self.tracks: list[bytes] = []
        self.strings: dict[str, int] = {}
        self.details: dict[Detail, int] = {(): 0}
        self.slices = self._slices(lanes)
        self.owners = self._owners()
        """Interned name of the operator of each kind, 0 for none."""

    def packets(self) -> Iterator[bytes]:
        """The file, in parts."""
        counters = b"".join(self._counters())
        yield from self._head()
        yield from self._slice_packets()
        yield counters

    # -- tracks and names -----------------------------------------------------------------------------------------------------

    def _track(self, name: str, parent: int, *more: bytes) -> int:
        uuid = _FIRST_TRACK + len(self.tracks)
        self.tracks.append(_descriptor(uuid, name, number(5, parent), number(12, uuid), *more))
        return uuid

    def _head(self) -> Iterator[bytes]:
        # Perfetto's page sorts what has no parent by name, whatever its rank, and gathers events on such tracks under a name of its own.
        gpu = f"GPU ({plain(self.trace.device_names[0], 80)})" if self.trace.device_names else "GPU"
        explicit = number(11, 3)
        # The first packet says that it is (87, 42) and clears the sequence's interned state (13).
        yield message(1, _SEQUENCE, number(13, 1), number(87, 1), number(42, 1), _descriptor_field(_GPU, gpu, explicit))
        yield _descriptor(_HOST, "Host", explicit)
        yield from self.tracks
        names = self.kinds.words.list
        rows = [message(2, number(1, place), text(2, names[name])) for place, (_, name, _) in enumerate(self.kinds.rows, 1)]
        labels = [message(3, number(1, place), text(2, name)) for place, name in ((_OPERATOR, "operator"), (_DETAILS, "details"))]
        if self.until is not None:
            time, track = np.array([self.until - self.base]), np.array([_NOTES])
            words = f"{self.left:,} events that start later are left out"
            yield _descriptor(_NOTES, "left out", number(5, _HOST), number(12, _NOTES))
            yield _event(time, number(9, _INSTANT), numbers(11, track, 1), text(23, words)).tobytes()
        strings = [message(29, number(1, place), text(2, words)) for words, place in self.strings.items()]
        yield message(1, _SEQUENCE, _NEEDS_NAMES, message(12, *rows, *labels, *strings))

    def _string(self, words: str) -> int:
        return self.strings.setdefault(words, len(self.strings) + 1)

    # -- slices ---------------------------------------------------------------------------------------------------------------

    def _slices(self, lanes: Sequence[Lane]) -> _Slices:
        columns: list[tuple[Int64, ...]] = []
        for lane in lanes:
            order = nesting_order(lane.start_ns, lane.end_ns)
            if self.until is not None:
                order = order[lane.start_ns[order] < self.until]
            if order.size:
                columns.append(self._lane(lane, order))
        if not columns:
            return _Slices(*[np.zeros(0, np.int64)] * 7)
        return _Slices(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))

    def _lane(self, lane: Lane, order: Int64) -> tuple[Int64, ...]:
        start, end, rows = lane.start_ns[order] - self.base, lane.end_ns[order] - self.base, lane.table_row[order]
        parent = _GPU if lane.kind in ("device", "gaps") else _HOST
        around = parents(start, end)
        nested = bool(np.all((around < 0) | (end <= end[around])))
        # Slices of one track must nest; a lane in which some overlap in part becomes several tracks of one name.
        row = np.zeros(order.size, dtype=np.int64) if nested else depths(start, end)
        uuids = np.array([self._track(lane.label, parent) for _ in range(int(row.max()) + 1)], dtype=np.int64)
        none = np.zeros(order.size, dtype=np.int64)
        detail = none
        if lane.kind in WITH_DETAILS:
            detail = np.array([self._detail(self.source.detail(lane.kind, one)) for one in rows.tolist()], dtype=np.int64)
        flow = self.source.launched.call[rows] + 1 if lane.kind == "device" else none
        return uuids[row], start, end, lane.kind_id[order], detail, flow, rows + 1 if lane.kind == "runtime" else none

    def _detail(self, found: Detail) -> int:
        """Interned string, 0 for none."""
        place = self.details.get(found)
        if place is None:
            place = self.details[found] = self._string("; ".join(f"{label}: {plain(words, 400)}" for label, words in found))
        return place

    def _slice_packets(self) -> Iterator[bytes]:
        """Beginnings and ends in time order. Of equal time: first the ends of earlier slices, the inner ones first, then beginnings."""
        slices = self.slices
        count = slices.start.size
        row = np.arange(count)
        empty = (slices.end == slices.start).astype(np.int64)
        times = np.concatenate((slices.start, slices.end))
        late = np.concatenate((np.ones(count, np.int64), empty))
        place = np.concatenate((2 * row, np.where(empty, 2 * row + 1, -row)))
        order = np.lexsort((place, late, times))
        flows = self._flows()
        for first in range(0, order.size, _CHUNK):
            part = order[first:first + _CHUNK]
            yield _interleaved(self._shapes(part, times[part], flows))

    def _owners(self) -> Int64:
        names = self.kinds.words.list
        return np.array([self._string(names[owner]) if owner >= 0 else 0 for _, _, owner in self.kinds.rows] or [0], dtype=np.int64)

    def _flows(self) -> tuple[Int64, Int64, Int64]:
        """(flow of each slice that is launched, 0 for none; of each call its first flow, 0 for none; and how many it has).

        Each launched slice is one arrow; those of one call are numbered in a row. What is drawn from a call beyond MOST_FLOWS, or from a
        call that is not in the recording, has none.
        """
        slices = self.slices
        drawn = np.zeros(len(self.trace.runtime) + 1, dtype=bool)
        drawn[slices.call] = True
        drawn[0] = False
        launched = np.flatnonzero(drawn[slices.flow])
        launched = launched[np.argsort(slices.flow[launched], kind="stable")]
        calls, first, counts = np.unique(slices.flow[launched], return_index=True, return_counts=True)
        within = np.arange(launched.size) - np.repeat(first, counts)
        flow = np.zeros(slices.start.size, dtype=np.int64)
        flow[launched] = np.where(within < MOST_FLOWS, np.arange(launched.size) + 1, 0)
        of_call, many = np.zeros(drawn.size, dtype=np.int64), np.zeros(drawn.size, dtype=np.int64)
        of_call[calls], many[calls] = first + 1, np.minimum(counts, MOST_FLOWS)
        return flow, np.where(slices.call > 0, of_call[slices.call], 0), np.where(slices.call > 0, many[slices.call], 0)

    def _shapes(self, part: Int64, times: Int64, flows: tuple[Int64, Int64, Int64]) -> Iterator[tuple[Int64, Rows]]:
        """(places in the chunk, their packets), a shape at a time. part: below n a slice's beginning, else n + the slice that ends."""
        slices, count = self.slices, self.slices.start.size
        slice_ = part % count
        ends = part >= count
        chosen = np.flatnonzero(ends)
        if chosen.size:
            yield chosen, _event(times[chosen], number(9, _END), numbers(11, slices.track[slice_[chosen]], 3))
        flow, first, many = flows
        operator = self.owners[slices.kind[slice_]]
        shape = np.where(ends, -1, (operator > 0) + 2 * (slices.detail[slice_] > 0) + 4 * (flow[slice_] > 0) + 8 * many[slice_])
        for one in np.unique(shape[~ends]).tolist():
            chosen = np.flatnonzero(shape == one)
            at = slice_[chosen]
            parts: list[bytes | Rows] = [number(9, _BEGIN), numbers(11, slices.track[at], 3), numbers(10, slices.kind[at] + 1, 3)]
            parts += [fixed64(47, first[at] + arrow) for arrow in range(one >> 3)]
            if one & 4:
                parts.append(fixed64(48, flow[at]))
            for wanted, label, string in ((1, _OPERATOR, operator[chosen]), (2, _DETAILS, slices.detail[at])):
                if one & wanted:
                    parts.append(messages(4, number(1, label), numbers(17, string, 4)))
            yield chosen, _event(times[chosen], *parts)

    # -- counters -------------------------------------------------------------------------------------------------------------

    def _counters(self) -> Iterator[bytes]:
        for index in sorted(set(self.trace.device.device.tolist())):
            yield self._counter(f"GPU {index}: launched, not begun", _GPU, _LAUNCHES, *self._queue(index))
        memory = self.trace.memory
        for kind, index in sorted(set(zip(memory.device_type.tolist(), memory.device.tolist(), strict=True))):
            rows = np.flatnonzero((memory.device_type == kind) & (memory.device == index))
            name = f"GPU {index}: allocated" if kind else "host: allocated"
            yield self._counter(name, _GPU if kind else _HOST, _BYTES, memory.time_ns[rows], memory.total_bytes[rows])

    def _queue(self, index: int) -> tuple[Int64, Int64]:
        """Moments, and how many calls had returned by then whose first work on the device had not begun."""
        device, runtime, call = self.trace.device, self.trace.runtime, self.source.launched.call
        rows = np.flatnonzero((device.device == index) & (call >= 0))
        calls, first = np.unique(call[rows], return_index=True)  # rows are in start order
        returned, begun = runtime.end_ns[calls], device.start_ns[rows[first]]
        queued = begun > returned
        times, place = np.unique(np.concatenate((returned[queued], begun[queued])), return_inverse=True)
        change = np.zeros(times.size, dtype=np.int64)
        np.add.at(change, place.reshape(-1), np.repeat(np.array([1, -1]), np.count_nonzero(queued)))
        return times, np.cumsum(change)

    def _counter(self, name: str, parent: int, unit: bytes, times: Int64, values: Int64) -> bytes:
        """Of the moments (in order) before the recording's first event the last one's value stands at its beginning."""
        first = max(0, int(np.searchsorted(times, self.base, "right")) - 1)
        inside = slice(first, None if self.until is None else int(np.searchsorted(times, self.until)))
        if not times[inside].size:
            return b""
        uuid = self._track(name, parent, message(8, unit))
        value = numbers(30, values[inside], 10)
        return _event(np.maximum(times[inside] - self.base, 0), number(9, _COUNTER), number(11, uuid), value).tobytes()


def _descriptor_field(uuid: int, name: str, *more: bytes) -> bytes:
    return message(60, number(1, uuid), text(2, name), *more)


def _descriptor(uuid: int, name: str, *more: bytes) -> bytes:
    """A packet with a TrackDescriptor."""
    return message(1, _SEQUENCE, _descriptor_field(uuid, name, *more))


def _event(times: Int64, *parts: bytes | Rows) -> Rows:
    """Packets with a TrackEvent each."""
    return messages(1, numbers(8, times, 9), _SEQUENCE, _NEEDS_NAMES, messages(11, *parts))


def _interleaved(shapes: Iterator[tuple[Int64, Rows]]) -> bytes:
    """Packets of several shapes in the order of their places (0 to the number of all less one)."""
    groups = list(shapes)
    sizes = np.zeros(sum(places.size for places, _ in groups), dtype=np.int64)
    for places, rows in groups:
        sizes[places] = rows.shape[1]
    starts = np.cumsum(sizes) - sizes
    data = np.empty(int(sizes.sum()), dtype=np.uint8)
    for places, rows in groups:
        data[starts[places][:, None] + np.arange(rows.shape[1])] = rows
    return data.tobytes()


