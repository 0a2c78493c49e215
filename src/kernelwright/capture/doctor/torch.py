"""Checks of the workload's interpreter: torch, whether the driver and the GPU take it, Triton, the compiler."""

from __future__ import annotations

import re
from pathlib import Path

from ...model.errors import KernelwrightError
from ..interpreter import Interpreter
from ..remedies import COMPILER, TORCH_INDEX, Packages, install, manager, pip_install
from ..system_view import Gpu, SystemView
from .report import Check
from .seen import Seen

OWN_TORCH = "torch==2.13.0"
"""What kernelwright installs for itself where nothing else has torch (setup/torch_install.py; a test holds the two equal)."""
Version = tuple[int, ...]
LEAST_DRIVER: dict[int, Version] = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
"""CUDA major version -> oldest Linux driver that runs its libraries (docs.nvidia.com/deploy/cuda-compatibility, minor version
compatibility)."""
LEAST_CUDA: dict[tuple[int, int], tuple[int, int]] = {
    (8, 0): (11, 0), (8, 6): (11, 1), (8, 9): (11, 8), (9, 0): (11, 8), (10, 0): (12, 8), (12, 0): (12, 8)}
"""Compute capability -> first CUDA version that compiles for it (CUDA's release notes)."""
CUDA_13_LEAST_CAPABILITY = (7, 5)
"""CUDA 13.0 dropped Maxwell, Pascal and Volta (its release notes)."""
WHEELS = {13: "cu130", 12: "cu126"}
"""CUDA major version -> the index of PyTorch's wheels that its drivers run."""


def check_torch(view: SystemView, seen: Seen) -> Check:
    """The interpreter that has the workload's torch, and whether that torch fits driver and GPU."""
    found = seen.interpreter
    if isinstance(found, KernelwrightError):
        return _no_torch(view, seen, found)
    detail = f"torch {found.torch_version} ({_build_words(found)}) in {found.path}, by {found.source}"
    cuda = cuda_of(found)
    if cuda is None or not seen.gpu_usable:
        return Check(name="torch", status="ok", detail=detail)
    gpu = seen.gpus[0]
    newest = newest_cuda(gpu)
    if newest is not None and cuda[0] > newest:
        least = LEAST_DRIVER.get(cuda[0])
        needed = f"driver {_dotted(least)} or newer" if least else f"a driver for CUDA {cuda[0]}"
        return Check(name="torch", status="missing", detail=f"{detail}; it needs {needed}, and this is {gpu.driver} (up to CUDA {newest})",
                     fix=_other_torch(view, found.path, WHEELS[newest]) if newest in WHEELS else "",
                     advice=f"{'or ' if newest in WHEELS else ''}update NVIDIA's driver: {needed}")
    return _fits_gpu(view, found, cuda, gpu, detail)


def _fits_gpu(view: SystemView, found: Interpreter, cuda: tuple[int, int], gpu: Gpu, detail: str) -> Check:
    capability = gpu.compute_capability
    if capability is None:
        return Check(name="torch", status="ok", detail=detail)
    words = f"{gpu.name} (sm_{capability[0]}{capability[1]})"
    least = LEAST_CUDA.get(capability)
    if least is not None and cuda < least:
        return Check(name="torch", status="missing", detail=f"{detail}; {words} needs a build for CUDA {_dotted(least)} or newer",
                     fix=_other_torch(view, found.path, "cu128" if least > (12, 6) else WHEELS[12]))
    if cuda[0] >= 13 and capability < CUDA_13_LEAST_CAPABILITY:
        return Check(name="torch", status="missing", detail=f"{detail}; CUDA 13 no longer runs on {words}",
                     fix=_other_torch(view, found.path, WHEELS[12]))
    return Check(name="torch", status="ok", detail=detail)


def _no_torch(view: SystemView, seen: Seen, error: KernelwrightError) -> Check:
    newest = newest_cuda(seen.gpus[0]) if seen.gpu_usable else None
    wheels = WHEELS.get(newest or 0, WHEELS[13]) if seen.gpu_usable else "cpu"
    if error.code == "torch_without_cuda":
        return Check(name="torch", status="missing", detail=f"{error.message} ({error.where})",
                     fix=_other_torch(view, Path(error.where), wheels), advice="or run on the CPU: --device cpu")
    if error.code in ("no_gpu", "no_torch"):
        own = "" if seen.gpu_usable else "without a GPU the first profile installs torch in kernelwright's own environment by itself"
        return Check(name="torch", status="missing", detail="no Python here has torch", fix=_first_torch(view, wheels), advice=own)
    named = error.where.removeprefix("--python ")
    fix = pip_install(view, Path(named), _wheel(wheels)) if error.message == "has no torch" else ""
    return Check(name="torch", status="missing", detail=f"{error.where} {error.message}", fix=fix, advice=error.fix)


