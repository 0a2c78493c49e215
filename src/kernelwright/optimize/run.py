"""The whole loop: baseline, search, confirmation, closing profile, documents."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..judge.options import OutOfTime
from ..model.capture import ProbeResult
from ..model.errors import BadInput, KernelwrightError, NotWritable
from ..model.files import leave_error
from ..model.measurement import PAIRED, Measurement
from ..model.profile import ClockReading, Profile
from ..model.saying import Say, silent
from ..model.verdict import Experiment, Verdict
from ..model.workload import Precision, WorkloadRef
from . import audits, memory
from . import state as states
from .ablation import wholes_of
from .budget import ENDING_S, SLOW_INPUTS_S, Budget
from .claims import sentences
from .confirm import (
    AUDIT,
    CONFIRMATION,
    LONGER,
    OF,
    ROLE,
    Attempt,
    Effort,
    is_audit,
    is_confirmation,
    last_hope,
    next_attempt,
    noisy,
    refuted,
    refutes,
)
from .ending import Ending, Kept
from .explain import explain, hypotheses_of, learn, screening_facts, warm, won_before
from .folders import ANEW, alone, earlier_report, folder_of
from .hypothesis import beyond_prediction
from .ledger import CAUSE, ORIGINAL, Ledger
from .paired import paired, restated
from .passes import Context
from .recognised import recognised, unjudgeable
from .screening import ScreenedSearch
from .search import line_of
from .shipped import Shipped
from .stages import OPTIMIZED, UNCOMPILED, OptimizeOptions, RealStages, Stages
from .summary import result_line, verdict_words, warnings_of, write_reports
from .waiting import write as write_waiting

Clocks = Callable[[], "ClockReading | None"]
"""What the clocks did so far; None where nobody watches them."""
CLOSING_PROFILE_S = 50.0
"""The closing profile and the report may take 60 s in all."""
AUDITS_S = 1.5 * audits.AUDIT_S
"""Kept for them in a confirmation: one that ends without a verdict costs more than audits that come after the closing profile."""
LONG_BASELINE = 0.4
"""Share of the budget from which on what the baseline's profile took is worth a word."""
AGAIN = "The baseline of the entry above, with the duration that the judge timed in pairs with the next one."
DURATIONS = "The durations of this entry and of the baseline's before it are the judge's, timed in pairs."


@dataclass(frozen=True)
class Outcome:
    """What an optimisation gives back."""

    out_dir: Path
    kept: tuple[str, ...]
    """Names of the passes in optimized.py, innermost first; empty when nothing was kept."""
    speedup: float
    interval: tuple[float, float] | None
    optimized: Path | None
    report: Path
    devlog: Path | None
    contract: Path
    interrupted: bool
    line: str
    """One sentence with the outcome."""
    precision: Precision | None
    """Of what was kept; None when nothing was."""
    confirmed: bool | None
    """Whether optimized.py itself was judged once more, and FASTER again; None when nothing was kept."""
    clocks: dict[str, Any] | None
    """What the clocks did over the whole run (a ClockReading); None where nobody watched."""
    warnings: tuple[str, ...]
    """What makes the figures doubtful."""


def optimize(
    workload: WorkloadRef, options: OptimizeOptions, out_dir: Path | None = None, *, stages: Stages | None = None,
    say: Say = silent, clock: Callable[[], float] = time.monotonic, clocks: Clocks = lambda: None,
) -> Outcome:
    """Optimise one workload. Artifacts go to out_dir, else out/optimize/<workload>/<timestamp>/ (with resume: the latest there).

    clocks: reads the clocks of the whole run, which the caller locks and watches.
    KeyboardInterrupt ends the search, not the documents: the outcome is then marked `interrupted`. Raises BadInput for a resume
    that does not fit, and what the baseline's profile raises (error.json is left).
    """
    stages = stages or RealStages(options, say)
    now = stages.where(workload)
    folder = folder_of(workload, options, out_dir)
    with alone(folder):
        try:
            outcome = _Run(workload, options, stages, folder, now, say, Budget(options.budget_s, clock), clocks).run()
        except (KernelwrightError, OSError) as error:
            fault = error if isinstance(error, KernelwrightError) else NotWritable(error, error.filename or folder)
            leave_error(folder, fault)
            raise fault from error.__cause__
        (folder / "error.json").unlink(missing_ok=True)  # of an earlier run that this one went on with
        return outcome


