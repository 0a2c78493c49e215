"""One profile or timing at a time on this machine (per user): GPU timings beside other GPU work are worth nothing."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from ..model.errors import MachineLacks
from ..model.files import write_json_atomic
from ..model.saying import Say, silent

POLL_S = 0.2


def lock_path() -> Path:
    """The lock file, shared by all of this user's kernelwright processes whatever their folder."""
    asked = os.environ.get("KERNELWRIGHT_LOCK")
    if asked:
        return Path(asked)
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    folder = Path(tempfile.gettempdir()) / f"kernelwright-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and (folder.is_symlink() or folder.stat().st_uid != os.getuid()):
        raise MachineLacks("lock_taken_over", "belongs to somebody else", where=str(folder), fix="remove it, or set KERNELWRIGHT_LOCK=FILE")
    return folder / "device.lock"


def holder(path: Path | None = None) -> dict[str, str] | None:
    """Who holds the lock now ({"pid", "what", "since"}), or None when it is free."""
    path = path or lock_path()
    try:
        with FileLock(path, timeout=0):
            return None
    except Timeout:
        return _read_note(path)


@contextlib.contextmanager
def device_lock(what: str, say: Say = silent, *, timeout_s: float | None = None) -> Iterator[None]:
    """Hold the machine-wide lock; waits while another holds it, for at most timeout_s, and says so once.

    The operating system frees the lock when its holder dies, however it dies. Raises MachineLacks "busy" after timeout_s.
    """
    path = lock_path()
    lock = FileLock(path, mode=0o600)
    _acquire(lock, path, say, timeout_s)
    note = _note_path(path)
    try:
        with contextlib.suppress(OSError):  # the note is for others; on a full disk there is none
            write_json_atomic(note, {"pid": str(os.getpid()), "what": what, "since": time.strftime("%H:%M:%S")})
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _acquire(lock: FileLock, path: Path, say: Say, timeout_s: float | None) -> None:
    start, told = time.monotonic(), False
    while True:
        try:
            lock.acquire(timeout=0)
            return
        except Timeout:
            other = _read_note(path)
        except OSError as error:
            raise MachineLacks("lock_not_writable", f"the lock can't be taken: {error.strerror}", where=str(path),
                               fix="set KERNELWRIGHT_LOCK=FILE to a writable place") from error
        if timeout_s is not None and time.monotonic() - start >= timeout_s:
            raise MachineLacks("busy", f"another profile still runs (process {other['pid']}: {other['what']})", where="the device",
                               fix="try again when it has ended")
        if not told:
            say(f"waiting: another profile runs (process {other['pid']}: {other['what']})")
            told = True
        time.sleep(POLL_S)


def _note_path(path: Path) -> Path:
    return path.with_suffix(".holder.json")


def _read_note(path: Path) -> dict[str, str]:
    try:
        note = json.loads(_note_path(path).read_text())
        return {key: str(note.get(key, "?")) for key in ("pid", "what", "since")}
    except (OSError, ValueError, AttributeError):
        return {"pid": "?", "what": "unknown", "since": "?"}
