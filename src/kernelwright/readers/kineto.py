"""Reader for Kineto traces (torch.profiler's Chrome JSON, plain or gzip'd) -> event tables in int64 nanoseconds.

Times in the file are decimal microseconds with three decimals ("4375891341195.630"). Above 2^43 us a float64 can no
longer hold single nanoseconds, so the number's own text is decoded and no time ever passes through a float.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..model.errors import BadInput
from ..model.table import EventTable, MemoryEvents

STEP_NAME = "kernelwright.step"
MODULE_PREFIX = "kernelwright.module:"
STAGE_PREFIX = "stage:"
LINE_PREFIX = "kernelwright.line:"
_MEMORY = "[memory]"
_MAX_MEMORY_BYTES = 1 << 53
DEFAULT_MAX_BYTES = 2 << 30
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME_CATEGORIES = ("cuda_runtime", "cuda_driver")
_CHUNK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_RECORD_AGAIN = "record the profile again"


class _Args(msgspec.Struct, gc=False, rename={
    "dims": "Input Dims", "types": "Input type", "sequence": "Sequence number", "forward_thread": "Fwd thread id",
    "bytes_": "bytes", "graph_node": "graph node id", "index": "Ev Idx", "change": "Bytes", "total": "Total Allocated",
    "address": "Addr", "device_type": "Device Type", "device_id": "Device Id", "shared_bytes": "shared memory",
    "registers": "registers per thread",
}):
    """The arguments that the analysis needs; all others are skipped while decoding."""

    dims: list[Any] | None = None
    types: list[str] | None = None
    sequence: int = -1
    forward_thread: int = -1
    correlation: int = -1
    device: int = -1
    stream: int = -1
    grid: list[int] | None = None
    block: list[int] | None = None
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


class _Event(msgspec.Struct, gc=False):
    """One entry of traceEvents. Only complete events (ph "X") carry work."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: Decimal | None = None
    dur: Decimal | None = None
    args: msgspec.Raw = msgspec.Raw(b"")


class _DeviceProperties(msgspec.Struct):
    name: str = ""
    sm_count: int = msgspec.field(name="numSms", default=0)


class _File(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)
    devices: list[_DeviceProperties] = msgspec.field(name="deviceProperties", default_factory=list)


@dataclass(frozen=True)
class Trace:
    """One Kineto recording. Times are int64 ns from the start of the first profiled step; earlier ones are negative.

    Tables are in nesting order (start, then the longer first). Rows outside the steps are kept here and left out later.
    """

    device: EventTable
    """Kernels, copies and memsets. args: category, grid, block, bytes, graph, shared_bytes, registers."""
    runtime: EventTable
    """CUDA runtime and driver calls, with the correlation ids of what they launched."""
    operators: EventTable
    """cpu_op events. args: dims, types, sequence, forward_thread, opened (Kineto's own number, -1 for none)."""
    ranges: EventTable
    """User annotations: stages, modules, compiled graphs; without the steps. args: opened."""
    python: EventTable
    """Python frames; empty unless recorded with stacks."""
    lines: EventTable
    """The probe's markers of source lines; empty unless recorded with stacks."""
    steps: EventTable
    """The profiled steps, in order; at least one."""
    overheads: EventTable
    """CUPTI's own and the driver's overhead, e.g. "Lazy Function Loading"; on no thread."""
    memory: MemoryEvents
    """Allocations and frees; empty unless recorded with memory."""
    device_names: tuple[str, ...]
    sm_counts: tuple[int, ...]
    """Multiprocessors of each device; 0 where the file does not say."""
    is_cuda: bool
    """True when device work was recorded."""
    source: str
    """File name, for messages."""


