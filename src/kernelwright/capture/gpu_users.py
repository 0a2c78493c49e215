"""Other processes on the GPU: their work disturbs timings, so they are named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..model.profile import GpuUser
from .gpu_processes import process_name
from .gpus import NoGpu, VisibleGpu, first_visible, nvml

MOST = 20


def gpu_users(env: Mapping[str, str] | None = None) -> tuple[GpuUser, ...]:
    """The processes that compute on CUDA device 0, without this one and its children. Raises gpus.NoGpu."""
    with nvml() as binding:
        try:
            return users_of(binding, first_visible(binding, env))
        except binding.NVMLError as error:
            raise NoGpu(f"NVML: {error}") from error


def users_of(binding: Any, gpu: VisibleGpu, *, known_only: bool = False) -> tuple[GpuUser, ...]:
    """The same for one GPU. In a container the driver may give process numbers of the host: known_only leaves out those that do not
    exist here (while our own workload runs, one of them may be it). Raises NVMLError."""
    found = []
    for row in binding.nvmlDeviceGetComputeRunningProcesses(gpu.handle)[:200]:
        pid = int(row.pid)
        here = Path(f"/proc/{pid}").is_dir()
        if not is_ours(pid) and (here or not known_only):
            memory = row.usedGpuMemory
            found.append(GpuUser(pid=pid, name=process_name(pid, binding), memory_bytes=None if memory is None else int(memory)))
    return tuple(sorted(found, key=lambda user: -(user.memory_bytes or 0))[:MOST])


def is_ours(pid: int) -> bool:
    """Whether a process is this one or descends from it."""
    for _ in range(64):
        if pid == os.getpid():
            return True
        pid = _parent(pid)
        if pid <= 1:
            return False
    return False


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
