"""Which judgement of optimized.py comes next, how long and how strict it is. Pure: the ledger's rows and the time left decide.

A search looks at many noisy figures and keeps the luckiest, so its own verdicts prove nothing of the winner: optimized.py is judged
anew, on fresh data, in a new pair of processes. Several such judgements share one error budget, or asking often enough would confirm
anything. The n-th one (n from 0, over all candidates and resumed runs) is made at the two-sided level ALPHA / 2**n. FASTER uses one
side, so the chance that any candidate that gains nothing is ever confirmed is at most ALPHA / 2 * (1 + 1/2 + 1/4 + ...) = ALPHA,
however the candidates were chosen (Bonferroni's inequality with unequal weights fixed beforehand: Rosenthal & Rubin 1983, Ensemble-
adjusted p values, Psychological Bulletin 94; the same as spending alpha over looks: Lan & DeMets 1983, Biometrika 70).

AMBIGUOUS says that the noise hid the answer, so it is asked once more, longer; that second judgement replaces the first and shares no
data with it. Where no candidate is left that was FASTER, the most promising AMBIGUOUS one gets such a longer judgement of its
optimized.py, once: it counts as a confirmation, at the level of the next one, so the error budget holds for it too. SAME is an answer
(the interval lies within 2%), SLOWER, WRONG, CHEAT and FAILED are too: nothing is asked again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ..judge.options import USUAL_TIMING_S
from ..judge.statistics import ALPHA, PROCESS_DIFFERENCE
from ..model.verdict import Experiment, Verdict
from .budget import ENDING_S, RESERVE_MARGIN, reference_start_s
from .ledger import NOT_JUDGED

CONFIRMATION, AUDIT = "confirmation", "audit"
"""Roles of judgements of optimized.py. AUDIT is the tag of a confirmation too that was made with every audit."""
ROLE, OF, LONGER = "role", "of", "longer"
"""Tags of a confirmation's row: its role, the candidate's name, and the seconds of timing of a longer one."""
LONG_TIMING_S = 30.0
"""A longer confirmation's timing, where the budget allows it: five times as many pairs, 2.2 times less noise."""
WORTH_TIMING_S = 2 * USUAL_TIMING_S
"""With less than this a longer confirmation would say hardly more than the first."""


@dataclass(frozen=True)
class Effort:
    """How hard one judgement is to be."""

    alpha: float = ALPHA
    timing_s: float = USUAL_TIMING_S
    audits: bool = False
    """With every audit that the judge has, and under every condition: for a gain that nobody predicted."""
    measures: bool = False
    """What is judged times kernels while it is built and first called."""
    ends_in_time: bool = False
    """See JudgeOptions. Not of a confirmation: out of time it says nothing, and short of time it could refute a winner."""


USUAL = Effort(ends_in_time=True)


@dataclass(frozen=True)
class Attempt:
    """One judgement of optimized.py, not made yet."""

    row: Experiment
    """The candidate that optimized.py is made of."""
    effort: Effort
    longer: bool


def is_confirmation(row: Experiment) -> bool:
    """Whether a ledger's row judged optimized.py, not a candidate."""
    return row.tags.get(ROLE) == CONFIRMATION


def is_audit(row: Experiment) -> bool:
    """Whether a ledger's row judged an optimized.py once more that was kept, its gain being another than predicted."""
    return row.tags.get(ROLE) == AUDIT


def refutes(row: Experiment) -> bool:
    """Whether a ledger's row is an audit after which its candidate can't be kept. One that is too noisy to tell changes nothing."""
    return is_audit(row) and row.verdict is not None and row.verdict.verdict not in ("FASTER", "AMBIGUOUS")


def verdicts(rows: Iterable[Experiment]) -> dict[str, list[Verdict]]:
    """Candidate -> what the judgements of its optimized.py said, in order, audits only where they refute. Those that time or the original
    ended said nothing."""
    said: dict[str, list[Verdict]] = {}
    for row in rows:
        if (is_confirmation(row) or refutes(row)) and row.verdict is not None:
            said.setdefault(row.tags[OF], []).append(row.verdict)
    return said


def refuted(rows: Iterable[Experiment]) -> dict[str, Verdict]:
    """Candidate -> its last confirmation, where that was not FASTER."""
    return {name: said[-1] for name, said in verdicts(rows).items() if said[-1].verdict != "FASTER"}


def confirmations_made(rows: Iterable[Experiment]) -> int:
    """Judgements that spent of the error budget. An audit can only take away."""
    return sum(is_confirmation(row) and row.verdict is not None for row in rows)


def undecided(rows: Sequence[Experiment]) -> set[str]:
    """Candidates whose only confirmation, of the usual length, was AMBIGUOUS: a longer one may still decide."""
    longer = {row.tags[OF] for row in rows if is_confirmation(row) and row.verdict is not None and LONGER in row.tags}
    return {name for name, said in verdicts(rows).items() if [one.verdict for one in said] == ["AMBIGUOUS"] and name not in longer}


