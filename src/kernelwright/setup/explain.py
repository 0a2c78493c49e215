"""What went wrong in an installation, in one line with the fix."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import SetupError

NEEDED_MB = 420
"""Disk space of the environment without torch: 400 MB on Linux x86-64, of which scipy is 143, matplotlib with what it needs 101, numpy 73
and ncu-report 52."""
FULL_MB = 20
"""Less than this left after a failure: the disk was full, whatever the installer said. `python -m venv` says nothing of it."""
_NETWORK = (
    "could not find a version",
    "no matching distribution",
    "network was disabled",
    "dns error",
    "name resolution",
    "name or service not known",
    "failed to fetch",
    "error sending request",
    "newconnectionerror",
    "max retries exceeded",
    "connection refused",
    "timed out",
)


def no_installer() -> SetupError:
    """Neither uv nor what `python -m venv` needs."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return SetupError(
        "no_ensurepip",
        "this Python has no ensurepip or no venv module, and uv is not on PATH",
        where=sys.executable,
        fix=f"install uv, or python{version}-venv (apt install python{version}-venv on Debian and Ubuntu), or set KERNELWRIGHT_PYTHON",
    )


def no_space(folder: Path, needed_mb: int) -> SetupError:
    """The disk is full, or would be."""
    return SetupError(
        "no_disk_space",
        f"not enough disk space: {free_mb(folder)} MB free, about {needed_mb} MB needed",
        where=str(folder),
        fix="free some, or set KERNELWRIGHT_ENV to a folder on another disk",
    )


def not_ours(environment: Path) -> SetupError:
    """A folder is in the way that this set-up did not make."""
    return SetupError(
        "environment_not_ours",
        "this folder exists, but it is not an environment that kernelwright made",
        where=str(environment),
        fix="set KERNELWRIGHT_ENV to another folder, or move this one away",
    )


def cannot_write(error: OSError, folder: Path, needed_mb: int = NEEDED_MB) -> SetupError:
    """The operating system refused a file or folder of the environment."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_space(folder, needed_mb)
    return SetupError(
        "environment_not_writable",
        f"cannot make the environment here: {error.strerror or error}",
        where=str(error.filename or folder),
        fix="set KERNELWRIGHT_ENV to a folder that can be written to",
    )


def install_failed(what: str, output: str, folder: Path, log: Path, modules: Sequence[str], needed_mb: int = NEEDED_MB) -> SetupError:
    """An installer exited with an error; `output` is what it wrote, `log` holds all of it."""
    low = output.lower()
    if "no space left" in low or "disk quota exceeded" in low or free_mb(folder) < FULL_MB:
        return no_space(folder, needed_mb)
    if "hash mismatch" in low or "do not match the hashes" in low:
        return SetupError(
            "hash_mismatch",
            f"{what} failed: a download is not the file that the lock names (see {log})",
            where=str(folder),
            fix="use a package index that serves the original files, then run this again",
        )
    if any(sign in low for sign in _NETWORK):
        return SetupError(
            "no_package_index",
            f"{what} failed: no package index could be reached, or it lacks a package (see {log})",
            where=str(folder),
            fix="go online or name a mirror in pip's settings, then run this again; "
            f"or set KERNELWRIGHT_PYTHON to a Python that has {', '.join(modules)}",
        )
    return SetupError(
        "setup_failed",
        f"{what} failed: {last_line(output)} (see {log})",
        where=str(folder),
        fix="mend what the log says and run this again, or set KERNELWRIGHT_PYTHON to a Python that has the modules",
    )


def last_line(output: str) -> str:
    """The last line that names an error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it wrote nothing"])[-1][:200]


def free_mb(folder: Path) -> int:
    """Free megabytes on the disk that holds the folder or, where it is not there yet, its nearest parent."""
    while not os.path.isdir(folder) and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free // 1_000_000
