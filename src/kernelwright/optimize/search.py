"""The search: picks the next candidate, has it judged, writes the row. Knows neither the judge nor the profiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..judge.options import OutOfTime
from ..model.errors import KernelwrightError
from ..model.saying import Say
from ..model.verdict import Experiment, Verdict
from ..model.workload import Precision, WorkloadRef
from .budget import LAST_TRY_SHARE, Budget, confirmation_reserve_s, estimate_s, worth_starting
from .confirm import USUAL, Effort, counted, is_confirmation, refuted, undecided
from .generate import render_source, write_source
from .ledger import CAUSE, ORIGINAL, Ledger
from .passes import CATALOGUE, Context
from .plan import Candidate, first_round, next_round, ranked, refusal
from .state import utc_now

JudgeCandidate = Callable[[Path, Precision, float, Effort], Verdict]
"""(candidate file, its precision, seconds it may take at most, how hard) -> verdict. Raises judge.OutOfTime when the seconds are up."""
NO_COMPILER = re.compile(r"needs a C(\+\+)? compiler")
"""How the judge's reason reads where the machine has no compiler."""
NOT_APPLICABLE = "not applicable: "
MAX_FAILURES_OF_ORIGINAL = 2
"""After so many in a row the search ends: the original itself no longer runs."""
Status = Literal["judged", "not_applicable", "failed", "out_of_budget"]


