"""What is known when the search decides: the rows so far, and what the best of them is. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..judge.correctness import PRECISION_ORDER
from ..model.verdict import ACCEPTABLE, Experiment
from ..model.workload import Precision
from . import memory
from .passes import Context
from .plan import GRAPH, UNWRAP, carrier_of

STEP = 1.01
"""A better candidate is better by 1%: less is the screen's noise."""
OPENING = 1.05
"""A candidate that is expected to be so much faster than the best so far comes before the dimensions have their turns."""
SCATTERED = 0.04
"""Of the original's times in the screens of one search, the standard deviation of their logarithms (among screens with as many calls a
sample) from which candidates in CUDA graphs are compared by their own times: the ratio of what was screened while the original was slow
looks best. Own times came closer to what the timing in turns showed then (docs/predictions.md, Screened apart)."""
LEAST_FREE = 3
"""Of fewer screens beyond one for each number of calls, how much they scatter is not known."""
LEAST_PAIRS = 10
"""A screen of fewer was ended early."""


@dataclass(frozen=True)
class View:
    """What is known when the next trial is chosen."""

    context: Context
    precision: Precision
    rows: Sequence[Experiment]
    """The last row of each candidate, in the order in which they were first screened: a finalist's row gets another index when it is
    judged."""
    winners: Sequence[tuple[str, ...]] = ()
    """Passes that won for this workload before."""
    won: float | None = None
    """The speed-up that the first of them was screened to have, where the search that found it was as long as this one may be; None: what
    won is tried first, and the search goes on."""
    priors: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    """Seconds that things took in earlier runs on this machine (budget.costs_of)."""
    budget_s: float = 0.0
    """Of the search."""
    outdone: frozenset[str] = frozenset()
    """Candidates that have a pass which earned nothing in turns, where what is left was screened to be as fast: nothing is put on them, nor
    is that pass put on what is left."""
    originals_ns: Mapping[int | None, float] = field(default_factory=dict)
    """scattered_originals_ns of all rows."""

    @property
    def allowed(self) -> tuple[Precision, ...]:
        """Precisions that may be used, the highest first."""
        return PRECISION_ORDER[: PRECISION_ORDER.index(self.precision) + 1]

    def speed(self, row: Experiment) -> float | None:
        """Its speed-up, to be compared with others': levelled_speedup, which need not be what the ledger says."""
        return levelled_speedup(row, self.originals_ns)

    def row(self, name: str) -> Experiment | None:
        """The row of this candidate."""
        return next((row for row in self.rows if row.name == name), None)


def scattered_originals_ns(rows: Iterable[Experiment]) -> dict[int | None, float]:
    """Calls a sample -> the median of the original's times in a search's screens; empty where they are not SCATTERED. Apart by that number,
    since what the host takes before the first launch counts once a sample. rows: one of each candidate."""
    found: dict[int | None, list[float]] = {}
    for row in rows:
        screen = row.screen
        if screen is not None and screen.reference_ns and not screen.against and screen.pairs >= LEAST_PAIRS:
            found.setdefault(screen.calls, []).append(screen.reference_ns)
    free = sum(len(times) - 1 for times in found.values())
    off = sum(len(times) * statistics.pvariance(map(math.log, times)) for times in found.values())
    is_scattered = free >= LEAST_FREE and math.sqrt(off / free) >= SCATTERED
    return {calls: statistics.median(times) for calls, times in found.items()} if is_scattered else {}


def levelled_speedup(row: Experiment, originals_ns: Mapping[int | None, float]) -> float | None:
    """memory.screened_speedup; of a candidate in a CUDA graph the original's median time over its own, where originals_ns
    (scattered_originals_ns) has one for as many calls a sample."""
    screen, levelled = row.screen, None
    if screen is not None and screen.candidate_ns and screen.status == "timed" and not screen.against and GRAPH in row.passes \
            and screen.calls in originals_ns:
        levelled = originals_ns[screen.calls] / screen.candidate_ns
    return memory.screened_speedup(row, levelled)


def incumbent(view: View, level: Precision) -> Experiment | None:
    """The fastest candidate at exactly this precision by the screen; None where none is faster than the original."""
    own = [row for row in view.rows if row.precision == level and row.name not in view.outdone and not refused(row)]
    found = [(speed, row) for row in own if (speed := view.speed(row)) is not None and speed > 1.0]
    return max(found, key=lambda item: item[0])[1] if found else None


def refused(row: Experiment) -> bool:
    """Whether the judge found it wrong, failing or cheating."""
    return row.verdict is not None and row.verdict.verdict not in ACCEPTABLE


def always(passes: Sequence[str]) -> tuple[str, ...]:
    """What every candidate has, where a row has no parent: no gradients, and what takes the workload's own torch.compile or graphs off
    where others come in their place."""
    given = {"no_grad"}
    if carrier_of(passes) is not None:
        given.add(UNWRAP)
    elif UNWRAP in passes and GRAPH in passes:
        given |= {UNWRAP, GRAPH}
    return tuple(name for name in passes if name in given) if len(passes) > 1 else ()
