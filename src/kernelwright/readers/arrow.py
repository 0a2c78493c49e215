"""Traces as one Arrow IPC file that is read back by mapping it into memory: nothing is parsed, and only what is used is loaded.

The file holds one record batch of one row; each column of each table is a list in it. What is the same in all rows of a table is kept once.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..model.table import Details, EventTable, Int64, MemoryEvents, RowDetails
from ..model.trace import Trace

LAYOUT_VERSION = 1
"""To be raised with any change of this file's layout, or of Trace."""
_HEADER = b"kernelwright"
_TABLES = tuple(field.name for field in dataclasses.fields(Trace) if field.type == "EventTable")
_PLAIN = tuple(field.name for field in dataclasses.fields(Trace) if field.type not in ("EventTable", "MemoryEvents"))
_COLUMNS = tuple(field.name for field in dataclasses.fields(EventTable) if field.type == "Int64")
_MEMORY_COLUMNS = tuple(field.name for field in dataclasses.fields(MemoryEvents))
_DECODED = 4096


class Unfit(Exception):
    """Not a file of ours, or damaged; or a trace that can't be written as one."""


def write_traces(path: Path, traces: Sequence[Trace | None]) -> None:
    """Raises Unfit for details that are not JSON or names that are not text, OSError."""
    import pyarrow  # here, since it takes 0.1 s and 60 MB of memory, and most commands never read a large trace

    writer = _Writer(pyarrow)
    try:
        about = json.dumps([None if trace is None else writer.add(f"{number}.", trace) for number, trace in enumerate(traces)],
                           allow_nan=False).encode()
        checksum = str(zlib.crc32(about, writer.checksum)).encode()
        batch = pyarrow.record_batch(writer.columns, names=writer.names)
    except (TypeError, ValueError, OverflowError) as error:
        raise Unfit(str(error)) from error
    schema = batch.schema.with_metadata({_HEADER: about, b"checksum": checksum})
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, schema) as file:
        file.write_batch(batch.replace_schema_metadata(schema.metadata))


def read_traces(path: Path) -> tuple[Trace | None, ...]:
    """What write_traces wrote, mapped into memory (arrays can't be written to). Raises Unfit, OSError."""
    import pyarrow

    try:
        with pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_file(source) as file:
            batch = file.get_batch(0)
        batch.validate(full=True)
        about = batch.schema.metadata[_HEADER]
        reader = _Reader(batch)
        found = tuple(None if one is None else reader.trace(f"{number}.", one) for number, one in enumerate(json.loads(about)))
        if zlib.crc32(about, reader.checksum) != int(batch.schema.metadata[b"checksum"]):
            raise Unfit("the checksum is another")
    except (pyarrow.ArrowException, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Unfit(str(error)) from error
    return found


class _Writer:
    def __init__(self, pyarrow: Any) -> None:
        self._arrow = pyarrow
        self.names: list[str] = []
        self.columns: list[Any] = []
        self.checksum = 0

    def add(self, prefix: str, trace: Trace) -> dict[str, Any]:
        """What is to be said of the trace, beside its columns."""
        tables = {name: self._table(f"{prefix}{name}.", getattr(trace, name)) for name in _TABLES}
        for name in _MEMORY_COLUMNS:
            self._integers(f"{prefix}memory.{name}", getattr(trace.memory, name))
        return {"tables": tables, "memory": len(trace.memory), "plain": {name: getattr(trace, name) for name in _PLAIN}}

    def _table(self, prefix: str, table: EventTable) -> dict[str, Any]:
        for name in _COLUMNS:
            self._integers(prefix + name, getattr(table, name))
        self._texts(prefix + "names", table.names)
        which, shared, columns = _parts(table.args)
        for name, column in columns.items():
            self._integers(f"{prefix}args.{name}", column)
        if which is not None:
            self._integers(prefix + "which", which)
            self._texts(prefix + "shared", [json.dumps(one, allow_nan=False) for one in shared])
        return {"count": len(table), "args": len(table.args) > 0, "which": which is not None, "columns": list(columns)}

    def _integers(self, name: str, column: Int64) -> None:
        kept = column[:1] if column.size and (column == column[0]).all() else column
        self._add(name, self._arrow.array(np.ascontiguousarray(kept, dtype=np.int64)))

    def _texts(self, name: str, texts: Sequence[str]) -> None:
        self._add(name, self._arrow.array(texts, type=self._arrow.large_string()))

    def _add(self, name: str, values: Any) -> None:
        self.names.append(name)
        self.columns.append(self._arrow.LargeListArray.from_arrays(self._arrow.array([0, len(values)], type=self._arrow.int64()), values))
        self.checksum = _checksum(values, self.checksum)


class _Reader:
    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self.checksum = 0

    def trace(self, prefix: str, about: Mapping[str, Any]) -> Trace:
        known: dict[str, Any] = {name: self._table(f"{prefix}{name}.", about["tables"][name]) for name in _TABLES}
        memory = MemoryEvents(*(self._integers(f"{prefix}memory.{name}", about["memory"]) for name in _MEMORY_COLUMNS))
        known |= {name: tuple(value) if isinstance(value, list) else value for name, value in about["plain"].items()}
        return Trace(**known, memory=memory)

    def _table(self, prefix: str, about: Mapping[str, Any]) -> EventTable:
        count = about["count"]
        arrays: dict[str, Any] = {name: self._integers(prefix + name, count) for name in _COLUMNS}
        names = tuple(self._texts(prefix + "names"))
        columns = {name: self._integers(f"{prefix}args.{name}", count) for name in about["columns"]}
        which = self._integers(prefix + "which", count) if about["which"] else None
        shared = self._texts(prefix + "shared") if about["which"] else []
        args = RowDetails(count, which=which, shared=shared, decode=_decoded, columns=columns) if about["args"] else ()
        return EventTable(**arrays, names=names, args=args)

    def _integers(self, name: str, count: int) -> Int64:
        values = self._values(name)
        array: Int64 = values.to_numpy(zero_copy_only=True)
        if array.dtype != np.int64 or (array.size != count and array.size != 1):
            raise Unfit(f"{name} has another length or type")
        return array if array.size == count else np.broadcast_to(array, (count,))

    def _texts(self, name: str) -> list[str]:
        texts: list[str] = self._values(name).to_pylist()
        return texts

    def _values(self, name: str) -> Any:
        values = self._batch.column(name).flatten()
        self.checksum = _checksum(values, self.checksum)
        return values


def _parts(args: Sequence[Details]) -> tuple[Int64 | None, Sequence[Details], Mapping[str, Int64]]:
    """(which, shared, columns) as RowDetails has them, of details that may be kept in another way too."""
    if isinstance(args, RowDetails):
        return args.which, args.shared_details() if args.which is not None else (), args.columns
    if not args:
        return None, (), {}
    known: dict[str, int] = {}
    which = np.array([known.setdefault(json.dumps(one, allow_nan=False), len(known)) for one in args], dtype=np.int64)
    return which, [json.loads(text) for text in known], {}


def _checksum(values: Any, before: int) -> int:
    for buffer in values.buffers():
        before = zlib.crc32(buffer, before) if buffer is not None else before
    return before


_decoded: Callable[[str], Details] = lru_cache(_DECODED)(msgspec.json.Decoder(dict[str, Any]).decode)
