"""What an optimisation ended with: all that its documents are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..model.profile import ClockReading, Profile
from ..model.trial import Hypothesis
from ..model.verdict import Experiment, Verdict
from ..model.workload import WorkloadRef
from .ablation import wholes_of
from .confirm import ROLE
from .ledger import NOT_BEGUN, NOT_JUDGED
from .state import State

NA = "n/a"
SEEN = 1.01
"""Below 1% one screen's figure is not told from another's."""


@dataclass(frozen=True)
class Kept:
    """The candidate that became optimized.py."""

    row: Experiment
    confirmation: Experiment | None
    """optimized.py itself, judged once more; None when the budget or an interrupt left no time for it."""
    audit: Experiment | None = None
    """optimized.py, judged FASTER after the closing profile with every audit, since its gain was not the predicted one. It confirms
    nothing, but where it is smaller, and apart from what would count, it counts."""

    @property
    def verdict(self) -> Verdict:
        """The verdict that counts: the audit's where that is smaller, else the confirmation's where there is one."""
        source = self.audit if self.is_smaller_in_audit else self.confirmation or self.row
        assert source is not None and source.verdict is not None
        return source.verdict

    @property
    def is_smaller_in_audit(self) -> bool:
        """Whether the audit's interval lies below those of all other judgements."""
        said = [row.verdict.interval for row in (self.row, self.confirmation)
                if row is not None and row.verdict is not None and row.verdict.verdict != "AMBIGUOUS"]
        audit = self.audit.verdict.interval if self.audit is not None and self.audit.verdict is not None else None
        return audit is not None and bool(said) and all(one is not None and audit[1] < one[0] for one in said)

    @property
    def apart(self) -> tuple[Verdict, Verdict] | None:
        """Two judgements, the smaller speed-up first, where their intervals do not meet: the machine was in another state, and each speaks
        of its own. None where they agree, and of what was judged once."""
        first, second = self.row.verdict, (self.confirmation.verdict if self.confirmation is not None else None)
        if self.is_smaller_in_audit:
            first, second = second or first, self.verdict
        if first is None or second is None or first.interval is None or second.interval is None or first.verdict == "AMBIGUOUS":
            return None
        low, high = sorted((first, second), key=lambda one: one.interval or (0.0, 0.0))
        assert low.interval is not None and high.interval is not None
        return (low, high) if low.interval[1] < high.interval[0] else None

    @property
    def least(self) -> tuple[float | None, tuple[float, float] | None]:
        """(speed-up, its interval) that all judgements support: the smaller, with both intervals, where two are apart."""
        if self.apart is None:
            return self.verdict.speedup, self.verdict.interval
        low, high = self.apart
        assert low.interval is not None and high.interval is not None
        return low.speedup, (low.interval[0], high.interval[1])

    @property
    def gain(self) -> str:
        """"1.84x [1.80, 1.88]"; "1.62x [1.60, 1.66] and 1.84x [1.80, 1.88]" where two judgements are apart."""
        return gain(self.verdict) if self.apart is None else " and ".join(map(gain, self.apart))


@dataclass(frozen=True)
class Ending:
    """All that the documents are made of."""

    workload: WorkloadRef
    state: State
    folder: Path
    rows: Sequence[Experiment]
    """One a candidate, in order, without confirmations."""
    confirmations: Sequence[Experiment]
    """Judgements of optimized.py, audits among them."""
    kept: Kept | None
    baseline: Profile
    after: Profile | None
    used_s: float
    interrupted: bool
    notes: Sequence[str]
    clocks: ClockReading | None = None
    """Of the whole run; None where nobody watched."""
    hypotheses: Sequence[Hypothesis] = ()
    """Of the kept passes: what they predicted beside what the profiles measured."""
    ablation: Sequence[Experiment] = ()
    """One a pass of the winner, timed without it."""
    recognised: Sequence[str] = ()
    """What of the workload keeps passes from applying (recognised.py)."""
    changing: bool = False
    """Its input shapes change from call to call."""
    needs_gradients: bool = False
    """Its calls must run under grad mode (WorkloadFacts.needs_gradients)."""
    history: Sequence[Experiment] = ()
    """Every row of the ledger, in the order written; empty: `rows` stand for it."""
    audit: str = ""
    """Of a gain that was not the predicted one: what its audit said, or why there was none; "" where it was the predicted one."""
    screened: int = 0
    """Candidates that the quick screen looked at."""
    screening_s: float = 0.0


