"""Nsight Systems exports made by hand, in the schemas of several years, for tests of the reader. Times are in ns.

The differences between the years are those of real exports: 2022 (every table, most of them empty; API calls and copies with a column
`name`), 2024 (schema 3.13: only tables that hold something, green contexts), 2025 (3.20: how many copies a row stands for), and of 2023,
which has 2024's tables without green contexts. 2026 (3.24 and later) adds columns that are not read, and may keep range texts as ids.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

Generation = Literal[2022, 2023, 2024, 2025, 2026]
GENERATIONS: tuple[Generation, ...] = (2022, 2023, 2024, 2025, 2026)
VM = 1 << 48
PID, TID = 1500, 1501

_KERNEL = ("start end deviceId contextId greenContextId streamId correlationId globalPid demangledName shortName mangledName launchType "
           "cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory "
           "localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig")
_COPY = ("start end deviceId contextId greenContextId streamId correlationId globalPid bytes copyKind deprecatedSrcId srcKind dstKind "
         "srcDeviceId srcContextId dstDeviceId dstContextId migrationCause graphNodeId virtualAddress copyCount")
_SCHEMA = {
    "StringIds": "id value:TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": _KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": _COPY,
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId contextId greenContextId streamId correlationId globalPid value bytes graphNodeId "
                                  "memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId graphId graphExecId contextId greenContextId streamId correlationId globalPid",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
    "NVTX_EVENTS": "start end eventType rangeId category color text:TEXT globalTid endGlobalTid textId domainId uint64Value int64Value",
    "PROFILER_OVERHEAD": "start end globalTid nameId returnValue",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "start globalPid deviceId contextId address pc bytes memKind memoryOperationType name:TEXT "
                                    "correlationId",
    "TARGET_INFO_GPU": "vmId id name:TEXT busLocation:TEXT l2CacheSize totalMemory memoryBandwidth clockRate smCount cuDevice "
                       "computeMajor computeMinor",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid",
    "ENUM_CUDA_MEMCPY_OPER": "id name:TEXT label:TEXT",
    "ENUM_CUDA_MEM_KIND": "id name:TEXT label:TEXT",
}
_SINCE = {"greenContextId": 2024, "copyCount": 2025, "TARGET_INFO_CUDA_DEVICE": 2025, "graphExecId": 2023}
_UNTIL_2022 = {"CUPTI_ACTIVITY_KIND_RUNTIME": " name:TEXT", "CUPTI_ACTIVITY_KIND_MEMCPY": " name:TEXT"}
_SINCE_2026 = {"CUPTI_ACTIVITY_KIND_KERNEL": " clusterX clusterY clusterZ", "NVTX_EVENTS": " payloadId"}


class NsysBuilder:
    """Collects rows; write() makes the file in one year's schema."""

    def __init__(self) -> None:
        self.strings: dict[str, int] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, table: str, **values: Any) -> NsysBuilder:
        """A row of any table, as it is."""
        self.rows.setdefault(table, []).append(values)
        return self

    def string(self, text: str) -> int:
        """The id of a text."""
        return self.strings.setdefault(text, len(self.strings) + 100)

    def gpu(self, name: str = "NVIDIA H200", sms: int = 132, number: int = 0) -> NsysBuilder:
        return self.add("TARGET_INFO_GPU", vmId=VM, id=number, name=name, smCount=sms, cuDevice=number)

    def range(self, text: str, start: int, end: int | None, *, pid: int = PID, tid: int = TID, kind: int = 59) -> NsysBuilder:
        """An NVTX range (kind 60: one of the start/end sort)."""
        return self.add("NVTX_EVENTS", start=start, end=end, eventType=kind, text=text, globalTid=VM | pid << 24 | tid, domainId=0)

    def step(self, start: int, end: int, op_id: int = 1) -> NsysBuilder:
        return self.range(f"kernelwright.step, op_id = {op_id}", start, end)

    def call(self, correlation: int, start: int, end: int, name: str = "cudaLaunchKernel_v7000", *, pid: int = PID,
             tid: int = TID) -> NsysBuilder:
        return self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, eventClass=0, globalTid=VM | pid << 24 | tid,
                        correlationId=correlation, nameId=self.string(name), returnValue=0)

    def kernel(self, name: str, start: int, end: int, correlation: int | None, *, pid: int = PID, stream: int = 7, device: int = 0,
               node: int | None = None, **more: Any) -> NsysBuilder:
        values = {"registersPerThread": 32, "gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1,
                  "staticSharedMemory": 16, "dynamicSharedMemory": 1024, "localMemoryPerThread": 0, "localMemoryTotal": 0, "gridId": 1}
        text = self.string(name)
        return self.add("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, deviceId=device, contextId=1, streamId=stream,
                        correlationId=correlation, globalPid=VM | pid << 24, demangledName=text, shortName=text, graphNodeId=node,
                        **{**values, **more})

    def copy(self, start: int, end: int, correlation: int, *, kind: int = 1, source: int = 0, target: int = 2, size: int = 4096,
             stream: int = 7) -> NsysBuilder:
        return self.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=end, deviceId=0, contextId=1, streamId=stream,
                        correlationId=correlation, globalPid=VM | PID << 24, bytes=size, copyKind=kind, srcKind=source, dstKind=target)

    def fill(self, start: int, end: int, correlation: int, size: int = 512) -> NsysBuilder:
        return self.add("CUPTI_ACTIVITY_KIND_MEMSET", start=start, end=end, deviceId=0, contextId=1, streamId=7, value=0, bytes=size,
                        correlationId=correlation, globalPid=VM | PID << 24, memKind=2)

    def graph(self, start: int, end: int, correlation: int, graph: int) -> NsysBuilder:
        """A graph launch without its nodes."""
        return self.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=start, end=end, deviceId=0, contextId=1, streamId=7, graphId=graph,
                        graphExecId=graph, correlationId=correlation, globalPid=VM | PID << 24)

    def memory(self, time: int, size: int, address: int, correlation: int, *, freed: bool = False, kind: int = 2) -> NsysBuilder:
        return self.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=time, globalPid=VM | PID << 24, deviceId=0, contextId=1, address=address,
                        pc=0, bytes=size, memKind=kind, memoryOperationType=int(freed), correlationId=correlation)

    def write(self, path: Path, generation: Generation = 2025, *, registered: bool = False) -> Path:
        """registered: range texts are ids, as those of registered strings are."""
        connection = sqlite3.connect(path)
        connection.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF;")
        rows = {table: [dict(row) for row in found] for table, found in self.rows.items()}
        for row in rows.get("NVTX_EVENTS", ()) if registered else ():
            row["textId"] = self.string(row.pop("text"))
        rows["StringIds"] = [{"id": number, "value": text} for text, number in self.strings.items()]
        for table, words in _SCHEMA.items():
            if generation < _SINCE.get(table, 0):
                continue
            if generation > 2022 and not rows.get(table):
                continue
            if generation == 2022:
                words += _UNTIL_2022.get(table, "")
            if generation == 2026:
                words += _SINCE_2026.get(table, "")
            columns = [word for word in words.split() if generation >= _SINCE.get(word, 0)]
            _create(connection, table, columns, rows.get(table, ()))
        if generation != 2022:
            _create(connection, "META_DATA_EXPORT", ["name:TEXT", "value:TEXT"], [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.13.2"}])
        connection.commit()
        connection.close()
        return path


def _create(connection: sqlite3.Connection, table: str, columns: list[str], rows: Iterable[dict[str, Any]]) -> None:
    names = [column.partition(":")[0] for column in columns]
    kinds = [column.partition(":")[2] or "INTEGER" for column in columns]
    connection.execute(f"CREATE TABLE {table} ({', '.join(f'[{name}] {kind}' for name, kind in zip(names, kinds, strict=True))})")
    connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})",
                           [tuple(row.get(name) for name in names) for row in rows])


