"""Which of several that the judge found FASTER is the fastest? Each was timed against the original, at another moment. Those whose
intervals meet that of the first are timed in turns with it, in one process, before one is kept. Pure parts."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.verdict import Experiment
from .ablation import WORTH
from .confirm import OF, ROLE
from .plan import lower_bound, upper_bound

BESIDE, AGAINST = "beside", "against"
"""Role of the row of such a timing (OF names the one whose speed-up it is), and the tag that names the other."""
MOST = 2
"""In one optimisation, at most: by then what is left is noise."""


def rival(order: Sequence[Experiment], rows: Sequence[Experiment]) -> Experiment | None:
    """The next to be timed beside the first of `order` (FASTER candidates, the one to keep first): of the same precision, the fastest by
    the judge whose interval meets the first one's. None: there is none, or what is left was timed so before (`rows`: the ledger's)."""
    known = [{row.tags[OF], row.tags[AGAINST]} for row in rows if _is_beside(row)]
    if not order or len(known) >= MOST:
        return None
    first = order[0]
    made_from = first.parents[:1] if first.origin == "ablation" else ()  # ablation has timed the two
    others = [row for row in order[1:] if row.precision == first.precision and row.name not in made_from
              and {row.name, first.name} not in known and upper_bound(row) >= (lower_bound(first) or 0.0)]
    return max(others, key=lambda row: (row.verdict.speedup if row.verdict is not None else None) or 0.0, default=None)


def preferred(order: Sequence[Experiment], rows: Sequence[Experiment]) -> list[Experiment]:
    """The same order, but what was faster in turns with another, by half a percent and with an interval above 1, stands before that."""
    found = list(order)
    for row in rows:
        if not _is_beside(row) or row.screen is None or row.screen.speedup is None or row.screen.interval is None:
            continue
        places = [next((at for at, one in enumerate(found) if one.name == row.tags[tag]), None) for tag in (OF, AGAINST)]
        faster, slower = places
        if faster is not None and slower is not None and slower < faster and row.screen.speedup >= WORTH and row.screen.interval[0] > 1.0:
            found.insert(slower, found.pop(faster))
    return found


def over(rows: Sequence[Experiment], name: str, other: str) -> tuple[float, tuple[float, float]] | None:
    """(speed-up of one candidate over another, its interval) where the two were timed in turns; None where they were not."""
    for row in reversed(rows):
        screen = row.screen
        if not _is_beside(row) or screen is None or screen.speedup is None or screen.interval is None:
            continue
        if (row.tags[OF], row.tags[AGAINST]) == (name, other):
            return screen.speedup, screen.interval
        if (row.tags[OF], row.tags[AGAINST]) == (other, name):
            return 1 / screen.speedup, (1 / screen.interval[1], 1 / screen.interval[0])
    return None


def _is_beside(row: Experiment) -> bool:
    return row.tags.get(ROLE) == BESIDE
