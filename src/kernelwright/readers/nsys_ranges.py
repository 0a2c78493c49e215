"""The NVTX ranges of an Nsight Systems export -> operators, annotations, line markers and steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..model.table import Int64
from .nsys_file import NsysFile
from .nsys_names import EVALUATE, is_operator, range_names, shapes
from .nsys_rows import MISSING, Rows, make_rows, process_of, thread_of

RANGES = "NVTX_EVENTS"
NESTED = (59, 70)
"""eventType of push/pop ranges; only these nest on their thread."""
FREE = (60, 71)
"""eventType of start/end ranges, which may begin and end on different threads."""
NOT_ENDED = -(1 << 63)


class Ranges:
    """All NVTX ranges of a recording, by what they are. Nested ones only, but for `free`."""

    def __init__(self, file: NsysFile) -> None:
        texts = Texts()
        parts: list[list[Int64]] = []
        for *numbers, text in _columns(file):
            parts.append([file.numbers(RANGES, column) for column in numbers])
            texts.add(text)
        found = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.zeros(0, dtype=np.int64)] * len(_NUMBERS)
        self._found = dict(zip(_NUMBERS, found, strict=True))
        self._texts = texts.finished(file, self._found["text_id"])
        self._file = file

    def last_ns(self) -> int | None:
        """The end of the last range that has one, or else the start of the last."""
        start, end = self._found["start"], self._found["end"]
        return int(max(start.max(), end.max())) if start.size else None

    def rows(self, last_ns: int) -> tuple[Rows, Rows, Rows]:
        """(operators, annotations, start/end ranges). A range that never ended ends at last_ns, or where it starts if that is later;
        its detail `ended` is 0."""
        found, texts = self._found, self._texts
        open_at_end = found["end"] == NOT_ENDED
        end = np.where(open_at_end, np.maximum(found["start"], last_ns), found["end"])
        known = {"process": process_of(found["thread"]), "thread": thread_of(found["thread"]),
                 "opened": np.where(texts.op_id >= 0, texts.op_id, np.arange(end.size))}
        rows = make_rows(self._file, RANGES, found["start"], end, texts.name_id, texts.names, **known, columns={
            "opened": texts.op_id, "ended": (~open_at_end).astype(np.int64)})
        nested, operator = np.isin(found["kind"], NESTED), texts.is_operator
        operators = _with_shapes(rows, texts).take(nested & operator)
        return operators, rows.take(nested & ~operator), rows.take(np.isin(found["kind"], FREE))


_NUMBERS = ("start", "end", "kind", "thread", "text_id")


def _columns(file: NsysFile) -> Iterator[tuple[Any, ...]]:
    """The ranges, some thousand at once: _NUMBERS, then the texts."""
    known = file.column_names(RANGES)
    for name in ("start", "end", "eventType") if known else ():
        if name not in known:
            raise file.wrong_schema(RANGES, f"has no column {name}")
    thread = f"ifnull([globalTid], {MISSING})" if "globalTid" in known else str(MISSING)
    text_id = "ifnull([textId], -1)" if "textId" in known else "-1"
    text = "CASE typeof([text]) WHEN 'text' THEN [text] END" if "text" in known else "NULL"
    words = f"[start], ifnull([end], {NOT_ENDED}), [eventType], {thread}, {text_id}, {text}"
    kinds = ", ".join(map(str, (*NESTED, *FREE)))
    for rows in file.chunks(RANGES, words, f"[eventType] IN ({kinds})") if known else ():
        yield tuple(zip(*rows, strict=True))


class _Numbers(dict[bytes, int]):
    """A number for each text, in order of appearance."""

    def __missing__(self, text: bytes) -> int:
        number = self[text] = len(self)
        return number


class Texts:
    """Names, numbers and shapes in the texts, each distinct one kept once."""

    def __init__(self, names: _Numbers | None = None, sizes: _Numbers | None = None) -> None:
        self.names = _Numbers() if names is None else names
        self.sizes = _Numbers({b"": 0}) if sizes is None else sizes
        self.parts: list[list[Int64]] = []

    def add(self, texts: Sequence[Any]) -> None:
        """More texts; one that is none (it is in StringIds, or no text) has no name yet: -1."""
        names, sequence, op_id, sizes = range_names(texts)
        columns = (map(self.names.__getitem__, names), sequence, op_id, map(self.sizes.__getitem__, sizes))
        self.parts.append([np.fromiter(column, dtype=np.int64, count=len(texts)) for column in columns])
        if None in texts:
            self.parts[-1][0][[text is None for text in texts]] = -1

    def columns(self) -> list[Int64]:
        """(name, sequence number, op_id, shapes) of each text."""
        return [np.concatenate(column) for column in zip(*self.parts, strict=True)] or [np.zeros(0, dtype=np.int64)] * 4

    def finished(self, file: NsysFile, text_id: Int64) -> _Parsed:
        """Everything as arrays, with the texts that are in StringIds. text_id: by row, -1 for none."""
        columns = self.columns()
        missing = columns[0] < 0
        if missing.any():
            ids, inverse = np.unique(text_id[missing], return_inverse=True)
            found = file.texts({int(one) for one in ids})
            registered = Texts(self.names, self.sizes)
            registered.add([found.get(int(one), b"") for one in ids])
            for column, values in zip(columns, registered.columns(), strict=True):
                column[missing] = values[inverse.reshape(-1)]
        names: dict[str, int] = {}
        renumbered = np.array([names.setdefault(name.decode("utf-8", "replace"), len(names)) for name in self.names], dtype=np.int64)
        name_id, sequence, op_id, sizes_id = columns
        return _Parsed(renumbered[name_id] if name_id.size else name_id, tuple(names), sequence, op_id, sizes_id, tuple(self.sizes))


class _Parsed:
    """What the texts say, row by row. All arrays have shape (n,)."""

    def __init__(self, name_id: Int64, names: tuple[str, ...], sequence: Int64, op_id: Int64, sizes_id: Int64,
                 sizes: tuple[bytes, ...]) -> None:
        self.name_id, self.names, self.sequence, self.op_id, self.sizes_id, self.sizes = name_id, names, sequence, op_id, sizes_id, sizes
        plain, emitted = (np.array([is_operator(name, emitted=given) for name in names], dtype=bool) for given in (False, True))
        self.is_operator = (sequence >= 0) | (sizes_id > 0)
        if name_id.size:
            self.is_operator |= np.where(op_id >= 0, emitted[name_id], plain[name_id])


def _with_shapes(rows: Rows, texts: _Parsed) -> Rows:
    """The operators' details: dims, types (none: NVTX holds no dtypes), sequence and forward_thread, as Kineto's have them."""
    sequence, forward_thread = _gradients(rows, texts)
    return replace(rows, which=texts.sizes_id, shared=tuple({"dims": shapes(text), "types": []} for text in texts.sizes),
                   columns={"sequence": sequence, "forward_thread": forward_thread, **rows.columns})


def _gradients(rows: Rows, texts: _Parsed) -> tuple[Int64, Int64]:
    """(sequence number, thread of the forward call) of each row; 0 as thread for calls that are no gradient, -1 where the forward call
    was not recorded.

    emit_nvtx numbers a backward node as the forward call that it differentiates; Kineto gives that number to the range around the node
    too (and says which thread called forward), so it is brought there.
    """
    sequence = texts.sequence.copy()
    forward_thread = np.zeros(len(rows), dtype=np.int64)
    around = {number: name.removeprefix(EVALUATE) for number, name in enumerate(rows.names) if name.startswith(EVALUATE)}
    if not around:
        return sequence, forward_thread
    nodes = set(around.values())
    is_node = np.array([name in nodes for name in rows.names], dtype=bool)[rows.name_id] & (sequence >= 0)
    evaluates = np.isin(rows.name_id, list(around))
    numbers = {name: number for number, name in enumerate(rows.names)}
    inner_name = np.array([numbers.get(around.get(number, ""), -1) for number in range(len(rows.names))], dtype=np.int64)[rows.name_id]
    # On each thread in nesting order: the node that a range evaluates is the first range inside it.
    order = np.lexsort((rows.opened, -rows.end, rows.start, rows.thread, rows.process))
    outer, inner = order[:-1], order[1:]
    fits = (evaluates[outer] & is_node[inner] & (inner_name[outer] == rows.name_id[inner]) & (rows.end[inner] <= rows.end[outer])
            & (rows.thread[outer] == rows.thread[inner]) & (rows.process[outer] == rows.process[inner]))
    sequence[outer[fits]] = sequence[inner[fits]]
    backward = is_node.copy()
    backward[outer[fits]] = True
    forward_thread[backward] = _forward_threads(rows, sequence, backward)[backward]
    return sequence, forward_thread


def _forward_threads(rows: Rows, sequence: Int64, backward: Any) -> Int64:
    """Thread of the latest earlier forward call with the same number, -1 for none; shape (n,), of use for the backward rows."""
    numbered = np.flatnonzero(sequence >= 0)
    order = numbered[np.lexsort((backward[numbered], rows.start[numbered], sequence[numbered], rows.process[numbered]))]
    place = np.arange(order.size)
    latest = np.maximum.accumulate(np.where(backward[order], -1, place))
    source = order[np.maximum(latest, 0)]
    known = (latest >= 0) & (sequence[source] == sequence[order]) & (rows.process[source] == rows.process[order])
    result = np.full(len(rows), -1, dtype=np.int64)
    result[order] = np.where(known, rows.thread[source], -1)
    return result
