"""Is a candidate as fast on values that it never had? All timed calls share a few rounds' inputs: one that knows them again by some of
their values computes nothing, and every output is right.

So a call on the inputs of a new round is timed between two on inputs that recur, and its output is checked. One new round is enough where
that call is no slower; else others follow. What counts is the fastest call of each kind: whatever interrupts calls lengthens them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..model.verdict import Audit
from .blocks import LEAD_IN_BELOW_S
from .channel import ENDED, WorkerFailed
from .exchange import TIMED, Exchange
from .placement import same_cores
from .replies import Single
from .roofs import Finding
from .rounds import Rounds
from .timing import Timed

NAME = "new values"
FIRST_ROUND = 1 << 20
"""Number of the first new round: beyond all others."""
ROUNDS = 8
"""At most. A call that something else interrupted is no evidence; so many in turn are, also where every second one is."""
MOST_S = 60.0
"""No third round, and none after it, is begun after so long, the drawing and sharing of inputs included: where inputs are large, or the
candidate's process is busy with something else, each takes its time."""
SLOWER, MUCH_SLOWER = 1.15, 1.5
"""Beyond the first the fastest call on new values is slower than the fastest on recurring ones. Where each is beyond the second, against
the longer of the two beside it, it is a cheat."""
SLOWER_NS = 3e3
SHARE_OF_GAIN = 0.5
"""So much of what a call gains must be gone on new values: less is noise, or work that follows from the values."""


@dataclass
class Seen:
    """Nanoseconds of single calls: one of each new round, and the two on recurring inputs beside it."""

    new_ns: list[float] = field(default_factory=list)
    beside_ns: list[tuple[float, float]] = field(default_factory=list)
    wrong: str | None = None
    """What is wrong with the output of one of the new calls."""
    why_not: str = ""
    """Why there are none."""
    is_refused: bool = False
    """It was the candidate's process that could not take new inputs."""

    @property
    def fastest_ns(self) -> tuple[float, float]:
        """On new and on recurring values."""
        return min(self.new_ns), min(value for pair in self.beside_ns for value in pair)

    @property
    def is_slower(self) -> bool:
        """On new values, as far as is known."""
        return bool(self.new_ns) and _is_slower(*self.fastest_ns, SLOWER)

    @property
    def is_much_slower(self) -> bool:
        """In each of all rounds, whichever call it is held against."""
        rounds = zip(self.new_ns, self.beside_ns, strict=True)
        return len(self.new_ns) == ROUNDS and all(_is_slower(new, max(pair), MUCH_SLOWER) for new, pair in rounds)


def is_asked(timed: Timed) -> bool:
    """Of what may be faster: several pairs of processes together may say so where one does not."""
    return timed.decision == "FASTER" or (timed.decision == "AMBIGUOUS" and timed.doubt is None and timed.found.speedup > 1)


def measure(timed: Timed, reference: Exchange, candidate: Exchange, rounds: Rounds) -> Seen:
    """Single calls of a candidate that has just been timed. Raises WorkerFailed but for inputs that cannot be had, and OutOfTime."""
    seen, stop_at_s = Seen(), time.monotonic() + MOST_S
    for number in range(FIRST_ROUND, FIRST_ROUND + ROUNDS):
        try:
            rounds.sharing.share(number)
        except WorkerFailed as error:
            rounds.forget_quietly(number)
            if error.code in ENDED:
                raise
            return Seen(why_not=f"new inputs could not be had: {error.message[:200]}", is_refused=error.role == "candidate")
        try:
            has_layout = _one_round(timed, reference, candidate, rounds, number, seen)
        except WorkerFailed:
            rounds.forget_quietly(number)
            raise
        rounds.forget_quietly(number)
        if not has_layout:
            return Seen(why_not="shapes or plain values follow the seed, and the time with them")
        if seen.wrong or not seen.is_slower or (len(seen.new_ns) > 1 and time.monotonic() > stop_at_s):
            break
    return seen


def _one_round(timed: Timed, reference: Exchange, candidate: Exchange, rounds: Rounds, number: int, seen: Seen) -> bool:
    """Whether its inputs have the layout of those that recur."""
    reference.worker.pause()
    with same_cores([candidate.worker.pid], timed.threads[1:]):
        before = _call(timed, candidate, number - FIRST_ROUND, None)
        new = _call(timed, candidate, number - FIRST_ROUND + 1, number)
        if before is None or new is None:
            return False
        got = candidate.export("timed", rounds.timed_seed(number), TIMED) if rounds.repeatable() else None
        after = _call(timed, candidate, number - FIRST_ROUND + 2, None)
    if after is None:
        return False
    seen.new_ns.append(new)
    seen.beside_ns.append((before, after))
    seen.wrong = rounds.check_timed(number, got) if got is not None else None
    return True


def _call(timed: Timed, candidate: Exchange, index: int, number: int | None) -> float | None:
    warm = timed.comparison.candidate.median_ns < 1e9 * LEAD_IN_BELOW_S
    return candidate.ask("time_single", Single, round=number, index=index, warm=warm).call_ns


def found(timed: Timed, seen: Seen) -> Finding:
    """What they mean for a candidate that may be faster."""
    if seen.wrong:
        return Finding(cheat=seen.wrong)
    if seen.is_refused:
        return Finding(doubt=f"not believed: {seen.why_not}")
    gain_ns = timed.comparison.reference.median_ns - timed.comparison.candidate.median_ns
    if not seen.is_slower or seen.fastest_ns[0] - seen.fastest_ns[1] < SHARE_OF_GAIN * gain_ns:
        return Finding()
    words = f"of {len(seen.new_ns)} calls on values that it never had the fastest took {_us(seen)[0]}, on values that recur {_us(seen)[1]}"
    return Finding(cheat=f"stale or cached result: {words}") if seen.is_much_slower else Finding(doubt=f"not believed: {words}")


def audit(seen: Seen | None, finding: Finding) -> Audit:
    """The row; seen: None where it was not asked for."""
    if seen is None:
        return Audit(name=NAME, result="not_applicable", detail="only what may be faster is asked")
    if finding.cheat or finding.doubt:
        return Audit(name=NAME, result="failed" if finding.cheat else "warned", detail=finding.cheat or finding.doubt or "")
    if not seen.new_ns:
        return Audit(name=NAME, result="not_applicable", detail=seen.why_not)
    new, recurring = _us(seen)
    return Audit(name=NAME, result="passed", detail=f"a call on values that it never had took {new}, on values that recur {recurring}")


def _us(seen: Seen) -> list[str]:
    return [f"{value_ns / 1e3:.4g} us" for value_ns in seen.fastest_ns]


def _is_slower(new_ns: float, old_ns: float, factor: float) -> bool:
    return new_ns > max(factor * old_ns, old_ns + SLOWER_NS)
