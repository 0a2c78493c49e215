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

    @property
    def which(self) -> Int64 | None:
        """Index into shared_details() of each row, shape (n,); None without shared details."""
        return self._which

    @property
    def columns(self) -> Mapping[str, Int64]:
        """The details that are a number of each row's own, each of shape (n,)."""
        return self._columns

    def shared_details(self) -> list[Details]:
        """What rows share, each once."""
        return [dict(self._decode(key)) for key in self._shared]

    def take(self, rows: Int64) -> RowDetails:
        """The details of these rows, in their order."""
        return RowDetails(int(rows.size), which=None if self._which is None else self._which[rows], shared=self._shared,
                          decode=self._decode, columns={name: column[rows] for name, column in self._columns.items()})


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

    def take(self, rows: Int64) -> EventTable:
        """A table of these rows, in their order. rows: shape (m,). All names stay, so that name_id keeps its meaning."""
        args: Sequence[Details] = ()
        if len(self.args):
            args = self.args.take(rows) if isinstance(self.args, RowDetails) else tuple(self.args[row] for row in rows.tolist())
        return EventTable(self.start_ns[rows], self.end_ns[rows], self.name_id[rows], self.stream[rows], self.device[rows],
                          self.process[rows], self.thread[rows], self.correlation[rows], self.names, args)


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
