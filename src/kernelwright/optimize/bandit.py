"""UCB1 over dimensions: which kind of change is worth the next trial (Auer, Cesa-Bianchi & Fischer 2002, Finite-time analysis of the
multiarmed bandit problem, Machine Learning 47). Pure.

An arm is a dimension of the catalogue. A trial's reward is the logarithm of what it gained over its parent per second that it took, over
the largest seen (UCB1 wants rewards in [0, 1]); what gained nothing, failed or was wrong has reward 0. Arms that were never played come
first, the best prior first; a prior (from similar workloads) counts as at most PRIOR_PLAYS plays.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

PRIOR_PLAYS = 1.0
"""Trials of other workloads weigh no more than one of this one: they order, and are soon outweighed."""
LEAST_SECONDS = 1.0
"""A trial counts as at least so long: below it the process's own work is what takes the time."""


@dataclass(frozen=True)
class Play:
    """One trial as the bandit sees it."""

    dimension: str
    log_gain: float
    """Natural logarithm of speed-up over the parent; 0 where it failed, negative where it lost."""
    seconds: float

    @property
    def rate(self) -> float:
        """Gain a second; not below 0."""
        return max(0.0, self.log_gain) / max(self.seconds, LEAST_SECONDS)


@dataclass(frozen=True)
class Arm:
    """What is known of a dimension."""

    plays: float = 0.0
    mean: float = 0.0
    """Mean reward, in [0, 1]."""


def arms(plays: Iterable[Play], priors: Mapping[str, float] | None = None) -> dict[str, Arm]:
    """Arms from the trials so far. priors: dimension -> expected reward in [0, 1], from elsewhere."""
    made = list(plays)
    largest = max((play.rate for play in made), default=0.0)
    sums: dict[str, tuple[float, float]] = {
        name: (PRIOR_PLAYS, PRIOR_PLAYS * min(1.0, max(0.0, mean))) for name, mean in (priors or {}).items()}
    for play in made:
        count, total = sums.get(play.dimension, (0.0, 0.0))
        sums[play.dimension] = count + 1.0, total + (play.rate / largest if largest > 0 else 0.0)
    return {name: Arm(count, total / count) for name, (count, total) in sums.items()}


def ucb1(arm: Arm, total: float) -> float:
    """Upper confidence bound of an arm's mean after `total` plays of all; infinite for one that was never played."""
    if arm.plays <= 0:
        return math.inf
    return arm.mean + math.sqrt(2.0 * math.log(max(total, 1.0)) / arm.plays)


def order(known: Mapping[str, Arm], open_: Collection[str]) -> list[str]:
    """The dimensions that still have candidates, the one to play first first; ties by name, so that the answer is always the same."""
    total = sum(arm.plays for arm in known.values())
    return sorted(open_, key=lambda name: (-ucb1(known.get(name, Arm()), total), name))
