"""The quick way through a Kineto trace: part by part, cut between events, so that memory does not grow with the file's text.

A part that decodes as whole values of a list is what a reader of the whole document would find there, as the part before it ended with
a whole value; at the end the text around the events is decoded with a mark as first event, which must come out as one. Whatever is not
as Kineto writes it is left to kineto_document, which tells the errors.
"""

from __future__ import annotations

import gc
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from .kineto_collector import Collector
from .kineto_events import MAX_MEMORY_BYTES, MEMORY, TABLE_OF, DeviceProperties, Distributed, Event, Heading, Routes, heading
from .kineto_times import are_plain, nanoseconds

_EVENTS_BEGIN = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
_BETWEEN = re.compile(rb"\}[ \t\r\n]*(,)[ \t\r\n]*\{[ \t\r\n]*\Z")
_LOOK_BACK_BYTES = 64
_CLOSE = ord("]")
_FIRST_KEYS = (b'"ph"', b'"name"', b'"args"', b'"cat"', b'"pid"', b'"ts"')
"""Kineto's own events begin with the first, its metadata with the second; with the others, files that something else has written anew."""
_MOST_TRIES = 10_000
_MAX_PART_BYTES = 4 << 20


class _File(msgspec.Struct):
    events: list[Event] = msgspec.field(name="traceEvents", default_factory=list)
    devices: list[DeviceProperties] = msgspec.field(name="deviceProperties", default_factory=list)
    distributed: Distributed | None = msgspec.field(name="distributedInfo", default=None)


class OtherLayout(Exception):
    """The text is not as Kineto writes it; it may be a good trace all the same."""


def read_parts(chunks: Iterable[bytes], collector: Collector) -> Heading:
    """Reads a trace's text into the collector. Raises OtherLayout (the collector is then of no more use), and whatever chunks raises."""
    try:
        with no_garbage_collection():
            return _read(chunks, collector)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        raise OtherLayout(str(error)) from error


def _read(chunks: Iterable[bytes], collector: Collector) -> Heading:
    decoder = msgspec.json.Decoder(list[Event])
    head, rest = b"", b""
    for chunk in chunks:
        if not head:
            head, rest = _split_head(rest + chunk)
            part = bytearray(b"[" + rest)
        else:
            part = bytearray(b"").join((b"[", rest, chunk))
        cut = _last_cut(part) if head else -1
        if cut >= 0:
            part[cut] = _CLOSE
            _add(collector, decoder.decode(memoryview(part)[:cut + 1]))
            rest = bytes(memoryview(part)[cut + 1:])
        elif len(part) > _MAX_PART_BYTES:
            raise OtherLayout("no event ends")
        else:
            rest = bytes(memoryview(part)[1:])
    if not head:
        raise OtherLayout("no traceEvents")
    mark = secrets.token_hex(16)
    document = msgspec.json.decode(head + b'{"name":"' + mark.encode() + b'"},' + rest, type=_File)
    if not document.events or document.events[0].name != mark:
        raise OtherLayout("traceEvents is not the document's")
    _add(collector, document.events[1:])
    return heading(document.devices, document.distributed)


def _split_head(text: bytes) -> tuple[bytes, bytes]:
    """(up to the events, the rest); an empty head where they have not begun."""
    begin = _EVENTS_BEGIN.search(text)
    return (text[:begin.end()], text[begin.end():]) if begin else (b"", text)


def _last_cut(text: bytearray) -> int:
    """Where the comma is before the last object that begins with the first of _FIRST_KEYS that any does; -1 if none is found."""
    return next((cut for key in _FIRST_KEYS if (cut := _last_cut_before(text, key)) >= 0), -1)


def _last_cut_before(text: bytearray, key: bytes) -> int:
    place = len(text)
    for _ in range(_MOST_TRIES):
        place = text.rfind(key, 0, place)
        if place < 0:
            break
        low = max(0, place - _LOOK_BACK_BYTES)
        if between := _BETWEEN.search(text[low:place]):
            return low + between.start(1)
    return -1


def _add(collector: Collector, events: Sequence[Event]) -> None:
    chosen, left_out = _by_table(events, collector.routes)
    if not (are_plain([event.ts for event in left_out]) and are_plain([event.dur for event in left_out])):
        raise OtherLayout("a time is not a plain number")
    for name, rows in chosen.items():
        start, duration = nanoseconds([event.ts for event in rows]), nanoseconds([event.dur for event in rows])
        if (duration < 0).any():
            raise OtherLayout("a negative duration")
        collector.add(name, rows, start, start + duration)
    memory = [event for event in left_out if event.ph == "i" and event.name == MEMORY and event.args.change is not None]
    if any(max(abs(event.args.change or 0), abs(event.args.total)) >= MAX_MEMORY_BYTES for event in memory):
        raise OtherLayout("an allocation too large")
    collector.add_memory(memory, nanoseconds([event.ts for event in memory]))


def _by_table(events: Sequence[Event], routes: Routes) -> tuple[dict[str, list[Event]], list[Event]]:
    """(the rows of each table, all other events), in the file's order; as routes tell, but most of it once for many."""
    by_category: dict[str | None, list[Event]] = {name: [] for name in (*TABLE_OF.values(), None)}
    table = TABLE_OF.get
    for event in events:
        by_category[table(event.cat)].append(event)
    left_out = by_category.pop(None)
    chosen: dict[str, list[Event]] = {}
    for name, found in by_category.items():
        assert name is not None
        complete = [event for event in found if event.ph == "X"]
        if len(complete) < len(found):
            left_out = [event for event in events if event.ph != "X" or event.cat not in TABLE_OF]
        targets = {one: routes.by_name(name, one) for one in {event.name for event in complete}}
        kinds = set(targets.values())
        for target in kinds:
            chosen[target] = complete if len(kinds) == 1 else [event for event in complete if targets[event.name] == target]
    if "lines" in chosen:  # of any category
        chosen["lines"] = [event for event in events if routes.table(event.ph, event.cat, event.name) == "lines"]
    return chosen, left_out


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Millions of short-lived objects, none of them in a cycle: looking for cycles would only cost time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