def _first_torch(view: SystemView, wheels: str) -> str:
    what = _wheel(wheels)
    prefix = view.env.get("VIRTUAL_ENV") or view.env.get("CONDA_PREFIX")
    if prefix:
        return pip_install(view, Path(prefix) / "bin" / "python", what)
    # A new environment: Debian, Fedora and others refuse pip in the system's own (PEP 668).
    return f"python3 -m venv .venv && .venv/bin/python -m pip install {what}"


def _wheel(wheels: str) -> str:
    return f"{OWN_TORCH if wheels == 'cpu' else 'torch'} --index-url {TORCH_INDEX}/{wheels}"


def _other_torch(view: SystemView, python: Path, wheels: str) -> str:
    return pip_install(view, python, f"--force-reinstall torch --index-url {TORCH_INDEX}/{wheels}")


def cuda_of(interpreter: Interpreter) -> tuple[int, int] | None:
    """The CUDA version of its torch; None for a CPU or ROCm build (whose versions are below 9)."""
    match = re.match(r"(\d+)\.(\d+)", interpreter.torch_build)
    return (int(match[1]), int(match[2])) if match and int(match[1]) >= 9 else None


def newest_cuda(gpu: Gpu) -> int | None:
    """The newest CUDA major version that this GPU's driver runs; None when its version is not known."""
    if gpu.driver_cuda is not None:
        return gpu.driver_cuda[0]
    if not gpu.driver or not re.fullmatch(r"\d+(\.\d+)*", gpu.driver):
        return None
    driver = tuple(int(part) for part in gpu.driver.split("."))
    known = [cuda for cuda, least in LEAST_DRIVER.items() if driver >= least[: len(driver)]]
    # A driver above the newest one listed may run a later CUDA: then nothing is claimed.
    return None if driver[0] > LEAST_DRIVER[max(LEAST_DRIVER)][0] + 20 else max(known, default=min(LEAST_DRIVER) - 1)


def check_triton(view: SystemView, seen: Seen) -> Check:
    """Triton in the workload's interpreter: torch.compile and Triton kernels need it on a GPU, and a C compiler for its launchers."""
    if not isinstance(seen.interpreter, Interpreter):
        return Check(name="triton", status="warn", detail="n/a: no torch was found that could have it")
    if seen.triton is None and not seen.gpu_usable:
        return Check(name="triton", status="ok", detail="not installed; only a GPU needs it")
    if seen.triton is None:
        detail = f"not installed in {seen.interpreter.path}: torch.compile can't be used on the GPU"
        return Check(name="triton", status="missing", detail=detail, fix=pip_install(view, seen.interpreter.path, "triton"))
    if seen.gpu_usable and not any(view.which(name) for name in (view.env.get("CC") or "gcc", "clang")):
        return Check(name="triton", status="missing", detail=f"{seen.triton}, without a C compiler (gcc or clang) for its launchers",
                     fix=install(view, Packages("gcc", "gcc", "-c conda-forge gcc")))
    return Check(name="triton", status="ok", detail=seen.triton)


def check_compiler(view: SystemView, seen: Seen) -> Check:
    """A C++ compiler and Python.h: torch.compile needs both on the CPU (Inductor takes $CXX, else g++)."""
    named = view.env.get("CXX")
    path = view.which(named or "g++")
    if path is None and named:
        return Check(name="compiler", status="missing", detail=f"$CXX is {named}, which is no executable", fix="unset CXX")
    if path is None:
        other = view.which("clang++")
        if other is not None:
            return Check(name="compiler", status="warn", detail=f"{other}, but torch.compile looks for g++", fix=f"export CXX={other}")
        return Check(name="compiler", status="missing", detail="no C++ compiler: torch.compile can't be tried on the CPU",
                     fix=install(view, COMPILER))
    said = seen.compiler
    if said is not None and said.exit_code != 0:
        words = (said.stderr or said.stdout).strip()[:200] or f"exit status {said.exit_code}"
        return Check(name="compiler", status="missing", detail=f"{path} does not run: {words}", fix=install(view, COMPILER))
    version = next((line.strip()[:80] for line in (said.stdout if said else "").splitlines() if line.strip()), "version n/a")
    detail = f"{path}{' ($CXX)' if named else ''}, {version}"
    if seen.python_headers is False and isinstance(seen.interpreter, Interpreter):
        return Check(name="compiler", status="missing", detail=f"{detail}; no Python.h for {seen.interpreter.path}: torch.compile needs it",
                     fix=_headers(view))
    return Check(name="compiler", status="ok", detail=detail)


def _headers(view: SystemView) -> str:
    # conda's python has its headers with it: reinstalled, they are back.
    return install(view, Packages("python3-dev", "python3-devel", "--force-reinstall python" if manager(view) == "conda" else ""))


def _build_words(found: Interpreter) -> str:
    if found.torch_build == "cpu":
        return "CPU build"
    return f"{'CUDA' if cuda_of(found) else 'ROCm'} {found.torch_build} build"


def _dotted(version: Version | None) -> str:
    return ".".join(f"{part:02d}" if index == 2 else str(part) for index, part in enumerate(version or ()))
