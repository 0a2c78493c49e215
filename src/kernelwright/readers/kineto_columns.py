"""Events of a Kineto trace, part by part -> columns. Of an event nothing is kept but int64 numbers; names and shapes once each."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from ..model.errors import BadInput
from ..model.table import EventTable, Int64, MemoryEvents, RowDetails
from ..model.trace import LINE_PREFIX, STEP_NAME, Trace

MEMORY = "[memory]"
MAX_MEMORY_BYTES = 1 << 53
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME_CATEGORIES = ("cuda_runtime", "cuda_driver")
TABLES = ("device", "runtime", "operators", "ranges", "python", "lines", "steps", "overheads")
TABLE_OF = {"cpu_op": "operators", "user_annotation": "ranges", "python_function": "python", "overhead": "overheads",
            **dict.fromkeys(DEVICE_CATEGORIES, "device"), **dict.fromkeys(RUNTIME_CATEGORIES, "runtime")}
"""By category; some names go to tables of their own."""
_ABSENT = msgspec.Raw(b"")
_DECODED_SHAPES = 4096


class Args(msgspec.Struct, gc=False, rename={
    "dims": "Input Dims", "types": "Input type", "sequence": "Sequence number", "forward_thread": "Fwd thread id",
    "bytes_": "bytes", "graph_node": "graph node id", "index": "Ev Idx", "change": "Bytes", "total": "Total Allocated",
    "address": "Addr", "device_type": "Device Type", "device_id": "Device Id", "shared_bytes": "shared memory",
    "registers": "registers per thread",
}):
    """The arguments that the analysis needs; all others are skipped while decoding. Lists stay text."""

    dims: msgspec.Raw = _ABSENT
    types: msgspec.Raw = _ABSENT
    sequence: int = -1
    forward_thread: int = -1
    correlation: int = -1
    device: int = -1
    stream: int = -1
    grid: msgspec.Raw = _ABSENT
    block: msgspec.Raw = _ABSENT
    bytes_: int = -1
    graph_node: int = 0
    index: int = -1
    change: int | None = None
    total: int = 0
    address: int = 0
    device_type: int = -1
    device_id: int = -1
    shared_bytes: int | None = None
    registers: int | None = None


class Event(msgspec.Struct, gc=False):
    """One entry of traceEvents. Only complete events (ph "X") carry work."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: msgspec.Raw = _ABSENT
    dur: msgspec.Raw = _ABSENT
    args: Args = msgspec.field(default_factory=Args)


class DeviceProperties(msgspec.Struct):
    """One entry of deviceProperties."""

    name: str = ""
    sm_count: int = msgspec.field(name="numSms", default=0)


def table_of(ph: str, category: str, name: str) -> str | None:
    """Which of TABLES an event belongs to; None for one that is left out."""
    table = TABLE_OF.get(category) if ph == "X" else None
    return moved_by_name(table, name) if table is not None else None


def moved_by_name(table: str, name: str) -> str:
    """The table of an event that by its category belongs to `table`."""
    if table == "ranges" and name == STEP_NAME:
        return "steps"
    return "lines" if name.startswith(LINE_PREFIX) else table


class Collector:
    """The tables of one trace, growing."""

    def __init__(self) -> None:
        self._tables = {name: _Columns(_KEYS.get(name)) for name in TABLES}
        self._memory = tuple(array("q") for _ in range(9))

    def add(self, table: str, events: Sequence[Event], start: Int64, end: Int64) -> None:
        """More rows of one table, in the file's order. Raises OverflowError for an id beyond 64 bits, msgspec.DecodeError for lists
        that are none."""
        self._tables[table].add(events, start, end)

    def add_memory(self, events: Sequence[Event], time: Int64) -> None:
        """More allocations and frees (with a change); raises as add."""
        rows = [(at, event.args.index, event.args.change, event.args.total, event.args.address, event.args.device_type,
                 event.args.device_id, *_numbers([event.pid, event.tid]))
                for at, event in zip(time.tolist(), events, strict=True)]
        for column, values in zip(self._memory, zip(*rows, strict=True), strict=False):
            column.extend(values)

    def trace(self, devices: Sequence[DeviceProperties], file_name: str) -> Trace:
        """The finished tables; this object is used up. Raises BadInput without a step."""
        steps = self._tables["steps"]
        if not steps.count:
            raise BadInput("no_steps", f"the trace holds no profiled step (a range named {STEP_NAME!r})", where=file_name,
                           fix="record it with profile_kernel.py, or wrap each step in torch.profiler.record_function"
                               f"({STEP_NAME!r})")
        origin = steps.first_start
        tables = {name: self._tables.pop(name).table(origin) for name in TABLES}
        return Trace(device=tables["device"], runtime=tables["runtime"], operators=tables["operators"], ranges=tables["ranges"],
                     python=tables["python"], lines=tables["lines"], steps=tables["steps"], overheads=tables["overheads"],
                     memory=self._memory_events(origin), device_names=tuple(device.name for device in devices),
                     sm_counts=tuple(device.sm_count for device in devices), is_cuda=len(tables["device"]) > 0, source=file_name)

    def _memory_events(self, origin: int) -> MemoryEvents:
        time, index, *columns = (_as_array(column) for column in self._memory)
        order = np.lexsort((index, time))
        return MemoryEvents(time[order] - origin, *(column[order] for column in columns))


