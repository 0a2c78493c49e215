"""What a version written in Triton, CUDA C++, CuPy, cuTile or the CUTLASS DSL lacks on this machine, with the mend."""

from __future__ import annotations

import sys
from typing import NamedTuple

from .failures import ProbeFailure, machine_lacks

_PACKAGES = {
    "triton": ("Triton", "pip install triton, in the version that this torch was built for"),
    "cupy": ("CuPy", "pip install cupy-cuda12x (CUDA 12) or cupy-cuda13x (CUDA 13), the CUDA of this torch"),
    "cuda.tile": ("cuTile", "pip install cuda-tile; it needs CUDA 13 and a GPU that cuTile supports"),
    "cutlass": ("the CUTLASS DSL", "pip install nvidia-cutlass-dsl"),
    "pybind11": ("pybind11", "pip install pybind11"),
}
"""Module -> (language, where it comes from)."""
class _Tool(NamedTuple):
    """Something that compiles or runs a language, and how its absence sounds."""

    code: str
    phrases: tuple[str, ...]
    what: str
    fix: str


_TOOLS = (
    _Tool("no_ninja", ("Ninja is required to load C++ extensions",), "building a C++ extension needs ninja, and there is none",
     "pip install ninja beside torch"),
    _Tool("no_cuda_toolkit", ("CUDA_HOME environment variable is not set", "CUDA was not found on the system", "bin/nvcc'",
                              "nvcc: not found"),
     "compiling CUDA C++ needs the CUDA toolkit (nvcc), and there is none",
     "install the toolkit of the CUDA that torch.version.cuda names, and set CUDA_HOME to it; or build the extension elsewhere and "
     "list its folder under `import_from:` in kernelwright.yaml"),
    _Tool("cuda_mismatch", ("mismatches the version that was used to compile",),
          "the CUDA toolkit is not of the CUDA that torch was built with",
     "set CUDA_HOME to a toolkit of the CUDA that torch.version.cuda names"),
    _Tool("broken_cupy", ("CuPy failed to load", "CuPy is not correctly installed"), "CuPy can't load its CUDA libraries",
     "install the CuPy of this CUDA: pip install cupy-cuda12x (CUDA 12) or cupy-cuda13x (CUDA 13)"),
    _Tool("no_cuda", ("cudaErrorNoDevice", "cudaErrorInsufficientDriver"), "the workload asks for CUDA by itself, and no GPU can be used",
     "let it follow torch.cuda.is_available() (or take a `device` argument), or run where a GPU can be used"),
)


def missing(module: str) -> ProbeFailure:
    """A module that the workload imports and this interpreter lacks."""
    known = _PACKAGES.get(module) or _PACKAGES.get(module.partition(".")[0])
    if known is None and module.partition(".")[0] == "cuda":
        known = _PACKAGES["cuda.tile"]
    if known is not None:
        return machine_lacks("missing_module", f"the workload is written in {known[0]}, and {sys.executable} has no module {module!r}",
                             fix=f"{known[1]}, or name another interpreter with --python")
    return machine_lacks("missing_module", f"the workload needs the module {module!r}, which {sys.executable} does not have",
                         fix=f"install the package that provides {module!r} there, or name another interpreter with --python; an extension "
                             "that the project builds: build it, and list its folder under `import_from:` in kernelwright.yaml")


def toolchain(text: str) -> ProbeFailure | None:
    """A compiler, toolkit or driver whose absence the words of an exception tell; None for any other error."""
    for tool in _TOOLS:
        if any(phrase in text for phrase in tool.phrases):
            return machine_lacks(tool.code, f"{tool.what}: {text[:200]}", fix=tool.fix)
    return None
