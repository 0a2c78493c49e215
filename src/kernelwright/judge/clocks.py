"""Does the judge's own clock confirm what a candidate's process says of its times? Pure numbers.

The parent sees a block from its command to its reply. What it sees beyond the timed calls (refilling inputs, waking up, the line
between the processes) is the same work on both sides, and known on the reference's, whose times can be trusted.
"""

from __future__ import annotations

import statistics as order
from collections.abc import Sequence
from dataclasses import dataclass

from .statistics import ALPHA, PROCESS_DIFFERENCE, Decision, Estimate, decide, estimate, quad_values

OVERHEAD_SHARE = 0.2
OVERHEAD_S = 50e-6
"""The candidate's blocks may have a fifth more overhead than the reference's, and 50 us: its refills find other caches and allocators."""
TOLERANCE = 0.02
"""The clocks agree when their intervals come within 2% of each other: median sample and mean of a block differ where times are skewed."""
HIDDEN_SHARE = 0.7
OVERHEAD_NOISE = 0.1
"""A gain is doubted when 0.7 of it, and more than a tenth of the overhead and 50 us, is time that the candidate's blocks miss and the
reference's do not: a timer that lies gains exactly what is missing, however large the overhead of a busy machine."""
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
    cheat: str | None
    doubt: str | None
    """Why a speed-up cannot be believed although nobody is accused."""
    counts: bool = False
    """What counts is what this clock says: the samples say more, and no time is missing that the reference's blocks don't miss too."""


def confirm(
    reference: Sequence[Block], candidate: Sequence[Block], reported: Estimate, decision: Decision, looks: int, alpha: float = ALPHA
) -> Confirmation:
    """Compare the reported speed-up with the one by the parent's clock. Blocks in the order run, two a quad."""
    overhead = max(order.median(block.missing_s for block in reference), 0.0)
    allowed = overhead * (1 + OVERHEAD_SHARE) + OVERHEAD_S
    trusted = [sum(block.times_ns) / 1e9 for block in reference]
    net = [max(block.wall_s - allowed, sum(block.times_ns) / 1e9) for block in candidate]  # this clock can only lengthen
    seen = estimate(quad_values(trusted, net), looks, alpha)
    apart = seen.high * (1 + TOLERANCE) < reported.low
    words = (f"it reports a speed-up of {reported.speedup:.3g}x, and by the judge's own clock it is at most {seen.speedup:.3g}x "
             f"[{seen.low:.3g}, {seen.high:.3g}]")
    if apart and _missing(reference, candidate, allowed):
        return Confirmation(seen, f"timer disagrees: {words}", None)
    confirmed = seen.low > 1 and seen.speedup > 1 + PROCESS_DIFFERENCE and not _gain_is_missing(reference, candidate, overhead)
    if apart and confirmed and decide(seen) == "FASTER" and _no_more_is_missing(reference, candidate, allowed):
        return Confirmation(seen, None, None, counts=True)
    if apart or (decision == "FASTER" and not confirmed):
        return Confirmation(seen, None, f"not confirmed by the judge's own clock: {words}")
    return Confirmation(seen, None, None)


def _gain_is_missing(reference: Sequence[Block], candidate: Sequence[Block], overhead_s: float) -> bool:
    reported_s, missing_s = ([order.median(sum(block.times_ns) / 1e9 for block in side) for side in (reference, candidate)],
                             [order.median(block.missing_s for block in side) for side in (reference, candidate)])
    excess = missing_s[1] - missing_s[0]
    return excess > OVERHEAD_NOISE * overhead_s + OVERHEAD_S and excess > HIDDEN_SHARE * (reported_s[0] - reported_s[1])


def _no_more_is_missing(reference: Sequence[Block], candidate: Sequence[Block], allowed_s: float) -> bool:
    """Neither in the median block of the candidate nor over all of them. On a machine that others use the clocks disagree all the same:
    they interrupt most of one side's long samples and few of the other's short ones, and the median sample shows only the former."""
    mine, theirs = ([block.missing_s for block in side] for side in (reference, candidate))
    return order.median(theirs) <= allowed_s and order.fmean(theirs) <= order.fmean(mine) * (1 + OVERHEAD_SHARE) + OVERHEAD_S


def _missing(reference: Sequence[Block], candidate: Sequence[Block], allowed_s: float) -> bool:
    """In most of the candidate's blocks clearly more time is missing than in nine of ten of the reference's."""
    usual = sorted(block.missing_s for block in reference)
    most = max(allowed_s, usual[min(len(usual) - 1, int(0.9 * len(usual)))])
    excess = order.median(block.missing_s for block in candidate) - most
    return excess > max(CLEAR_SHARE * order.median(block.wall_s for block in candidate), CLEAR_S)