class _Run:
    """One optimisation in its folder."""

    def __init__(
        self, workload: WorkloadRef, options: OptimizeOptions, stages: Stages, folder: Path, now: dict[str, str], say: Say, budget: Budget,
        clocks: Clocks,
    ) -> None:
        self.workload, self.options, self.stages, self.folder, self.now, self.say = workload, options, stages, folder, now, say
        self.budget, self.clocks = budget, clocks
        self.notes: list[str] = []
        self.interrupted = False
        self.audit = ""
        """See Ending."""
        self.screening = contextlib.ExitStack()
        """Holds the screen while `is_screening`."""
        self.is_screening = False
        self.fatal: KernelwrightError | None = None
        """Why no candidate at all could be judged, where the original is the cause: raised once the documents are written."""

    def run(self) -> Outcome:
        """See `optimize`."""
        self.earlier = earlier_report(self.folder)
        with self._preparing():
            return self._optimised()

    def _preparing(self) -> contextlib.AbstractContextManager[None]:
        """What comes after the baseline starts beside it; not where the CPU itself is measured, which has no cores to spare."""
        if self.options.resume or self.now["device"] != "cuda":
            return contextlib.nullcontext()
        known = won_before(self.workload, self.options.precision, self.options.budget_s, self.now["torch"])
        return self.stages.preparing(self.workload, judge=known)

    def _optimised(self) -> Outcome:
        self.context = self._resumed() if self.options.resume else self._baseline()
        self.shipped = Shipped(self.workload, self.context, self.state, self.folder)
        for sentence in recognised(self.context):
            self.say(sentence)
        self.search = ScreenedSearch(
            workload=self.workload, context=self.context, precision=self.options.precision, folder=self.folder,
            ledger=Ledger(self.folder / "ledger.jsonl"), budget=self.budget, judge=_no_judge, say=self.say,
            winners=self.state.winners, searched_s=self.state.searched_s,
            won=self.state.won if self.state.searched_s >= self.options.budget_s else None, priors=self.state.priors,
            costs=self.state.costs,
        )
        if self._complete():
            return self._same_answer()
        kept = self._search_and_confirm()
        used_s = self.budget.used_s()
        after = self._closing_profile(kept) if kept is not None and not self.interrupted else None
        if kept is not None and after is not None:
            explain(self.search.ledger, kept.row, kept.confirmation, self.context.profile, after)
        if kept is not None and not self.interrupted and not self._stands(kept, used_s):
            kept = after = None
            self.shipped.remove()
        if kept is not None and (idle := self.search.idle_passes(kept.row)):
            self.notes.append(f"It is as fast without {' or '.join(idle)}, timed in turns; what is left was not confirmed: `--resume` goes "
                              "on with it.")
        if not self.interrupted:
            learn(self.workload, self.state, self.context, self.search.rows(), refuted(self.search.ledger.rows),
                  kept.row if kept is not None else None, self.search.depth_s())
        outcome = self._documents(kept, after, used_s)
        if self.fatal is not None:
            raise self.fatal
        return outcome

    def _baseline(self) -> Context:
        self.say(f"results go to {self.folder}")
        try:
            run = self.stages.profile(self.workload, self.folder / "baseline", None, self.options.budget_s)
        except KernelwrightError as error:
            if error.code == "timeout" and not self.options.timeout_s:
                raise BadInput("budget_too_short", f"the baseline's profile alone takes more than {self.options.budget_s:g} s",
                               where="--budget", fix="give a larger --budget") from error
            raise
        return self._started(run.profile, run.result, run.uncompiled)

    def _started(self, profile: Profile, result: ProbeResult, uncompiled: Profile | None) -> Context:
        assert result.facts is not None and result.environment is not None
        self.state = states.State(
            workload=str(self.workload.path), workload_sha256=states.digest_of(self.workload.path),
            files=states.files_of(self.workload), version=self.workload.version, params=self.workload.params,
            precision=self.options.precision, device=result.environment.device, device_name=result.environment.device_name,
            torch_version=result.environment.torch_version, seed=self.options.seed, budget_s=self.options.budget_s,
            started_utc=states.utc_now(), baseline_s=round(self.budget.used_s(), 2),
            options={"clocks": self.options.clocks},
        )
        self.state = warm(self.workload, self.state, uncompiled or profile)
        if self.state.winners:
            self.say("this workload was optimised on this machine before: what won then comes first")
        states.save(self.folder, self.state)
        took_s, first_s = self.budget.used_s(), result.phases_s.get("load", 0.0) + result.phases_s.get("warmup", 0.0)
        if took_s > LONG_BASELINE * self.options.budget_s:
            self.notes.append(
                f"The baseline's profile took {took_s:.0f} s of the budget of {self.options.budget_s:g} s; {first_s:.0f} s of it went by "
                "before the workload was warm, its own compilation included. `--resume` goes on without it.")
            self.say(self.notes[-1])
        return Context(facts=result.facts, environment=result.environment, profile=profile, uncompiled=uncompiled)

    def _resumed(self) -> Context:
        self.state = states.load(self.folder)
        states.check_same(self.state, self.workload, {**self.now, "precision": self.options.precision})
        folder = self.folder / "baseline"
        try:
            profile, result = Profile.load(folder), ProbeResult.model_validate_json((folder / "raw" / "result.json").read_bytes())
            uncompiled = Profile.load(folder / UNCOMPILED) if (folder / UNCOMPILED).is_dir() else None
        except (OSError, ValidationError, BadInput) as error:
            raise BadInput("broken_baseline", "the earlier run's baseline can't be read", where=str(folder), fix=ANEW) from error
        if result.facts is None or result.environment is None:
            raise BadInput("broken_baseline", "the earlier run's baseline is incomplete", where=str(folder), fix=ANEW)
        self.state = self.state.model_copy(update={"budget_s": self.options.budget_s})
        self.say(f"resuming {self.folder}")
        return Context(facts=result.facts, environment=result.environment, profile=profile, uncompiled=uncompiled)

    def _search_and_confirm(self) -> Kept | None:
        """The kept candidate, with optimized.py written. An interrupt or the end of the budget keeps the best so far.

        A failed confirmation does not end it: a longer one, the next candidate's, and what the search still has time for come next.
        """
        with self.screening:
            kept = self._found()
            try:
                if kept is not None and kept.confirmation is not None and not self.interrupted and self.is_screening:
                    self.search.ablate_confirmed()
                self._end_screening()
            except KeyboardInterrupt:
                self._interrupt()
            except KernelwrightError as error:
                self.notes.append(f"What each pass earns was not measured to the end: {error.message}.")
            return kept

    def _found(self) -> Kept | None:
        fault = unjudgeable(self.context, self.workload.path)
        if fault is not None:
            self.search.stopped, self.fatal = fault.message, fault
            self.notes.append(f"Nothing was tried: {fault.message}. Mend: {fault.fix}.")
            return self._keep_best()
        try:
            if (left := self._left_unconfirmed()) is not None:
                done, kept = self._confirm(left)
                if done and (kept is None or kept.confirmation is None):  # no time for more
                    return kept
            if self.search.pending():
                self._search()
            while self.search.stopped is None:
                top = next(iter(self.search.best()), None)
                if top is not None and self._confirmation(top) is not None:
                    return self._keep_best(top)
                if self.search.overtaken():
                    self.say("what was screened as faster than what is left is judged first")
                    self._search()
                    continue
                attempt = next_attempt(self.search.best(or_undecided=True), self.search.ledger.rows, self.budget.left_s())
                if attempt is not None:
                    done, kept = self._confirm(attempt)
                    if done:
                        return kept
                elif self.search.ready():
                    self.say(f"no candidate was confirmed and {self.budget.left_s():.0f} s are left: the search goes on")
                    self._search()
                elif (hope := self._last_hope()) is not None:
                    done, kept = self._confirm(hope)
                    if done:
                        return kept
                else:
                    return self._keep_best()
            return self._stopped(self.search.stopped)
        except KeyboardInterrupt:
            self._interrupt()
        except OutOfTime as error:
            self.notes.append(f"The budget ended early: {error.message}.")
        except KernelwrightError as error:  # the original's process does not even start
            self.search.failure = self.search.failure or error
            return self._stopped(f"the original does not start: {error.message}")
        return self._keep_best()

    def _left_unconfirmed(self) -> Attempt | None:
        """The confirmation that a run which goes on owes its winner: made before anything else is screened, for which that has no time
        where the budget is short."""
        top = next(iter(self.search.best()), None) if self.options.resume else None
        if top is None or self._confirmation(top) is not None:
            return None
        attempt = next_attempt(self.search.best(), self.search.ledger.rows, self.budget.left_s())
        return attempt if attempt is not None and attempt.row.name == top.name and not attempt.longer else None

    def _last_hope(self) -> Attempt | None:
        return last_hope(self.search.rows(), self.search.ledger.rows, self.budget.left_s())

    def _search(self) -> None:
        if not self.is_screening:  # until what was confirmed is taken apart
            self.search.screening, self.is_screening = self.screening.enter_context(self.stages.screening(self.workload)), True
        with self.stages.judging(self.workload) as self.search.judge:
            self.search.run()

    def _end_screening(self) -> None:
        self.is_screening = False
        self.screening.close()

    def _interrupt(self) -> None:
        self.interrupted = True
        self.say("interrupted: writing the best so far")

    def _stopped(self, why: str) -> Kept | None:
        self.notes.append(f"The search ended early: {why}.")
        self.say(f"the search ends: {why}")
        if not any(row.verdict is not None for row in self.search.rows()):
            self.fatal = self.search.failure
        return self._keep_best(why=why)

    def _confirm(self, attempt: Attempt) -> tuple[bool, Kept | None]:
        """Judge optimized.py itself. (whether that ends the optimisation, what is kept then)."""
        row = attempt.row
        mine = None if attempt.longer else row  # what an AMBIGUOUS judgement refuted is not kept when a longer one is cut short
        self.shipped.write(row)
        if self.budget.left_s() <= 0:
            return True, self._keep_best(mine)
        tags = {ROLE: CONFIRMATION, "alpha": f"{attempt.effort.alpha:g}"}
        if attempt.longer:
            tags[LONGER] = f"{attempt.effort.timing_s:g}"
            what = row.name if noisy(row) else f"the confirmation of {row.name}"
            self.say(f"{what} was too noisy: once more, with up to {attempt.effort.timing_s:.0f} s of timing")
        effort = attempt.effort
        if self.budget.left_s() > AUDITS_S + row.elapsed_s and beyond_prediction(row.prediction, memory.speedup_of(row) or 1.0):
            effort = replace(effort, audits=True)
            tags[AUDIT] = "full"
        if not self.search.takes_apart(row):
            self._end_screening()
        inputs_s = self.context.facts.inputs_s
        slow = self.is_screening and (inputs_s is None or inputs_s >= SLOW_INPUTS_S)
        left_s = self.budget.left_s() - (ENDING_S if slow else 0.0)
        result = self._judged_anew(row, "longer" if attempt.longer else "", tags, effort, left_s)
        if result.verdict is not None and result.verdict.verdict == "FASTER":
            return True, Kept(row, result)
        if result.status == "out_of_budget":
            return True, self._keep_best(mine)
        if result.tags.get(CAUSE) == ORIGINAL:
            return True, self._keep_best(mine, result.reason)
        return False, None

    def _judged_anew(self, row: Experiment, how: str, tags: dict[str, str], effort: Effort, seconds: float) -> Experiment:
        """optimized.py, made of this candidate, judged; its row in the ledger."""
        fresh = row.model_copy(update={
            "index": self.search.ledger.next_index(), "name": f"{OPTIMIZED} ({row.name}){f', {how}' if how else ''}",
            "candidate_file": OPTIMIZED, "verdict": None, "screen": None, "ladder_row": False, "started_utc": states.utc_now(),
            "tags": {**tags, OF: row.name}})
        self.say(f"judging {fresh.name}")
        # With a new reference process: two processes of one program differ for life, and a search picks the luckiest pair.
        with self.stages.judging(self.workload, confirms=True) as self.search.judge:
            result = self.search.judge_file(self.folder / OPTIMIZED, fresh, seconds, effort)
            if result.status == "out_of_budget" and self.is_screening and self.search.screening is not None:
                self.search.screening.let_end()  # beside the judge's, as at the end of a search
        faster = result.verdict is not None and result.verdict.verdict == "FASTER"
        self.search.ledger.append(result.model_copy(update={"kept": faster}))
        self.say(line_of(result))
        return result

    def _stands(self, kept: Kept, closing_s: float) -> bool:
        """Whether what was kept stays so: a gain that was not the predicted one is judged once more with every audit, where the time after
        the budget has room for that. closing_s: when the closing profile began, by the budget's clock."""
        why = audits.doubt(kept, hypotheses_of(self.search.ledger.rows, kept.row))
        if not why:
            return True
        row, why_not = audits.audit_of(kept, self.search.ledger.rows, self.shipped.digest(kept.row)), ""
        left_s = max(self.budget.total_s, closing_s) + audits.CLOSING_S - audits.REPORT_S - self.budget.used_s()
        if row is None and left_s < (needed_s := audits.needed_s(kept)):
            why_not = f"no time (about {needed_s:.0f} s needed, {max(left_s, 0.0):.0f} s left)"
        elif row is None and self.search.stopped is not None:
            why_not = self.search.stopped
        elif row is None:
            try:
                row = self._judged_anew(kept.row, "audited", {ROLE: AUDIT}, Effort(audits=True), left_s)
                why_not = f"no time ({row.reason})" if row.status == "out_of_budget" else row.reason
            except KeyboardInterrupt:
                self.interrupted, why_not = True, "interrupted"
            except KernelwrightError as error:
                why_not = error.message
        self.audit = audits.words(why, row, why_not)
        return row is None or not refutes(row)

    def _with_audit(self, kept: Kept) -> Kept:
        """With the audit of these very bytes, of this run or an earlier one, where it said FASTER."""
        sha256 = self.shipped.digest(kept.row)
        return replace(kept, audit=next((
            row for row in reversed(self.search.ledger.rows) if is_audit(row) and row.tags[OF] == kept.row.name and row.verdict is not None
            and row.verdict.verdict == "FASTER" and row.verdict.candidate_sha256 == sha256), None))

    def _keep_best(self, row: Experiment | None = None, why: str = "there was no time") -> Kept | None:
        """The best candidate that no confirmation refuted; unconfirmed, unless an earlier run confirmed these very bytes."""
        row = row or next(iter(self.search.best()), None)
        if row is None:
            self.shipped.remove()
            return None
        if self._confirmation(row) is None:  # what ablation left of a confirmed one takes its place once it is confirmed too
            gone, known = refuted(self.search.ledger.rows), {one.name: one for one in self.search.rows()}
            wholes = (known[name] for name in wholes_of(self.search.ledger.rows, row) if name in known and name not in gone)
            row = next((one for one in wholes if self._confirmation(one)), row)
        self.shipped.write(row)
        if (confirmation := self._confirmation(row)) is not None:
            return Kept(row, confirmation)
        self.notes.append(f"{row.name} was judged once and not confirmed by a second judgement: {why}.")
        return Kept(row, None)

    def _confirmation(self, row: Experiment) -> Experiment | None:
        """The judgement that confirmed the very optimized.py that is written for this candidate."""
        digest = self.shipped.digest(row)
        found = [item for item in self.search.ledger.rows if is_confirmation(item) and item.tags[OF] == row.name]
        verdict = found[-1].verdict if found else None
        return found[-1] if verdict is not None and verdict.verdict == "FASTER" and verdict.candidate_sha256 == digest else None

    def _complete(self) -> bool:
        """Whether the run that is resumed came to its end: nothing left to try, its winner confirmed and profiled, all written."""
        if self.earlier is None or self.earlier.get("interrupted") is not False or self.search.pending():
            return False
        top = next(iter(self.search.best()), None)
        if top is None:  # a larger budget may have room for what was left undecided
            again = next_attempt(self.search.best(or_undecided=True), self.search.ledger.rows, self.budget.left_s())
            return again is None and self._last_hope() is None
        files = (self.folder / OPTIMIZED, self.folder / "after" / "contract.md", self.folder / "report.md")
        kept = Kept(top, self._confirmation(top))
        return self.earlier.get("profiled") is True and kept.confirmation is not None and not self._owes_audit(kept) \
            and all(file.is_file() for file in files)

    def _owes_audit(self, kept: Kept) -> bool:
        """Whether there was no time for an audit for which there is now."""
        rows = self.search.ledger.rows
        if not audits.doubt(kept, hypotheses_of(rows, kept.row)) or self.budget.left_s() < audits.needed_s(kept):
            return False
        return audits.audit_of(kept, rows, self.shipped.digest(kept.row)) is None

    def _same_answer(self) -> Outcome:
        """The finished run's answer again: nothing is judged, profiled, written or logged."""
        self.say("the earlier run is complete: nothing is left to try")
        top = next(iter(self.search.best()), None)
        kept = Kept(top, self._confirmation(top)) if top is not None else None
        end = self._ending(kept, None, 0.0)
        outcome = self._outcome(end, self.stages.log(self.workload, []), self.folder / "report.md", profiled=kept is not None)
        earlier = self.earlier or {}
        clocks, warnings = earlier.get("clocks"), earlier.get("warnings")
        return replace(outcome, clocks=clocks if isinstance(clocks, dict) else None,
                       warnings=tuple(str(item) for item in warnings) if isinstance(warnings, list) else outcome.warnings)

    def _closing_profile(self, kept: Kept) -> Profile | None:
        optimized = WorkloadRef(path=self.folder / OPTIMIZED, name=self.workload.name)
        try:
            old, new = _paired(kept)
            baseline = restated(self.context.profile, old)
            run = self.stages.profile(optimized, self.folder / "after", baseline, CLOSING_PROFILE_S, new)
        except KernelwrightError as error:
            self.notes.append(f"optimized.py was not profiled: {error.message}.")
            return None
        except KeyboardInterrupt:
            self.interrupted = True
            return None
        return run.profile

    def _documents(self, kept: Kept | None, after: Profile | None, used_s: float) -> Outcome:
        end = self._ending(kept, after, used_s)
        devlog = self._log(end)
        report = write_reports(end)
        write_waiting(self.folder, self.search.waiting("the run was interrupted" if self.interrupted else ""))
        return self._outcome(end, devlog, report, profiled=after is not None)

    def _ending(self, kept: Kept | None, after: Profile | None, used_s: float) -> Ending:
        kept = self._with_audit(kept) if kept is not None else None
        confirmations = [row for row in self.search.ledger.rows if is_confirmation(row) or is_audit(row)]
        return Ending(
            workload=self.workload, state=self.state, folder=self.folder, rows=self.search.rows(), confirmations=confirmations, kept=kept,
            baseline=self.context.profile, after=after, used_s=used_s, interrupted=self.interrupted, notes=self.notes,
            recognised=recognised(self.context), audit=self.audit, changing=bool(self.context.facts.changing_inputs),
            needs_gradients=self.context.facts.needs_gradients, clocks=self.clocks(), history=tuple(self.search.ledger.rows),
            **screening_facts(self.search.ledger.rows, kept.row if kept is not None else None))

    def _outcome(self, end: Ending, devlog: Path | None, report: Path, *, profiled: bool) -> Outcome:
        kept = end.kept
        speedup, interval = kept.least if kept else (None, None)
        return Outcome(
            out_dir=self.folder, kept=kept.row.passes if kept else (), speedup=speedup or 1.0, interval=interval,
            optimized=self.folder / OPTIMIZED if kept else None, report=report, devlog=devlog,
            contract=self.folder / ("after" if profiled else "baseline") / "contract.md",
            interrupted=self.interrupted, line=result_line(end), precision=kept.row.precision if kept else None,
            confirmed=kept.confirmation is not None if kept else None,
            clocks=end.clocks.model_dump(mode="json") if end.clocks else None, warnings=tuple(warnings_of(end)))

    def _log(self, end: Ending) -> Path | None:
        """One entry of the baseline and one of the optimised version, with the judge's paired durations. A resume whose outcome is the
        one that was logged adds none."""
        line = result_line(end)
        place = {"optimization": str(self.folder), "result": line, "profiled": end.after is not None}
        entries: list[tuple[Profile, list[str], dict[str, Any]]] = []
        if self.earlier is None or (self.earlier.get("result"), self.earlier.get("profiled")) != (line, end.after is not None):
            source = PAIRED if end.kept else "baseline profile"
            old, _ = _paired(replace(end.kept, audit=None) if end.kept is not None else None)  # as `after` has them
            role: dict[str, Any] = {**place, "role": "baseline", "duration_source": source}
            again = [AGAIN] if self.earlier is not None else []
            entries.append((restated(end.baseline, old), again if end.after else [line, *sentences(end), *verdict_words(end)], role))
            if end.after is not None and end.kept is not None:
                role = {**place, "role": "optimized", "kept": list(end.kept.row.passes), "duration_source": source}
                entries.append((end.after, [f"{line} {DURATIONS}", *sentences(end)], role))
        try:
            return self.stages.log(self.workload, entries)
        except KernelwrightError as error:
            self.notes.append(f"No development log entry was written: {error.line()}")
            return None


def _paired(kept: Kept | None) -> tuple[Measurement, Measurement] | tuple[None, None]:
    comparison = kept.verdict.comparison if kept is not None else None
    return paired(comparison) if comparison is not None else (None, None)


def _no_judge(*_: object) -> Verdict:
    raise AssertionError("the judge is set when its session is open")
