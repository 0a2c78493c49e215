"""What is decoded of a Kineto trace: its events with the arguments that the analysis needs, its devices, its place among ranks.

Layouts differ by the version of torch: times in whole microseconds (to 2.1) or with decimals, "Profiler Event Index" (to 1.13) or "Ev Idx",
"Kernel" and "Runtime" (1.8) or "kernel" and "cuda_runtime". On ROCm the categories are CUDA's and the calls are HIP's; what a launch had
(grid, block, bytes) stands with the call, not with the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ..model.trace import LINE_PREFIX

MEMORY = "[memory]"
MAX_MEMORY_BYTES = 1 << 53
DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
RUNTIME_CATEGORIES = ("cuda_runtime", "cuda_driver", "Runtime")
TABLES = ("device", "runtime", "operators", "ranges", "python", "lines", "steps", "overheads")
TABLE_OF = {"cpu_op": "operators", "Operator": "operators", "user_annotation": "ranges", "python_function": "python",
            "overhead": "overheads", **dict.fromkeys(DEVICE_CATEGORIES, "device"), **dict.fromkeys(RUNTIME_CATEGORIES, "runtime")}
"""By category; some names go to tables of their own."""
_ABSENT = msgspec.Raw(b"")
_MOST_RANKS = 1 << 31


class Args(msgspec.Struct, gc=False, rename={
    "dims": "Input Dims", "types": "Input type", "sequence": "Sequence number", "forward_thread": "Fwd thread id",
    "bytes_": "bytes", "graph_node": "graph node id", "index": "Ev Idx", "old_index": "Profiler Event Index", "change": "Bytes",
    "total": "Total Allocated", "address": "Addr", "device_type": "Device Type", "device_id": "Device Id", "shared_bytes": "shared memory",
    "registers": "registers per thread", "collective": "Collective name", "group": "Process Group Name",
    "group_ranks": "Process Group Ranks", "group_size": "Group size", "in_elements": "In msg nelems", "out_elements": "Out msg nelems",
    "collective_sequence": "Seq",
}):
    """The arguments that the analysis needs; all others are skipped while decoding. Lists stay text."""

    dims: msgspec.Raw = _ABSENT
    types: msgspec.Raw = _ABSENT
    sequence: int = -1
    forward_thread: int = -1
    correlation: int = -1
    device: int = -1
    stream: int | str = -1
    grid: msgspec.Raw = _ABSENT
    block: msgspec.Raw = _ABSENT
    bytes_: int = -1
    size: int | str = -1
    """ROCm's bytes of a copy, with the call."""
    graph_node: int = 0
    index: int = -1
    old_index: int = -1
    change: int | None = None
    total: int = 0
    address: int = 0
    device_type: int = -1
    device_id: int = -1
    shared_bytes: int | None = None
    registers: int | None = None
    collective: str | None = None
    group: str | None = None
    group_ranks: str | None = None
    group_size: int | None = None
    in_elements: int | None = None
    out_elements: int | None = None
    dtype: str | None = None
    collective_sequence: int | None = None

    @property
    def opened(self) -> int:
        """Which event of its thread was opened first, by Kineto's own count; -1 where it did not count."""
        return self.index if self.index >= 0 else self.old_index


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


class Distributed(msgspec.Struct):
    """distributedInfo; some versions write less of it."""

    rank: int | None = None
    world_size: int | None = None


@dataclass(frozen=True)
class Heading:
    """What a trace says of itself, beside its events."""

    devices: Sequence[DeviceProperties] = ()
    rank: int | None = None
    world_size: int | None = None


def heading(devices: Sequence[DeviceProperties], distributed: Distributed | None) -> Heading:
    """The heading; ranks that can't be are left out."""
    rank = distributed.rank if distributed is not None else None
    size = distributed.world_size if distributed is not None else None
    size = size if size is not None and 0 < size <= _MOST_RANKS else None
    rank = rank if rank is not None and 0 <= rank < (size or _MOST_RANKS) else None
    return Heading(tuple(devices), rank, size)


@dataclass(frozen=True)
class Routes:
    """Which table an event goes to. step_name: of the ranges that are the steps."""

    step_name: str

    def table(self, ph: str, category: str, name: str) -> str | None:
        """One of TABLES; None for an event that is left out."""
        table = TABLE_OF.get(category) if ph == "X" else None
        return self.by_name(table, name) if table is not None else None

    def by_name(self, table: str, name: str) -> str:
        """The table of an event that by its category belongs to `table`."""
        if table == "ranges" and name == self.step_name:
            return "steps"
        return "lines" if name.startswith(LINE_PREFIX) else table
