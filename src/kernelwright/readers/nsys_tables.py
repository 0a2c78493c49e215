"""The CUDA tables of an Nsight Systems export -> rows: device work, API calls, overheads and device memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..model.table import Int64, MemoryEvents
from .nsys_file import Columns, NsysFile
from .nsys_names import COPY_KINDS, MEMORY_KINDS, api_name, copy_name, fill_name
from .nsys_rows import MISSING, Rows, check_times, distinct, joined, make_rows, named, process_of, thread_of

KERNELS, COPIES, FILLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
"""One row a graph launch, where the nodes were not recorded (--cuda-graph-trace=graph)."""
CALLS, OVERHEADS, MEMORY = "CUPTI_ACTIVITY_KIND_RUNTIME", "PROFILER_OVERHEAD", "CUDA_GPU_MEMORY_USAGE_EVENTS"
_MAX_MEMORY_BYTES = 1 << 62
"""Of all allocations of a recording together."""
_ON_DEVICE = ("DEVICE", "ARRAY", "MANAGED", "DEVICE_STATIC", "MANAGED_STATIC")
_GEOMETRY = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_WORK: dict[str, int | None] = {"start": None, "end": None, "deviceId": None, "streamId": -1, "correlationId": -1, "globalPid": MISSING}
CUDA = 1
_PACKS = ((("gridX", 31), ("gridY", 16), ("gridZ", 16)),
          (("blockX", 11), ("blockY", 11), ("blockZ", 7), ("registersPerThread", 9), ("staticSharedMemory", 25)))
"""CUDA's limits are below these; what is above them counts as unknown."""


def device_rows(file: NsysFile) -> Rows:
    """Kernels, copies, fills, and graph launches whose nodes were not recorded."""
    parts = [_kernels(file), _copies(file), _fills(file)]
    graphs = _graphs(file)
    if len(graphs):
        seen = set(zip(*(np.concatenate([getattr(rows, name) for rows in parts]).tolist() for name in ("process", "correlation")),
                       strict=True))
        # A launch whose nodes are there too would count twice.
        alone = [pair not in seen for pair in zip(graphs.process.tolist(), graphs.correlation.tolist(), strict=True)]
        parts.append(graphs.take(np.array(alone, dtype=bool)))
    rows = joined(parts)
    return replace(rows, opened=np.arange(len(rows)))


def _work(file: NsysFile, table: str, category: str, found: Columns, name_id: Int64, names: tuple[str, ...],
          config: tuple[Int64, list[list[int]]] | None = None) -> Rows:
    """config: (which, rows of geometry, shared bytes, registers, graph)."""
    which, configs = config or distinct([(found["graphNodeId"] > 0).astype(np.int64)])
    shared = tuple({
        "category": category, "grid": _three(row[0:3]), "block": _three(row[3:6]), "graph": bool(row[-1]),
        "shared_bytes": row[6] if config and row[6] >= 0 else None, "registers": row[7] if config and row[7] >= 0 else None}
        for row in configs)
    return make_rows(
        file, table, found["start"], found["end"], name_id, names, process=process_of(found["globalPid"]), stream=found["streamId"],
        device=found["deviceId"], correlation=found["correlationId"], which=which, shared=shared,
        columns={"bytes": found.get("bytes", np.full(name_id.size, -1, dtype=np.int64))})


def _three(sizes: list[int]) -> list[int] | None:
    return sizes if len(sizes) == 3 and min(sizes) >= 0 else None


def _kernels(file: NsysFile) -> Rows:
    name = "demangledName" if "demangledName" in file.column_names(KERNELS) else "shortName"
    found = file.columns(KERNELS, {
        **_WORK, name: None, "graphNodeId": 0, "staticSharedMemory": -1, "dynamicSharedMemory": -1, "registersPerThread": -1,
        **dict.fromkeys(_GEOMETRY, -1)}, _PACKS)
    name_id, names = named(file, found[name])
    shared_bytes = np.where(np.minimum(found["staticSharedMemory"], found["dynamicSharedMemory"]) < 0, -1,
                            found["staticSharedMemory"] + found["dynamicSharedMemory"])
    config = distinct([*(found[name] for name in _GEOMETRY), shared_bytes, found["registersPerThread"],
                       (found["graphNodeId"] > 0).astype(np.int64)])
    return _work(file, KERNELS, "kernel", found, name_id, names, config)


def _copies(file: NsysFile) -> Rows:
    found = file.columns(COPIES, {**_WORK, "bytes": -1, "graphNodeId": 0, "copyKind": -1, "srcKind": -1, "dstKind": -1})
    kinds, memory = _enum(file, "ENUM_CUDA_MEMCPY_OPER", COPY_KINDS), _enum(file, "ENUM_CUDA_MEM_KIND", MEMORY_KINDS)
    which, combined = distinct([found["copyKind"], found["srcKind"], found["dstKind"]])
    return _by_name(file, COPIES, "memcpy", found, which, [copy_name(kinds(a), memory(b), memory(c)) for a, b, c in combined])


