"""The judge's temporary folders: gone with their session, and those of killed sessions gone with the next one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from filelock import FileLock, Timeout

PREFIX = "kernelwright-judge-"
YOUNG_S = 60.0
"""A younger folder may belong to a session that has not taken its lock yet."""


CANARY = "canary"
"""A file that a confined candidate tries to read before its code is imported."""
NOBODY = 65534


def guard(folder: Path) -> None:
    """Put a canary into the reference's folder and, as root, give the folder to nobody: root without capabilities cannot enter it then."""
    (folder / CANARY).write_text("not for the candidate\n")
    if os.name != "posix" or os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        os.chown(folder, NOBODY, -1)
        try:
            (folder / CANARY).read_bytes()
        except OSError:  # this root has no capabilities itself
            os.chown(folder, 0, -1)


class Scratch:
    """One folder under the system's temporary one. Its lock (a file beside it) is free once its session has ended, however it ended."""

    def __init__(self, role: str) -> None:
        """Make the folder, and remove those that killed sessions of this user left: they hold tensors. Raises OSError."""
        _remove_abandoned(Path(tempfile.gettempdir()))
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{role}-"))
        self._lock = FileLock(_lock_of(self.folder), mode=0o600)
        self._lock.acquire(timeout=0)

    def remove(self) -> None:
        """End the session's claim and remove the folder. Safe to repeat."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            _lock_of(self.folder).unlink(missing_ok=True)
        self._lock.release()


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, Timeout):
            found = folder.lstat()
            ours = not hasattr(os, "getuid") or found.st_uid == os.getuid() or (os.getuid(), found.st_uid) == (0, NOBODY)
            if folder.is_symlink() or not folder.is_dir() or not ours or time.time() - found.st_mtime < YOUNG_S:
                continue
            with FileLock(_lock_of(folder), timeout=0, mode=0o600):
                shutil.rmtree(folder, ignore_errors=True)
                _lock_of(folder).unlink(missing_ok=True)
