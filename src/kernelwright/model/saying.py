"""How any stage tells the user what it does: one line at a time, to whatever shows it."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]
"""Takes one progress line; for a user it goes to stderr."""


OWN = "[kernelwright] "
"""Starts our lines where the workload's own stand among them (scripts). A line with "kernelwright: " is an error."""


def own_lines(say: Say) -> Say:
    """The same, with OWN before each line."""
    return lambda line: say(f"{OWN}{line}")


def silent(_line: str) -> None:
    """The Say of a caller that shows nothing."""
