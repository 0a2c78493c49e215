"""How any stage tells the user what it does: one line at a time, to whatever shows it."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Takes one progress line; for a user it goes to stderr."""


def silent(_line: str) -> None:
    """The Say of a caller that shows nothing."""
