"""The stamp in an environment: who made it, from which lock, and whether it is whole."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from .place import python_of

NAME = "kernelwright-env.json"


class Stamp:
    """Written before anything is installed (not complete), and again when all is there and imports (complete).

    locks: lock file name -> SHA-256 of its content, for what is installed. python_version: major and minor version of the
    environment's Python, e.g. "3.11". base: what tells one base interpreter from another (`base_of`).
    A plain class: importing dataclasses would double the time that every start spends here.
    """

    def __init__(self, complete: bool, locks: dict[str, str] | None = None, python_version: str = "", base: str = "") -> None:
        self.complete = complete
        self.locks = locks or {}
        self.python_version = python_version
        self.base = base


def read_stamp(environment: Path) -> Stamp | None:
    """The stamp, or None where there is none or it is not one of ours."""
    try:
        fields = json.loads((environment / NAME).read_text(encoding="utf-8"))
        return Stamp(bool(fields["complete"]), dict(fields["locks"]), str(fields["python_version"]), str(fields["base"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_stamp(environment: Path, stamp: Stamp) -> None:
    """Whole or not at all. Raises OSError."""
    temporary = environment / f".{NAME}.{os.getpid()}"
    temporary.write_text(json.dumps(vars(stamp), indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, environment / NAME)


def lock_hash(lock: Path) -> str:
    """SHA-256 of a lock file, the same for either kind of line end. Raises OSError."""
    return hashlib.sha256(lock.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def base_of(environment: Path) -> str:
    """Identity of the base interpreter ("" when it is gone): a changed one may be of another minor version."""
    try:
        real = os.path.realpath(python_of(environment), strict=True)
        status = os.stat(real)
    except OSError:
        return ""
    return f"{real}:{status.st_size}:{status.st_mtime_ns}"


def is_ready(environment: Path, locks: dict[str, str]) -> bool:
    """Whether the environment can be used as it is for these locks. A few file reads: every start of a script does this."""
    stamp = read_stamp(environment)
    if stamp is None or not stamp.complete or not locks.items() <= stamp.locks.items():
        return False
    return bool(stamp.base) and stamp.base == base_of(environment)
