"""Events of one table, part by part -> columns. Of an event nothing is kept but int64 numbers; names and shapes once each."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from ..model.table import EventTable, Int64, RowDetails
from .kineto_events import Args, Event

_DECODED_SHAPES = 4096
_ENTRY_BYTES = 100
"""About what a dictionary needs for one entry, beside the key."""
CATEGORY = {"kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "memcpy", "Memcpy": "memcpy", "gpu_memset": "memset", "Memset": "memset"}


class Columns:
    """Growing columns of one table."""

    def __init__(self, kind: Kind | None) -> None:
        self.count = 0
        self._names = _Ids(sys.getsizeof)
        self._kind = kind
        self._shared = _Ids(kind.check if kind is not None else sys.getsizeof)
        self._columns: dict[str, array[int]] = {name: array("q") for name in (
            "start", "end", "name", "stream", "device", "process", "thread", "correlation", "order",
            *(("which",) if kind and kind.keys else ()), *(kind.columns if kind else ()))}

    @property
    def text_bytes(self) -> int:
        """About the memory of all distinct names and details."""
        return self._names.text_bytes + self._shared.text_bytes

    def add(self, events: Sequence[Event], start: Int64, end: Int64) -> None:
        """More rows, in the file's order. Raises OverflowError for an id beyond 64 bits, msgspec.DecodeError for lists that are none."""
        columns, names = self._columns, self._names
        args = [event.args for event in events]
        columns["start"].frombytes(start.tobytes())
        columns["end"].frombytes(end.tobytes())
        columns["name"].extend([names[event.name] for event in events])
        columns["process"].extend(numbers([event.pid for event in events]))
        columns["thread"].extend(numbers([event.tid for event in events]))
        columns["stream"].extend(numbers([one.stream for one in args]))
        columns["device"].extend([one.device for one in args])
        columns["correlation"].extend([one.correlation for one in args])
        columns["order"].extend([one.index if one.index >= 0 else one.old_index if one.old_index >= 0 else row
                                 for row, one in enumerate(args, self.count)])
        if self._kind is not None:
            for name, field in self._kind.columns.items():
                columns[name].extend(map(attrgetter(field), args))
            if self._kind.keys is not None:
                shared = self._shared
                columns["which"].extend([shared[key] for key in self._kind.keys(events, args)])
        self.count += len(events)

    def table(self) -> EventTable:
        """The rows in nesting order; this object is used up."""
        start, end, opened = (as_array(self._columns.pop(name)) for name in ("start", "end", "order"))
        # Start order, the longer first; with equal times Kineto's own count tells which was opened first.
        order = np.lexsort((opened, -end, start))
        return EventTable(
            start_ns=start[order], end_ns=end[order], name_id=self._take("name", order), stream=self._take("stream", order),
            device=self._take("device", order), process=self._take("process", order), thread=self._take("thread", order),
            correlation=self._take("correlation", order), names=tuple(self._names), args=self._details(order))

    def _details(self, order: Int64) -> RowDetails:
        if self._kind is None:
            return RowDetails(self.count)
        columns = {name: self._take(name, order) for name in self._kind.columns}
        if self._kind.keys is None:
            return RowDetails(self.count, columns=columns)
        return RowDetails(self.count, which=self._take("which", order), shared=tuple(self._shared), decode=self._kind.decode,
                          columns=columns)

    def _take(self, name: str, order: Int64) -> Int64:
        return as_array(self._columns.pop(name))[order]


class _Ids(dict[Any, int]):
    """Numbers its keys as they are first asked for."""

    def __init__(self, size: Callable[[Any], int]) -> None:
        super().__init__()
        self._size = size
        self.text_bytes = 0

    def __missing__(self, key: Any) -> int:
        self.text_bytes += self._size(key) + _ENTRY_BYTES
        self[key] = number = len(self)
        return number


