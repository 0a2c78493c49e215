"""From paired, interleaved blocks to FASTER, SLOWER, SAME or AMBIGUOUS. Pure numbers; no processes, no clocks.

The unit is a quad: four blocks in the order A B B A or B A A B (A the reference, B the candidate), drawn by a coin. Its value
is the mean of the two log time ratios, so a drift that is linear over the quad cancels. Under "no difference" the coin alone
gives each value its sign, so Wilcoxon's signed ranks are exact whatever the noise looks like, correlated or periodic too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

Decision = Literal["FASTER", "SLOWER", "SAME", "AMBIGUOUS"]
Floats = npt.NDArray[np.float64]

ALPHA = 0.05
"""Chance, over all looks together, that the interval misses the true ratio."""
PROCESS_DIFFERENCE = 0.01
"""Two processes that run the same program differ by up to about 1% for their whole life (page and cache placement), and no number
of blocks averages that out. Measured, a program against itself: 10 pairs of processes on an H200, estimates 1.000 to 1.009, one
interval 1.006 to 1.011; 24 pairs on one CPU core, 0.984 to 1.006. FASTER and SLOWER need an interval that lies beyond it."""
EQUIVALENCE = 0.02
"""An interval within +-2% that is not beyond 1 +- 1% is SAME: twice the difference that two processes of the same program can have."""
RANK_MIN_QUADS = 8
"""Below this signed ranks cannot reach the corrected level (smallest two-sided level 2 / 2**n); Student's t is used."""
EXACT_RANKS = 400
"""Up to here the exact distribution of signed ranks takes less than 0.1 s; the normal one differs by less than a hundredth of its width."""
MIN_QUADS = 3
"""Student's t on fewer quads would say nothing (t = 12.7 with one degree of freedom)."""
STRICT_ALPHA = 0.005
"""Level at which several pairs of processes decide (pairs.py)."""
FIRST_LOOK_QUADS = 8
LOOK_GROWTH = 1.5
"""At least: more where MAX_LOOKS would end long before the last quad."""
MAX_LOOKS = 5
STOP_HALF_WIDTH = 0.01
STOP_SHARE_OF_EFFECT = 0.15
STOP_WIDEST = 0.06
"""A pair is timed until its speed-up is known to within 1%, or 15% of its logarithm (1.5x: 1.41 to 1.59), but no worse than 6%: a
7.6x [5.8, 8.0] says that it is faster, and not than what else."""
POWER = 0.80
"""The smallest detectable effect is the one found with this probability."""


@dataclass(frozen=True)
class Estimate:
    """An interval for the speed-up (reference time / candidate time)."""

    speedup: float
    low: float
    high: float
    standard_error: float
    """Of the logarithm of the speed-up, for use with normal quantiles: few quads, whose half-width is Student's, count as the little that
    they are."""
    smallest_effect_pct: float
    """A difference of this size would have been found with 80% probability."""
    quads: int
    level: float
    """Two-sided level of this look's interval, e.g. 0.99."""
    method: str
    scatter: float = 0.0
    """Standard deviation of one quad's value (where ranks are used: as the interval's width shows it)."""


def quad_values(reference_ns: Sequence[float], candidate_ns: Sequence[float]) -> Floats:
    """Log ratios of quads, shape (n,). Both inputs are block times in the order run: two a quad, shape (2 n,)."""
    reference = np.log(np.asarray(reference_ns, dtype=np.float64)).reshape(-1, 2)
    candidate = np.log(np.asarray(candidate_ns, dtype=np.float64)).reshape(-1, 2)
    values: Floats = reference.mean(axis=1) - candidate.mean(axis=1)
    return values


def plan_looks(max_quads: int, alpha: float = ALPHA) -> tuple[int, ...]:
    """After how many quads to look, decided before the first: 8, 12, 18, ... up to max_quads, at most MAX_LOOKS.

    A stricter level than ALPHA starts where signed ranks can reach it: the smallest two-sided level of n quads is 2 / 2**n.
    """
    looks: list[int] = []
    quads = max(FIRST_LOOK_QUADS, math.ceil(1 + math.log2(MAX_LOOKS / alpha)))
    growth = max(LOOK_GROWTH, (max_quads / quads) ** (1 / (MAX_LOOKS - 1)))
    while quads < max_quads and len(looks) < MAX_LOOKS - 1:
        looks.append(quads)
        quads = math.ceil(quads * growth)
    return (*looks, max(max_quads, MIN_QUADS))


