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
import numpy as np

from .kineto_columns import MAX_MEMORY_BYTES, MEMORY, TABLES, Collector, DeviceProperties, Event, table_of
from .kineto_times import are_plain, nanoseconds

_EVENTS_BEGIN = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
_BETWEEN = re.compile(rb"\}[ \t\r\n]*(,)[ \t\r\n]*\{[ \t\r\n]*\Z")
_LOOK_BACK_BYTES = 64
_FIRST_KEY = b'"ph"'
_MOST_TRIES = 10_000
_MAX_PART_BYTES = 64 << 20


class _File(msgspec.Struct):
    events: list[Event] = msgspec.field(name="traceEvents", default_factory=list)
    devices: list[DeviceProperties] = msgspec.field(name="deviceProperties", default_factory=list)


class OtherLayout(Exception):
    """The text is not as Kineto writes it; it may be a good trace all the same."""


def read_parts(chunks: Iterable[bytes]) -> tuple[Collector, Sequence[DeviceProperties]]:
    """The events of a trace's text, and its devices. Raises OtherLayout, and whatever chunks raises."""
    try:
        with _no_garbage_collection():
            return _read(chunks)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        raise OtherLayout(str(error)) from error


def _read(chunks: Iterable[bytes]) -> tuple[Collector, Sequence[DeviceProperties]]:
    collector = Collector()
    decoder = msgspec.json.Decoder(list[Event])
    head, rest = b"", b""
    for chunk in chunks:
        rest += chunk
        if not head:
            head, rest = _split_head(rest)
        cut = _last_cut(rest) if head else -1
        if cut >= 0:
            _add(collector, decoder.decode(b"[" + rest[:cut] + b"]"))
            rest = rest[cut + 1:]
        elif len(rest) > _MAX_PART_BYTES:
            raise OtherLayout("no event ends")
    if not head:
        raise OtherLayout("no traceEvents")
    mark = secrets.token_hex(16)
    document = msgspec.json.decode(head + b'{"name":"' + mark.encode() + b'"},' + rest, type=_File)
    if not document.events or document.events[0].name != mark:
        raise OtherLayout("traceEvents is not the document's")
    _add(collector, document.events[1:])
    return collector, document.devices


def _split_head(text: bytes) -> tuple[bytes, bytes]:
    """(up to the events, the rest); an empty head where they have not begun."""
    begin = _EVENTS_BEGIN.search(text)
    return (text[:begin.end()], text[begin.end():]) if begin else (b"", text)


def _last_cut(text: bytes) -> int:
    """Where the comma is before the last event that begins with "ph"; -1 if none is found."""
    place = len(text)
    for _ in range(_MOST_TRIES):
        place = text.rfind(_FIRST_KEY, 0, place)
        if place < 0:
            break
        low = max(0, place - _LOOK_BACK_BYTES)
        if between := _BETWEEN.search(text[low:place]):
            return low + between.start(1)
    return -1


def _add(collector: Collector, events: Sequence[Event]) -> None:
    chosen: dict[str | None, list[Event]] = {name: [] for name in (*TABLES, None)}
    memory: list[Event] = []
    for event in events:
        chosen[table_of(event.ph, event.cat, event.name)].append(event)
        if event.ph == "i" and event.name == MEMORY and event.args.change is not None:
            memory.append(event)
    left_out = chosen.pop(None)
    if not (are_plain([event.ts for event in left_out]) and are_plain([event.dur for event in left_out])):
        raise OtherLayout("a time is not a plain number")
    for name, rows in chosen.items():
        if rows:
            start, duration = nanoseconds([event.ts for event in rows]), nanoseconds([event.dur for event in rows])
            if (duration < 0).any():
                raise OtherLayout("a negative duration")
            collector.add(str(name), rows, start, start + duration)
    if any(max(abs(event.args.change or 0), abs(event.args.total)) >= MAX_MEMORY_BYTES for event in memory):
        raise OtherLayout("an allocation too large")
    collector.add_memory(memory, nanoseconds([event.ts for event in memory]) if memory else np.zeros(0, dtype=np.int64))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Millions of short-lived objects, none of them in a cycle: looking for cycles would only cost time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