def as_array(column: array[int]) -> Int64:
    """The numbers, not copied."""
    return np.frombuffer(column, dtype=np.int64) if column else np.zeros(0, dtype=np.int64)


def numbers(identities: Sequence[int | str]) -> array[int]:
    """-1 for what is no number. Raises OverflowError."""
    try:
        return array("q", identities)  # type: ignore[arg-type]  # quickly, where all are
    except TypeError:
        return array("q", [one if isinstance(one, int) else -1 for one in identities])


class Kind(msgspec.Struct, frozen=True):
    """Which details a table's rows have: those of a key that many rows share, then columns (name -> field of Args)."""

    columns: Mapping[str, str]
    keys: Callable[[Sequence[Event], Sequence[Args]], Iterable[Any]] | None = None
    decode: Callable[[Any], Mapping[str, Any]] = dict

    def check(self, key: Any) -> int:
        """About the bytes of a key; raises msgspec.DecodeError where it can't be decoded."""
        self.decode(key)
        return sum(map(sys.getsizeof, key))


_LIST = msgspec.json.Decoder(list[Any] | None)
_STRINGS = msgspec.json.Decoder(list[str] | None)
_INTEGERS = msgspec.json.Decoder(list[int] | None)
Collective = tuple[str | None, str | None, str | None, int | None, int | None, int | None, str | None, int | None]
_COLLECTIVE = ("name", "group", "ranks", "size", "in_elements", "out_elements", "dtype", "sequence")


def _collectives(args: Sequence[Args]) -> list[Collective | None]:
    return [None if one.collective is None and one.group is None else _collective(one) for one in args]


def _collective(one: Args) -> Collective:
    return (one.collective, one.group, one.group_ranks, one.group_size, one.in_elements, one.out_elements, one.dtype,
            one.collective_sequence)


def _with_collective(details: dict[str, Any], collective: Collective | None) -> Mapping[str, Any]:
    if collective is not None:
        details["collective"] = dict(zip(_COLLECTIVE, collective, strict=True))
    return details


def _operator_keys(events: Sequence[Event], args: Sequence[Args]) -> Iterable[Any]:
    return zip(map(bytes, [one.dims for one in args]), map(bytes, [one.types for one in args]), _collectives(args), strict=True)


@lru_cache(_DECODED_SHAPES)
def _operator_details(key: tuple[bytes, bytes, Collective | None]) -> Mapping[str, Any]:
    dims, types, collective = key
    return _with_collective({"dims": (_LIST.decode(dims) if dims else None) or [],
                             "types": (_STRINGS.decode(types) if types else None) or []}, collective)


DeviceKey = tuple[str, bytes, bytes, int, bool, int | None, int | None, Collective | None]
"""category, grid, block, bytes, graph, shared_bytes, registers, collective"""


def _device_keys(events: Sequence[Event], args: Sequence[Args]) -> Iterable[Any]:
    return zip([event.cat for event in events], map(bytes, [one.grid for one in args]), map(bytes, [one.block for one in args]),
               [one.bytes_ for one in args], [one.graph_node != 0 for one in args], [one.shared_bytes for one in args],
               [one.registers for one in args], _collectives(args), strict=True)


@lru_cache(_DECODED_SHAPES)
def device_details(key: DeviceKey) -> Mapping[str, Any]:
    """A device row's details, from what rows share."""
    category, grid, block, size, graph, shared_bytes, registers, collective = key
    return _with_collective({
        "category": CATEGORY[category], "grid": _INTEGERS.decode(grid) if grid else None,
        "block": _INTEGERS.decode(block) if block else None, "bytes": size, "graph": graph, "shared_bytes": shared_bytes,
        "registers": registers}, collective)


KINDS = {
    "device": Kind({}, _device_keys, device_details),
    "operators": Kind({"sequence": "sequence", "forward_thread": "forward_thread", "opened": "opened"}, _operator_keys, _operator_details),
    "ranges": Kind({"opened": "opened"}),
}