def read_kineto(path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Trace:
    """Read one trace. max_bytes bounds the decompressed size.

    Raises BadInput for a file that is missing, too large, truncated, not a Kineto trace, without a profiled step, or
    with a negative duration.
    """
    data = _read_bounded(path, max_bytes)
    try:
        document = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("bad_trace", f"not a readable Kineto trace ({error})", where=path.name, fix=_RECORD_AGAIN) from error
    del data
    if not document.events:
        raise BadInput("empty_trace", "the trace holds no events", where=path.name, fix=_RECORD_AGAIN)
    try:
        return _Builder(path.name).build(document)
    except OverflowError as error:
        raise BadInput("bad_trace", "an id in the trace is beyond 64 bits", where=path.name, fix=_RECORD_AGAIN) from error


def _read_bounded(path: Path, max_bytes: int) -> bytes:
    too_large = BadInput("trace_too_large", f"the trace is larger than {max_bytes} bytes decompressed", where=path.name,
                         fix="profile fewer steps (--steps)")
    chunks: list[bytes] = []
    total = 0
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            file: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            while chunk := file.read(_CHUNK_BYTES):
                total += len(chunk)
                if total > max_bytes:
                    raise too_large
                chunks.append(chunk)
    except FileNotFoundError as error:
        raise BadInput("no_trace", "there is no such trace file", where=str(path), fix=_RECORD_AGAIN) from error
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput("bad_trace", f"the trace can't be read: {error}", where=path.name, fix=_RECORD_AGAIN) from error
    return b"".join(chunks)


class _Columns:
    """Growing columns of one table."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int, int, int, int, int, int]] = []
        self.args: list[dict[str, Any]] = []
        self.names: dict[str, int] = {}

    def add(self, event: _Event, start: int, end: int, args: _Args, details: dict[str, Any]) -> None:
        name = self.names.setdefault(event.name, len(self.names))
        process = event.pid if isinstance(event.pid, int) else -1
        thread = event.tid if isinstance(event.tid, int) else -1
        order = args.index if args.index >= 0 else len(self.rows)
        self.rows.append((start, end, name, args.stream, args.device, process, thread, args.correlation, order))
        self.args.append(details)

    def table(self, origin: int) -> EventTable:
        matrix = np.array(self.rows, dtype=np.int64).reshape(-1, 9)
        # Start order, the longer first; with equal times Kineto's "Ev Idx" tells which was opened first.
        order = np.lexsort((matrix[:, 8], -matrix[:, 1], matrix[:, 0]))
        start, end, name, stream, device, process, thread, correlation = (np.ascontiguousarray(matrix[order, c]) for c in range(8))
        return EventTable(start_ns=start - origin, end_ns=end - origin, name_id=name, stream=stream, device=device, process=process,
                          thread=thread, correlation=correlation, names=tuple(self.names), args=tuple(self.args[i] for i in order))


def _no_details(event: _Event, args: _Args) -> dict[str, Any]:
    return {}


def _range_details(event: _Event, args: _Args) -> dict[str, Any]:
    return {"opened": args.index}


def _operator_details(event: _Event, args: _Args) -> dict[str, Any]:
    return {"dims": args.dims or [], "types": args.types or [], "sequence": args.sequence, "forward_thread": args.forward_thread,
            "opened": args.index}


def _device_details(event: _Event, args: _Args) -> dict[str, Any]:
    return {"category": event.cat.removeprefix("gpu_"), "grid": args.grid, "block": args.block, "bytes": args.bytes_,
            "graph": args.graph_node != 0, "shared_bytes": args.shared_bytes, "registers": args.registers}


class _Builder:
    """Sorts the events of one document into tables."""

    def __init__(self, file_name: str) -> None:
        self.file_name = file_name
        self.tables = {name: _Columns() for name in
                       ("device", "runtime", "operators", "ranges", "python", "lines", "steps", "overheads")}
        self.details: dict[str, Callable[[_Event, _Args], dict[str, Any]]] = {
            "device": _device_details, "operators": _operator_details, "ranges": _range_details}
        self.table_of = {"cpu_op": "operators", "user_annotation": "ranges", "python_function": "python", "overhead": "overheads"}
        self.table_of.update(dict.fromkeys(DEVICE_CATEGORIES, "device"))
        self.table_of.update(dict.fromkeys(RUNTIME_CATEGORIES, "runtime"))
        self.memory: list[tuple[int, ...]] = []

    def build(self, document: _File) -> Trace:
        self._sort(document.events)
        steps = self.tables["steps"]
        if not steps.rows:
            raise BadInput("no_steps", f"the trace holds no profiled step (a range named {STEP_NAME!r})", where=self.file_name,
                           fix="record it with profile_kernel.py, or wrap each step in torch.profiler.record_function"
                               f"({STEP_NAME!r})")
        origin = min(row[0] for row in steps.rows)
        tables = {name: columns.table(origin) for name, columns in self.tables.items()}
        is_cuda = len(tables["device"]) > 0
        return Trace(**tables, memory=self._memory(origin), device_names=tuple(device.name for device in document.devices),
                     sm_counts=tuple(device.sm_count for device in document.devices), is_cuda=is_cuda, source=self.file_name)

    def _sort(self, events: Iterable[_Event]) -> None:
        decoder = msgspec.json.Decoder(_Args)
        for number, event in enumerate(events):
            table = self.table_of.get(event.cat) if event.ph == "X" else None
            if event.ph == "i" and event.name == _MEMORY:
                self._add_memory(event, self._args(decoder, event, number), number)
            if table is None:
                continue
            if event.cat == "user_annotation" and event.name == STEP_NAME:
                table = "steps"
            elif event.name.startswith(LINE_PREFIX):
                table = "lines"
            start, end = self._times(event, number)
            args = self._args(decoder, event, number)
            details = self.details.get(table, _no_details)(event, args)
            self.tables[table].add(event, start, end, args, details)

    def _add_memory(self, event: _Event, args: _Args, number: int) -> None:
        if args.change is None or event.ts is None or not event.ts.is_finite() or abs(event.ts) >= _MAX_US:
            return
        if max(abs(args.change), abs(args.total)) >= _MAX_MEMORY_BYTES:
            raise BadInput("bad_trace", "an allocation's size can't be right", where=f"{self.file_name}, event {number}", fix=_RECORD_AGAIN)
        process, thread = (value if isinstance(value, int) else -1 for value in (event.pid, event.tid))
        self.memory.append((int((event.ts * 1000).to_integral_value()), args.index, args.change, args.total, args.address,
                            args.device_type, args.device_id, process, thread))

    def _memory(self, origin: int) -> MemoryEvents:
        matrix = np.array(sorted(self.memory, key=lambda row: row[:2]), dtype=np.int64).reshape(-1, 9)
        time, _, *columns = (np.ascontiguousarray(column) for column in matrix.T)
        return MemoryEvents(time - origin, *columns)

    def _times(self, event: _Event, number: int) -> tuple[int, int]:
        where = f"{self.file_name}, event {number} ({event.name[:60]})"
        if event.ts is None or event.dur is None or not (event.ts.is_finite() and event.dur.is_finite()):
            raise BadInput("bad_trace", "an event has no time or duration", where=where, fix=_RECORD_AGAIN)
        if abs(event.ts) >= _MAX_US or abs(event.dur) >= _MAX_US:
            raise BadInput("bad_trace", "an event's time is beyond int64 nanoseconds", where=where, fix=_RECORD_AGAIN)
        start, duration = int((event.ts * 1000).to_integral_value()), int((event.dur * 1000).to_integral_value())
        if duration < 0:
            raise BadInput("bad_trace", f"an event has a negative duration ({event.dur} us)", where=where, fix=_RECORD_AGAIN)
        return start, start + duration

    def _args(self, decoder: msgspec.json.Decoder[_Args], event: _Event, number: int) -> _Args:
        raw = bytes(event.args)
        if not raw:
            return _Args()
        try:
            return decoder.decode(raw)
        except msgspec.DecodeError as error:
            raise BadInput("bad_trace", f"an event's arguments can't be read ({error})",
                           where=f"{self.file_name}, event {number} ({event.name[:60]})", fix=_RECORD_AGAIN) from error


_MAX_US = Decimal(4 * 10**15)
"""Half of int64's range in microseconds, so that a start plus a duration still fits in ns."""

__all__ = ["LINE_PREFIX", "MODULE_PREFIX", "STAGE_PREFIX", "STEP_NAME", "Trace", "read_kineto"]
