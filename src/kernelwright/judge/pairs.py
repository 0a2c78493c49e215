"""What several pairs of processes say together. Pure numbers.

A pair keeps the luck of its processes (pages, clocks, neighbours) for life, and no number of quads averages that out: another pair,
started in the other order, draws it anew. So the pairs are a random-effects sample: each estimate is the true log speed-up plus the luck
of its pair plus the noise of its quads (DerSimonian & Laird 1986, Meta-analysis in clinical trials, Controlled Clinical Trials 7). A few
pairs cannot measure their own spread, so what was measured once for each kind of device is its least value.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from ..model.verdict import Comparison
from .clocks import NOT_CONFIRMED
from .statistics import POWER, PROCESS_DIFFERENCE, Decision, Estimate

MAX_PAIRS = 3
PAIR_SPREAD = {"cuda": 0.0075, "cpu": 0.01}
"""Standard deviation of the log speed-up of a program against itself between pairs of processes, at least (docs/judge-timing.md has the
measurements)."""
SHARE_OF_SCATTER = {"cuda": 0.5, "cpu": 0.0}
"""Where quads scatter, pairs differ by at least this share of one quad's standard deviation: other programs' work comes in stretches, and
lies on the two processes unevenly."""
MARGIN = {"cuda": 0.0, "cpu": PROCESS_DIFFERENCE}
"""FASTER and SLOWER need an interval beyond 1 +- this: on a CPU pairs differ by more than the least spread where the machine is shared, and
the candidate's process may differ from the reference's by what it allocated before (measured on two shared cores, a program against itself:
102 pairs, 0.3 +- 0.2% slower, standard deviation between pairs 1.1%; on an H200, 86 pairs: 0.07 +- 0.05%)."""
EQUIVALENCE = {"cuda": 0.02, "cpu": 0.04}
"""An interval within 1 +- this is SAME."""
SHARE_OF_ALPHA = 0.2
"""The pairs decide at a fifth of the level of one pair's interval (1% where that has 5%), spread evenly over the looks after the second
and the third pair: FASTER is a claim about a program, not about four processes."""
WILD = 0.35
"""Half-width of the logarithm's interval beyond which an effect must be twice it: quads that scatter so are bursts of other programs'
work, not independent draws (seen on two cores with six busy programs, a program against itself: 4.5x, interval 1.4 to 14.5)."""
WIDE = 0.2
"""A pair whose interval reaches further than 20% to both sides of an estimate it does not tell from 1 is too noisy for two more to help."""


@dataclass(frozen=True)
class Pair:
    """What one pair of processes found: the log speed-up, and the standard error that its quads give."""

    log_speedup: float
    standard_error: float
    scatter: float = 0.0
    """Standard deviation of one quad."""

    @classmethod
    def of(cls, found: Estimate) -> Pair:
        """From the estimate that the timing ended with."""
        return cls(math.log(found.speedup), found.standard_error, found.scatter)


@dataclass(frozen=True)
class Pooled:
    """The common estimate: speed-up, its interval at `level`, and what that decides."""

    decision: Decision
    speedup: float
    low: float
    high: float
    level: float
    smallest_effect_pct: float


def worth_another(pairs: Sequence[Pair], device: str, alpha: float) -> bool:
    """Whether another pair is to be started: never one alone, a third where two do not decide."""
    if len(pairs) == 1:
        return pairs[0].standard_error < WIDE or abs(pairs[0].log_speedup) > 2 * pairs[0].standard_error
    return len(pairs) < MAX_PAIRS and pool(pairs, device, alpha).decision == "AMBIGUOUS"


def pool(pairs: Sequence[Pair], device: str, alpha: float) -> Pooled:
    """The decision of two pairs or more. alpha: that of one pair's interval.

    FASTER or SLOWER: the interval lies beyond 1 +- MARGIN, further where it is WILD. SAME: it lies within EQUIVALENCE. Else AMBIGUOUS.
    """
    least = max(PAIR_SPREAD[device], SHARE_OF_SCATTER[device] * statistics.median(pair.scatter for pair in pairs))
    spread = max(least**2, _spread_squared(pairs))
    weights = [1 / (pair.standard_error**2 + spread) for pair in pairs]
    mean = sum(weight * pair.log_speedup for weight, pair in zip(weights, pairs, strict=True)) / sum(weights)
    error = 1 / math.sqrt(sum(weights))
    level = 1 - alpha * SHARE_OF_ALPHA / (MAX_PAIRS - 1)
    normal = NormalDist()
    reach = normal.inv_cdf((1 + level) / 2)
    low, high = math.exp(mean - reach * error), math.exp(mean + reach * error)
    decision = _decide(low, high, MARGIN[device], EQUIVALENCE[device])
    if reach * error > WILD and abs(mean) < 2 * reach * error:
        decision = "AMBIGUOUS"
    smallest = 100 * math.expm1((reach + normal.inv_cdf(POWER)) * error)
    return Pooled(decision, math.exp(mean), low, high, level, smallest)


def doubt_of(pooled: Pooled, decisions: Sequence[Decision], by_own_clock: Sequence[Pair], device: str, alpha: float) -> str | None:
    """Why several pairs are not believed to be FASTER together, where one of them was not by itself, so that the judge's own clock was not
    asked for it: by that clock they are not. by_own_clock: what it says of each."""
    if pooled.decision != "FASTER" or all(decision == "FASTER" for decision in decisions):
        return None
    own = pool(by_own_clock, device, alpha)
    if own.low > 1 and own.speedup > 1 + PROCESS_DIFFERENCE:
        return None
    return (f"{NOT_CONFIRMED}: {len(decisions)} pairs of processes report a speed-up of {pooled.speedup:.3g}x together, and by the judge's "
            f"own clock it is {own.speedup:.3g}x [{own.low:.3g}, {own.high:.3g}]")


def combined(pooled: Pooled, found: Sequence[Comparison]) -> Comparison:
    """The comparison to show: figures of all pairs together; the medians are the first pair's."""
    first = found[0]
    return first.model_copy(update={
        "speedup": pooled.speedup, "interval": (pooled.low, pooled.high), "pairs": sum(one.pairs for one in found),
        "blocks": sum(one.blocks for one in found), "log_ratios": tuple(ratio for one in found for ratio in one.log_ratios),
        "quads_of_pairs": tuple(len(one.log_ratios) for one in found), "level_pct": 100 * pooled.level,
        "smallest_detectable_effect_pct": pooled.smallest_effect_pct,
        "method": f"{first.method}; {len(found)} pairs of processes as random effects"})


