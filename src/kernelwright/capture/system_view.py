"""What `doctor` can see of a machine: files under a root, variables, commands. Tests put a stand-in there."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .gpu_processes import GpuProcess, gpu_processes
from .gpus import NoGpu, nvml, text
from .interpreter import Interpreter, find_interpreter
from .lock import holder, lock_path

Answered = TypeVar("Answered")
COMMAND_TIMEOUT_S = 2.0
"""A tool that takes longer to state its version is reported as not answering; the whole report stays under 3 s."""


@dataclass(frozen=True)
class Ran:
    """How a command ended. exit_code None: it could not be started or did not answer in time; stderr says which."""

    exit_code: int | None
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver lists it. None: the source does not say."""

    name: str
    driver: str | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    driver_cuda: tuple[int, int] | None = None
    """Newest CUDA version that the driver runs."""


@dataclass(frozen=True)
class SystemView:
    """The machine. All absolute paths are looked up under `root`."""

    root: Path
    env: Mapping[str, str]
    cwd: Path
    uid: int | None
    """Effective user id; None where the platform has none."""
    machine: str
    """platform.machine(), e.g. "x86_64"."""
    python: tuple[int, int, int]
    python_path: str
    run: Callable[[Sequence[str]], Ran]
    nvml_gpus: Callable[[], tuple[Gpu, ...] | None]
    """None: NVML or its binding is not there."""
    nvml_processes: Callable[[], tuple[GpuProcess, ...] | None]
    """Processes on the GPUs; None: can't be told."""
    lock_holder: Callable[[], dict[str, str] | None]
    """The kernelwright run that measures now; raises KernelwrightError where the lock can't be looked at."""
    interpreter: Callable[[], Interpreter]
    """Finds the workload's interpreter without installing anything; raises KernelwrightError."""
    package_version: Callable[[str], str | None]
    """Version of a distribution in kernelwright's own environment."""
    free_bytes: Callable[[Path], int | None]

    def path(self, absolute: str) -> Path:
        """`absolute` under the root."""
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> str | None:
        """A small text file under the root, or None."""
        try:
            return self.path(absolute).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def glob(self, pattern: str) -> list[Path]:
        """Existing paths under the root that match an absolute pattern, highest version last."""
        return sorted(self.root.glob(pattern.lstrip("/")), key=lambda path: _version_key(str(path)))

    def which(self, name: str) -> Path | None:
        """An executable on this view's PATH (a path with a slash is taken as it is)."""
        found = shutil.which(name, path=self.env.get("PATH", ""))
        return Path(found) if found else None

    def home(self) -> Path:
        """The user's home folder."""
        return Path(self.env["HOME"]) if self.env.get("HOME") else Path.home()


def real_system(python: str | None = None) -> SystemView:
    """This machine. python: the --python option."""
    return SystemView(
        root=Path("/"), env=dict(os.environ), cwd=Path.cwd(), uid=os.geteuid() if hasattr(os, "geteuid") else None,
        machine=platform.machine(), python=sys.version_info[:3], python_path=sys.executable, run=run_command,
        nvml_gpus=_nvml_gpus, nvml_processes=_nvml_processes,
        lock_holder=lambda: holder() if lock_path().exists() else None,
        # As for a workload in this folder, so that its .venv counts. Asked for "cuda", it never installs torch: it raises instead.
        interpreter=lambda: find_interpreter(python, Path.cwd() / "workload.py", "cuda", patience_s=COMMAND_TIMEOUT_S),
        package_version=_package_version, free_bytes=_free_bytes,
    )


def run_command(command: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> Ran:
    """Run a command that only reports something, for at most timeout_s."""
    try:
        done = subprocess.run(list(command), capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                              timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return Ran(None, stderr=f"no answer in {timeout_s:.0f} s")
    except OSError as error:
        return Ran(None, stderr=error.strerror or type(error).__name__)
    return Ran(done.returncode, done.stdout, done.stderr)


def _version_key(text: str) -> list[tuple[int, int, str]]:
    parts = "".join(letter if letter.isdigit() else f" {letter} " for letter in text).split()
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]


def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _free_bytes(folder: Path) -> int | None:
    """Free space where `folder` is or would be."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), None)
    try:
        return shutil.disk_usage(there).free if there else None
    except OSError:
        return None


def _nvml_gpus() -> tuple[Gpu, ...] | None:
    return _with_nvml(_list_gpus)


def _nvml_processes() -> tuple[GpuProcess, ...] | None:
    return _with_nvml(gpu_processes)


def _with_nvml(ask: Callable[[Any], Answered | None]) -> Answered | None:
    try:
        with nvml() as binding:
            try:
                return ask(binding)
            except binding.NVMLError:
                return None
    except NoGpu:
        return None


def _list_gpus(binding: Any) -> tuple[Gpu, ...]:
    def told(name: str, *arguments: Any) -> Any:
        try:
            return getattr(binding, name)(*arguments)
        except (binding.NVMLError, AttributeError):  # an old driver or binding, a MIG instance: the GPU is there all the same
            return None

    driver, newest = told("nvmlSystemGetDriverVersion"), told("nvmlSystemGetCudaDriverVersion_v2")
    gpus = []
    for index in range(binding.nvmlDeviceGetCount()):
        handle = binding.nvmlDeviceGetHandleByIndex(index)
        memory, capability = told("nvmlDeviceGetMemoryInfo", handle), told("nvmlDeviceGetCudaComputeCapability", handle)
        gpus.append(Gpu(
            text(binding.nvmlDeviceGetName(handle)), text(driver) if driver else None,
            int(memory.total) if memory else None, int(memory.free) if memory else None,
            (int(capability[0]), int(capability[1])) if capability else None,
            (int(newest) // 1000, int(newest) % 1000 // 10) if newest else None))
    return tuple(gpus)
