"""What the profiled steps did besides computing: waits, copies, streams, data loading, compilation. Sums over all steps."""

from __future__ import annotations

from typing import Literal

from .base import Record

MOST_ROWS = 100
"""Rows kept of each list, the largest first; totals count them all."""
Direction = Literal["HtoD", "DtoH"]
HostMemory = Literal["pageable", "pinned"]


class Synchronization(Record):
    """Calls of one kind on one line that made the host wait for the device."""

    call: str
    """The CUDA call, e.g. "cudaStreamSynchronize"."""
    operators: tuple[str, ...] = ()
    """PyTorch operators around it, outermost first; empty for an explicit synchronisation."""
    copies: Direction | None = None
    """Direction of the copy that it waited for, if any."""
    where: str | None = None
    count: int
    wait_ns: int
    """Host time inside the calls."""
    idle_ns: int
    """Device time that passed idle after them, until the host had launched work again; data loading and compilation left out. In a document
    with a `flow`: what its cause `synchronization` says of these calls, and `copy` of those that copy and wait in one call."""


class HostCopy(Record):
    """Copies between host and device of one kind on one line."""

    direction: Direction
    memory: HostMemory | None
    """Of the host's side; None where the trace does not say."""
    operator: str | None = None
    where: str | None = None
    count: int
    bytes: int | None
    """None unless the trace gives the size of each."""
    duration_ns: int

    @property
    def bandwidth_gbs(self) -> float | None:
        """Achieved, in GB/s (1e9 bytes a second)."""
        return self.bytes / self.duration_ns if self.bytes is not None and self.duration_ns > 0 else None


class HostWork(Record):
    """Host work of one kind on one line that keeps the steps from launching device work."""

    name: str
    where: str | None = None
    count: int
    duration_ns: int
    """Host time, nested work counted once."""


class Overlap(Record):
    """Copies that lie between kernels of one stream although they need not."""

    copies: int
    copy_ns: int
    serial_ns: int
    """Time of these streams' work one after the other, over the steps that hold such copies."""
    overlapped_ns: int
    """The same with each copy on an engine of its own: no kernel before the upload that precedes it, no download before the
    kernels that precede it."""
    where: str | None = None


class Activity(Record):
    """The tables behind the rules on waits, copies, streams, data loading and compilation."""

    sm_count: int | None = None
    """Multiprocessors of the device; None when the trace does not say (or on the CPU)."""
    streams: int = 0
    """Streams with work in the steps."""
    synchronization_count: int = 0
    synchronization_wait_ns: int = 0
    synchronization_idle_ns: int = 0
    synchronizations: tuple[Synchronization, ...] = ()
    """The longest waits first."""
    host_copies: tuple[HostCopy, ...] = ()
    host_copy_exposed_ns: int = 0
    """Time in which host copies ran and no other device work did."""
    overlap: Overlap | None = None
    """None: no stream holds both kernels and pinned copies that could move."""
    data_loader_wait_ns: int = 0
    """Host time in DataLoader.__next__ inside the steps."""
    data_loader_idle_ns: int = 0
    """Of it, time in which the device had nothing to do (CPU: all of it)."""
    data_loader: tuple[HostWork, ...] = ()
    compile_ns: int = 0
    """Host time in compilation or first-use module loading inside the steps."""
    compilation: tuple[HostWork, ...] = ()
    explained_late_ns: int = 0
    """Of the idle time that the device waited for launches, the part that passed in data loading or compilation."""