def _fills(file: NsysFile) -> Rows:
    found = file.columns(FILLS, {**_WORK, "bytes": -1, "graphNodeId": 0, "memKind": -1})
    memory = _enum(file, "ENUM_CUDA_MEM_KIND", MEMORY_KINDS)
    which, combined = distinct([found["memKind"]])
    return _by_name(file, FILLS, "memset", found, which, [fill_name(memory(kind)) for kind, in combined])


def _by_name(file: NsysFile, table: str, category: str, found: Columns, which: Int64, words: list[str]) -> Rows:
    names: dict[str, int] = {}
    numbers = np.array([names.setdefault(name, len(names)) for name in words], dtype=np.int64)
    return _work(file, table, category, found, numbers[which], tuple(names))


def _graphs(file: NsysFile) -> Rows:
    found = file.columns(GRAPHS, {**_WORK, "graphId": -1, "graphExecId": -1})
    found["graphNodeId"] = np.ones(found["start"].size, dtype=np.int64)
    # Numbered in order of their first launch: nsys's own ids differ from run to run.
    which, ids = distinct([np.where(found["graphExecId"] >= 0, found["graphExecId"], found["graphId"])])
    first = [int(found["start"][which == place].min()) for place in range(len(ids))]
    rank = np.argsort(np.argsort(np.array(first, dtype=np.int64), kind="stable"), kind="stable")
    return _work(file, GRAPHS, "kernel", found, which, tuple(f"CUDA graph {int(place) + 1}" for place in rank))


def _enum(file: NsysFile, table: str, otherwise: dict[int, str]) -> Callable[[int], str]:
    """Number -> the last part of an enumeration's name, e.g. 1 -> "HTOD", by the file's own table where it has one."""
    names = dict(otherwise)
    if {"id", "name"} <= file.column_names(table):
        known = sorted(otherwise.values(), key=len, reverse=True)
        for rows in file.chunks(table, "id, name"):
            for number, text in rows:
                word = text.decode("utf-8", "replace").upper() if isinstance(text, bytes) else ""
                found = next((one for one in known if word == one or word.endswith(f"_{one}")), None)
                if isinstance(number, int) and found is not None:
                    names[number] = found
    return lambda number: names.get(number, "UNKNOWN")


def call_rows(file: NsysFile) -> Rows:
    """CUDA runtime and driver calls."""
    found = file.columns(CALLS, {"start": None, "end": None, "globalTid": MISSING, "correlationId": -1, "nameId": None})
    return _on_threads(file, CALLS, found, found["correlationId"], api_name)


def overhead_rows(file: NsysFile) -> Rows:
    """What nsys says that it itself took."""
    found = file.columns(OVERHEADS, {"start": None, "end": None, "globalTid": MISSING, "nameId": None})
    return _on_threads(file, OVERHEADS, found, np.full(found["start"].size, -1, dtype=np.int64), str)


def _on_threads(file: NsysFile, table: str, found: Columns, correlation: Int64, rename: Callable[[str], str]) -> Rows:
    name_id, names = named(file, found["nameId"], rename)
    return make_rows(file, table, found["start"], found["end"], name_id, names, process=process_of(found["globalTid"]),
                     thread=thread_of(found["globalTid"]), correlation=correlation)


def memory_events(file: NsysFile) -> tuple[MemoryEvents, Int64]:
    """(allocations and frees of device memory in time order, their correlation ids); threads are not known yet.

    These are the driver's: cudaMalloc and cudaFree, not the tensors that a caching allocator cuts from them. nsys writes those from before
    the capture at time 0, so the totals hold them.
    """
    found = file.columns(MEMORY, {"start": None, "globalPid": MISSING, "deviceId": -1, "address": 0, "bytes": None, "memKind": None,
                                  "memoryOperationType": None, "correlationId": -1})
    kinds = _enum(file, "ENUM_CUDA_MEM_KIND", MEMORY_KINDS)
    chosen = np.isin(found["memKind"], [kind for kind in np.unique(found["memKind"]).tolist() if kinds(kind) in _ON_DEVICE])
    chosen &= np.isin(found["memoryOperationType"], (0, 1))
    found = {name: column[chosen] for name, column in found.items()}
    check_times(file, MEMORY, found["start"], found["start"])
    if (found["bytes"] < 0).any() or found["bytes"].sum(dtype=np.float64) >= _MAX_MEMORY_BYTES:
        raise file.bad(f"table {MEMORY} holds a size that can't be right")
    order = np.argsort(found["start"], kind="stable")
    found = {name: column[order] for name, column in found.items()}
    change = np.where(found["memoryOperationType"] == 0, found["bytes"], -found["bytes"])
    total = np.zeros_like(change)
    for device in np.unique(found["deviceId"]):
        mine = found["deviceId"] == device
        total[mine] = np.cumsum(change[mine])
    return MemoryEvents(
        time_ns=found["start"], change_bytes=change, total_bytes=total, address=found["address"], device_type=np.full_like(change, CUDA),
        device=found["deviceId"], process=process_of(found["globalPid"]), thread=np.full_like(change, -1)), found["correlationId"]