def share_one_text(path: Path, rows: int, length: int) -> None:
    """Give StringIds `rows` more rows whose text, of `length` bytes, is one and the same chain of pages: a few pages that read as many."""
    size, data = 4096, bytearray(path.read_bytes())
    connection = sqlite3.connect(path)
    root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'StringIds'").fetchone()[0]
    known = connection.execute("SELECT id, value FROM StringIds ORDER BY id").fetchall()
    connection.close()

    def add(page: bytes) -> int:
        data.extend(page)
        return len(data) // size

    def record(number: int, text: bytes, payload: int, tail: bytes) -> bytes:
        kinds = b"\x04" + _varint(2 * payload + 13)
        whole = bytes([len(kinds) + 1]) + kinds + number.to_bytes(4, "big") + text
        return _varint(len(whole) - len(text) + payload) + _varint(number) + whole + tail

    head = len(record(0, b"", length, b"")) - len(_varint(length)) - 1
    least = (size - 12) * 32 // 255 - 23
    local = least + (head + length - least) % (size - 4)
    local = local if local <= size - 35 else least
    shared, first, count = head + length - local, len(data) // size + 1, -(-(head + length - local) // (size - 4))
    for page in range(count):
        add((0 if page == count - 1 else first + page + 1).to_bytes(4, "big") + b"a" * (size - 4))
    assert shared > 0
    cells = [(number, record(number, text.encode(), len(text.encode()), b"")) for number, text in known]
    cells += [(number, record(number, b"a" * (local - head), length, first.to_bytes(4, "big"))) for number in range(10**6, 10**6 + rows)]
    leaves = []
    while cells:
        page, at, pointers = bytearray(size), size, []
        while cells and at - len(cells[0][1]) > 8 + 2 * (len(pointers) + 1):
            number, cell = cells.pop(0)
            at -= len(cell)
            page[at:at + len(cell)] = cell
            pointers.append(at)
        page[:8] = struct.pack(">BHHHB", 13, 0, len(pointers), at, 0)
        page[8:8 + 2 * len(pointers)] = struct.pack(f">{len(pointers)}H", *pointers)
        leaves.append((add(bytes(page)), number))
    page, at, pointers = bytearray(size), size, []
    for leaf, number in leaves[:-1]:
        cell = leaf.to_bytes(4, "big") + _varint(number)
        at -= len(cell)
        page[at:at + len(cell)] = cell
        pointers.append(at)
    page[:12] = struct.pack(">BHHHBI", 5, 0, len(pointers), at, 0, leaves[-1][0])
    page[12:12 + 2 * len(pointers)] = struct.pack(f">{len(pointers)}H", *pointers)
    data[(root - 1) * size:root * size] = page
    data[28:32] = (len(data) // size).to_bytes(4, "big")
    path.write_bytes(data)


def _varint(number: int) -> bytes:
    """SQLite's, of at most 56 bits."""
    parts = [number & 127]
    while number := number >> 7:
        parts.append(number & 127 | 128)
    return bytes(reversed(parts))
