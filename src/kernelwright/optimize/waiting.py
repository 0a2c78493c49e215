"""What applies and was not begun, with what is expected of it: `next.json`, from which an agent, or a later run, goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..model.base import Record
from ..model.files import write_json_atomic
from . import strategy
from .expected import hoped
from .plan import Candidate, carrier_of
from .ruled_out import bare
from .view import View

NEXT_FILE = "next.json"
NOT_LOOKED_FOR = "the search puts it on nothing that is ahead"
"""Why a pass was not begun that applies, whatever the time."""
MOST_WAITING = 100
"""Entries of the file, what is expected to be fastest first."""


class Waiting(Record):
    """One candidate: an entry of the file."""

    candidate: str
    passes: tuple[str, ...]
    expected_speedup: float
    """Over the original: the profile, the passes' predictions and the trials so far (docs/search.md). No measurement."""
    dimension: str
    """What it changes of the candidate that it is built on; "" where that is several things."""
    why_not_begun: str


def waiting(view: View, items: Iterable[Candidate], why: Callable[[Candidate], str]) -> list[Waiting]:
    """These candidates, the largest expectation first."""
    found = [Waiting(candidate=item.name, passes=item.passes, expected_speedup=round(hope.speedup, 3), dimension=item.dimension,
                     why_not_begun=why(item)) for item, hope in hoped(view, items)]
    return sorted(found, key=lambda one: (-one.expected_speedup, one.candidate))


def not_tried(view: View, singles: Iterable[Candidate]) -> list[Candidate]:
    """Of candidates of one pass each, those whose pass was in no candidate that was screened: on top of another it has shown enough."""
    tried = [set(row.passes) for row in view.rows if row.screen is not None and row.status != "out_of_budget"]
    return [item for item in singles if view.row(item.name) is None and not any(_own(item) <= passes for passes in tried)]


def _own(item: Candidate) -> set[str]:
    """Its passes without what carries them; of a compile mode that mode."""
    passes = bare(item.passes)
    return passes - {carrier_of(item.passes)} or passes


def looked_no_further(view: View) -> str:
    """Why the search proposes nothing new although there is more; "" where it does."""
    if strategy.settled(view):
        return "what won before did so again: nothing new was looked for"
    return strategy.out_of_patience(view)


def write(folder: Path, entries: Sequence[Waiting]) -> Path:
    """next.json. Raises NotWritable."""
    return write_json_atomic(folder / NEXT_FILE, [one.model_dump(mode="json") for one in entries[:MOST_WAITING]])
