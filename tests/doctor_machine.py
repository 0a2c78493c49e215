"""Stand-in machines for doctor: temporary roots with fake driver files and fake executables."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path

from kernelwright.capture.doctor import Check, examine
from kernelwright.capture.gpu_processes import GpuProcess
from kernelwright.capture.interpreter import Interpreter
from kernelwright.capture.system_view import Gpu, SystemView, run_command
from kernelwright.model.errors import KernelwrightError

ALL_MODES = ("event", "annotation", "ncu", "nsys")
H200 = Gpu("NVIDIA H200", "580.82", 141 * 2**30, 140 * 2**30, (9, 0), (13, 0))
NSYS_SAYS = "echo 'NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0'"
NCU_SAYS = "printf 'NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36398880)\\n'"


@dataclass
class Machine:
    """A machine under a temporary folder, from which a SystemView is made."""

    root: Path
    gpus: tuple[Gpu, ...] | None = None
    uid: int = 1000
    env: dict[str, str] = field(default_factory=dict)
    torch: Interpreter | KernelwrightError | None = None
    free: int | dict[str, int] = 100 * 2**30
    processes: tuple[GpuProcess, ...] | None = ()
    holder: dict[str, str] | KernelwrightError | None = None

    def file(self, place: str, text: str = "") -> Path:
        path = self.root / place.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, place: str, body: str) -> Path:
        path = self.file(place, f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def view(self) -> SystemView:
        (self.root / "home").mkdir(exist_ok=True)
        python = self.program("/usr/bin/python3", "echo 3.5.0; echo True")
        torch = self.torch or Interpreter(python, "2.11.0+cu130", "13.0", "python3")

        def interpreter() -> Interpreter:
            if isinstance(torch, KernelwrightError):
                raise torch
            return torch

        def holder() -> dict[str, str] | None:
            if isinstance(self.holder, KernelwrightError):
                raise self.holder
            return self.holder

        def free(path: Path) -> int:
            return self.free if isinstance(self.free, int) else self.free.get(path.name, 100 * 2**30)

        tmp = str(self.root / "tmp")
        return SystemView(
            root=self.root, cwd=self.root,
            env={"PATH": str(self.root / "usr/bin"), "HOME": str(self.root / "home"), "TMPDIR": tmp, **self.env},
            uid=self.uid, machine="x86_64", python=(3, 11, 0), python_path="/usr/bin/python3", run=run_command,
            nvml_gpus=lambda: self.gpus, interpreter=interpreter, package_version=lambda _name: "1.0", free_bytes=free,
            nvml_processes=lambda: self.processes, lock_holder=holder,
        )

    def checks(self) -> dict[str, Check]:
        return {check.name: check for check in examine(self.view(), ALL_MODES).checks}


def hide_nsys(machine: Machine, *, libraries: bool = True, release: str = "2025.3.1") -> Path:
    """Nsight Compute with the nsys under its host/ folder, split as NVIDIA ships it. Returns host/."""
    host = f"/opt/nvidia/nsight-compute/{release}/host"
    machine.program(f"{host}/target-linux-x64/nsys", NSYS_SAYS)
    machine.program(f"{host}/linux-desktop-glibc_2_11_3-x64/QdstrmImporter", "exit 0")
    if libraries:
        for name in ("libdw.so.1", "libelf.so.1"):
            machine.file(f"/usr/lib/x86_64-linux-gnu/{name}")
    return machine.root / host.lstrip("/")
