"""Which of several that the judge found FASTER is the fastest? Each was timed against the original, at another moment. Those whose
intervals meet that of the first are timed in turns with it, in one process, before one is kept. Pure parts."""

from __future__ import annotations

from collections.abc import Sequence

from ..judge.correctness import PRECISION_ORDER
from ..model.verdict import Experiment
from . import ablation
from .confirm import OF, ROLE
from .plan import lower_bound, upper_bound
from .view import STEP

BESIDE, AGAINST = "beside", "against"
"""Role of the row of such a timing (OF names the one whose speed-up it is), and the tag that names the other."""
MOST = 2
"""Such timings in one optimisation at most: so many between candidates of one precision, and so many between two precisions."""
LOWER_GAIN = 1.05
"""The judge's figure of a candidate of lower precision must be so many times that of the one of higher precision: less is no reason to
give precision up."""


def rival(order: Sequence[Experiment], rows: Sequence[Experiment], *, lower: bool = False) -> Experiment | None:
    """The next to be timed beside the first of `order` (FASTER candidates, the one to keep first): of the same precision, the fastest by
    the judge whose interval reaches as high as any lower end; `lower`: of the next lower precision that has one, the fastest whose
    figure is LOWER_GAIN times as large, though the intervals meet. None: there is none, or what is left was timed so before, or by ablation
    (`rows`: the ledger's)."""
    if not order or lower_bound(order[0]) is None:
        return None
    first, levels = order[0], {row.name: PRECISION_ORDER.index(row.precision) for row in order}
    known = [{row.tags[OF], row.tags[AGAINST]} for row in rows if _is_beside(row) and row.status != "out_of_budget"]
    if sum(pair <= levels.keys() and (len({levels[name] for name in pair}) > 1) == lower for pair in known) >= MOST:
        return None
    made_from = ablation.wholes_of(rows, first)
    ablated = [{*row.passes} for row in ablation.rows_of(rows, first.name).values()]
    others = [row for row in order[1:] if row.name not in made_from and {*row.passes} not in ablated
              and not any({row.name, name} in known for name in (first.name, *(made_from if lower else ())))]
    if lower:
        cheaper = [row for row in others if levels[row.name] > levels[first.name] and _speed(row) >= LOWER_GAIN * _speed(first)]
        return max(cheaper, key=lambda row: (-levels[row.name], _speed(row)), default=None)
    least = max(lower_bound(row) or 0.0 for row in order if row.precision == first.precision and row.name not in made_from)
    alike = [row for row in others if row.precision == first.precision and upper_bound(row) >= least]
    return max(alike, key=_speed, default=None)


def preferred(order: Sequence[Experiment], rows: Sequence[Experiment]) -> list[Experiment]:
    """The same order (slim_first's), but what was faster in turns with another, by 1% and with an interval above 1, stands before that:
    two processes of one program differ by half of it."""
    found = list(order)
    for row in rows:
        if not _is_beside(row) or row.screen is None or row.screen.speedup is None or row.screen.interval is None:
            continue
        places = [next((at for at, one in enumerate(found) if one.name == row.tags[tag]), None) for tag in (OF, AGAINST)]
        faster, slower = places
        if faster is not None and slower is not None and slower < faster and row.screen.speedup >= STEP and row.screen.interval[0] > 1.0:
            found.insert(slower, found.pop(faster))
            found = ablation.slim_first(found)
    return found


def over(rows: Sequence[Experiment], name: str, other: str) -> tuple[float, tuple[float, float]] | None:
    """(speed-up of one candidate over another, its interval) where the other was timed in turns with it and did not take its place; None
    else: a timing that chose what is kept says too much of it."""
    for row in reversed(rows):
        screen = row.screen
        if _is_beside(row) and (row.tags[OF], row.tags[AGAINST]) == (other, name) and screen is not None and screen.speedup is not None \
                and screen.interval is not None:
            return 1 / screen.speedup, (1 / screen.interval[1], 1 / screen.interval[0])
    return None


def _speed(row: Experiment) -> float:
    return (row.verdict.speedup if row.verdict is not None else None) or 0.0


def _is_beside(row: Experiment) -> bool:
    return row.tags.get(ROLE) == BESIDE
