"""EventTable: columns of a timeline, one row an event. Times are int64 nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


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
    args: tuple[dict[str, Any], ...] = field(default=())

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
