"""What a user names as Python source, looked at before a process is started for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..model.errors import BadInput
from ..model.nearest import did_you_mean

MAX_SOURCE_BYTES = 32 * 2**20
"""No source that a person or a generator writes comes near this; a file of data does, and would be read whole."""


def check_source(path: Path, what: str) -> None:
    """Raises BadInput where `path` is no regular, readable file of text. what: "workload" or "candidate", for the error.

    Whether it is valid Python is for the workload's interpreter to say: it may be newer than this one.
    """
    where, fix = str(path.absolute()), f"give the path of the {what}'s Python file"
    try:
        kind = path.stat()
        if stat.S_ISDIR(kind.st_mode):
            raise BadInput("is_folder", f"is a folder, and a {what} is a Python file", where=where, fix=fix)
        if not stat.S_ISREG(kind.st_mode):
            raise BadInput("not_a_file", f"is no regular file, and a {what} is a Python file", where=where, fix=fix)
        if kind.st_size > MAX_SOURCE_BYTES:
            raise BadInput("not_python", f"is larger than {MAX_SOURCE_BYTES >> 20} MiB: that is no Python source", where=where, fix=fix)
        with path.open("rb") as file:
            head = file.read(MAX_SOURCE_BYTES)
    except FileNotFoundError as error:
        raise BadInput(f"no_such_{what}", "no such file", where=where, fix=did_you_mean(path, fix, suffix=".py")) from error
    except OSError as error:
        raise BadInput("unreadable", f"can't be read: {error.strerror or error}", where=where, fix=f"make it readable, or {fix}") from error
    if b"\0" in head:
        raise BadInput("not_python", "holds NUL bytes: that is a binary or UTF-16 file, not Python source", where=where, fix=fix)
    _check_utf8(head, where)


def _check_utf8(data: bytes, where: str) -> None:
    """Python reads a source as UTF-8 unless one of its first two lines names another encoding."""
    if any(b"coding" in line for line in data.split(b"\n", 2)[:2]):
        return
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput("not_python", f"is not UTF-8 text (byte {data[error.start]:#04x})", where=f"{where}:{line}",
                       fix="save it as UTF-8, or name its encoding in the first line: # -*- coding: latin-1 -*-") from error


def is_file(path: Path) -> bool:
    """Path.is_file that also takes names which are too long for a file."""
    try:
        return path.is_file()
    except OSError:
        return False


def exists(path: Path) -> bool:
    """Whether there is anything at all, a dangling link or a link to itself included."""
    return os.path.lexists(path)
