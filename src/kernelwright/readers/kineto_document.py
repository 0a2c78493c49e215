"""The slow way through a Kineto trace: the whole document at once, each event checked alone. Reads any layout, and tells every error."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

from ..model.errors import BadInput
from ..model.trace import RECORD_AGAIN
from .kineto_columns import MAX_MEMORY_BYTES, MEMORY, TABLES, Args, Collector, DeviceProperties, Event, table_of
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


class _File(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)
    devices: list[DeviceProperties] = msgspec.field(name="deviceProperties", default_factory=list)


class _Lists(msgspec.Struct, gc=False, rename={"dims": "Input Dims", "types": "Input type"}):
    """The arguments that Args leaves as text."""

    dims: list[Any] | None = None
    types: list[str] | None = None
    grid: list[int] | None = None
    block: list[int] | None = None


def read_document(data: bytes, file_name: str) -> tuple[Collector, Sequence[DeviceProperties]]:
    """The events of a whole trace, and its devices. Raises BadInput."""
    try:
        document = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("bad_trace", f"not a readable Kineto trace ({error})", where=file_name, fix=RECORD_AGAIN) from error
    if not document.events:
        raise BadInput("empty_trace", "the trace holds no events", where=file_name, fix=RECORD_AGAIN)
    try:
        return _Checker(file_name).collect(document.events), document.devices
    except OverflowError as error:
        raise BadInput("bad_trace", "an id in the trace is beyond 64 bits", where=file_name, fix=RECORD_AGAIN) from error


class _Checker:
    """Takes events one by one into the collector."""

    def __init__(self, file_name: str) -> None:
        self.file_name = file_name
        self.args = msgspec.json.Decoder(Args)
        self.lists = msgspec.json.Decoder(_Lists)

    def collect(self, events: Sequence[_Event]) -> Collector:
        rows: dict[str, list[tuple[Event, int, int]]] = {name: [] for name in TABLES}
        memory: list[tuple[Event, int]] = []
        for number, event in enumerate(events):
            if event.ph == "i" and event.name == MEMORY:
                self._add_memory(memory, event, number)
            table = table_of(event.ph, event.cat, event.name)
            if table is not None:
                times = self._times(event, number)
                rows[table].append((self._event(event, number), *times))
        collector = Collector()
        for table, found in rows.items():
            times_ns = np.array([row[1:] for row in found], dtype=np.int64).reshape(-1, 2)
            collector.add(table, [row[0] for row in found], times_ns[:, 0], times_ns[:, 1])
        collector.add_memory([event for event, _ in memory], np.array([time for _, time in memory], dtype=np.int64))
        return collector

    def _add_memory(self, memory: list[tuple[Event, int]], event: _Event, number: int) -> None:
        read = self._event(event, number)
        args = read.args
        if args.change is None or event.ts is None or not event.ts.is_finite() or abs(event.ts) >= MAX_US:
            return
        if max(abs(args.change), abs(args.total)) >= MAX_MEMORY_BYTES:
            raise BadInput("bad_trace", "an allocation's size can't be right", where=f"{self.file_name}, event {number}", fix=RECORD_AGAIN)
        memory.append((read, rounded_ns(event.ts)))

    def _times(self, event: _Event, number: int) -> tuple[int, int]:
        where = f"{self.file_name}, event {number} ({event.name[:60]})"
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
                self.lists.decode(raw)
            args = self.args.decode(raw) if raw else Args()
        except msgspec.DecodeError as error:
            raise BadInput("bad_trace", f"an event's arguments can't be read ({error})",
                           where=f"{self.file_name}, event {number} ({event.name[:60]})", fix=RECORD_AGAIN) from error
        return Event(event.ph, event.cat, event.name, event.pid, event.tid, args=args)
