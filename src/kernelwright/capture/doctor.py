"""What this machine can do: one check a function, and from them what each mode can and cannot do here."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..model.base import Record
from ..model.errors import KernelwrightError
from .cache import cache_dir
from .gpus import cuda_hidden
from .interpreter import Interpreter
from .nsight import Tool, find_ncu, find_nsys
from .system_view import Gpu, SystemView

GIB = 2**30
LOW_DISK_BYTES = 2 * GIB
"""A gzip'd trace of a large model with its unpacked tables is some hundred MB; below this a few profiles fill the disk."""
LOW_MEMORY_BYTES = 4 * GIB
"""A process with a CUDA torch takes 3 GiB of host memory before the workload's own."""
PACKAGES = ("pydantic", "numpy", "jinja2", "msgspec", "pyyaml", "filelock", "scipy", "rich", "nvidia-ml-py")
CAP_SYS_ADMIN = 1 << 21
"""linux/capability.h. The NVIDIA driver asks for it when RmProfilingAdminOnly is 1 (developer.nvidia.com/ERR_NVGPUCTRPERM)."""
OWN_TORCH = "torch==2.13.0"
_ASK_TRITON = "import importlib.metadata as m\ntry: print(m.version('triton'))\nexcept m.PackageNotFoundError: print('none')"


class Check(Record):
    """One line of the report."""

    name: str
    status: Literal["ok", "warn", "missing"]
    detail: str
    fix: str = ""
    """What to do, exactly; empty when nothing is to be done."""


class ModeAbility(Record):
    """What one of the four modes can do here."""

    works: bool
    evidence: str
    """What was seen that decides it."""
    fix: str = ""


class Examination(Record):
    """The whole report."""

    checks: tuple[Check, ...]
    modes: dict[str, ModeAbility]


@dataclass(frozen=True)
class Seen:
    """What several checks share. gpu_source: "NVML", "nvidia-smi", "driver files"; "" without a GPU."""

    gpus: tuple[Gpu, ...]
    gpu_source: str
    hidden: bool
    """CUDA_VISIBLE_DEVICES hides every GPU."""
    interpreter: Interpreter | KernelwrightError
    triton: str | None
    ncu: Tool
    nsys: Tool

    @property
    def gpu_usable(self) -> bool:
        """The driver lists a GPU and nothing hides it."""
        return bool(self.gpus) and not self.hidden


def examine(
    view: SystemView, available_modes: Collection[str], *, ncu: str | None = None, nsys: str | None = None
) -> Examination:
    """Look at everything. available_modes: the modes that this version of kernelwright has. ncu, nsys: named by the user."""
    seen = look(view, ncu=ncu, nsys=nsys)
    checks = (
        check_python(view), check_packages(view), check_torch(seen), check_gpu(seen), check_counters(view, seen),
        check_clocks(view, seen), check_tool(seen.ncu), check_tool(seen.nsys), check_compiler(view), check_triton(seen),
        check_disk(view), check_memory(view),
    )
    return Examination(checks=checks, modes=abilities({check.name: check for check in checks}, seen, available_modes))


def look(view: SystemView, *, ncu: str | None = None, nsys: str | None = None) -> Seen:
    """Ask the slow things (driver, interpreter, profilers) beside each other."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        gpus = pool.submit(find_gpus, view)
        torch = pool.submit(find_torch, view)
        ncu_tool = pool.submit(find_ncu, view, ncu)
        nsys_tool = pool.submit(find_nsys, view, nsys)
        found, source = gpus.result()
        interpreter, triton = torch.result()
        hidden = cuda_hidden(view.env)
        return Seen(found, source, hidden, interpreter, triton, ncu_tool.result(), nsys_tool.result())


def find_gpus(view: SystemView) -> tuple[tuple[Gpu, ...], str]:
    """The GPUs and who listed them: NVML, else nvidia-smi, else the driver's files."""
    listed = view.nvml_gpus()
    if listed:
        return listed, "NVML"
    tool = view.which("nvidia-smi")
    if tool is not None:
        ran = view.run([str(tool), "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"])
        rows = [[cell.strip() for cell in line.split(",")] for line in ran.stdout.splitlines()] if ran.exit_code == 0 else []
        gpus = tuple(Gpu(row[0], row[1], int(row[2]) * 2**20 if row[2].isdigit() else None) for row in rows if len(row) == 3)
        if gpus:
            return gpus, "nvidia-smi"
    version = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", view.read("/proc/driver/nvidia/version") or "")
    models = [_driver_model(path) for path in view.glob("/proc/driver/nvidia/gpus/*/information")]
    return tuple(Gpu(model, version[1] if version else None) for model in models), "driver files" if models else ""


