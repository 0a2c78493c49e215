"""Does the judge's own clock confirm what a candidate's process says of its times? Pure numbers.

The parent sees a block from its command to its reply. What it sees beyond the timed calls (refilling inputs, waking up, the line
between the processes) is the same work on both sides, and known on the reference's, whose times can be trusted.
"""

from __future__ import annotations

import statistics as order
from collections.abc import Sequence
from dataclasses import dataclass

from .statistics import ALPHA, PROCESS_DIFFERENCE, Decision, Estimate, Floats, decide, estimate, quad_values

OVERHEAD_SHARE = 0.2
OVERHEAD_S = 50e-6
"""The candidate's blocks may have a fifth more overhead than the reference's, and 50 us: its refills find other caches and allocators."""
TOLERANCE = 0.02
"""The clocks agree when their intervals come within 2% of each other: median sample and mean of a block differ where times are skewed."""
HIDDEN_SHARE = 0.7
OVERHEAD_NOISE = 0.1
"""A gain is doubted when 0.7 of it, and more than a tenth of the overhead and 50 us, is time that the candidate's blocks miss and the
reference's do not: a timer that lies gains exactly what is missing, however large the overhead of a busy machine."""
BUSY = 2.0
"""A CPU is shared where a tenth of the reference's blocks miss so many times what the quietest tenth does (idle cores: 1.2; two busy loops
on two cores: 4 to 12)."""
NOT_CONFIRMED = "not confirmed by the judge's own clock"
"""How the reason of an AMBIGUOUS verdict begins where the two clocks do not agree."""
CLEAR_SHARE = 0.15
CLEAR_S = 0.5e-3
"""A timer lies when, block after block, time is missing beyond all overhead: more than 15% of the block and 0.5 ms."""


@dataclass
class Block:
    """One block of one side."""

    wall_s: float
    """By the parent's clock, from the command to the reply."""
    times_ns: Sequence[float]
    """Of each sample, as the worker gave them."""

    @property
    def missing_s(self) -> float:
        """What the parent saw and the samples do not account for."""
        return self.wall_s - sum(self.times_ns) / 1e9


@dataclass(frozen=True)
class Confirmation:
    """What the judge's own clock says."""

    seen: Estimate
    """The speed-up by that clock, its doubts counted for the candidate."""
    values: Floats
    """The log ratio of each quad by that clock."""
    cheat: str | None
    doubt: str | None
    """Why a speed-up cannot be believed although nobody is accused."""
    counts: bool = False
    """What counts is what this clock says: the cores are shared, the samples say more, and no time is missing for that."""


def confirm(
    reference: Sequence[Block], candidate: Sequence[Block], reported: Estimate, decision: Decision, looks: int, alpha: float = ALPHA,
    *, on_cpu: bool = False,
) -> Confirmation:
    """Compare the reported speed-up with the one by the parent's clock. Blocks in the order run, two a quad. on_cpu: both sides run on
    cores that others may use."""
    overhead = max(order.median(block.missing_s for block in reference), 0.0)
    allowed = overhead * (1 + OVERHEAD_SHARE) + OVERHEAD_S
    trusted = [sum(block.times_ns) / 1e9 for block in reference]
    net = [max(block.wall_s - allowed, sum(block.times_ns) / 1e9) for block in candidate]  # this clock can only lengthen
    values = quad_values(trusted, net)
    seen = estimate(values, looks, alpha)
    apart = seen.high * (1 + TOLERANCE) < reported.low
    words = (f"it reports a speed-up of {reported.speedup:.3g}x, and by the judge's own clock it is at most {seen.speedup:.3g}x "
             f"[{seen.low:.3g}, {seen.high:.3g}]")
    if apart and _missing(reference, candidate, allowed):
        return Confirmation(seen, values, f"timer disagrees: {words}", None)
    confirmed = seen.low > 1 and seen.speedup > 1 + PROCESS_DIFFERENCE and not _gain_is_missing(reference, candidate, overhead)
    if apart and confirmed and on_cpu and decision == decide(seen) == "FASTER" and _is_only_interrupted(reference, candidate, allowed):
        return Confirmation(seen, values, None, None, counts=True)
    if apart or (decision == "FASTER" and not confirmed):
        return Confirmation(seen, values, None, f"{NOT_CONFIRMED}: {words}")
    return Confirmation(seen, values, None, None)


def _gain_is_missing(reference: Sequence[Block], candidate: Sequence[Block], overhead_s: float) -> bool:
    reported_s, missing_s = ([order.median(sum(block.times_ns) / 1e9 for block in side) for side in (reference, candidate)],
                             [order.median(block.missing_s for block in side) for side in (reference, candidate)])
    excess = missing_s[1] - missing_s[0]
    return excess > OVERHEAD_NOISE * overhead_s + OVERHEAD_S and excess > HIDDEN_SHARE * (reported_s[0] - reported_s[1])


def _is_only_interrupted(reference: Sequence[Block], candidate: Sequence[Block], allowed_s: float) -> bool:
    """Others use the cores, and the candidate misses no more time than the reference, a fifth and 50 us aside, in the median block and over
    all. They interrupt most of one side's long samples and few of the other's short ones, and a median sample shows only the former."""
    mine, theirs = (sorted(max(block.missing_s, 0.0) for block in side) for side in (reference, candidate))
    tenth = len(mine) // 10
    is_busy = mine[-1 - tenth] > BUSY * mine[tenth]
    return is_busy and order.median(theirs) <= allowed_s and order.fmean(theirs) <= order.fmean(mine) * (1 + OVERHEAD_SHARE) + OVERHEAD_S


def _missing(reference: Sequence[Block], candidate: Sequence[Block], allowed_s: float) -> bool:
    """In most of the candidate's blocks clearly more time is missing than in nine of ten of the reference's."""
    usual = sorted(block.missing_s for block in reference)
    most = max(allowed_s, usual[min(len(usual) - 1, int(0.9 * len(usual)))])
    excess = order.median(block.missing_s for block in candidate) - most
    return excess > max(CLEAR_SHARE * order.median(block.wall_s for block in candidate), CLEAR_S)
