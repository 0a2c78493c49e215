"""The GPUs that an Nsight Systems recording tells of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.table import Int64
from .nsys_file import NsysFile

GPUS, NUMBERS = "TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"
_MOST = 4096
_PID_MASK = (1 << 24) - 1
DeviceNumber = Callable[[Int64, Int64], Int64]
"""(processes, CUDA device numbers there) -> places in the tuple of names."""


@dataclass(frozen=True)
class Gpu:
    """One GPU of the machine, as the driver described it. None: not in the file. The link to the host is in no export."""

    number: int
    """nsys's own; CUDA's may differ, by CUDA_VISIBLE_DEVICES."""
    name: str
    sm_count: int | None
    memory_bytes: int | None
    memory_bytes_per_s: int | None
    """Theoretical bandwidth of the device's memory."""
    l2_bytes: int | None
    clock_hz: int | None
    compute_capability: tuple[int, int] | None
    bus: str | None
    """PCI address, e.g. "0000:00:06.0"."""


def gpus(file: NsysFile) -> tuple[Gpu, ...]:
    """By nsys's number."""
    known = file.column_names(GPUS)
    if not {"id", "name"} <= known:
        return ()
    wanted = ("id", "name", "smCount", "totalMemory", "memoryBandwidth", "l2CacheSize", "clockRate", "computeMajor", "computeMinor",
              "busLocation")
    words = ", ".join(f"[{name}]" if name in known else "NULL" for name in wanted)
    found: dict[int, Gpu] = {}
    for rows in file.chunks(GPUS, words):
        for number, name, *facts, bus in rows:
            if isinstance(number, int) and len(found) < _MOST:
                sms, memory, bandwidth, l2, clock, major, minor = (_positive(fact) for fact in facts)
                found.setdefault(number, Gpu(number, _text(name) or "", sms, memory, bandwidth, l2, clock,
                                             (major, minor or 0) if major else None, _text(bus) or None))
    return tuple(found[number] for number in sorted(found))


def numbered_devices(file: NsysFile) -> tuple[tuple[str, ...], tuple[int, ...], DeviceNumber]:
    """(names, multiprocessors, what the device numbers of the other tables are in these tuples).

    The number of a device is CUDA's, which a process may have shifted (CUDA_VISIBLE_DEVICES). Where all processes agree it stays; where one
    number means two GPUs, nsys's own number takes its place.
    """
    found = {gpu.number: gpu for gpu in gpus(file)}
    mapped = _mapping(file, found)
    agreed: dict[int, set[int]] = {}
    for (_, cuda), gpu in mapped.items():
        agreed.setdefault(cuda, set()).add(gpu)
    if all(len(one) == 1 for one in agreed.values()):
        by_number = {cuda: found[next(iter(one))] for cuda, one in agreed.items()} or found
        names, sms = _listed(by_number)
        return names, sms, lambda processes, devices: devices
    names, sms = _listed(found)

    def number(processes: Int64, devices: Int64) -> Int64:
        pids = (processes & _PID_MASK).tolist()
        return np.array([mapped.get((pid, device), device) for pid, device in zip(pids, devices.tolist(), strict=True)], dtype=np.int64)

    return names, sms, number


def _mapping(file: NsysFile, found: dict[int, Gpu]) -> dict[tuple[int, int], int]:
    """(process id, CUDA's device number) -> nsys's number."""
    columns = file.columns(NUMBERS, {"gpuId": -1, "cudaId": -1, "pid": -1})
    rows = zip(*(columns[name][:_MOST * 16].tolist() for name in ("pid", "cudaId", "gpuId")), strict=True)
    return {(pid, cuda): gpu for pid, cuda, gpu in rows if gpu in found and 0 <= cuda < _MOST}


def _listed(by_number: dict[int, Gpu]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    numbers = [number for number in by_number if 0 <= number < _MOST]
    places = range(max(numbers, default=-1) + 1)
    return (tuple(by_number[place].name if place in by_number else "" for place in places),
            tuple(by_number[place].sm_count or 0 if place in by_number else 0 for place in places))


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace")[:200] if isinstance(value, bytes) else None