def words(pooled: Pooled, found: Sequence[tuple[Decision, Comparison]]) -> str:
    """E.g. "2 pairs of processes, started in opposite orders: FASTER 1.31x [1.30, 1.32] and FASTER 1.30x [1.29, 1.31]"."""
    figures = [f"{decision} {one.speedup:.3f}x [{one.interval[0]:.3f}, {one.interval[1]:.3f}]" for decision, one in found]
    listed = f"{', '.join(figures[:-1])} and {figures[-1]}"
    told = f"{len(found)} pairs of processes, started in turn in opposite orders: {listed}"
    sides = {decision for decision, _ in found} & {"FASTER", "SLOWER"}
    return f"not confirmed by {told}" if pooled.decision == "AMBIGUOUS" and sides else told


def _decide(low: float, high: float, margin: float, equivalence: float) -> Decision:
    if low > 1 + margin:
        return "FASTER"
    if high < 1 - margin:
        return "SLOWER"
    return "SAME" if low >= 1 - equivalence and high <= 1 + equivalence else "AMBIGUOUS"


def _spread_squared(pairs: Sequence[Pair]) -> float:
    """DerSimonian and Laird's estimate of the variance between pairs; 0 where their own errors explain what they differ by."""
    weights = [1 / max(pair.standard_error, 1e-6) ** 2 for pair in pairs]
    total = sum(weights)
    mean = sum(weight * pair.log_speedup for weight, pair in zip(weights, pairs, strict=True)) / total
    apart = sum(weight * (pair.log_speedup - mean) ** 2 for weight, pair in zip(weights, pairs, strict=True))
    return max(0.0, (apart - (len(pairs) - 1)) / (total - sum(weight**2 for weight in weights) / total))
