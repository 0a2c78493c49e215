"""An Nsight Systems SQLite export, opened so that a hostile or broken file does no more than give one clear error.

The file is opened read-only and as immutable, with SQLite's distrust of the schema on; only plain tables are read, whole columns at a
time, without joins, sorts or aggregates in SQL. What may be read is bounded by the file's size: pages that are pointed to many times over
would otherwise multiply into rows, and into text, without end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..model.errors import BadInput
from ..model.table import Int64
from ..model.trace import RECORD_AGAIN

MAGIC = b"SQLite format 3\0"
DEFAULT_MAX_BYTES = 8 << 30
MAX_NS = 4 * 10**18
"""Beyond it a start plus a duration might not fit in int64."""
_ROWS_AT_ONCE = 20_000
_LEAST_ROW_BYTES = 8
_MAX_VALUE_BYTES = 64 << 20
_MAX_NUMBER_BYTES = 4096
"""Longest value in columns of numbers (and longest statement); a text or a blob there is refused anyway."""
TEXT_BYTES_A_BYTE, MORE_TEXT_BYTES = 2, 1 << 20
"""Text that one statement may give: UTF-16 may grow by half as UTF-8, and no two values share a page of an intact file."""
_LIMIT_LENGTH = 0
"""SQLITE_LIMIT_LENGTH"""
_STEPS_A_CALL = 100_000
_STEPS_A_BYTE = 64
"""SQLite's own instructions; a row of 100 bytes takes about 40."""
_EXPORT_AGAIN = "export the report again: nsys export --type sqlite REPORT.nsys-rep"
_IN_EVERY_EXPORT = ("META_DATA_EXPORT", "EXPORT_META_DATA", "StringIds")
_UNREADABLE = (sqlite3.Error, OverflowError, UnicodeDecodeError, MemoryError)
"""UnicodeDecodeError for errors whose own text quotes a damaged schema."""
Columns = dict[str, Int64]
Pack = Sequence[tuple[str, int]]
"""(column, bits), the first in the highest bits."""