def gain(verdict: Verdict | None) -> str:
    """"1.84x [1.80, 1.88]", "undecided [0.42, 1.25]" (an estimate that decides nothing would be read as a result), or n/a."""
    if verdict is None or verdict.speedup is None:
        return NA
    if verdict.verdict == "AMBIGUOUS" and verdict.interval:
        return f"undecided {interval_words(verdict.interval)}"
    return factor(verdict.speedup, verdict.interval)


def gain_of(row: Experiment | None) -> str:
    """The verdict's gain; of a row that was only screened "screen 1.84x [..]", which ranks and proves nothing."""
    if row is not None and row.verdict is None and row.screen is not None and row.screen.speedup is not None:
        return f"screen {factor(row.screen.speedup, row.screen.interval)}"
    return gain(row.verdict if row is not None else None)


def unjudged(end: Ending) -> list[Experiment]:
    """Candidates that the screen found faster than what was kept, or than the original, and that nobody judged, the fastest first; none
    that were no faster, timed in turns, than what is left of them."""
    told = {name for row in end.rows if row.verdict is not None for name in wholes_of(end.rows, row)}
    kept = end.kept.row if end.kept is not None else None
    known = (kept.screen.speedup if kept.screen is not None else None) or speedup_of(kept) if kept is not None else 1.0
    found = [(row.screen.speedup, row) for row in end.rows if row.status == "screened" and row.verdict is None and row.name not in told
             and row.screen is not None and row.screen.status == "timed" and row.screen.speedup is not None
             and row.screen.speedup > SEEN * (known or 1.0)]
    return [row for _, row in sorted(found, key=lambda pair: -pair[0])]


def not_decided(end: Ending) -> list[str]:
    """What the screen found and nobody judged, and what was not begun; a sentence each."""
    rows, lines = unjudged(end), []
    if rows:
        reason = rows[0].reason.removeprefix(NOT_JUDGED) or "the budget had no room for it"
        more = f" So were {len(rows) - 1} more that the screen found faster than what was kept." if len(rows) > 1 else ""
        figure = gain_of(rows[0]).removeprefix("screen ")
        lines.append(f"{rows[0].name} was screened at {figure} and not judged ({reason}): the screen ranks and proves nothing.{more}")
    last = next((row for row in reversed(end.history) if row.tags.get(ROLE) == NOT_BEGUN), None)
    if last is not None:
        words = _shortened(last.reason)
        lines.append(f"{words[0].upper()}{words[1:]}. next.json has what is expected of each, and why it was not begun.")
    return lines


def _shortened(reason: str) -> str:
    """A list of what was not begun, with as many whole items as a line has room for."""
    items = [found[0] for found in _NOT_BEGUN.finditer(reason)]
    if not items:
        return reason
    before, after = reason.partition(items[0])[0], _AND_MORE.search(reason)
    shown = next(count for count in range(len(items), 0, -1) if count == 1 or len(", ".join(items[:count])) <= ROOM)
    left = len(items) - shown + (int(after[1]) if after is not None else 0)
    return f"{before}{', '.join(items[:shown])}{f', and {left} more' if left else ''}"


ROOM = 220
"""Characters of such a list in the report."""
_NOT_BEGUN, _AND_MORE = re.compile(r"\S+ \(expected [^)]*\)"), re.compile(r", and (\d+) more$")


def factor(speedup: float | None, interval: tuple[float, float] | None = None) -> str:
    """"1.84x [1.80, 1.88]", "1.84x", or n/a."""
    if speedup is None:
        return NA
    return f"{speedup:.2f}x{f' {interval_words(interval)}' if interval else ''}"


def interval_words(interval: tuple[float, float]) -> str:
    """"[1.80, 1.88]"."""
    return f"[{interval[0]:.2f}, {interval[1]:.2f}]"


def own_passes(row: Experiment) -> set[str]:
    """A candidate's passes but for no_grad, which every inference candidate has."""
    return set(row.passes) - {"no_grad"}


def speedup_of(row: Experiment | None) -> float | None:
    """The verdict's estimate; None where nothing was timed."""
    return row.verdict.speedup if row is not None and row.verdict is not None else None
