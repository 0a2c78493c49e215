"""Holds a process that was started early: it imports torch beside the first process, and touches the device only once that has ended."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from ..model.files import write_text_atomic


class Gate:
    """Closed until `open`. file: what the process waits for."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._opened_at: float | None = None
        self._abandoned = threading.Event()
        file.unlink(missing_ok=True)

    def open(self) -> None:
        """Let the process go on. Raises NotWritable."""
        write_text_atomic(self.file, "")
        self._opened_at = time.monotonic()

    def abandon(self) -> None:
        """The process is of no use any more: whoever waits for it ends it."""
        self._abandoned.set()

    @property
    def is_open(self) -> bool:
        """Whether the process may go on."""
        return self._opened_at is not None

    def seconds_since(self, began: float) -> float:
        """Wall time since `began` (time.monotonic) or since the opening, whichever is later; 0 while it is closed."""
        return time.monotonic() - max(began, self._opened_at) if self._opened_at is not None else 0.0

    @property
    def is_abandoned(self) -> bool:
        """Whether the process should end."""
        return self._abandoned.is_set()
