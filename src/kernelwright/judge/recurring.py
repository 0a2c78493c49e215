"""Is a candidate as fast on values that it never had? All timed calls share a few rounds' inputs: one that knows them again by some of
their values computes nothing, and every output is right.

So a call on the inputs of a new round is timed between two on inputs that recur. One new round is enough where that call is no slower;
else others follow, and it counts what holds for all of them.
"""

from __future__ import annotations

import statistics as order
from dataclasses import dataclass, field

from ..model.verdict import Audit
from .blocks import LEAD_IN_BELOW_S
from .channel import ENDED, WorkerFailed
from .exchange import Exchange
from .placement import same_cores
from .replies import Single
from .roofs import Finding
from .rounds import Rounds
from .timing import Timed

NAME = "new values"
FIRST_ROUND = 1 << 20
"""Number of the first new round: beyond all others."""
ROUNDS = 4
"""At most. A call that something else interrupted is no evidence; four in turn are."""
SLOWER, MUCH_SLOWER = 1.15, 1.5
"""Against the longer of the two calls beside it. Beyond the second it is a cheat, with SHARE_OF_GAIN."""
SLOWER_NS = 3e3
SHARE_OF_GAIN = 0.5
"""So much of what a call gains must be gone on new values: less is noise, or work that follows from the values."""


@dataclass
class Seen:
    """Nanoseconds of single calls, one of each new round, and the longer one beside each."""

    new_ns: list[float] = field(default_factory=list)
    recurring_ns: list[float] = field(default_factory=list)
    why_not: str = ""
    """Why there are none."""

    def slower(self, factor: float) -> bool:
        """Every call on new values took so many times as long as those beside it."""
        return bool(self.new_ns) and all(
            new > factor * old and new > old + SLOWER_NS for new, old in zip(self.new_ns, self.recurring_ns, strict=True))

    @property
    def lost_ns(self) -> float:
        """How much longer the median call on new values took."""
        return order.median(self.new_ns) - order.median(self.recurring_ns)


def measure(timed: Timed, reference: Exchange, candidate: Exchange, rounds: Rounds) -> Seen:
    """Single calls of a candidate that has just been timed. Raises WorkerFailed where that ended a process, OutOfTime."""
    seen = Seen()
    for number in range(FIRST_ROUND, FIRST_ROUND + ROUNDS):
        try:
            rounds.sharing.share(number)
            try:
                reference.worker.pause()
                with same_cores([candidate.worker.pid], timed.threads[1:]):
                    before, new, after = (_call(timed, candidate, number - FIRST_ROUND + place, number if place == 1 else None)
                                          for place in range(3))
            finally:
                rounds.sharing.forget(number)
        except WorkerFailed as error:
            if error.code in ENDED:
                raise
            return Seen(why_not=f"new inputs could not be had: {error.message[:200]}")
        if before is None or new is None or after is None:
            return Seen(why_not="shapes or plain values follow the seed, and the time with them")
        seen.new_ns.append(new)
        seen.recurring_ns.append(max(before, after))
        if not seen.slower(SLOWER):
            break
    return seen


def _call(timed: Timed, candidate: Exchange, index: int, number: int | None) -> float | None:
    warm = timed.comparison.candidate.median_ns < 1e9 * LEAD_IN_BELOW_S
    return candidate.ask("time_single", Single, round=number, index=index, warm=warm).call_ns


def found(timed: Timed, seen: Seen) -> Finding:
    """What they mean for a candidate that was found faster."""
    gain_ns = timed.comparison.reference.median_ns - timed.comparison.candidate.median_ns
    if not seen.slower(SLOWER) or seen.lost_ns < SHARE_OF_GAIN * gain_ns:
        return Finding()
    words = f"calls on values that it never had took {_us(seen.new_ns)}, those on values that recur {_us(seen.recurring_ns)}"
    if seen.slower(MUCH_SLOWER):
        return Finding(cheat=f"stale or cached result: {words}")
    return Finding(doubt=f"not believed: {words}")


def audit(timed: Timed, seen: Seen | None, finding: Finding) -> Audit:
    """The row; seen: None where it was not asked for."""
    if seen is None:
        return Audit(name=NAME, result="not_applicable", detail="only a faster candidate is asked")
    if not seen.new_ns:
        return Audit(name=NAME, result="not_applicable", detail=seen.why_not)
    if finding.cheat or finding.doubt:
        return Audit(name=NAME, result="failed" if finding.cheat else "warned", detail=finding.cheat or finding.doubt or "")
    words = f"a call on values that it never had took {_us(seen.new_ns[-1:])}, the longer of two on values that recur"
    return Audit(name=NAME, result="passed", detail=f"{words} {_us(seen.recurring_ns[-1:])}")


def _us(values_ns: list[float]) -> str:
    return f"{order.median(values_ns) / 1e3:.4g} us"
