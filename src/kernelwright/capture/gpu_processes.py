"""Names the processes that use a GPU: whatever else runs there makes timings worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model.errors import printable
from .gpus import text


@dataclass(frozen=True)
class GpuProcess:
    """One process on one GPU. memory_bytes None: the driver does not tell."""

    gpu: int
    """The GPU's index as NVML counts."""
    pid: int
    name: str
    memory_bytes: int | None


def gpu_processes(nvml: Any) -> tuple[GpuProcess, ...] | None:
    """All compute processes on all GPUs, by NVML (initialised by the caller); None where it can't tell. nvml: the module pynvml.

    A container with process numbers of its own sees none of the others: an empty answer there proves nothing.
    """
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        found = [(index, item) for index, handle in enumerate(handles) for item in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except nvml.NVMLError:
        return None
    return tuple(GpuProcess(index, int(item.pid), process_name(int(item.pid), nvml), _bytes(item.usedGpuMemory)) for index, item in found)


def process_name(pid: int, nvml: Any) -> str:
    """What was started, e.g. "python3 train.py" (its own file names only); "unknown" where nobody tells."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        words = []
    if words and words[0]:
        return short_name(words)
    try:
        name = nvml.nvmlSystemGetProcessName(pid)
    except nvml.NVMLError:
        return "unknown"
    return short_name(text(name).split() or [""])


def short_name(words: Sequence[str]) -> str:
    """The program, and for an interpreter its script: arguments can hold secrets, so no more of a command line is shown."""
    program = Path(words[0]).name
    script = next((word for word in words[1:] if word and not word.startswith("-")), "") if program.startswith("python") else ""
    shown = f"{program} {Path(script).name}" if script else program
    return printable(shown)[:80] or "unknown"


def _bytes(value: Any) -> int | None:
    # NVML_VALUE_NOT_AVAILABLE is all ones; nvidia-ml-py turns it into None
    return int(value) if isinstance(value, int) and 0 <= value < 2**63 else None
