"""`timeline.html`: the timeline of one recording, or of several ranks, as one page that works offline and loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..model.profile import Operator
from ..model.trace import Trace


class Gap(Protocol):
    """A stretch in which a device was idle."""

    @property
    def start_ns(self) -> int:
        """On the trace's clock."""

    @property
    def end_ns(self) -> int:
        """On the trace's clock."""

    @property
    def cause(self) -> str:
        """Why, in a word or two."""


class Gaps(Protocol):
    """What the page wants of a Flow."""

    @property
    def gaps(self) -> Sequence[Gap]:
        """Largest first."""


@dataclass(frozen=True)
class Recording:
    """One trace to draw, with what is known about it besides."""

    trace: Trace
    operators: Sequence[Operator] | None = None
    """The attributed operators; None: the innermost operator around each launch call is looked up in the trace."""
    flow: Gaps | None = None
    """Gaps with their causes; None: gaps are not drawn."""


def write_timeline_html(
    path: Path, trace: Trace, *, operators: Sequence[Operator] | None = None, flow: Gaps | None = None, title: str,
) -> None:
    """One recording's page. Raises NotWritable."""
    write_ranks_html(path, [Recording(trace, operators, flow)], title=title)


def write_ranks_html(path: Path, recordings: Sequence[Recording], *, title: str) -> None:
    """A page of several recordings, one group of lanes each, on one axis: 0 is each one's first step. Raises NotWritable."""
    raise NotImplementedError
