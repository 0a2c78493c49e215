"""Files that a candidate's process can replace: opened so that neither a link, a FIFO nor a huge file hurts the judge."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MAX_FILE_BYTES = 8 * 2**30
"""Larger leaves than 8 Mi elements (128 MiB of complex128) are sampled, so this is far above what any workload exports."""


@contextlib.contextmanager
def open_regular(path: Path, *, follow: bool = False) -> Iterator[BinaryIO]:
    """A regular file of at most MAX_FILE_BYTES for reading; never blocks. Raises OSError (also for anything else than such a file)."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "is no regular file")
        if found.st_size > MAX_FILE_BYTES:
            raise OSError(0, f"is larger than {MAX_FILE_BYTES // 2**30} GiB")
        yield file


def remove(path: Path) -> None:
    """Remove whatever lies there, if it can be removed."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
