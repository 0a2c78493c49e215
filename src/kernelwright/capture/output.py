"""A process's output, shown live and kept in a bounded copy."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import IO

HEAD_BYTES = 4 << 20
TAIL_BYTES = 256 << 10
_BLOCK_BYTES = 1 << 16


class Tee:
    """Reads one stream to its end in a thread of its own: each block goes to `live` at once, and into `copy` as far as it fits.

    The copy holds the first HEAD_BYTES and the last TAIL_BYTES, and says between them how much was left out. A `live` that is
    gone (closed pipe) is written to no more; the process is never held up by it for longer than one write.
    """

    def __init__(self, stream: IO[bytes], copy: Path, live: int | None) -> None:
        self._stream = stream
        self._copy = copy
        self._live = live
        self._tail = bytearray()
        self._left_out = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 2.0) -> None:
        """Wait for the stream's end; a process that outlived its group may keep it open, which is not waited for."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with self._copy.open("wb", buffering=0) as file:
            room = HEAD_BYTES
            while block := self._read():
                self._show(block)
                if room:
                    file.write(block[:room])
                self._keep(block[room:])
                room = max(0, room - len(block))
            if self._left_out:
                file.write(f"\n[... {self._left_out} bytes left out ...]\n".encode())
            file.write(self._tail)

    def _read(self) -> bytes:
        with contextlib.suppress(OSError, ValueError):
            return os.read(self._stream.fileno(), _BLOCK_BYTES)
        return b""

    def _show(self, block: bytes) -> None:
        view = memoryview(block)
        try:
            while self._live is not None and view:
                view = view[os.write(self._live, view):]
        except OSError:
            self._live = None

    def _keep(self, block: bytes) -> None:
        self._tail += block
        if (excess := len(self._tail) - TAIL_BYTES) > 0:
            self._left_out += excess
            del self._tail[:excess]
