"""Progress on stderr: plain lines for a log or an agent, a live line with the time gone by for a person at a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status


class Progress:
    """Context manager; `say` takes one line. The live line shows the newest one, so nobody wonders whether work goes on."""

    def __init__(self) -> None:
        self._status: Status | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, line: str) -> None:
        """Show one line; names in it may be hostile (line ends, escape sequences)."""
        line = "".join(character if character.isprintable() else "?" for character in line)
        if not sys.stderr.isatty():
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
