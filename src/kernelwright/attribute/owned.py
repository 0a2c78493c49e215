"""What the CUDA and the CPU half of attribution hand over: rows by operator call, and rows without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.profile import Aggregated, Kernel, Operator


@dataclass(frozen=True)
class Owned:
    """Every measured row, once."""

    by_call: dict[int, list[Kernel]]
    """Row of trace.operators -> its kernels in start order, never empty."""
    unattributed: tuple[Kernel, ...]
    launches: tuple[Operator, ...] = ()
    """Launches outside any operator that stand for themselves: CUDA graphs, and the workload's own Triton kernels."""
    launch_rows: tuple[int, ...] = ()
    """Their launch calls, rows of trace.runtime."""
    warnings: tuple[str, ...] = ()


def aggregate(kernels: Sequence[Kernel]) -> Aggregated:
    """Sums over an operator's kernels (at least one)."""
    dominant = max(kernels, key=lambda kernel: kernel.duration_ns)
    return Aggregated(total_duration_ns=sum(kernel.duration_ns for kernel in kernels), kernel_count=len(kernels),
                      dominant_kernel_id=dominant.kernel_id)
