"""How many CPUs kernelwright's own processes may count on."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .system_view import SystemView


def granted_cpus(root: Path = Path("/")) -> float:
    """CPUs that this process may use: those it may run on, within the container's limit. root: where the file system begins."""
    return min(_allowed(), _quota(root))


def free_cpus(view: SystemView) -> float:
    """CPUs that this process may run on, less what others keep busy (the load average of the last minute, which counts the whole
    machine: our share of it), at most the container's limit. To be asked before own work starts."""
    load = 0.0
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: Windows has none
        load = os.getloadavg()[0]
    return min(_allowed() * max(0.0, 1 - load / (os.cpu_count() or 1)), _quota(view.root))


def _allowed() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quota(root: Path) -> float:
    """CPUs that the container's limit allows (cgroup 2 and 1); infinite without one."""
    group = root / "sys/fs/cgroup"
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):
            quota, period = " ".join((group / file).read_text() for file in files).split()
            return float(quota) / float(period) if quota not in ("max", "-1") and float(period) > 0 else float("inf")
    return float("inf")
