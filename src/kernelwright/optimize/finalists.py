"""Who goes to the judge, and in which order. Pure: the ledger's rows decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..model.verdict import Experiment
from .plan import UNWRAP, carrier_of
from .view import STEP, View

CLOSE = 0.97
"""A candidate this close to another's screen, or to the original, may be better in truth."""
OFF = 0.9
"""The judge's figure over the screen's, below which the screen does not tell which is the best."""
MOST_OFF = 5
"""Candidates of one precision that go to the judge then, at most."""
MOST_JUDGED = 3
"""Candidates of one precision that go to the judge before another is better by the screen."""
Speed = Callable[[Experiment], float]


def to_judge(view: View, *, plenty: bool = False) -> list[Experiment]:
    """Screened candidates that the judge is to see now, the fastest first: at each precision the best, another as long as none was
    FASTER. Where time is plenty also one that is close to the best (several, where the judge found much less of it than the screen), the
    best row of the ladder, beside which everything is reported, and,
    where nothing was FASTER, what the screen leaves little hope for."""
    def speed(row: Experiment) -> float:
        return view.speed(row) or 0.0

    queue: list[Experiment] = []
    ahead = 0.0
    for level in view.allowed:
        ranked = _ranked((row for row in view.rows if row.precision == level), speed)
        if not ranked or not (speed(ranked[0]) > STEP * ahead if ahead else any(_may_be_faster(row, speed, plenty) for row in ranked)):
            continue
        ahead = max(ahead, speed(ranked[0]))
        queue += _next_of(ranked, speed, plenty, _suspects(row for row in view.rows if row.precision == level))
    queue.sort(key=lambda row: -speed(row))
    if not plenty:
        return queue
    ladder = [row for row in _ranked((row for row in view.rows if row.ladder_row), speed)[:1] if _may_be_faster(row, speed)]
    queue += [row for row in ladder if row.verdict is None and row not in queue]
    return queue


def _suspects(rows: Iterable[Experiment]) -> set[str]:
    """The passes that all have which the judge refused though the screen had timed them; empty where there is none. What fails there may
    do so wherever these are (attention in scaled float16 on an H200, its error measured anew on the judge's inputs: five finalists were
    refused one after the other, and of the time nothing was left for the others)."""
    refused = [set(row.passes) for row in rows if row.verdict is not None and row.verdict.verdict in ("FAILED", "WRONG")
               and row.screen is not None and row.screen.status == "timed"]
    return set.intersection(*refused) - {"no_grad", UNWRAP} if refused else set()


def _next_of(ranked: Sequence[Experiment], speed: Speed, plenty: bool, suspects: set[str]) -> list[Experiment]:
    judged = [row for row in ranked if row.verdict is not None]
    waiting = [row for row in ranked if row.verdict is None]
    if not waiting:
        return []
    faster = [row for row in judged if row.verdict is not None and row.verdict.verdict == "FASTER"]
    if not faster:
        hopeful = [row for row in waiting if _may_be_faster(row, speed, plenty)]
        others = [row for row in hopeful if not suspects or not suspects <= set(row.passes)]
        return (others or hopeful)[:1] if len(judged) < MOST_JUDGED else []
    best = max(speed(row) for row in faster)
    if speed(waiting[0]) > STEP * best:
        return waiting[:1]
    if not plenty:
        return []
    said = max((row.verdict.speedup for row in faster if row.verdict is not None and row.verdict.speedup is not None), default=None)
    if said is not None and said < OFF * best:
        return _where_the_screen_was_off(judged, waiting, speed, said)
    return waiting[:1] if len(judged) < 2 and speed(waiting[0]) >= CLOSE * best else []


def _where_the_screen_was_off(judged: Sequence[Experiment], waiting: Sequence[Experiment], speed: Speed, said: float) -> list[Experiment]:
    """The judge found much less than the screen, `said` at most: the next that by its screen may be faster than that, one that is compiled
    first where what was judged is not (or the other way round). The screen can err for all of one kind alike (two CPU cores: uncompiled
    1.91x, by the judge 1.40x; compiled, screened 1.80x, the ladder's row alone was judged 1.50x), and its luckiest figure is the largest
    one (2.15x, by the judge 1.43x, where four others had 1.83x to 1.94x)."""
    if len(judged) >= MOST_OFF:
        return []
    kinds = {carrier_of(row.passes) is not None for row in judged}
    hopeful = [row for row in waiting if speed(row) > STEP * said]
    return ([row for row in hopeful if (carrier_of(row.passes) is not None) not in kinds] or hopeful)[:1]


def _ranked(rows: Iterable[Experiment], speed: Speed) -> list[Experiment]:
    """Rows with a screen that counts, or a verdict without one (a former winner's), the fastest first."""
    timed = [row for row in rows if row.status in ("screened", "judged") and speed(row)
             and (row.screen is None or row.screen.status == "timed")]
    return sorted(timed, key=lambda row: (-speed(row), len(row.passes)))


def _may_be_faster(row: Experiment, speed: Speed, doubtful: bool = False) -> bool:
    """Whether the screen leaves it open that a candidate is faster than the original, by what a judgement could show. doubtful: the
    screen may be off by what two candidates that are close differ."""
    screen, most = row.screen, speed(row)
    if screen is not None and screen.interval is not None and screen.speedup:
        most *= screen.interval[1] / screen.speedup
    return most >= STEP or (doubtful and speed(row) >= CLOSE)
