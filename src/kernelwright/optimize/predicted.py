"""What passes said they would give, beside what they gave. Pure: the ledger's rows decide.

Both are speed-ups: time of a call before / after. A pass is seen alone (the candidate of that pass only) and in the whole (the winner
against the winner without it); a combination is held against the product of its passes' predictions, those of the same time once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..model.trial import PassPrediction
from ..model.verdict import Experiment
from .confirm import is_confirmation
from .ending import own_passes
from .hypothesis import gains_once, in_the_whole
from .passes import CATALOGUE

Context = Literal["alone", "in the whole", "combination"]
CONTEXTS: tuple[Context, ...] = ("alone", "in the whole", "combination")
_DECIDED = ("FASTER", "SAME", "SLOWER")


@dataclass(frozen=True)
class Realised:
    """One prediction with its outcome."""

    name: str
    context: Context
    predicted: tuple[float, float]
    """Speed-up, from low to high."""
    realised: float
    by: Literal["judge", "screen"]

    @property
    def middle(self) -> float:
        """Geometric middle of the predicted range."""
        return math.sqrt(self.predicted[0] * self.predicted[1])

    @property
    def error(self) -> float:
        """Factor between the middle of the prediction and what came; at least 1."""
        return math.exp(abs(math.log(self.realised / self.middle)))

    @property
    def inside(self) -> bool:
        """What came lies in the predicted range."""
        return self.predicted[0] <= self.realised <= self.predicted[1]


def realised(rows: Iterable[Experiment]) -> list[Realised]:
    """Every prediction with a number whose outcome was measured. Rows of one ledger, in its order; the last of a name counts."""
    found: list[Realised] = []
    latest = {row.name: row for row in rows if not is_confirmation(row)}
    for row in latest.values():
        if row.tags.get("role") == "ablation":
            found += _ablated(row, latest.get(row.tags.get("of", "")))
        elif not row.tags.get("role"):
            found += _candidate(row)
    return found


def outcome(row: Experiment) -> tuple[float, Literal["judge", "screen"]] | None:
    """(speed-up, who measured it); the judge's word before the screen's. None where nothing decided was timed."""
    if row.verdict is not None and row.verdict.speedup is not None:
        return (row.verdict.speedup, "judge") if row.verdict.verdict in _DECIDED else None
    if row.screen is not None and row.screen.status in ("timed", "hopeless") and row.screen.speedup:
        return row.screen.speedup, "screen"
    return None


def median_error_pct(found: Sequence[Realised]) -> float | None:
    """Median of the errors, as a percentage above 1; None without any."""
    return 100 * (statistics.median(one.error for one in found) - 1) if found else None


def _candidate(row: Experiment) -> list[Realised]:
    came, own = outcome(row), own_passes(row) or {"no_grad"}
    said = {one.name: one for one in row.prediction}
    if came is None or not own or any(name not in said or not _usable(said[name]) for name in own):
        return []
    ranges = [gain for gain in gains_once(said[name] for name in sorted(own)) if gain is not None]
    together = (math.prod(low for low, _ in ranges), math.prod(high for _, high in ranges))
    return [Realised(row.name, "alone" if len(own) == 1 else "combination", together, *came)]


def _ablated(row: Experiment, winner: Experiment | None) -> list[Realised]:
    name, came = row.tags.get("without", ""), outcome(row)
    beside = winner.prediction if winner is not None else ()
    said = next((one for one in beside if one.name == name), None)
    if said is None or came is None or not _usable(said) or _is_said_beside(said, beside):
        return []
    whole = in_the_whole(said, beside)
    if whole is None:
        return []
    # The row's figure is the time without the pass over the time of the whole: what the pass gives there.
    return [Realised(name, "in the whole", whole, *came)]


def _is_said_beside(said: PassPrediction, beside: Sequence[PassPrediction]) -> bool:
    """Whether another pass says the same of the same time: of what the pass gives beside that one it says nothing. Without a compile mode
    nothing that is said beside it is left."""
    if said.name in CATALOGUE and CATALOGUE[said.name].carrier:
        return False
    return any(one.name != said.name and (one.words, one.gain) == (said.words, said.gain) for one in beside)


def _usable(said: PassPrediction) -> bool:
    return said.gain is not None and 0 < said.gain[0] <= said.gain[1] < math.inf
