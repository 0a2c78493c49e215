"""One profile or timing at a time on this machine (per user): GPU timings beside other GPU work are worth nothing."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

Say = Callable[[str], None]
POLL_S = 0.2


def lock_path() -> Path:
    """The lock file, shared by all of this user's kernelwright processes whatever their folder."""
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return Path(os.environ.get("KERNELWRIGHT_LOCK") or Path(tempfile.gettempdir()) / f"kernelwright-{user}.lock")


def holder(path: Path | None = None) -> dict[str, str] | None:
    """Who holds the lock now ({"pid", "what", "since"}), or None when it is free."""
    path = path or lock_path()
    try:
        with FileLock(path, timeout=0):
            return None
    except Timeout:
        return _read_note(path)


@contextlib.contextmanager
def device_lock(what: str, say: Say = lambda _line: None) -> Iterator[None]:
    """Hold the machine-wide lock; waits for as long as another holds it, and says so once.

    The operating system frees the lock when its holder dies, however it dies.
    """
    path = lock_path()
    lock = FileLock(path, mode=0o600)
    told = False
    while True:
        try:
            lock.acquire(timeout=0)
            break
        except Timeout:
            if not told:
                other = _read_note(path)
                say(f"waiting: another profile runs (process {other['pid']}: {other['what']})")
                told = True
            time.sleep(POLL_S)
    note = _note_path(path)
    try:
        note.write_text(json.dumps({"pid": str(os.getpid()), "what": what, "since": time.strftime("%H:%M:%S")}))
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _note_path(path: Path) -> Path:
    return path.with_suffix(".holder.json")


def _read_note(path: Path) -> dict[str, str]:
    try:
        note = json.loads(_note_path(path).read_text())
        return {key: str(note.get(key, "?")) for key in ("pid", "what", "since")}
    except (OSError, ValueError, AttributeError):
        return {"pid": "?", "what": "unknown", "since": "?"}
