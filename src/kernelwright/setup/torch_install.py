"""torch in kernelwright's own environment, for machines where no other interpreter has one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .build import Say, lock_path, log_path, stop_signals_raise
from .child import Runner
from .errors import SetupError, interrupted
from .explain import cannot_write, install_failed
from .hold import hold
from .stamp import read_stamp, write_stamp

TORCH = "torch==2.13.0"
NEEDED_MB = 1000
"""Disk space of a CPU build with its dependencies: 0.9 GB unpacked on Linux x86-64."""
CUDA_NEEDED_MB = 7500
"""The same of a CUDA build: 5.0 GB unpacked, beside 2.5 GB of downloads while pip installs them (torch 2.13 with CUDA 13)."""


def ensure_torch(python: Path, environment: Path, say: Say) -> None:
    """Install torch with pip into the environment that `python` belongs to, unless it imports there already. Raises SetupError.

    pip takes a "+cpu" build where the user's pip sources offer one, since a local version wins over the plain one of equal number;
    KERNELWRIGHT_TORCH_INDEX=URL adds a source. uv is never used: it would not look at pip's sources.
    """
    try:
        with hold(lock_path(environment), say) as descriptor, stop_signals_raise():
            _install(python, environment, Runner(log_path(environment), say, environment.parent, descriptor))
    except OSError as error:
        raise cannot_write(error, environment, NEEDED_MB) from error
    except KeyboardInterrupt:
        raise interrupted("interrupted; the next use makes the environment anew") from None


def _install(python: Path, environment: Path, runner: Runner) -> None:
    if runner.run(f"looking for torch in {environment}", [python, "-I", "-c", "import torch"]):
        runner.log.unlink(missing_ok=True)
        return
    stamp = read_stamp(environment)
    if stamp is not None:  # a kill from here on leaves "not complete", and the next use makes the environment anew
        stamp.complete = False
        write_stamp(environment, stamp)
    command: list[str | Path] = [
        python,
        "-I",
        "-m",
        "pip",
        "install",
        "--no-input",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
        TORCH,
    ]
    index = os.environ.get("KERNELWRIGHT_TORCH_INDEX")
    if index:
        command += ["--extra-index-url", index]
    what = f"installing {TORCH}, which no interpreter here has (once; KERNELWRIGHT_TORCH_INDEX can name an index of CPU builds)"
    done = runner.run(what, command)
    output = runner.output
    if stamp is not None:  # pip puts nothing in place before everything is downloaded, and undoes a failed installation
        stamp.complete = True
        write_stamp(environment, stamp)
    if not done or not runner.run("checking it", [python, "-I", "-c", "import torch"]):
        fix = f"install {TORCH} in an interpreter and pass it as --python PATH"
        output = output if not done else runner.output
        needed_mb = CUDA_NEEDED_MB if "nvidia" in output else NEEDED_MB
        failed = install_failed(f"installing {TORCH}", output, environment, runner.log, ("torch",), needed_mb)
        raise SetupError(failed.code, failed.message, where=failed.where, fix=failed.fix if failed.code == "no_disk_space" else fix)
    runner.log.unlink(missing_ok=True)


def refuse_foreign(prefix: str, base_prefix: str) -> None:
    """Raise SetupError where torch must not be installed: in an interpreter used as it is, or in one that is no environment."""
    fix = f"install {TORCH} there yourself, or pass an interpreter that has torch as --python PATH"
    if os.environ.get("KERNELWRIGHT_PYTHON"):
        message = "no interpreter here has torch, and nothing is installed into the one that KERNELWRIGHT_PYTHON names"
        raise SetupError("torch_missing", message, where=sys.executable, fix=fix)
    if prefix == base_prefix:
        message = "no interpreter here has torch, and nothing is installed into one that is no virtual environment"
        raise SetupError("torch_missing", message, where=sys.executable, fix=fix)