class _Columns:
    """Growing columns of one table."""

    def __init__(self, kind: _Kind | None) -> None:
        self.count = 0
        self._names: dict[str, int] = {}
        self._kind = kind
        self._shared: dict[Any, int] = {}
        self._columns: dict[str, array[int]] = {name: array("q") for name in (
            "start", "end", "name", "stream", "device", "process", "thread", "correlation", "order", "which",
            *(kind.columns if kind else ()))}

    @property
    def first_start(self) -> int:
        return min(self._columns["start"])

    def add(self, events: Sequence[Event], start: Int64, end: Int64) -> None:
        columns, names = self._columns, self._names
        args = [event.args for event in events]
        columns["start"].frombytes(start.tobytes())
        columns["end"].frombytes(end.tobytes())
        columns["name"].extend([names.setdefault(event.name, len(names)) for event in events])
        columns["process"].extend(_numbers([event.pid for event in events]))
        columns["thread"].extend(_numbers([event.tid for event in events]))
        columns["stream"].extend([one.stream for one in args])
        columns["device"].extend([one.device for one in args])
        columns["correlation"].extend([one.correlation for one in args])
        columns["order"].extend([one.index if one.index >= 0 else row for row, one in enumerate(args, self.count)])
        if self._kind is not None:
            for name, field in self._kind.columns.items():
                columns[name].extend(map(attrgetter(field), args))
            if self._kind.keys is not None:
                columns["which"].extend(self._share(list(self._kind.keys(events, args)), self._kind.decode))
        self.count += len(events)

    def _share(self, keys: list[Any], decode: Callable[[Any], Any]) -> list[int]:
        shared = self._shared
        for key in set(keys).difference(shared):
            decode(key)
            shared[key] = len(shared)
        return [shared[key] for key in keys]

    def table(self, origin: int) -> EventTable:
        """The rows in nesting order, times from origin."""
        start, end, opened = (_as_array(self._columns[name]) for name in ("start", "end", "order"))
        # Start order, the longer first; with equal times Kineto's "Ev Idx" tells which was opened first.
        order = np.lexsort((opened, -end, start))
        return EventTable(
            start_ns=start[order] - origin, end_ns=end[order] - origin, name_id=self._take("name", order),
            stream=self._take("stream", order), device=self._take("device", order), process=self._take("process", order),
            thread=self._take("thread", order), correlation=self._take("correlation", order), names=tuple(self._names),
            args=self._details(order))

    def _details(self, order: Int64) -> RowDetails:
        if self._kind is None:
            return RowDetails(self.count)
        columns = {name: self._take(name, order) for name in self._kind.columns}
        if self._kind.keys is None:
            return RowDetails(self.count, columns=columns)
        return RowDetails(self.count, which=self._take("which", order), shared=tuple(self._shared), decode=self._kind.decode,
                          columns=columns)

    def _take(self, name: str, order: Int64) -> Int64:
        return _as_array(self._columns.pop(name))[order]


def _as_array(column: array[int]) -> Int64:
    return np.frombuffer(column, dtype=np.int64) if column else np.zeros(0, dtype=np.int64)


def _numbers(identities: Sequence[int | str]) -> list[int]:
    return [one if isinstance(one, int) else -1 for one in identities]


class _Kind(msgspec.Struct, frozen=True):
    """Which details a table's rows have: those of a key that many rows share, then columns (name -> field of Args)."""

    columns: Mapping[str, str]
    keys: Callable[[Sequence[Event], Sequence[Args]], Iterable[Any]] | None = None
    decode: Callable[[Any], Mapping[str, Any]] = dict


_LIST = msgspec.json.Decoder(list[Any] | None)
_STRINGS = msgspec.json.Decoder(list[str] | None)
_INTEGERS = msgspec.json.Decoder(list[int] | None)


def _operator_keys(events: Sequence[Event], args: Sequence[Args]) -> Iterable[Any]:
    return zip(map(bytes, [one.dims for one in args]), map(bytes, [one.types for one in args]), strict=True)


@lru_cache(_DECODED_SHAPES)
def _operator_details(key: tuple[bytes, bytes]) -> Mapping[str, Any]:
    dims, types = key
    return {"dims": (_LIST.decode(dims) if dims else None) or [], "types": (_STRINGS.decode(types) if types else None) or []}


def _device_keys(events: Sequence[Event], args: Sequence[Args]) -> Iterable[Any]:
    return zip([event.cat for event in events], map(bytes, [one.grid for one in args]), map(bytes, [one.block for one in args]),
               [one.bytes_ for one in args], [one.graph_node != 0 for one in args], [one.shared_bytes for one in args],
               [one.registers for one in args], strict=True)


@lru_cache(_DECODED_SHAPES)
def _device_details(key: tuple[Any, ...]) -> Mapping[str, Any]:
    category, grid, block, size, graph, shared_bytes, registers = key
    return {"category": category.removeprefix("gpu_"), "grid": _INTEGERS.decode(grid) if grid else None,
            "block": _INTEGERS.decode(block) if block else None, "bytes": size, "graph": graph, "shared_bytes": shared_bytes,
            "registers": registers}


_KEYS = {
    "device": _Kind({}, _device_keys, _device_details),
    "operators": _Kind({"sequence": "sequence", "forward_thread": "forward_thread", "opened": "index"}, _operator_keys, _operator_details),
    "ranges": _Kind({"opened": "index"}),
}
