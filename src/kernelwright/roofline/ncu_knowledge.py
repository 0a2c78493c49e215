"""How a report of Nsight Compute is read (knowledge/ncu.yaml): the counters shown, ncu's rules and stall reasons in words."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

from pydantic import Field

from ..model.base import Record
from .knowledge import _load

Better = Literal["fewer", "more", "neither"]


class ShownCounter(Record):
    """One counter of the reports and comparisons."""

    label: str
    names: tuple[str, ...]
    """ncu metric names; the first that a launch has counts."""
    better: Better
    resource: bool = False
    """Belongs to registers, occupancy and spills."""

    def name_in(self, metrics: Mapping[str, float]) -> str | None:
        """The metric name that these counters have, or None."""
        return next((name for name in self.names if name in metrics), None)


class NcuCase(Record):
    """What to do, and our page on it."""

    action: str
    """Short imperative words."""
    playbook: str


class NcuRule(NcuCase):
    """What we say of one of ncu's rules."""

    needs: str = ""
    """The condition under which alone its estimate counts."""
    cases: dict[str, NcuCase] = Field(default_factory=dict)
    """A word of the title of ncu's message -> what to do then."""
    skip: bool = False
    """Nothing to do by itself: in the long report alone."""

    def case(self, title: str) -> NcuCase:
        """What to do about a message of this title."""
        return next((case for word, case in self.cases.items() if word in title), self)


class Space(Record):
    """One kind of memory: its instructions, the stalls that waiting for it shows as, and what mends such waits."""

    opcodes: tuple[str, ...]
    stalls: tuple[str, ...]
    action: str
    """The action of one of the rules."""


class NcuFile(Record):
    """`ncu.yaml`."""

    counters: dict[str, ShownCounter]
    """In the order of their weight."""
    pipes: tuple[str, ...]
    """Counters whose largest is Compute%."""
    rules: dict[str, NcuRule]
    other_rule_playbook: str
    durations: str
    """Whose durations a profile of mode ncu has: the second sentence of its root cause."""
    spaces: dict[str, Space]
    """In the order in which they are tried."""
    stalls: dict[str, str]
    progress: tuple[str, ...]
    """Stall reasons that are no stall: the warp issued, or could have."""


@cache
def ncu_knowledge() -> NcuFile:
    """The file. Raises MachineLacks when it is missing or not valid."""
    return _load("ncu.yaml", NcuFile)


def counter(key: str, metrics: Mapping[str, float]) -> float | None:
    """A counter of knowledge/ncu.yaml by its key; None when the launch has none of its names."""
    name = ncu_knowledge().counters[key].name_in(metrics)
    return None if name is None else metrics[name]


def busiest_pipe(metrics: Mapping[str, float]) -> tuple[str, float] | None:
    """(label, %) of the busiest arithmetic pipe; None unless every pipe was measured: a missing one might be the busiest."""
    table = ncu_knowledge()
    values = [(table.counters[key].label, counter(key, metrics)) for key in table.pipes]
    known = [(label, value) for label, value in values if value is not None]
    return max(known, key=lambda pair: pair[1]) if known and len(known) == len(values) else None
