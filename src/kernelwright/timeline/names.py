"""What events are, by their names: CUDA and HIP calls, device work, and the ranges of torch's own machinery.

Names are looked at once each, not once an event. nsys adds the version of a function to its name ("cudaLaunchKernel_v7000").
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..model.table import EventTable

_VERSION = re.compile(r"(?:_ptsz|_ptds)?(?:_v\d+)?(?:_ptsz|_ptds)?$")
COLLECTIVE = re.compile(r"nccl|nvshmem|cross_device_reduce|(?:one|two)_shot_all_?reduce|multimem_", re.IGNORECASE)
"""Kernels of collectives: NCCL's and RCCL's ("ncclDevKernel_AllReduce_..."), NVSHMEM's, vLLM's and torch's symmetric memory."""
LOADER = re.compile(r"^enumerate\(DataLoader\)#.*\.__next__$")
COMPILER = re.compile(r" \(dynamo_timed\)$")
LOADING = frozenset({"Runtime Triggered Module Loading", "Lazy Function Loading", "Driver Compiler"})
"""Overheads that a kernel's first use causes, as CUPTI names them (cupti_activity.h, CUpti_ActivityOverheadKind)."""
_SYNCHRONIZE = re.compile(r"^(?:(?:cuda|hip)(?:Stream|Device|Event|Thread)|cu(?:Stream|Ctx|Event))Synchronize$")
_BLOCKING_COPY = re.compile(r"^(?:cuda|cu|hip)Memcpy(?!.*Async)(?!.*Peer)(?!DtoD)(?!AtoA)(?!AtoD)(?!DtoA)")
_COPY = re.compile(r"^(?:cuda|cu|hip)Memcpy")
_ALLOCATE = re.compile(
    r"^(?:(?:cuda|hip)(?:Ext)?(?:Malloc|Free|Host(?:Alloc|Malloc|Free|Register|Unregister)|MemPool(?:Create|Destroy|TrimTo))"
    r"|cuMem(?:Alloc|Free|Host(?:Alloc|Register|Unregister)|Pool(?:Create|Destroy|TrimTo))"
    r"|(?:cu|hip)Mem(?:Create|Map$|Unmap|Release|SetAccess|Address(?:Reserve|Free)))")
_LOAD = re.compile(r"^(?:cu|hip|cuda)(?:Module(?:Load|Unload)|Library(?:Load|Unload)|Link(?:Create|Add|Complete)|GraphInstantiate)")
_WAIT_EVENT = re.compile(r"^(?:(?:cuda|hip)StreamWaitEvent|cuStreamWait(?:Event|Value))")
_COPY_WORK = re.compile(r"^(?:Memcpy|Unified memory migration|Copy(?:Host|Device)To(?:Host|Device))")
_HOST_COPY_WORK = re.compile(r"^(?:(?:Memcpy|Unified memory migration) (?:HtoD|DtoH)|Copy(?:HostToDevice|DeviceToHost))")

Chosen = Callable[[str], bool]
Mask = npt.NDArray[np.bool_]


def plain(name: str) -> str:
    """A call's name without nsys's version and the suffix of per-thread streams: "cudaLaunchKernel_ptsz_v7000" -> "cudaLaunchKernel"."""
    return name[: _VERSION.search(name).start()] if name.startswith(("cu", "hip")) else name  # type: ignore[union-attr]


def synchronizes(name: str) -> bool:
    """Calls that return only when the device has finished something: waits, and copies without Async
    (CUDA Runtime API, "API synchronization behavior")."""
    name = plain(name)
    return _SYNCHRONIZE.match(name) is not None or _BLOCKING_COPY.match(name) is not None


def copies(name: str) -> bool:
    """Calls that copy memory, whether they wait or not."""
    return _COPY.match(plain(name)) is not None


def allocates(name: str) -> bool:
    """Calls that get memory from the driver or give it back, virtual memory management (expandable segments) included."""
    return _ALLOCATE.match(plain(name)) is not None


def loads_code(name: str) -> bool:
    """Calls that load or link device code, or make a graph ready to run."""
    return _LOAD.match(plain(name)) is not None


def waits_for_event(name: str) -> bool:
    """Calls that make a stream wait for an event."""
    return _WAIT_EVENT.match(plain(name)) is not None


def is_loader(name: str) -> bool:
    """torch's range around DataLoader.__next__."""
    return LOADER.match(name) is not None


def is_compiler(name: str) -> bool:
    """Ranges of torch's compiler (torch._dynamo.utils.dynamo_timed)."""
    return COMPILER.search(name) is not None


def is_copy_work(name: str) -> bool:
    """Device work that copies, by Kineto's names; migrations of unified memory, as the nsys reader calls them; ROCm's older names."""
    return _COPY_WORK.match(name) is not None


def crosses_host(name: str) -> bool:
    """Device work that copies between host and device."""
    return _HOST_COPY_WORK.match(name) is not None


def is_memset(name: str) -> bool:
    """Device work that fills memory, by Kineto's names."""
    return name.startswith("Memset")


def is_collective(name: str) -> bool:
    """Kernels that communicate with other devices."""
    return COLLECTIVE.search(name) is not None


def named(table: EventTable, chosen: Chosen) -> Mask:
    """Which rows of a table have a chosen name, shape (n,)."""
    if not len(table):
        return np.zeros(0, dtype=bool)
    wanted = np.fromiter((chosen(name) for name in table.names), dtype=bool, count=len(table.names))
    result: Mask = wanted[table.name_id]
    return result