def estimate(values: Floats, looks: int, alpha: float = ALPHA) -> Estimate:
    """The interval after these quads when `looks` looks were planned (Bonferroni: each spends alpha / looks).

    Raises ValueError on fewer than MIN_QUADS values or on values that are not finite.
    """
    if values.size < MIN_QUADS or not np.all(np.isfinite(values)):
        raise ValueError(f"at least {MIN_QUADS} finite log ratios are needed")
    alpha = alpha / looks
    index = signed_rank_index(int(values.size), alpha) if values.size >= RANK_MIN_QUADS else None
    if index is None:
        centre, low, high = _student(values, alpha)
        method = "Student's t of ABBA/BAAB log ratios"
    else:
        averages = walsh_averages(values)
        centre, low, high = float(np.median(averages)), float(averages[index]), float(averages[-1 - index])
        method = "Hodges-Lehmann with Wilcoxon signed ranks on ABBA/BAAB log ratios"
    smallest = _smallest_effect_pct(low, high, alpha, int(values.size) - 1 if index is None else None)
    error = (high - low) / 2 / NormalDist().inv_cdf(1 - alpha / 2) if index is not None else _heavy_error(values)
    scatter = error * math.sqrt(values.size) if index is not None else float(values.std(ddof=1))
    return Estimate(math.exp(centre), math.exp(low), math.exp(high), error, smallest, int(values.size),
                    1 - alpha, f"{method}; {looks} planned looks, each at {100 * (1 - alpha):.3g}%", scatter)


def decide(interval: Estimate) -> Decision:
    """FASTER or SLOWER where the interval excludes 1 +- PROCESS_DIFFERENCE; else SAME within +-EQUIVALENCE; else AMBIGUOUS.

    An effect smaller than the smallest one that this much noise would reliably show is neither FASTER nor SLOWER: on a busy CPU a
    program against itself once came out 2.9x with an interval of 1.05 to 6.6.
    """
    seen = 100 * math.expm1(abs(math.log(interval.speedup))) >= interval.smallest_effect_pct
    if seen and interval.low > 1 + PROCESS_DIFFERENCE:
        return "FASTER"
    if seen and interval.high < 1 - PROCESS_DIFFERENCE:
        return "SLOWER"
    if interval.low >= 1 - EQUIVALENCE and interval.high <= 1 + EQUIVALENCE:
        return "SAME"
    return "AMBIGUOUS"


def settled(interval: Estimate, *, alone: bool = False) -> bool:
    """No further look is needed: the speed-up is known well enough. The level of the interval does not depend on this.

    alone: no other pair of processes will be asked, so it must be decided too. Else it need not: what more quads of the same two processes
    could still tell is less than what these differ by for life.
    """
    half_width = math.log(interval.high / interval.low) / 2
    if alone and decide(interval) == "AMBIGUOUS":
        return False
    return half_width <= max(STOP_HALF_WIDTH, min(STOP_SHARE_OF_EFFECT * abs(math.log(interval.speedup)), STOP_WIDEST))


def walsh_averages(values: Floats) -> Floats:
    """Sorted means of all pairs i <= j, shape (n (n + 1) / 2,); their median is the Hodges-Lehmann estimate."""
    i, j = np.triu_indices(values.size)
    averages: Floats = np.sort((values[i] + values[j]) / 2)
    return averages


@lru_cache(maxsize=256)
def signed_rank_index(n: int, alpha: float) -> int | None:
    """Largest k with P(W+ <= k) <= alpha / 2 for n signed ranks: the interval is [walsh[k], walsh[-1 - k]].

    Exact null distribution by counting subsets of 1..n with each sum (Hollander, Wolfe & Chicken 2014, section 3.3); above EXACT_RANKS its
    normal approximation (there too). None when even k = 0 is above the level.
    """
    if n > EXACT_RANKS:
        spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return math.floor(n * (n + 1) / 4 - NormalDist().inv_cdf(1 - alpha / 2) * spread - 0.5)
    chances = np.zeros(n * (n + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, n + 1):
        chances[rank:] = chances[rank:] + chances[:-rank]
        chances /= 2
    cumulative = np.cumsum(chances)
    k = int(np.searchsorted(cumulative, alpha / 2, side="right")) - 1
    return k if k >= 0 else None


def _student(values: Floats, alpha: float) -> tuple[float, float, float]:
    centre = float(values.mean())
    from scipy.special import stdtrit  # 0.1 s to import: only judgements with few quads pay it

    half = float(stdtrit(values.size - 1, 1 - alpha / 2)) * float(values.std(ddof=1)) / math.sqrt(values.size)
    return centre, centre - half, centre + half


def _heavy_error(values: Floats) -> float:
    """The standard error of few values, larger by Student's quantile over the normal one at STRICT_ALPHA."""
    from scipy.special import stdtrit

    wider = float(stdtrit(values.size - 1, 1 - STRICT_ALPHA / 2)) / NormalDist().inv_cdf(1 - STRICT_ALPHA / 2)
    return wider * float(values.std(ddof=1)) / math.sqrt(values.size)


def _smallest_effect_pct(low: float, high: float, alpha: float, degrees: int | None) -> float:
    """Effect found with POWER: (q_alpha/2 + q_power) standard errors, the half-width being q_alpha/2 of them.

    Quantiles q of Student's t with these degrees of freedom where the half-width is Student's, else of the normal distribution.
    """
    if degrees is None:
        normal = NormalDist()
        two_sided, power = normal.inv_cdf(1 - alpha / 2), normal.inv_cdf(POWER)
    else:
        from scipy.special import stdtrit

        two_sided, power = float(stdtrit(degrees, 1 - alpha / 2)), float(stdtrit(degrees, POWER))
    return 100 * math.expm1((high - low) / 2 * (1 + power / two_sided))
