"""The search: picks the next candidate, has it screened or judged, writes the row. Knows neither the judge nor the profiler.

Where the workload can be screened (screening.py), candidates are ranked that way and only finalists are judged; else each is judged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ..judge.options import OutOfTime
from ..model.errors import KernelwrightError
from ..model.saying import Say
from ..model.trial import ExpectedMove, PassPrediction
from ..model.verdict import Experiment, Verdict
from ..model.workload import Precision, WorkloadRef
from . import ablation, beside
from .budget import ENDING_S, LAST_TRY_SHARE, Budget, confirmation_reserve_s, estimate_s, worth_starting
from .confirm import ROLE, USUAL, Effort, counted, refuted, undecided
from .expected import once
from .generate import render_source, write_source
from .ledger import CAUSE, ORIGINAL, Ledger
from .passes import CATALOGUE, Context
from .passes.conditions import has_products
from .plan import WARM, Candidate, first_round, measures, next_round, ranked, refusal
from .state import utc_now

JudgeCandidate = Callable[[Path, Precision, float, Effort], Verdict]
"""(candidate file, its precision, seconds it may take at most, how hard) -> verdict. Raises judge.OutOfTime when the seconds are up."""
NO_COMPILER = re.compile(r"needs a C(\+\+)? compiler|torch\.compile does not support compiling torch\.jit\.")
"""How the reason reads where the machine has no compiler, or torch.compile takes no such model, whatever is compiled with it."""
NOT_APPLICABLE = "not applicable: "
UNDECIDABLE = ("ill_conditioned", "not_repeatable", "not_dense")
"""Codes of the judge's errors that hold for every candidate alike: where nothing was judged before, they end the search."""
MAX_FAILURES_OF_ORIGINAL = 2
"""After so many in a row the search ends: the original itself no longer runs."""
Status = Literal["judged", "screened", "not_applicable", "failed", "out_of_budget"]
LONGEST_NAME = 120
"""Of a candidate's file, in characters: systems take 255 bytes."""


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
    set_aside: set[str] = field(default_factory=set, init=False)
    """Candidates that the budget or the original stopped: not again in this run."""

    def __post_init__(self) -> None:
        self.no_compiler = next((row.reason for row in self.ledger.latest() if NO_COMPILER.search(row.reason)), None)

    def run(self) -> None:
        """Try candidates until none is left, the budget is spent or the original fails twice in a row; then note why the others
        were not run."""
        while self.stopped is None and (item := self._pick()) is not None:
            self._try(item)
        self.note_untried()

    def pending(self) -> bool:
        """Whether a candidate is left that a budget without end would have judged, or that no row says anything of."""
        done = self._finished()
        singles = [item for item in first_round(self.context, self.precision) if item.name not in done]
        return bool(singles) or any(self.why_not(item) is None for item in self._combinations(done))

    def ready(self) -> bool:
        """Whether the time left allows another candidate."""
        return self.stopped is None and self._pick() is not None

    @property
    def has_products(self) -> bool:
        """Whether there are kernels for a compile mode to measure."""
        return once(self.context, has_products)

    def overtaken(self) -> bool:
        """Whether, after a refuted confirmation, something that promises more than what else was FASTER waits for the judge."""
        return False

    def rows(self) -> list[Experiment]:
        """The last row of each candidate (without confirmations)."""
        return [row for row in self.ledger.latest() if ROLE not in row.tags]

    def best(self, *, or_undecided: bool = False) -> list[Experiment]:
        """FASTER candidates that no confirmation (of this run or the one resumed) refuted, the one to keep first. or_undecided: those
        too that a longer confirmation may still decide."""
        gone = refuted(self.ledger.rows).keys() - (undecided(self.ledger.rows) if or_undecided else set())
        own = {row.name: row for row in self.rows()}
        order = ranked(row for row in counted(own.values(), self.ledger.rows) if row.name not in gone)
        return [own[row.name] for row in beside.preferred(ablation.slim_first(order), self.ledger.rows)]

    def left_s(self) -> float:
        """Seconds for candidates: what the budget has left, less what the confirmation will need."""
        return max(0.0, self.budget.left_s() - confirmation_reserve_s(next(iter(self.best()), None), self.rows(), self.budget.total_s))

    def judge_file(self, file: Path, row: Experiment, seconds: float, effort: Effort = USUAL) -> Experiment:
        """Judge one file; the row with its outcome, not yet in the ledger. What the judge raises is a failure of the original's
        own (out of memory beside the candidate, a crash): a failed row too, and twice in a row the end of the search."""
        start = self.budget.clock()
        try:
            verdict = self.judge(file, row.precision, max(0.0, seconds - ENDING_S), replace(effort, measures=measures(row.passes)))
        except OutOfTime as error:
            return row.model_copy(update={"status": "out_of_budget", "reason": error.message, "elapsed_s": self.budget.clock() - start})
        except KernelwrightError as error:
            self.failure, self._failures = error, self._failures + 1
            if error.code in UNDECIDABLE and not any(one.verdict is not None for one in self.rows()):
                self.stopped = error.message
            elif self._failures >= MAX_FAILURES_OF_ORIGINAL:
                self.stopped = f"{self._failures} judgements in a row could not be made: {error.message}"
            mend = f" (fix: {error.fix})" if error.fix else ""
            return row.model_copy(update={
                "status": "failed", "reason": f"could not be judged: {error.message}{mend}", "elapsed_s": self.budget.clock() - start,
                "tags": {**row.tags, CAUSE: ORIGINAL}})
        self.failure, self._failures = None, 0
        reason = verdict.reasons[0] if verdict.reasons else ""
        status: Status = "judged"
        if verdict.verdict == "FAILED":
            status = "not_applicable" if NOT_APPLICABLE in reason else "failed"
            reason = reason.split(NOT_APPLICABLE)[-1]
        return row.model_copy(update={"status": status, "verdict": verdict, "reason": reason, "elapsed_s": self.budget.clock() - start})

    def _finished(self) -> dict[str, Experiment]:
        return {name: row for name, row in self.ledger.finished().items() if ROLE not in row.tags}

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
        waiting = [item for item in first_round(self.context, self.precision) if item.name not in done and self.why_not(item) is None]
        rows, left = list(done.values()), self.left_s()
        if sum(estimate_s(item.passes, rows, has_products=self.has_products)[0] for item in waiting) > left:
            waiting.sort(key=lambda item: estimate_s(item.passes, rows, has_products=self.has_products)[0])
        waiting += [item for item in self._combinations(done) if self.why_not(item) is None]
        waiting = [item for item in waiting if item.name not in self.set_aside]
        for share in (None, LAST_TRY_SHARE):
            for item in waiting:
                if worth_starting(item.passes, rows, left, share, has_products=self.has_products):
                    return item
        return None

    def why_not(self, item: Candidate) -> tuple[Status, str] | None:
        """Why a candidate need not run: it does not apply, or needs a compiler that is known to be missing."""
        reason = refusal(item, self.context)
        if reason is not None:
            return "not_applicable", reason
        if self.no_compiler and any(name.startswith("compile_") for name in item.passes):
            return "failed", self.no_compiler
        return None

    def _try(self, item: Candidate) -> None:
        row = self.row(item)
        self.write(row)
        self.say(f"judging {row.name}")
        row = self.judge_file(self.folder / row.candidate_file, row, self.left_s())
        if row.status == "failed" and NO_COMPILER.search(row.reason):
            self.no_compiler = row.reason
        if row.status == "out_of_budget" or row.tags.get(CAUSE) == ORIGINAL:
            self.set_aside.add(row.name)
        self.ledger.append(row)
        self.say(line_of(row))

    def note_untried(self) -> None:
        """Rows for candidates that apply and were not begun, and for those that do not."""
        done = self._finished()
        self.note([*first_round(self.context, self.precision), *self._combinations(done)], done)

    def note(self, items: Iterable[Candidate], done: Mapping[str, Experiment]) -> None:
        """A row for each that has none: why it was not begun."""
        for item in items:
            if item.name in done or item.name in self.set_aside:
                continue
            status, reason = self.why_not(item) or self._why_not_begun(item, done)
            tags = {CAUSE: ORIGINAL} if reason == self.stopped else {}
            row = self.row(item).model_copy(update={"status": status, "reason": reason, "tags": tags})
            self.ledger.append(row)
            if status != "not_applicable" and not tags:
                self.say(line_of(row))

    def _why_not_begun(self, item: Candidate, done: Mapping[str, Experiment]) -> tuple[Status, str]:
        if self.stopped is not None:
            return "failed", self.stopped
        held_back = " beside the confirmation" if self.best() else ""
        expected_s, _ = estimate_s(item.passes, done.values(), has_products=self.has_products)
        return "out_of_budget", f"about {expected_s:.0f} s expected, {self.left_s():.0f} s left{held_back}"

    def row(self, item: Candidate) -> Experiment:
        """A candidate's row before anything was done with it."""
        index = self.ledger.next_index()
        own = [name for name in item.passes if name != "no_grad"] or list(item.passes)
        predictions = tuple(predicted(name, self.context) for name in own)
        return Experiment(
            index=index, name=item.name, passes=item.passes, precision=item.precision, ladder_row=item.ladder_row, status="judged",
            candidate_file=file_name(index, item.name), started_utc=utc_now(), predicted="; ".join(one.words for one in predictions),
            prediction=predictions, origin=item.origin, parents=item.parents, dimension=item.dimension,
            warm=item.origin == WARM,
        )

    def write(self, row: Experiment) -> Path:
        """The candidate's file."""
        passes = [CATALOGUE[name] for name in row.passes]
        source = render_source(self.workload, self.context.facts, passes, device=self.context.environment.device)
        return write_source(self.folder / row.candidate_file, source)