def find_torch(view: SystemView) -> tuple[Interpreter | KernelwrightError, str | None]:
    """The workload's interpreter (or why there is none) and its Triton."""
    try:
        interpreter = view.interpreter()
    except KernelwrightError as error:
        return error, None
    ran = view.run([str(interpreter.path), "-c", _ASK_TRITON])
    words = ran.stdout.strip()
    return interpreter, words if ran.exit_code == 0 and words != "none" else None


def check_python(view: SystemView) -> Check:
    """kernelwright's own interpreter."""
    detail = f"{'.'.join(map(str, view.python))} at {view.python_path}"
    if view.python >= (3, 10, 0):
        return Check(name="python", status="ok", detail=detail)
    return Check(name="python", status="missing", detail=f"{detail}; 3.10 is needed", fix="run the script with Python 3.10 or newer")


def check_packages(view: SystemView) -> Check:
    """kernelwright's own environment."""
    versions = {name: view.package_version(name) for name in PACKAGES}
    lacking = [name for name, version in versions.items() if version is None]
    if not lacking:
        return Check(name="environment", status="ok", detail=", ".join(f"{name} {version}" for name, version in versions.items()))
    return Check(name="environment", status="missing", detail=f"not installed: {', '.join(lacking)}",
                 fix="delete kernelwright's environment (.venv in the checkout, or KERNELWRIGHT_ENV); the next script makes it anew")


def check_torch(seen: Seen) -> Check:
    """The interpreter that has the workload's torch, and whether that torch fits the GPU."""
    found = seen.interpreter
    if isinstance(found, Interpreter):
        build = "CPU build" if found.torch_build == "cpu" else f"CUDA {found.torch_build} build"
        return Check(name="torch", status="ok", detail=f"torch {found.torch_version} ({build}) in {found.path}, by {found.source}")
    if found.code == "no_gpu":
        return Check(name="torch", status="missing", detail="no Python here has torch",
                     fix=f"python3 -m pip install {OWN_TORCH} (without a GPU the first profile does that in kernelwright's environment)")
    where = f" ({found.where})" if found.code == "torch_without_cuda" else ""
    return Check(name="torch", status="missing", detail=found.message + where, fix=found.fix)


def check_gpu(seen: Seen) -> Check:
    """GPUs and driver."""
    if not seen.gpus:
        return Check(name="gpu", status="missing", detail="no NVIDIA GPU: neither NVML, nvidia-smi nor the driver's files list one",
                     fix="install NVIDIA's driver (in a container: docker run --gpus all); event and annotation run on the CPU without")
    names = sorted({gpu.name for gpu in seen.gpus})
    memory = seen.gpus[0].memory_bytes
    detail = f"{len(seen.gpus)} x {', '.join(names)}, memory {_gib(memory)}, driver {seen.gpus[0].driver or 'n/a'} (by {seen.gpu_source})"
    if seen.hidden:
        return Check(name="gpu", status="warn", detail=f"{detail}; hidden by CUDA_VISIBLE_DEVICES", fix="unset CUDA_VISIBLE_DEVICES")
    return Check(name="gpu", status="ok", detail=detail)


