"""Where the time of a run goes."""

from __future__ import annotations

import time


class Stages:
    """Wall time of what follows one another: each stage begins where the last one ended."""

    def __init__(self) -> None:
        self.spent_s: dict[str, float] = {}
        self._last = time.monotonic()

    def end(self, name: str) -> float:
        """The stage that just ended; returns its seconds."""
        now = time.monotonic()
        self.spent_s[name], self._last = round(now - self._last, 3), now
        return self.spent_s[name]
