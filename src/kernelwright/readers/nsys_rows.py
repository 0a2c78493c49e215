"""Rows of a recording on their way from an export's tables to an EventTable: still with nsys's own ids and clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from ..model.table import EventTable, Int64, RowDetails
from .nsys_file import MAX_NS, NsysFile

MISSING = -1
"""A global id that stands for none: as one it would be process and thread 0xFFFFFF."""
_THREAD_BITS = 24
_MASK = (1 << _THREAD_BITS) - 1
Value = TypeVar("Value")


@dataclass(frozen=True)
class Rows:
    """Events of one kind. All arrays have shape (n,); times are nsys's own."""

    start: Int64
    end: Int64
    name_id: Int64
    names: tuple[str, ...]
    process: Int64
    """The upper bits of nsys's global id: process and machine."""
    thread: Int64
    correlation: Int64
    stream: Int64
    device: Int64
    opened: Int64
    """Decides the order of events of the same times: the smaller was opened first."""
    which: Int64
    shared: tuple[dict[str, Any], ...] = ({},)
    """Details that rows have in common, by `which`."""
    columns: dict[str, Int64] = field(default_factory=dict)
    """Further details."""

    def __len__(self) -> int:
        return int(self.start.size)

    def take(self, rows: Any) -> Rows:
        """Some of the rows, by number or by truth value."""
        arrays = {one.name: getattr(self, one.name)[rows] for one in fields(self) if one.name not in ("names", "shared", "columns")}
        return replace(self, **arrays, columns={name: column[rows] for name, column in self.columns.items()})

    def table(self, origin: int) -> EventTable:
        """The rows in nesting order, times from origin, and of names and details only those in use."""
        rows = self.take(np.lexsort((self.opened, -self.end, self.start)))
        name_id, names = _in_use(rows.name_id, rows.names)
        which, shared = _in_use(rows.which, rows.shared)
        return EventTable(
            start_ns=rows.start - origin, end_ns=rows.end - origin, name_id=name_id, stream=rows.stream, device=rows.device,
            process=rows.process, thread=rows.thread, correlation=rows.correlation, names=names,
            args=RowDetails(len(rows), which=which, shared=shared, columns=rows.columns))


def _in_use(numbers: Int64, values: tuple[Value, ...]) -> tuple[Int64, tuple[Value, ...]]:
    used = np.zeros(len(values), dtype=bool)
    used[numbers] = True
    return (np.cumsum(used) - 1)[numbers], tuple(values[place] for place in np.flatnonzero(used))


def make_rows(file: NsysFile, table: str, start: Int64, end: Int64, name_id: Int64, names: Sequence[str], **known: Any) -> Rows:
    """Rows with -1 for whatever is not known. Raises BadInput for a negative duration and for times that can't be right."""
    check_times(file, table, start, end)
    none = np.full(start.size, -1, dtype=np.int64)
    filled = dict.fromkeys(("process", "thread", "correlation", "stream", "device"), none)
    return Rows(start, end, name_id, tuple(names), **{
        "opened": np.arange(start.size), "which": np.zeros(start.size, dtype=np.int64), **filled, **known})


def check_times(file: NsysFile, table: str, start: Int64, end: Int64) -> None:
    """Raises BadInput as make_rows."""
    if not start.size:
        return
    if min(int(start.min()), int(end.min())) <= -MAX_NS or max(int(start.max()), int(end.max())) >= MAX_NS:
        raise file.bad(f"table {table} holds a time beyond int64 nanoseconds")
    if (wrong := np.flatnonzero(end < start)).size:
        raise file.bad(f"an event has a negative duration (table {table}, row {int(wrong[0]) + 1}: "
                       f"{int(end[wrong[0]] - start[wrong[0]])} ns)")


def joined(parts: Iterable[Rows]) -> Rows:
    """All rows of several tables as one."""
    parts = list(parts)
    names: dict[str, int] = {}
    shared: list[dict[str, Any]] = []
    name_ids, which = [], []
    for rows in parts:
        numbers = np.array([names.setdefault(name, len(names)) for name in rows.names], dtype=np.int64)
        name_ids.append(numbers[rows.name_id] if len(rows) else rows.name_id)
        which.append(rows.which + len(shared))
        shared += rows.shared

    def together(name: str) -> Int64:
        return np.concatenate([getattr(rows, name) for rows in parts])

    return Rows(together("start"), together("end"), np.concatenate(name_ids), tuple(names), together("process"), together("thread"),
                together("correlation"), together("stream"), together("device"), together("opened"), np.concatenate(which),
                tuple(shared), {name: np.concatenate([rows.columns[name] for rows in parts]) for name in parts[0].columns})


def process_of(global_id: Int64) -> Int64:
    """nsys's global thread or process id -> its upper bits, one number a process on one machine; -1 for none."""
    return np.where(global_id == MISSING, -1, global_id >> _THREAD_BITS)


def thread_of(global_id: Int64) -> Int64:
    """nsys's global thread id -> the operating system's; -1 for none."""
    return np.where(global_id == MISSING, -1, global_id & _MASK)


def process_numbers(tables: Iterable[Rows]) -> dict[int, int]:
    """What process_of gave -> the operating system's process id; as it is where two machines share one."""
    keys = {int(key) for rows in tables for key in np.unique(rows.process)} - {-1}
    return {-1: -1, **{key: key & _MASK for key in keys}} if len({key & _MASK for key in keys}) == len(keys) else {
        key: key for key in (-1, *keys)}


def replaced(values: Int64, by: dict[int, int]) -> Int64:
    """Each value's replacement."""
    found, inverse = np.unique(values, return_inverse=True)
    return np.array([by[int(value)] for value in found], dtype=np.int64)[inverse].reshape(values.shape)


def named(file: NsysFile, ids: Int64, rename: Callable[[str], str] = str) -> tuple[Int64, tuple[str, ...]]:
    """Ids of StringIds -> (name numbers, names); an id without a text is named after its number."""
    found, inverse = np.unique(ids, return_inverse=True)
    texts = file.strings({int(one) for one in found})
    names: dict[str, int] = {}
    numbers = [names.setdefault(rename(texts.get(int(one), f"(name {one})")), len(names)) for one in found]
    return np.array(numbers, dtype=np.int64)[inverse].reshape(ids.shape), tuple(names)


def distinct(columns: Sequence[Int64]) -> tuple[Int64, list[list[int]]]:
    """(which of the distinct rows each row is, those rows). columns: at least one, each of shape (n,)."""
    key = np.zeros(columns[0].size, dtype=np.uint64)
    for column in columns:
        key = (key ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    if any((column != column[first][which]).any() for column in columns):
        matrix, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        return which.reshape(-1).astype(np.int64), matrix.tolist()
    return which.astype(np.int64), [list(row) for row in zip(*(column[first].tolist() for column in columns), strict=True)]