def check_counters(view: SystemView, seen: Seen) -> Check:
    """Whether this user may read hardware counters (ncu); only a run of ncu proves it."""
    text = view.read("/proc/driver/nvidia/params")
    match = re.search(r"RmProfilingAdminOnly:\s*(\d)", text or "")
    if match is None:
        detail = "n/a: /proc/driver/nvidia/params " + ("does not say" if text is not None else "is not there")
        return Check(name="counters", status="warn" if seen.gpus else "missing", detail=detail,
                     fix="" if seen.gpus else "needs an NVIDIA GPU and its driver")
    if match[1] == "0":
        return Check(name="counters", status="ok", detail="open to all users (RmProfilingAdminOnly 0)")
    who = f"uid {view.uid}" if view.uid is not None else "uid n/a"
    if _is_admin(view):
        return Check(name="counters", status="ok", detail=f"for administrators (RmProfilingAdminOnly 1), and {who} is one")
    if view.uid == 0:
        return Check(name="counters", status="missing", detail="for administrators (RmProfilingAdminOnly 1); root here lacks CAP_SYS_ADMIN",
                     fix="start the container with --cap-add=SYS_ADMIN, or open the counters on the host as for other users")
    return Check(
        name="counters", status="missing", detail=f"for administrators only (RmProfilingAdminOnly 1); this is {who}",
        fix="pass --ncu-sudo, or open them for good: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | "
            "sudo tee /etc/modprobe.d/nvidia-profiling.conf, then reboot",
    )


def check_clocks(view: SystemView, seen: Seen) -> Check:
    """Whether clocks may be changed: the machine's owner can forbid it."""
    if view.env.get("KERNELWRIGHT_CLOCKS") == "none":
        return Check(name="clocks", status="ok", detail="any change is forbidden (KERNELWRIGHT_CLOCKS=none); they are watched only")
    if not seen.gpus:
        return Check(name="clocks", status="warn", detail="n/a: no GPU whose clocks could be locked")
    if view.uid == 0:
        return Check(name="clocks", status="ok", detail="root may ask the driver to lock them (not tried here)")
    return Check(name="clocks", status="warn", detail=f"uid {view.uid} may watch but not lock them; timings vary more",
                 fix="lock them as root beforehand: sudo nvidia-smi --lock-gpu-clocks=MHZ; undo: sudo nvidia-smi --reset-gpu-clocks")


def check_tool(tool: Tool) -> Check:
    """ncu or nsys."""
    if tool.works:
        return Check(name=tool.name, status="ok", detail=f"{tool.version or 'version n/a'} at {tool.path} ({tool.source})")
    status: Literal["warn", "missing"] = "warn" if tool.path is not None else "missing"
    return Check(name=tool.name, status=status, detail=tool.problem, fix=tool.fix)


def check_compiler(view: SystemView) -> Check:
    """A C++ compiler: torch.compile needs one on the CPU (Inductor takes $CXX, else g++)."""
    named = view.env.get("CXX")
    path = view.which(named or "g++")
    if path is not None:
        return Check(name="compiler", status="ok", detail=f"{path}{' ($CXX)' if named else ''}")
    other = view.which("clang++")
    if named:
        return Check(name="compiler", status="missing", detail=f"$CXX is {named}, which is no executable", fix="unset CXX, or correct it")
    if other is not None:
        return Check(name="compiler", status="warn", detail=f"{other}, but torch.compile looks for g++", fix=f"export CXX={other}")
    manager = "dnf install -y gcc-c++" if view.which("apt-get") is None and view.which("dnf") else "apt-get install -y g++"
    return Check(name="compiler", status="missing", detail="none: torch.compile can't be tried on the CPU", fix=f"sudo {manager}")


def check_triton(seen: Seen) -> Check:
    """Triton in the workload's interpreter: torch.compile and Triton kernels need it on a GPU."""
    if seen.triton is not None:
        return Check(name="triton", status="ok", detail=seen.triton)
    if not isinstance(seen.interpreter, Interpreter):
        return Check(name="triton", status="warn", detail="n/a: no torch was found that could have it")
    if not seen.gpu_usable:
        return Check(name="triton", status="warn", detail="not installed; only a GPU needs it")
    return Check(name="triton", status="missing", detail=f"not installed in {seen.interpreter.path}",
                 fix=f"{seen.interpreter.path} -m pip install triton")