class NsysFile:
    """The tables of one export. Integer columns come as int64 arrays, NULL as the default that is asked for."""

    def __init__(self, connection: sqlite3.Connection, name: str, size_bytes: int) -> None:
        self.name = name
        self._connection = connection
        self._max_rows = size_bytes // _LEAST_ROW_BYTES
        self._steps_left = size_bytes * _STEPS_A_BYTE + 100 * _STEPS_A_CALL
        self._max_text_bytes = size_bytes * TEXT_BYTES_A_BYTE + MORE_TEXT_BYTES
        self._text_bytes_left = self._max_text_bytes
        connection.text_factory = self._counted
        connection.set_progress_handler(self._go_on, _STEPS_A_CALL)
        self._tables = {_text(name): _text(kind) == "table" and not _text(sql).upper().lstrip().startswith("CREATE VIRTUAL")
                        for name, kind, sql in self._rows("SELECT name, type, ifnull(sql, '') FROM sqlite_master")
                        if _text(kind) in ("table", "view")}

    def _go_on(self) -> int:
        self._steps_left -= _STEPS_A_CALL
        return int(self._steps_left < 0)

    def _counted(self, text: bytes) -> bytes:
        """Every text passes here before the next one is read."""
        self._text_bytes_left -= len(text)
        if self._text_bytes_left < 0:
            raise self.bad("the SQLite file holds more text than it has room for")
        return text

    def has(self, table: str) -> bool:
        """Whether there is such a table; raises BadInput where it is a view or a virtual table."""
        if not self._tables.get(table, True):
            raise self.wrong_schema(table, "is no plain table")
        return table in self._tables

    def column_names(self, table: str) -> frozenset[str]:
        """The columns of a table, none for a table that is not there."""
        if not self.has(table):
            return frozenset()
        rows = list(self._rows(f"PRAGMA table_xinfo([{table}])"))
        if any(row[6] for row in rows):
            raise self.wrong_schema(table, "has computed columns")
        return frozenset(_text(row[1]) for row in rows)

    def columns(self, table: str, wanted: Mapping[str, int | None], packs: Sequence[Pack] = ()) -> Columns:
        """Integer columns of a table in its own order, all of shape (n,); empty ones for a table that is not there.

        wanted: column -> the value that stands for NULL and for a column that this version has not; None: it must be there.
        packs: columns of small numbers, at most 63 bits together, that come as one value a row (half the time); where one of them is
        negative, NULL or too large, all of its pack are -1. A pack of which a column is missing is not packed.
        Raises BadInput for a column that must be there and is not, and for values that are no integers.
        """
        known = self.column_names(table)
        if known and (missing := [name for name, default in wanted.items() if default is None and name not in known]):
            raise self.wrong_schema(table, f"has no column {missing[0]}")
        packs = [pack for pack in packs if known.issuperset(name for name, _ in pack)]
        packed = {name for pack in packs for name, _ in pack}
        single = [name for name in wanted if name in known and name not in packed]
        words = [f"[{name}]" if (default := wanted[name]) is None else f"ifnull([{name}], {default})" for name in single]
        words += [_packed(pack) for pack in packs]
        with self._short_values():
            parts = [self._numbers(table, rows) for rows in self.chunks(table, ", ".join(words))] if words else []
        matrix = np.concatenate(parts, axis=1) if parts else np.zeros((len(words), 0), dtype=np.int64)
        found = dict(zip(single, matrix, strict=False))
        for pack, column in zip(packs, matrix[len(single):], strict=True):
            found.update(_unpacked(pack, column))
        return {name: found[name] if name in found else np.full(matrix.shape[1], default or 0, dtype=np.int64)
                for name, default in wanted.items()}

    def chunks(self, table: str, words: str, where: str = "1") -> Iterator[Sequence[tuple[Any, ...]]]:
        """All rows of a table, some thousand at once; text comes as bytes. words: columns, where: a condition, as SQL."""
        yield from self._fetch(f"SELECT {words} FROM [{table}] WHERE {where}", table)

    def texts(self, ids: Collection[int]) -> dict[int, bytes]:
        """The texts of StringIds that have one of these ids."""
        if not {"id", "value"} <= self.column_names("StringIds") or not ids:
            return {}
        wanted = ids if isinstance(ids, (set, frozenset, dict)) else set(ids)
        return {number: value for rows in self.chunks("StringIds", "id, value", "typeof(value) = 'text'") for number, value in rows
                if number in wanted and isinstance(value, bytes)}

    def strings(self, ids: Collection[int]) -> dict[int, str]:
        """The same as text."""
        return {number: _text(value) for number, value in self.texts(ids).items()}

    def must_be_an_export(self) -> None:
        """Raises BadInput for another kind of SQLite file."""
        if not any(self.has(table) for table in _IN_EVERY_EXPORT):
            raise BadInput("bad_trace", "an SQLite file, but no Nsight Systems export: it has none of its tables", where=self.name,
                           fix=_EXPORT_AGAIN)

    def wrong_schema(self, table: str, why: str) -> BadInput:
        """The error for a file that is SQLite but no such export."""
        return BadInput("bad_trace", f"not an Nsight Systems export as 2023 to 2026 write it: table {table} {why}", where=self.name,
                        fix=_EXPORT_AGAIN)

    def bad(self, why: str) -> BadInput:
        """The error for contents that can't be right."""
        return BadInput("bad_trace", why, where=self.name, fix=_EXPORT_AGAIN)

    @contextmanager
    def _short_values(self) -> Iterator[None]:
        """No value may be long meanwhile (Python 3.10 can't tell SQLite so)."""
        set_limit = getattr(self._connection, "setlimit", None)
        if set_limit is None:
            yield
            return
        before = set_limit(_LIMIT_LENGTH, _MAX_NUMBER_BYTES)
        try:
            yield
        finally:
            set_limit(_LIMIT_LENGTH, before)

    def _numbers(self, table: str, rows: Sequence[tuple[Any, ...]]) -> Int64:
        """Shape (columns, rows)."""
        return np.stack([self.numbers(table, column) for column in zip(*rows, strict=True)])

    def numbers(self, table: str, values: Sequence[Any]) -> Int64:
        """One column as an array. Raises BadInput for values that are no integers."""
        try:
            return np.fromiter(values, dtype=np.int64, count=len(values))
        except (TypeError, ValueError, OverflowError) as error:
            raise self.bad(f"table {table} holds a value that is no integer") from error

    def _fetch(self, statement: str, table: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        read, self._text_bytes_left = 0, self._max_text_bytes
        try:
            cursor = self._connection.execute(statement)
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                read += len(rows)
                if read > self._max_rows:
                    raise self.bad(f"table {table} holds more rows than the file has room for")
                yield rows
        except _UNREADABLE as error:
            raise self.bad(f"the SQLite file can't be read: {error}") from error

    def _rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        for rows in self._fetch(statement, "sqlite_master"):
            yield from rows


@contextmanager
def open_nsys(path: Path, max_bytes: int) -> Iterator[NsysFile]:
    """An export, open while the context lasts. Raises BadInput for a file that is missing, too large or not SQLite."""
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise BadInput("no_trace", "there is no such trace file", where=str(path), fix=RECORD_AGAIN) from error
    except OSError as error:
        raise BadInput("bad_trace", f"the trace can't be read: {error}", where=path.name, fix=RECORD_AGAIN) from error
    if head != MAGIC:
        raise BadInput("bad_trace", "not an SQLite file", where=path.name, fix=_EXPORT_AGAIN)
    if size > max_bytes:
        raise BadInput("trace_too_large", f"the trace is larger than {max_bytes} bytes", where=path.name,
                       fix="record fewer steps (--steps), or a shorter time")
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        _distrust(connection)
    except _UNREADABLE as error:
        raise BadInput("bad_trace", f"the SQLite file can't be opened: {error}", where=path.name, fix=_EXPORT_AGAIN) from error
    with closing(connection):
        yield NsysFile(connection, path.name, size)


def _distrust(connection: sqlite3.Connection) -> None:
    connection.text_factory = bytes
    set_limit = getattr(connection, "setlimit", None)  # since Python 3.11
    if set_limit is not None:
        set_limit(_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")


def _packed(pack: Pack) -> str:
    """SQL for all of a pack in one number."""
    shift, terms, ranges = 0, [], []
    for name, bits in reversed(pack):
        terms.append(f"[{name}] << {shift}" if shift else f"[{name}]")
        ranges.append(f"[{name}] BETWEEN 0 AND {(1 << bits) - 1}")
        shift += bits
    return f"CASE WHEN {' AND '.join(ranges)} THEN {' | '.join(f'({term})' for term in terms)} ELSE -1 END"


def _unpacked(pack: Pack, column: Int64) -> Columns:
    shift, found = 0, {}
    for name, bits in reversed(pack):
        found[name] = np.where(column < 0, -1, (column >> shift) & ((1 << bits) - 1))
        shift += bits
    return found


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if value is None else str(value)
