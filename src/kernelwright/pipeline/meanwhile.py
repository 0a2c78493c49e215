"""What is made ready while the workload's process runs, so that it costs no time of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from ..model.errors import KernelwrightError
from ..readers.ncu import load_reader
from ..roofline.knowledge import bottlenecks, counter_knowledge, devices

Part = Callable[[], object]
CPU_LIMIT_S = 1.0
"""Where the CPU itself is measured no part begins later than this: torch takes longer to import, and the first call comes after that."""
ANALYSIS: tuple[Part, ...] = (devices, counter_knowledge, bottlenecks)
COUNTERS: tuple[Part, ...] = (load_reader,)
_LATER = (KernelwrightError, ImportError, AttributeError, OSError, RuntimeError, ValueError)
"""Whatever fails here fails again where it is needed, and is told there."""


class Meanwhile:
    """Carries out parts one after the other, on a thread of its own: whoever waits for the workload stays awake."""

    def __init__(self, parts: Sequence[Part], *, limit_s: float | None) -> None:
        self._parts, self._limit_s = tuple(parts), limit_s
        self._over = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="meanwhile")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, *, rest: bool = True) -> None:
        """Wait until all is ready: two threads that import the same thing would only wait for each other. Without the rest only until what
        is being loaded is there: the interpreter must not end amid the import of a C library."""
        self._over = not rest
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        began = time.monotonic()
        for part in self._parts:
            if self._over or (self._limit_s is not None and time.monotonic() - began > self._limit_s):
                return
            with contextlib.suppress(*_LATER):
                part()