@dataclass
class Search:
    """One optimisation's experiments."""

    workload: WorkloadRef
    context: Context
    precision: Precision
    folder: Path
    ledger: Ledger
    budget: Budget
    judge: JudgeCandidate
    say: Say
    no_compiler: str | None = field(default=None, init=False)
    """The reason that the first compile candidate gave, once one has failed for want of a compiler."""
    failure: KernelwrightError | None = field(default=None, init=False)
    """The last failure of the original itself, while no judgement has succeeded since."""
    stopped: str | None = field(default=None, init=False)
    """Why the search ended early."""
    _failures: int = field(default=0, init=False)
    _set_aside: set[str] = field(default_factory=set, init=False)
    """Candidates that the budget or the original stopped: not again in this run."""

    def __post_init__(self) -> None:
        self.no_compiler = next((row.reason for row in self.ledger.latest() if NO_COMPILER.search(row.reason)), None)

    def run(self) -> None:
        """Try candidates until none is left, the budget is spent or the original fails twice in a row; then note why the others
        were not run."""
        while self.stopped is None and (item := self._pick()) is not None:
            self._try(item)
        self._note_untried()

    def pending(self) -> bool:
        """Whether a candidate is left that a budget without end would have judged, or that no row says anything of."""
        done = self._finished()
        singles = [item for item in first_round(self.context, self.precision) if item.name not in done]
        return bool(singles) or any(self._why_not(item) is None for item in self._combinations(done))

    def ready(self) -> bool:
        """Whether the time left allows another candidate."""
        return self.stopped is None and self._pick() is not None

    def rows(self) -> list[Experiment]:
        """The last row of each candidate (without confirmations)."""
        return [row for row in self.ledger.latest() if not is_confirmation(row)]

    def best(self, *, or_undecided: bool = False) -> list[Experiment]:
        """FASTER candidates that no confirmation (of this run or the one resumed) refuted, the one to keep first. or_undecided: those
        too that a longer confirmation may still decide."""
        gone = refuted(self.ledger.rows).keys() - (undecided(self.ledger.rows) if or_undecided else set())
        own = {row.name: row for row in self.rows()}
        order = ranked(row for row in counted(own.values(), self.ledger.rows) if row.name not in gone)
        return [own[row.name] for row in order]

    def left_s(self) -> float:
        """Seconds for candidates: what the budget has left, less what the confirmation will need."""
        return max(0.0, self.budget.left_s() - confirmation_reserve_s(next(iter(self.best()), None), self.rows(), self.budget.total_s))

    def judge_file(self, file: Path, row: Experiment, seconds: float, effort: Effort = USUAL) -> Experiment:
        """Judge one file; the row with its outcome, not yet in the ledger. What the judge raises is a failure of the original's
        own (out of memory beside the candidate, a crash): a failed row too, and twice in a row the end of the search."""
        start = self.budget.clock()
        try:
            verdict = self.judge(file, row.precision, seconds, effort)
        except OutOfTime as error:
            return row.model_copy(update={"status": "out_of_budget", "reason": error.message, "elapsed_s": self.budget.clock() - start})
        except KernelwrightError as error:
            self.failure, self._failures = error, self._failures + 1
            if self._failures >= MAX_FAILURES_OF_ORIGINAL:
                self.stopped = f"{self._failures} judgements in a row could not be made: {error.message}"
            return row.model_copy(update={
                "status": "failed", "reason": f"could not be judged: {error.message}", "elapsed_s": self.budget.clock() - start,
                "tags": {**row.tags, CAUSE: ORIGINAL}})
        self.failure, self._failures = None, 0
        reason = verdict.reasons[0] if verdict.reasons else ""
        status: Status = "judged"
        if verdict.verdict == "FAILED":
            status = "not_applicable" if NOT_APPLICABLE in reason else "failed"
            reason = reason.split(NOT_APPLICABLE)[-1]
        return row.model_copy(update={"status": status, "verdict": verdict, "reason": reason, "elapsed_s": self.budget.clock() - start})

    def _finished(self) -> dict[str, Experiment]:
        return {name: row for name, row in self.ledger.finished().items() if not is_confirmation(row)}

    def _combinations(self, done: dict[str, Experiment]) -> list[Candidate]:
        """What the results suggest next. Of a refuted candidate its confirmation counts, so that nothing is built on it for its speed."""
        said = refuted(self.ledger.rows)
        results = {name: row.model_copy(update={"verdict": said[name]}) if name in said else row for name, row in done.items()}
        return next_round(self.context, self.precision, results)

    def _pick(self) -> Candidate | None:
        """The next candidate that the time left allows: single passes before combinations; when time is short, cheap ones first.

        When none is expected to end in time, the first that has some chance to: it costs nothing but time that is left anyway.
        """
        done = self._finished()
        waiting = [item for item in first_round(self.context, self.precision) if item.name not in done and self._why_not(item) is None]
        rows, left = list(done.values()), self.left_s()
        if sum(estimate_s(item.passes, rows)[0] for item in waiting) > left:
            waiting.sort(key=lambda item: estimate_s(item.passes, rows)[0])
        waiting += [item for item in self._combinations(done) if self._why_not(item) is None]
        waiting = [item for item in waiting if item.name not in self._set_aside]
        for share in (None, LAST_TRY_SHARE):
            for item in waiting:
                if worth_starting(item.passes, rows, left, share):
                    return item
        return None

    def _why_not(self, item: Candidate) -> tuple[Status, str] | None:
        """Why a candidate need not run: it does not apply, or needs a compiler that is known to be missing."""
        reason = refusal(item, self.context)
        if reason is not None:
            return "not_applicable", reason
        if self.no_compiler and any(name.startswith("compile_") for name in item.passes):
            return "failed", self.no_compiler
        return None

    def _try(self, item: Candidate) -> None:
        row = self._row(item)
        passes = [CATALOGUE[name] for name in item.passes]
        source = render_source(self.workload, self.context.facts, passes, device=self.context.environment.device)
        write_source(self.folder / row.candidate_file, source)
        self.say(f"judging {row.name}")
        row = self.judge_file(self.folder / row.candidate_file, row, self.left_s())
        if row.status == "failed" and NO_COMPILER.search(row.reason):
            self.no_compiler = row.reason
        if row.status == "out_of_budget" or row.tags.get(CAUSE) == ORIGINAL:
            self._set_aside.add(row.name)
        self.ledger.append(row)
        self.say(line_of(row))

    def _note_untried(self) -> None:
        done = self._finished()
        for item in [*first_round(self.context, self.precision), *self._combinations(done)]:
            if item.name in done or item.name in self._set_aside:
                continue
            status, reason = self._why_not(item) or self._why_not_begun(item, done)
            tags = {CAUSE: ORIGINAL} if reason == self.stopped else {}
            row = self._row(item).model_copy(update={"status": status, "reason": reason, "tags": tags})
            self.ledger.append(row)
            if status != "not_applicable" and not tags:
                self.say(line_of(row))

    def _why_not_begun(self, item: Candidate, done: dict[str, Experiment]) -> tuple[Status, str]:
        if self.stopped is not None:
            return "failed", self.stopped
        held_back = " beside the confirmation" if self.best() else ""
        return "out_of_budget", f"about {estimate_s(item.passes, done.values())[0]:.0f} s expected, {self.left_s():.0f} s left{held_back}"

    def _row(self, item: Candidate) -> Experiment:
        index = self.ledger.next_index()
        own = [name for name in item.passes if name != "no_grad"] or list(item.passes)
        return Experiment(
            index=index, name=item.name, passes=item.passes, precision=item.precision, ladder_row=item.ladder_row, status="judged",
            candidate_file=f"candidates/{index:02d}_{item.name.replace('+', '__')}.py", started_utc=utc_now(),
            predicted="; ".join(CATALOGUE[name].predict(self.context).words for name in own),
        )


def line_of(row: Experiment) -> str:
    """One progress line of an experiment."""
    verdict = row.verdict
    if verdict is not None and verdict.speedup is not None and verdict.interval is not None:
        estimate = "" if verdict.verdict == "AMBIGUOUS" else f"{verdict.speedup:.2f}x "
        words = f"{verdict.verdict} {estimate}[{verdict.interval[0]:.2f}, {verdict.interval[1]:.2f}]"
    else:
        words = f"{verdict.verdict if verdict else row.status.replace('_', ' ')}: {row.reason}"
    return f"{row.index:2d} {row.name}: {words} ({row.elapsed_s:.0f} s)"
