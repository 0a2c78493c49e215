"""What the names of kernels, copies and CUDA calls say about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ..model.structure import Side

Mask = npt.NDArray[np.bool_]
COLLECTIVE = re.compile(r"nccl|rccl|nvshmem|cross_device_reduce|(?:one|two)_shot_all_?reduce|multimem_", re.IGNORECASE)
_GENERATED = re.compile(r"^triton_(?!tem_)")
_LIBRARY = re.compile(
    r"gemm|gemv|cutlass|cublas|cudnn|nvjet|xmma|splitk|fmha|flash_|attention|wgrad|dgrad|winograd|implicit_convolve|conv[123]d|convolution"
    r"|rnn|lstm|triton_tem_|^cijk_|miopen|cufft|_fft|cub::|thrust::", re.IGNORECASE)
"""Matrix products, convolutions, attention, sorting and the like: written by hand, not to be merged with elementwise work."""
_COPY = re.compile(r"^Memcpy (?P<direction>\w+?)(?: \((?P<source>\w+) -> (?P<target>\w+)\))?$")
_SIDES: dict[str, Side] = {"Pageable": "pageable", "Pinned": "pinned", "Device": "device", "Array": "array", "Managed": "unified",
                           "Unified": "unified"}
_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
SYNCHRONIZING = frozenset({
    "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize",
    "cuEventSynchronize", "cudaMemcpy", "cuMemcpyDtoH", "cuMemcpyHtoD", "hipStreamSynchronize", "hipDeviceSynchronize",
    "hipEventSynchronize", "hipMemcpy", "hipMemcpyWithStream"})
"""Calls that return only when the device has finished something."""
ALLOCATING = re.compile(r"^(?:cuda|cu|hip)(?:Mem)?(?:Host)?(?:Malloc|Free|Alloc|Register|Unregister)(?!Async)\w*$"
                        r"|^cuMem(?:Create|Map|Unmap|Release|SetAccess|AddressReserve|AddressFree)$")
"""Calls that make or give back device or pinned memory at once; a stream being captured refuses them."""
_QUERYING = frozenset({"cudaEventQuery", "cudaStreamQuery", "cuEventQuery", "cuStreamQuery", "hipEventQuery", "hipStreamQuery"})
WAITING_FOR_EVENT = frozenset({"cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent"})
GRAPH_LAUNCHES = frozenset({"cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"})
LOADER = re.compile(r"^enumerate\(DataLoader\)#.*\.__next__$")
OPTIMIZER = re.compile(r"^Optimizer\.step#")
COMPILER = re.compile(r" \(dynamo_timed\)$")


def call_name(name: str) -> str:
    """A CUDA call without the suffix of its version, e.g. "cudaLaunchKernel_v7000" -> "cudaLaunchKernel"."""
    return _VERSION.sub("", name)


def is_library(name: str) -> bool:
    """True for kernels that no compiler merges with its neighbours."""
    return _GENERATED.match(name) is None and _LIBRARY.search(name) is not None


def is_synchronizing(name: str) -> bool:
    """True for calls in which the host waits for the device."""
    return call_name(name) in SYNCHRONIZING


def breaks_capture(name: str) -> bool:
    """True for calls that may not happen while a stream is captured into a graph."""
    name = call_name(name)
    return name in SYNCHRONIZING or name in _QUERYING or ALLOCATING.match(name) is not None


def copy_kind(name: str) -> tuple[str, Side, Side] | None:
    """(direction, source, target) of a copy by Kineto's name for it; None for anything else."""
    match = _COPY.match(name)
    if match is None:
        return None
    source, target = (_SIDES.get(match[side] or "", "unknown") for side in ("source", "target"))
    return match["direction"], source, target


def chosen(names: Sequence[str], test: Callable[[str], bool], name_id: npt.NDArray[np.int64]) -> Mask:
    """Which rows have a name that passes the test; each name is tested once. Shape of name_id."""
    passed = np.array([test(name) for name in names], dtype=bool)
    return passed[name_id] if passed.size else np.zeros(name_id.shape, dtype=bool)
