"""The search: picks the next candidate, has it judged, writes the row. Knows neither the judge nor the profiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..judge.options import OutOfTime
from ..model.verdict import Experiment, Verdict
from ..model.workload import Precision, WorkloadRef
from .budget import Budget, confirmation_reserve_s, estimate_s, worth_starting
from .generate import render_source, write_source
from .ledger import Ledger
from .passes import CATALOGUE, Context
from .plan import Candidate, best, first_round, next_round, refusal
from .state import utc_now

JudgeCandidate = Callable[[Path, Precision, float], Verdict]
"""(candidate file, its precision, seconds it may take at most) -> verdict. Raises judge.OutOfTime when the seconds are up."""
Say = Callable[[str], None]
NO_COMPILER = re.compile(r"needs a C(\+\+)? compiler")
"""How the judge's reason reads where the machine has no compiler."""
NOT_APPLICABLE = "not applicable: "
CONFIRMATION = "confirmation"


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

    def run(self) -> None:
        """Try candidates until none is left or the budget is spent; then note what the budget kept from running."""
        self.no_compiler = next((row.reason for row in self.ledger.latest() if NO_COMPILER.search(row.reason)), None)
        while (item := self._pick()) is not None:
            self._try(item)
        self._note_unaffordable()

    def rows(self) -> list[Experiment]:
        """The last row of each candidate (without confirmations)."""
        return [row for row in self.ledger.latest() if row.tags.get("role") != CONFIRMATION]

    def best(self) -> list[Experiment]:
        """FASTER candidates, the best first."""
        return best(self.rows())

    def left_s(self) -> float:
        """Seconds for candidates: what the budget has left, less what the confirmation will need."""
        return max(0.0, self.budget.left_s() - confirmation_reserve_s(next(iter(self.best()), None), self.budget.total_s))

    def judge_file(self, file: Path, row: Experiment, seconds: float) -> Experiment:
        """Judge one file; the row with its outcome, not yet in the ledger."""
        start = self.budget.clock()
        try:
            verdict = self.judge(file, row.precision, seconds)
        except OutOfTime as error:
            return row.model_copy(update={"status": "out_of_budget", "reason": error.message, "elapsed_s": self.budget.clock() - start})
        reason = verdict.reasons[0] if verdict.reasons else ""
        status = "judged"
        if verdict.verdict == "FAILED":
            status = "not_applicable" if NOT_APPLICABLE in reason else "failed"
            reason = reason.split(NOT_APPLICABLE)[-1]
        return row.model_copy(update={"status": status, "verdict": verdict, "reason": reason, "elapsed_s": self.budget.clock() - start})

    def _finished(self) -> dict[str, Experiment]:
        return {name: row for name, row in self.ledger.finished().items() if row.tags.get("role") != CONFIRMATION}

    def _pick(self) -> Candidate | None:
        """The next candidate that the time left allows; rows that need no run are written on the way."""
        done = self._finished()
        waiting = []
        for item in first_round(self.context, self.precision):
            if item.name in done:
                continue
            reason = refusal(item, self.context)
            if reason is not None:
                self._write(item, status="not_applicable", reason=reason)
            elif self.no_compiler and any(name.startswith("compile_") for name in item.passes):
                self._write(item, status="failed", reason=self.no_compiler)
            else:
                waiting.append(item)
        rows, left = list(done.values()), self.left_s()
        short = sum(estimate_s(item.passes, rows)[0] for item in waiting) > left
        if short or not waiting:
            waiting += next_round(self.context, self.precision, done)
        if short:
            waiting.sort(key=lambda item: estimate_s(item.passes, rows)[0])
        tried = {row.name for row in self.ledger.rows if row.status == "out_of_budget" and row.tags.get("run") == self._run_tag()}
        return next((item for item in waiting if item.name not in tried and worth_starting(item.passes, rows, left)), None)

    def _try(self, item: Candidate) -> None:
        row = self._row(item)
        passes = [CATALOGUE[name] for name in item.passes]
        source = render_source(self.workload, self.context.facts, passes, device=self.context.environment.device)
        write_source(self.folder / row.candidate_file, source)
        row = self.judge_file(self.folder / row.candidate_file, row, self.left_s())
        if row.status == "failed" and NO_COMPILER.search(row.reason):
            self.no_compiler = row.reason
        self.ledger.append(row)
        self.say(line_of(row))

    def _write(self, item: Candidate, *, status: str, reason: str) -> None:
        row = self._row(item).model_copy(update={"status": status, "reason": reason})
        self.ledger.append(row)
        if status != "not_applicable":
            self.say(line_of(row))

    def _note_unaffordable(self) -> None:
        done = self._finished()
        over = {row.name for row in self.ledger.latest() if row.status == "out_of_budget"}
        for item in [*first_round(self.context, self.precision), *next_round(self.context, self.precision, done)]:
            if item.name not in done and item.name not in over:
                expected = estimate_s(item.passes, done.values())[0]
                self._write(item, status="out_of_budget", reason=f"about {expected:.0f} s expected, {self.left_s():.0f} s left")

    def _row(self, item: Candidate) -> Experiment:
        index = self.ledger.next_index()
        own = [name for name in item.passes if name != "no_grad"] or list(item.passes)
        return Experiment(
            index=index, name=item.name, passes=item.passes, precision=item.precision, ladder_row=item.ladder_row, status="judged",
            candidate_file=f"candidates/{index:02d}_{item.name.replace('+', '__')}.py", started_utc=utc_now(),
            predicted="; ".join(CATALOGUE[name].predict(self.context) for name in own), tags={"run": self._run_tag()},
        )

    def _run_tag(self) -> str:
        return f"{self.budget.started:.3f}"


def line_of(row: Experiment) -> str:
    """One progress line of an experiment."""
    verdict = row.verdict
    if verdict is not None and verdict.speedup is not None and verdict.interval is not None:
        words = f"{verdict.verdict} {verdict.speedup:.2f}x [{verdict.interval[0]:.2f}, {verdict.interval[1]:.2f}]"
    else:
        words = f"{verdict.verdict if verdict else row.status.replace('_', ' ')}: {row.reason}"
    return f"{row.index:2d} {row.name}: {words} ({row.elapsed_s:.0f} s)"
