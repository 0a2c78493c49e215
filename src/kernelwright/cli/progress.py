"""Progress on stderr: plain lines for a log or an agent, a live line with the time gone by for a person at a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from ..model.errors import printable
from ..model.saying import OWN

if TYPE_CHECKING:
    from rich.status import Status

QUIET_S = 15.0
"""After this long without a line one says that work goes on. Readers are promised a line every 20 s: the rest is for a busy machine."""


class Heartbeat:
    """When a quiet log needs a line, and which. now: seconds on a clock that only goes forward."""

    def __init__(self, now: float) -> None:
        self._start = self._last = now
        self._newest = "started"

    def said(self, line: str, now: float) -> None:
        """A line of progress was shown."""
        self._newest, self._last = line.strip() or self._newest, now

    def wait_s(self, now: float) -> float:
        """How long nothing needs to be shown, at least 0."""
        return max(0.0, self._last + QUIET_S - now)

    def line(self, now: float) -> str | None:
        """The line that is due, or None."""
        if self.wait_s(now) > 0:
            return None
        self._last = now
        own, newest = (OWN, self._newest.removeprefix(OWN)) if self._newest.startswith(OWN) else ("", self._newest)
        return f"{own}still working, {now - self._start:.0f} s since the start: {newest}"


class Progress:
    """Context manager; `say` takes one line. No reader wonders whether work goes on.

    At a terminal the live line shows the newest line. Elsewhere a line comes every QUIET_S seconds even if the work says nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._status: Status | None = None
        self._clock = clock
        self._beat = Heartbeat(clock())
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        if not sys.stderr.isatty():
            self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=1)
        if self._status is not None:
            self._status.stop()

    def say(self, line: str) -> None:
        """Show one line; names in it may be hostile (line ends, escape sequences)."""
        line = printable(line)
        if not sys.stderr.isatty():
            with self._guard:
                self._beat.said(line, self._clock())
                print(line, file=sys.stderr, flush=True)
            return
        from rich.console import Console
        from rich.markup import escape
        from rich.status import Status

        if self._status is None:
            console = Console(stderr=True)
            self._status = Status(escape(line), console=console)
            self._status.start()
            return
        self._status.console.print(self._status.status)
        self._status.update(escape(line))

    def _watch(self) -> None:
        while not self._ended.wait(self._beat.wait_s(self._clock())):
            with self._guard:
                line = self._beat.line(self._clock())
                if line is not None and not self._ended.is_set():
                    try:
                        print(line, file=sys.stderr, flush=True)
                    except (OSError, ValueError):
                        return  # nobody reads any more