def counted(rows: Iterable[Experiment], confirmations: Iterable[Experiment]) -> list[Experiment]:
    """The candidates' rows; one that was AMBIGUOUS and whose last confirmation is FASTER has that verdict."""
    said = {name: found[-1] for name, found in verdicts(confirmations).items() if found[-1].verdict == "FASTER"}
    return [row.model_copy(update={"verdict": said[row.name]}) if row.name in said and noisy(row) else row for row in rows]


def noisy(row: Experiment) -> bool:
    """Whether the candidate's own judgement was AMBIGUOUS."""
    return row.verdict is not None and row.verdict.verdict == "AMBIGUOUS"


def next_attempt(winners: Iterable[Experiment], rows: Sequence[Experiment], left_s: float) -> Attempt | None:
    """The next judgement that is worth making. winners: candidates that are not refuted, or undecided, the best first; rows: the
    ledger's. An undecided one gets its longer judgement before the next candidate's turn, if left_s suffices."""
    open_, made = undecided(rows), confirmations_made(rows)
    for row in winners:
        if row.name not in open_:
            return Attempt(row, Effort(ALPHA / 2**made), longer=False)
        first = next(item for item in rows if is_confirmation(item) and item.tags[OF] == row.name and item.verdict is not None)
        seconds = longer_timing_s(first.elapsed_s, left_s)
        if seconds is not None:
            return Attempt(row, Effort(ALPHA / 2**made, seconds), longer=True)
    return None


def last_hope(candidates: Iterable[Experiment], rows: Sequence[Experiment], left_s: float) -> Attempt | None:
    """The longer judgement of the most promising AMBIGUOUS candidate, once an optimisation: intervals above 1 first, then the largest
    speed-up. None without such a candidate, or where left_s is too short."""
    said = verdicts(rows)
    candidates = list(candidates)
    names = {row.name for row in candidates if noisy(row)}
    if any(name in said for name in names):
        return None
    hopeful = [(verdict.interval[0] > 1, verdict.speedup, row) for row in candidates if noisy(row) and (verdict := row.verdict) is not None
               and verdict.speedup is not None and verdict.interval is not None and verdict.speedup > 1 + PROCESS_DIFFERENCE]
    if not hopeful:
        return None
    row = max(hopeful, key=lambda item: item[:2])[2]
    is_first = not any(was_sent(one) and one.index < row.index for one in candidates)  # then its seconds hold the original's start
    seconds = longer_timing_s(row.elapsed_s + (0.0 if is_first else reference_start_s(candidates)), left_s)
    made = confirmations_made(rows)
    return None if seconds is None else Attempt(row, Effort(ALPHA / 2**made, seconds), longer=True)


def was_sent(row: Experiment) -> bool:
    """Whether a candidate was given to the judge, whatever came of it."""
    failed = row.status == "failed" and (row.screen is None or row.screen.status == "timed")
    return row.verdict is not None or failed or row.reason.startswith(NOT_JUDGED)


def longer_timing_s(first_s: float, left_s: float) -> float | None:
    """Seconds of timing that the time left allows after a first confirmation that took first_s, less what is kept for its end; None: too
    few to help."""
    seconds = min(LONG_TIMING_S, left_s - 2 * ENDING_S - RESERVE_MARGIN * first_s + USUAL_TIMING_S)
    return seconds if seconds >= WORTH_TIMING_S else None


def history(rows: Iterable[Experiment], noisy_names: Collection[str] = ()) -> list[str]:
    """One sentence on each candidate whose first confirmation failed, or that was AMBIGUOUS itself (noisy_names): how often optimized.py
    was judged, and what came out; and on each that its audit refuted."""
    rows = list(rows)
    lines = [f"{row.tags[OF]} was confirmed, and refuted by its audit, which said {row.verdict.verdict}."
             for row in rows if row.verdict is not None and refutes(row)]
    rows = [row for row in rows if is_confirmation(row)]
    open_ = undecided(rows)
    for name, said in verdicts(rows).items():
        words = [one.verdict if one.verdict in ("FASTER", "SLOWER", "SAME", "AMBIGUOUS") or not one.reasons
                 else f"{one.verdict} ({one.reasons[0]})" for one in said]
        if name in noisy_names:
            lines.append(f"{name} was AMBIGUOUS; what was left of the budget went into one longer judgement of it, which said {words[-1]}.")
        elif words[-1] == "FASTER" and len(words) > 1:
            lines.append(f"{name} was confirmed by its judgement number {len(words)}: the earlier said {', '.join(words[:-1])}.")
        elif words[-1] != "FASTER":
            count = "the second judgement said" if len(words) == 1 else f"{len(words)} more judgements of it said"
            lines.append(f"{name} was not confirmed: {count} {', then '.join(words)}"
                         f"{'; a longer one was not made (the budget left too little, or the run ended)' if name in open_ else ''}.")
    return lines
