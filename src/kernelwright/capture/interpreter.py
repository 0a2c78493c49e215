"""Finds the Python that has the workload's torch. kernelwright installs nothing there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import BadInput, MachineLacks
from ..model.saying import Say, silent
from ..model.workload import Device
from .gpus import cuda_hidden

CHECK_TIMEOUT_S = 60.0
SMI_TIMEOUT_S = 20.0
"""nvidia-smi takes seconds where no daemon keeps the driver loaded."""
INSTALL_TORCH = Path(__file__).resolve().parents[1] / "setup" / "install_torch.py"
# Reads torch/version.py without importing torch: about 40 ms instead of 1.5 s and more.
_CHECK = """
import importlib.util, os, sys
if sys.version_info < (3, 10): print("OLD", "%d.%d" % sys.version_info[:2]); sys.exit()
spec = importlib.util.find_spec("torch")
if spec is None or not spec.origin: print("NONE", ""); sys.exit()
scope = {}
exec(open(spec.origin.replace("__init__.py", "version.py")).read(), scope)
place, stands = spec.cached or "", not spec.cached or os.path.exists(spec.cached) or os.stat(spec.origin).st_mtime < 1e9
while place and not os.path.isdir(place): place = os.path.dirname(place)
stands = stands or not sys.dont_write_bytecode and os.access(place or ".", os.W_OK)
print("TORCH", scope.get("__version__", "?"), scope.get("cuda") or scope.get("hip") or "cpu", "" if stands else "anew")
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python >= 3.10 that has torch."""

    path: Path
    torch_version: str
    torch_build: str
    """CUDA or HIP version of the build, or "cpu"."""
    source: str
    """Where it was found: "--python", "VIRTUAL_ENV", "CONDA_PREFIX", ".venv", "the script's Python", "python3", "kernelwright"."""
    compiles_anew: bool = False
    """Each of its processes compiles torch's Python code: no byte code stands beside it, and none may be written there (a read-only folder,
    PYTHONDONTWRITEBYTECODE). False also where all files have one made-up date, by which byte code could not be told to be stale."""


def find_interpreter(
    python: str | None, workload: Path | None, device: Device, say: Say = silent, *,
    patience_s: float = CHECK_TIMEOUT_S,
) -> Interpreter:
    """The first interpreter with torch, in the documented order; installs one of our own, for the CPU, as the last resort.

    Order: --python, VIRTUAL_ENV, CONDA_PREFIX, the workload's nearest .venv, the Python that the script was started with, python3,
    kernelwright's own. patience_s: the longest that one of them, or nvidia-smi, may take to answer.
    Raises BadInput when --python is wrong, MachineLacks when there is no torch, or a GPU with a CPU-only torch.
    """
    if python is not None:
        return _named(python, device, patience_s)
    found: list[Interpreter] = []
    for source, path in _candidates(workload):
        checked = _check(path, source, patience_s)
        if isinstance(checked, Interpreter):
            found.append(checked)
            break
    if not found:
        own = _check(Path(sys.executable), "kernelwright", patience_s)
        if isinstance(own, Interpreter):
            found.append(own)
    if found:
        return _fits(found[0], device, patience_s)
    if device != "cpu" and gpu_visible(patience_s):
        raise MachineLacks(
            "no_torch", "a GPU is visible, but no Python here has torch", where="interpreter",
            fix="install a CUDA build of torch in your environment and activate it, or name it with --python PATH "
                "(or run on the CPU with --device cpu)",
        )
    if device == "cuda":
        raise MachineLacks("no_gpu", "--device cuda was asked for, but no GPU is visible", where="--device",
                           fix="use --device cpu, or run where a GPU and a CUDA build of torch are")
    return _install_own(say)


def _named(python: str, device: Device, patience_s: float) -> Interpreter:
    path = shutil.which(python) or python
    checked = _check(Path(path), "--python", patience_s)
    if isinstance(checked, Interpreter):
        return _fits(checked, device, patience_s)
    raise BadInput("bad_python", checked, where=f"--python {python}", fix="name a Python >= 3.10 that has torch")


def _fits(interpreter: Interpreter, device: Device, patience_s: float) -> Interpreter:
    if interpreter.torch_build == "cpu" and device != "cpu" and gpu_visible(patience_s):
        raise MachineLacks(
            "torch_without_cuda", f"a GPU is visible, but torch {interpreter.torch_version} is a CPU-only build",
            where=str(interpreter.path), fix="install a CUDA build of torch there, or run on the CPU with --device cpu",
        )
    return interpreter


def _candidates(workload: Path | None) -> Iterator[tuple[str, Path]]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = os.environ.get(variable)
        if prefix:
            yield variable, _python_of(Path(prefix))
    if workload is not None:
        for folder in workload.resolve().parents:
            if (folder / ".venv").is_dir():
                yield ".venv", _python_of(folder / ".venv")
                break
    started_by = os.environ.get("KERNELWRIGHT_STARTED_BY")  # setup/start.py
    if started_by and Path(started_by).parent != Path(sys.executable).parent:  # one environment has several names for its Python
        yield "the script's Python", Path(started_by)
    on_path = shutil.which("python3") or shutil.which("python")
    if on_path:
        yield "python3", Path(on_path)


def _python_of(prefix: Path) -> Path:
    if sys.platform == "win32":
        scripts = prefix / "Scripts" / "python.exe"
        return scripts if scripts.exists() else prefix / "python.exe"
    return prefix / "bin" / "python"


def _check(path: Path, source: str, patience_s: float = CHECK_TIMEOUT_S) -> Interpreter | str:
    """The interpreter, or why it will not do."""
    try:
        # Isolated from the current folder (a user's torch.py there must not be taken for torch), not from site-packages.
        run = subprocess.run([str(path), "-c", _CHECK], capture_output=True, text=True, errors="replace", timeout=patience_s,
                             stdin=subprocess.DEVNULL, cwd=path.parent if path.parent.is_dir() else None)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:  # ValueError: a NUL in the name
        return f"could not be run ({error.__class__.__name__})"
    words = run.stdout.split()
    if run.returncode != 0 or not words:
        return "is not a working Python"
    anew = words[3:] == ["anew"]
    if len(words) - anew != {"TORCH": 3, "OLD": 2, "NONE": 1}.get(words[0]):
        return "is not a working Python"
    if words[0] == "TORCH":
        return Interpreter(path=path.absolute(), torch_version=words[1], torch_build=words[2], source=source,
                           compiles_anew=anew)
    return f"is Python {words[1]}, and 3.10 is needed" if words[0] == "OLD" else "has no torch"


def gpu_visible(patience_s: float = SMI_TIMEOUT_S) -> bool:
    """Whether a GPU can be seen without torch: the driver's own lists, honouring CUDA_VISIBLE_DEVICES."""
    if cuda_hidden():
        return False
    gpus = Path("/proc/driver/nvidia/gpus")
    if gpus.is_dir() and any(gpus.iterdir()):
        return True
    if Path("/dev/kfd").exists():
        return True
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        run = subprocess.run([tool, "-L"], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                             timeout=min(patience_s, SMI_TIMEOUT_S))
    except (OSError, subprocess.TimeoutExpired):
        return False
    return run.returncode == 0 and "GPU " in run.stdout


def _install_own(say: Say) -> Interpreter:
    say("no Python here has torch, and no GPU is visible: installing torch into kernelwright's own environment")
    last = ""
    with subprocess.Popen([sys.executable, str(INSTALL_TORCH)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        for line in run.stderr:
            last = line.strip() or last
            say(last)
    own = _check(Path(sys.executable), "kernelwright")
    if run.returncode == 0 and isinstance(own, Interpreter):
        return own
    raise MachineLacks(
        "no_torch", last.removeprefix("kernelwright: ") or "torch could not be installed", where="interpreter",
        fix="install torch in a Python >= 3.10 environment and name it with --python PATH",
    )