def check_disk(view: SystemView) -> Check:
    """Room for profiles (here) and for what is learnt about the machine (cache)."""
    places = {"here": view.cwd, "cache": cache_dir()}
    free = {name: view.free_bytes(path) for name, path in places.items()}
    detail = ", ".join(f"{_gib(size)} free {'in ' + str(places[name])}" for name, size in free.items())
    if not os.access(view.cwd, os.W_OK):
        return Check(name="disk", status="warn", detail=f"{view.cwd} is not writable", fix="name a writable folder with --out DIR")
    if any(size is not None and size < LOW_DISK_BYTES for size in free.values()):
        return Check(name="disk", status="warn", detail=detail, fix="free some space, or write elsewhere: --out DIR, KERNELWRIGHT_CACHE")
    return Check(name="disk", status="ok", detail=detail)


def check_memory(view: SystemView) -> Check:
    """Memory that a new process can have."""
    match = re.search(r"MemAvailable:\s*(\d+) kB", view.read("/proc/meminfo") or "")
    limit, used = (_number(view.read(f"/sys/fs/cgroup/memory.{name}")) for name in ("max", "current"))
    bounds = [int(match[1]) * 1024] if match else []
    bounds += [max(limit - used, 0)] if limit is not None and used is not None else []
    if not bounds:
        return Check(name="memory", status="warn", detail="n/a: /proc/meminfo does not say")
    if min(bounds) < LOW_MEMORY_BYTES:
        return Check(name="memory", status="warn", detail=f"{_gib(min(bounds))} available", fix="end other programs, or use smaller inputs")
    return Check(name="memory", status="ok", detail=f"{_gib(min(bounds))} available")


def abilities(checks: dict[str, Check], seen: Seen, available: Collection[str]) -> dict[str, ModeAbility]:
    """The four modes, each from the checks that decide it."""
    torch = checks["torch"]
    if torch.status != "ok":
        plain = ModeAbility(works=False, evidence=torch.detail, fix=torch.fix)
    else:
        where = seen.gpus[0].name if seen.gpu_usable else "the CPU (no GPU is visible)"
        plain = ModeAbility(works=True, evidence=f"{torch.detail}; runs on {where}")
    needs: dict[str, Sequence[str]] = {"ncu": ("gpu", "torch", "ncu", "counters"), "nsys": ("gpu", "torch", "nsys")}
    modes = {mode: _unless(mode in available, plain, mode) for mode in ("event", "annotation")}
    return modes | {mode: _unless(mode in available, _from_checks([checks[name] for name in names]), mode) for mode, names in needs.items()}


def _from_checks(checks: Sequence[Check]) -> ModeAbility:
    failed = [check for check in checks if check.status != "ok"]
    shown = failed or checks
    evidence = "; ".join(f"{check.name}: {check.detail}" for check in shown)
    return ModeAbility(works=not failed, evidence=evidence, fix="; then ".join(check.fix for check in failed if check.fix))


def _unless(available: bool, ability: ModeAbility, mode: str) -> ModeAbility:
    if available:
        return ability
    state = "the machine has what it needs" if ability.works else f"the machine lacks: {ability.evidence}"
    return ModeAbility(works=False, evidence=f"{mode} mode is not in this version of kernelwright; {state}",
                       fix="use --mode annotation or --mode event")


def _is_admin(view: SystemView) -> bool:
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", view.read("/proc/self/status") or "", re.MULTILINE)
    return bool(int(match[1], 16) & CAP_SYS_ADMIN) if match else view.uid == 0


def _driver_model(path: Path) -> str:
    try:
        match = re.search(r"^Model:\s*(.+)$", path.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else "NVIDIA GPU"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdigit() else None


def _gib(size: int | None) -> str:
    return "n/a" if size is None else f"{size / GIB:.1f} GiB"


