"""What the names of kernels, copies and CUDA calls say about them, beyond names.py: what can be fused, captured, or marks a step."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..model.structure import Side
from .names import Chosen, Mask, allocates, is_loader, plain, synchronizes

_GENERATED = re.compile(r"^triton_(?!tem_)")
_LIBRARY = re.compile(
    r"gemm|gemv|cutlass|cublas|cudnn|nvjet|xmma|splitk|fmha|flash_|attention|wgrad|dgrad|winograd|implicit_convolve|conv[123]d|convolution"
    r"|rnn|lstm|triton_tem_|^cijk_|miopen|cufft|_fft|cub::|thrust::", re.IGNORECASE)
"""Matrix products, convolutions, attention, sorting and the like: written by hand, not to be merged with elementwise work."""
_COPY = re.compile(r"^(?:Memcpy|Unified memory migration) (?P<direction>\w+?)(?: \((?P<source>\w+) -> (?P<target>\w+)\))?$")
_ROCM_COPY = re.compile(r"^Copy(?P<source>Host|Device)To(?P<target>Host|Device)$")
_SIDES: dict[str, Side] = {"Pageable": "pageable", "Pinned": "pinned", "Device": "device", "Array": "array", "Managed": "unified",
                           "Unified": "unified"}
_QUERYING = frozenset({"cudaEventQuery", "cudaStreamQuery", "cuEventQuery", "cuStreamQuery", "hipEventQuery", "hipStreamQuery"})
GRAPH_LAUNCHES = frozenset({"cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"})
_OPTIMIZER = re.compile(r"^Optimizer\.step#")


def is_library(name: str) -> bool:
    """Kernels that no compiler merges with its neighbours."""
    return _GENERATED.match(name) is None and _LIBRARY.search(name) is not None


def breaks_capture(name: str) -> bool:
    """Calls that may not happen while a stream is captured into a graph: waits, queries, and memory from the driver at once."""
    name = plain(name)
    return synchronizes(name) or name in _QUERYING or (allocates(name) and not name.endswith("Async"))


def marks_step(name: str) -> bool:
    """torch's own ranges around what a training step does once: the optimizer's step, the next batch."""
    return _OPTIMIZER.match(name) is not None or is_loader(name)


def copy_kind(name: str) -> tuple[str, Side, Side] | None:
    """(direction, source, target) of device work that copies, by Kineto's names; None for anything else."""
    rocm = _ROCM_COPY.match(name)
    if rocm is not None:
        return f"{rocm['source'][0]}to{rocm['target'][0]}", "unknown", "unknown"
    match = _COPY.match(name)
    if match is None:
        return None
    if name.startswith("Unified"):
        return match["direction"], "unified", "unified"
    source, target = (_SIDES.get(match[side] or "", "unknown") for side in ("source", "target"))
    return match["direction"], source, target


def chosen(names: Sequence[str], test: Chosen, name_id: npt.NDArray[np.int64]) -> Mask:
    """Which rows have a name that passes the test; each name is tested once. Shape of name_id."""
    passed = np.array([test(name) for name in names], dtype=bool)
    return passed[name_id] if passed.size else np.zeros(name_id.shape, dtype=bool)