def predicted(name: str, context: Context) -> PassPrediction:
    """What a pass says it would give here."""
    said = CATALOGUE[name].prediction(context)
    moves = tuple(ExpectedMove(quantity=move.quantity, low=move.low, high=move.high, operators=move.operators) for move in said.moves)
    return PassPrediction(name=name, words=said.words, gain=said.gain, moves=moves)


def file_name(index: int, name: str) -> str:
    """Of a candidate, relative to the optimisation's folder; a very long one ends in a hash of itself."""
    words = name.replace("+", "__")
    if len(words) > LONGEST_NAME:
        words = f"{words[:LONGEST_NAME - 9]}_{hashlib.sha256(words.encode()).hexdigest()[:8]}"
    return f"candidates/{index:02d}_{words}.py"


def line_of(row: Experiment) -> str:
    """One progress line of an experiment."""
    verdict, screen = row.verdict, row.screen
    if verdict is None and row.status == "screened" and screen is not None:
        words = screen.status if screen.speedup is None else f"screen {screen.speedup:.2f}x"
        return f"{row.index:2d} {row.name}: {words}{f': {row.reason}' if row.reason else ''} ({row.elapsed_s:.0f} s)"
    if verdict is not None and verdict.speedup is not None and verdict.interval is not None:
        estimate = "" if verdict.verdict == "AMBIGUOUS" else f"{verdict.speedup:.2f}x "
        words = f"{verdict.verdict} {estimate}[{verdict.interval[0]:.2f}, {verdict.interval[1]:.2f}]"
    else:
        words = f"{verdict.verdict if verdict else row.status.replace('_', ' ')}: {row.reason}"
    return f"{row.index:2d} {row.name}: {words} ({row.elapsed_s:.0f} s)"
