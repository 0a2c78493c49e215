"""The slow way through a Kineto trace: each event checked alone. Reads any layout, and tells every error, in the quick way's memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

from ..model.errors import BadInput
from ..model.trace import RECORD_AGAIN
from .kineto_collector import Collector
from .kineto_events import MAX_MEMORY_BYTES, MEMORY, Args, DeviceProperties, Distributed, Event, Heading, heading
from .kineto_split import Malformed, Splitter
from .kineto_stream import no_garbage_collection
from .kineto_times import MAX_US, rounded_ns


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: Decimal | None = None
    dur: Decimal | None = None
    args: msgspec.Raw = msgspec.Raw(b"")


class _Around(msgspec.Struct):
    """The document without its events."""

    events: list[Any] | None = msgspec.field(name="traceEvents", default=None)
    devices: list[DeviceProperties] = msgspec.field(name="deviceProperties", default_factory=list)
    distributed: Distributed | None = msgspec.field(name="distributedInfo", default=None)


class _Lists(msgspec.Struct, gc=False, rename={"dims": "Input Dims", "types": "Input type"}):
    """The arguments that Args leaves as text."""

    dims: list[Any] | None = None
    types: list[str] | None = None
    grid: list[int] | None = None
    block: list[int] | None = None


_EVENTS = msgspec.json.Decoder(list[_Event])
_AROUND = msgspec.json.Decoder(_Around | list[Any])


def read_document(chunks: Iterable[bytes], collector: Collector) -> Heading:
    """Reads a trace's text into the collector. Raises Malformed for what is not JSON of events, BadInput for all else."""
    checker = _Checker(collector)
    splitter = Splitter()
    try:
        with no_garbage_collection():
            for batch in splitter.batches(chunks):
                checker.add(_decoded(batch, checker.count))
        around = _AROUND.decode(splitter.around)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(str(error)) from error
    except OverflowError as error:
        raise BadInput("bad_trace", "an id in the trace is beyond 64 bits", where=collector.file_name, fix=RECORD_AGAIN) from error
    if not checker.count:
        raise BadInput("empty_trace", "the trace holds no events", where=collector.file_name, fix=RECORD_AGAIN)
    return heading(around.devices, around.distributed) if isinstance(around, _Around) else Heading()


def _decoded(batch: Sequence[bytes], before: int) -> list[_Event]:
    try:
        return _EVENTS.decode(b"[" + b",".join(batch) + b"]")
    except msgspec.DecodeError as error:
        raise Malformed(f"{error}, counted from event {before}") from error


class _Checker:
    """Takes events one by one into the collector."""

    def __init__(self, collector: Collector) -> None:
        self.count = 0
        self._collector = collector
        self._file_name = collector.file_name
        self._args = msgspec.json.Decoder(Args)
        self._lists = msgspec.json.Decoder(_Lists)

    def add(self, events: Sequence[_Event]) -> None:
        """More events. Raises BadInput, OverflowError."""
        rows: dict[str, list[tuple[Event, int, int]]] = {}
        memory: list[tuple[Event, int]] = []
        route = self._collector.routes.table
        for number, event in enumerate(events, self.count):
            if event.ph == "i" and event.name == MEMORY:
                self._add_memory(memory, event, number)
            table = route(event.ph, event.cat, event.name)
            if table is not None:
                times = self._times(event, number)
                rows.setdefault(table, []).append((self._event(event, number), *times))
        for table, found in rows.items():
            times_ns = np.array([row[1:] for row in found], dtype=np.int64).reshape(-1, 2)
            self._collector.add(table, [row[0] for row in found], times_ns[:, 0], times_ns[:, 1])
        self._collector.add_memory([event for event, _ in memory], np.array([time for _, time in memory], dtype=np.int64))
        self.count += len(events)

    def _add_memory(self, memory: list[tuple[Event, int]], event: _Event, number: int) -> None:
        read = self._event(event, number)
        args = read.args
        if args.change is None or event.ts is None or not event.ts.is_finite() or abs(event.ts) >= MAX_US:
            return
        if max(abs(args.change), abs(args.total)) >= MAX_MEMORY_BYTES:
            raise BadInput("bad_trace", "an allocation's size can't be right", where=f"{self._file_name}, event {number}", fix=RECORD_AGAIN)
        memory.append((read, rounded_ns(event.ts)))

    def _times(self, event: _Event, number: int) -> tuple[int, int]:
        where = f"{self._file_name}, event {number} ({event.name[:60]})"
        if event.ts is None or event.dur is None or not (event.ts.is_finite() and event.dur.is_finite()):
            raise BadInput("bad_trace", "an event has no time or duration", where=where, fix=RECORD_AGAIN)
        if abs(event.ts) >= MAX_US or abs(event.dur) >= MAX_US:
            raise BadInput("bad_trace", "an event's time is beyond int64 nanoseconds", where=where, fix=RECORD_AGAIN)
        start, duration = rounded_ns(event.ts), rounded_ns(event.dur)
        if duration < 0:
            raise BadInput("bad_trace", f"an event has a negative duration ({event.dur} us)", where=where, fix=RECORD_AGAIN)
        return start, start + duration

    def _event(self, event: _Event, number: int) -> Event:
        raw = bytes(event.args)
        try:
            if raw:
                self._lists.decode(raw)
            args = self._args.decode(raw) if raw else Args()
        except msgspec.DecodeError as error:
            raise BadInput("bad_trace", f"an event's arguments can't be read ({error})",
                           where=f"{self._file_name}, event {number} ({event.name[:60]})", fix=RECORD_AGAIN) from error
        return Event(event.ph, event.cat, event.name, event.pid, event.tid, args=args)
