"""The whole flow of one recording: what docs/timeline.md defines, from the tables of a Trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ..model.flow import Flow
from ..model.trace import Trace

TableName = Literal["runtime", "operators", "ranges", "overheads"]
LineOf = Callable[[TableName, int], str | None]
"""(table of the trace, row) -> the user's line of that event, "file.py:12", or None where it is not known."""


def no_line(table: TableName, row: int) -> str | None:
    """Knows no line."""
    return None


def flow(trace: Trace, *, line_of: LineOf = no_line) -> Flow:
    """Busy, overlap, gaps with causes, launches and calls of the profiled steps. Pure; about n log n in the rows.

    line_of is asked for the few events that are shown, not for every row.
    """
    raise NotImplementedError
