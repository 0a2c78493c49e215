"""A file lock between processes, from the standard library alone."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_S = 0.1
REPEAT_S = 15.0
"""How often a waiter says that it still waits."""


@contextmanager
def hold(path: Path, say: Callable[[str], None]) -> Iterator[int]:
    """Hold the lock while the block runs; waits for another holder, and says so every REPEAT_S. Gives the lock's file descriptor.

    The operating system frees the lock when its holder ends, however it ends. A child that inherits the descriptor keeps the lock,
    so an installer that outlives a killed set-up is waited for before its half-made work is removed. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        start = time.monotonic()
        told = start - REPEAT_S
        while not _try(descriptor):
            now = time.monotonic()
            if now - told >= REPEAT_S:
                say(f"another set-up of the same environment is running; waiting for it ({now - start:.0f} s)")
                told = now
            time.sleep(POLL_S)
        yield descriptor
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
