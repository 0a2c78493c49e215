"""EventTable: columns of a timeline, one row an event. Times are int64 nanoseconds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Details = dict[str, Any]


class RowDetails(Sequence[Details]):
    """Per-row details kept as columns; a row's dict is made when asked for. Rows share the values of `shared`: don't change them."""

    def __init__(self, count: int, *, which: Int64 | None = None, shared: Sequence[Any] = (),
                 decode: Callable[[Any], Mapping[str, Any]] = dict, columns: Mapping[str, Int64] | None = None) -> None:
        """count rows. Row i: decode(shared[which[i]]) (nothing without `which`), then the value of each of `columns`."""
        self._count = count
        self._which, self._shared, self._decode = which, shared, decode
        self._columns = dict(columns or {})

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, row: int) -> Details: ...
    @overload
    def __getitem__(self, row: slice) -> tuple[Details, ...]: ...
    def __getitem__(self, row: int | slice) -> Details | tuple[Details, ...]:
        if isinstance(row, slice):
            return tuple(self[at] for at in range(*row.indices(self._count)))
        at = operator.index(row)
        if not -self._count <= at < self._count:
            raise IndexError(f"row {at} of {self._count}")
        common = self._decode(self._shared[self._which[at]]) if self._which is not None else {}
        return {**common, **{name: int(column[at]) for name, column in self._columns.items()}}

    def kinds(self) -> tuple[Int64, Int64]:
        """(a number for each row, shape (n,); one row of each number, shape (k,)). Rows with equal numbers have equal details."""
        number = np.zeros(self._count, dtype=np.int64)
        for column in (*(() if self._which is None else (self._which,)), *self._columns.values()):
            values, place = np.unique(column, return_inverse=True)
            # Compressed after each column, so that the product stays below n^2.
            number = np.unique(number * max(values.size, 1) + place, return_inverse=True)[1]
        return number.astype(np.int64), np.unique(number, return_index=True)[1].astype(np.int64)


@dataclass(frozen=True)
class EventTable:
    """Events of one kind in start order. All arrays have shape (n,); -1 stands for "has none".

    args holds per-row details that only some readers know (grid, block, shapes); one dict a row, or empty.
    """

    start_ns: Int64
    end_ns: Int64
    name_id: Int64
    """Index into names."""
    stream: Int64
    device: Int64
    process: Int64
    thread: Int64
    correlation: Int64
    names: tuple[str, ...]
    args: Sequence[Details] = field(default=())

    def __len__(self) -> int:
        return int(self.start_ns.size)

    @property
    def duration_ns(self) -> Int64:
        """end_ns - start_ns, shape (n,)."""
        return self.end_ns - self.start_ns

    def name(self, row: int) -> str:
        """Name of one event."""
        return self.names[int(self.name_id[row])]


@dataclass(frozen=True)
class MemoryEvents:
    """Allocations and frees in time order. All arrays have shape (n,) and dtype int64; times as in the tables beside it."""

    time_ns: Int64
    change_bytes: Int64
    """Positive for an allocation, negative for a free."""
    total_bytes: Int64
    """What the allocator counts as allocated afterwards, by its own word."""
    address: Int64
    device_type: Int64
    """0: CPU, 1: CUDA (c10::DeviceType)."""
    device: Int64
    """Index of the device; -1 on the CPU."""
    process: Int64
    thread: Int64

    def __len__(self) -> int:
        return int(self.time_ns.size)
