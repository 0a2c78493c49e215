"""Whether a profile or timing run holds the device lock now: the file and note of kernelwright's capture/lock.py (a test compares)."""

from __future__ import annotations

import json
import os


def lock_path() -> str:
    """The lock file of this user."""
    asked = os.environ.get("KERNELWRIGHT_LOCK")
    if asked:
        return asked
    import tempfile

    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return os.path.join(tempfile.gettempdir(), "kernelwright-%s" % user, "device.lock")


def holder() -> dict[str, str] | None:
    """{"pid", "what", "since"} of the run that holds the lock, None when it is free. Raises OSError, ImportError (no flock here)."""
    import fcntl

    path = lock_path()
    if not os.path.exists(path):
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two hooks must not take each other for a profile
        return None
    except BlockingIOError:
        return _note(path)
    finally:
        os.close(descriptor)


def _note(path: str) -> dict[str, str]:
    try:
        with open(os.path.splitext(path)[0] + ".holder.json", encoding="utf-8") as file:
            note = json.loads(file.read(10_000))
        return {key: "".join(c for c in str(note.get(key, "?")) if c.isprintable())[:200] for key in ("pid", "what", "since")}
    except (OSError, ValueError, AttributeError):
        return {"pid": "?", "what": "unknown", "since": "?"}
