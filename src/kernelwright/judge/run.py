"""judge(): one candidate against its workload, to a verdict."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..capture.lock import device_lock
from ..model.errors import BadInput, MachineLacks
from ..model.nearest import did_you_mean
from ..model.saying import Say, silent
from ..model.verdict import ACCEPTABLE, Audit, ConditionTiming, Correctness, Reproducer, Verdict, VerdictName
from ..model.workload import Precision, WorkloadRef
from ..roofline.knowledge import datasheet
from . import guards, kernels, roofs, sanitizer, screening
from .channel import Worker, WorkerFailed
from .confine import Confinement, own_files_sha256
from .confirm_pair import asks_again, combine
from .correctness import PRECISION_ORDER
from .exchange import Exchange, Seeds
from .machine import environment_of
from .options import Deadline, JudgeOptions, OfReference, OutOfTime
from .reasons import verdict_of
from .replies import Built, Done, Loaded, OutputBytes, StateTaken, Surveyed, Work
from .rounds import Rounds
from .scratch import Scratch
from .session import ReferenceSession, sha256_of
from .timing import Timed, compare, time_further
from .untrusted import remove

CONFIRMING_ROUNDS = 2
"""Rounds of fresh inputs of the second pair: the second refills the tensors of the first."""
ENTRY_CODES = ("no_entry_point", "bad_precision")
"""The candidate's file is not what the judge takes: bad input, not a verdict."""


def judge(
    workload: WorkloadRef, candidate: Path, options: JudgeOptions | None = None, *, session: ReferenceSession | None = None,
    deadline_s: float | None = None, say: Say = silent,
) -> Verdict:
    """Judge one candidate file.

    session: a live reference of the same workload (its options hold then for the reference; device and python must agree).
    deadline_s: time.monotonic() value after which OutOfTime is raised, the candidate's process ended.
    Whatever the candidate does is a verdict. Raises BadInput (no such file, no usable entry), OfReference (the workload itself cannot be
    run or gives no evidence), MachineLacks (no interpreter), OutOfTime.
    """
    options = options or (session.options if session is not None else JudgeOptions())
    candidate = candidate.absolute()
    if not candidate.is_file():
        raise BadInput("no_such_candidate", "no such file", where=str(candidate),
                       fix=did_you_mean(candidate, "give the path of the candidate's Python file", suffix=".py"))
    deadline = Deadline(deadline_s)
    deadline.check("starting")
    with contextlib.ExitStack() as stack:
        if session is None:
            session = stack.enter_context(ReferenceSession(workload, options, say=say))
        return _Judgement(workload, candidate, options, session, deadline, say).verdict()


class _Refused(Exception):
    """Ends a judgement early with its verdict."""

    def __init__(self, name: VerdictName, *reasons: str) -> None:
        super().__init__(name)
        self.name = name
        self.reasons = reasons


@dataclass
class _Judgement:
    workload: WorkloadRef
    candidate: Path
    options: JudgeOptions
    session: ReferenceSession
    deadline: Deadline
    say: Say
    declared: Precision = "equal"
    setup_s: float | None = None
    correctness: Correctness | None = None
    reproducer: Reproducer | None = None
    timed: Timed | None = None
    confinement: Confinement | None = None
    notes: list[str] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    phases_s: dict[str, float] = field(default_factory=dict)

    def verdict(self) -> Verdict:
        start = time.monotonic()
        self.hashes = {path: sha256_of(path) for path in (self.workload.path, self.candidate)}
        self.own_files = own_files_sha256()
        digest = self.hashes[self.candidate]
        self.seeds = Seeds(self.session.seed, digest, self.session.count(digest))
        if self.options.audits:
            self.audits += screening.audit(self.candidate)
        name: VerdictName
        try:
            name, reasons = self._run()
            if self.options.confirm and name in ACCEPTABLE and self._needs_another_pair():
                with self._phase("confirmation"):
                    name, reasons = self._again(name, reasons)
            if name in ACCEPTABLE:
                self._sanitize()  # last: its process is not confined, and there is nothing left that it could sway
        except _Refused as refused:
            name, reasons = refused.name, refused.reasons
        changed = self._changed()
        if changed:
            name, reasons = "CHEAT", (changed,)
        environment = self.session.facts.environment
        comparison = self.timed.comparison if self.timed is not None else None
        stated = comparison if name in ACCEPTABLE and self.timed is not None and not self.timed.doubt else None
        return Verdict(
            verdict=name, precision=self.options.precision, declared_precision=self.declared,
            speedup=stated.speedup if stated else None, interval=stated.interval if stated else None,
            reasons=(*reasons, *self.notes), correctness=self.correctness, comparison=comparison,
            separation=self.confinement.separation(timed=self.timed is not None, hashed=not changed) if self.confinement else None,
            audits=tuple(self.audits), reproducer=self.reproducer, workload=str(self.workload.path), candidate=str(self.candidate),
            workload_sha256=self.hashes[self.workload.path], candidate_sha256=self.hashes[self.candidate],
            device_name=str(environment.get("device_name", "")), torch_version=str(environment.get("torch_version", "")),
            environment=environment_of(environment), seed=self.session.seed, elapsed_s=time.monotonic() - start,
            candidate_setup_s=self.setup_s,
            timings=_timings(self.timed), phases_s={part: round(spent, 3) for part, spent in self.phases_s.items()})

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """What happens inside it is counted as this phase, whatever comes of it."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.phases_s[name] = self.phases_s.get(name, 0.0) + time.monotonic() - begin

    def _needs_another_pair(self) -> bool:
        timed = self.timed
        return timed is not None and timed.doubt is None and asks_again(timed.decision, timed.comparison.speedup, timed.comparison.interval)

    def _again(self, name: VerdictName, reasons: tuple[str, ...]) -> tuple[VerdictName, tuple[str, ...]]:
        """A fresh pair of processes, the candidate's started first: its verdict where that is a refusal, else what both pairs say."""
        assert self.timed is not None
        self.say(f"judging {self.candidate.name}: {name} by the first pair of processes; a second one")
        if self.session.facts.environment.get("device") == "cuda":
            self.session.rest()  # the device's memory is for one pair
        options = self.options.model_copy(update={
            "rounds": CONFIRMING_ROUNDS, "distributions": False, "steadiness": False, "degenerate": False, "conditions": (),
            "cross_check": False, "confirm": False, "audits": False,
            "seed": self.seeds.of("confirmation")})
        with ReferenceSession(self.workload, options, say=self.say, start=False) as session:
            fresh = _Judgement(self.workload, self.candidate, options, session, self.deadline, silent)
            fresh.hashes, fresh.own_files = self.hashes, self.own_files
            fresh.seeds = Seeds(session.seed, self.seeds.candidate_sha256, self.seeds.earlier)
            try:
                again, why = fresh._run()
            except _Refused as refused:
                again, why = refused.name, refused.reasons
        self.phases_s["confirmation's start"] = fresh.phases_s.get("start", 0.0)
        if again not in ACCEPTABLE:
            return again, (f"in a fresh pair of processes: {why[0]}", *why[1:])
        assert fresh.timed is not None
        both = combine(self.timed.decision, self.timed.comparison, fresh.timed.decision, fresh.timed.comparison,
                       "cuda" if self.session.facts.environment.get("device") == "cuda" else "cpu")
        self.timed.comparison, self.timed.decision = both.comparison, both.decision
        if both.decision == "AMBIGUOUS" and both.words.startswith("not"):
            return both.decision, (both.words, *([why[0]] if fresh.timed.doubt else []), *reasons[1:])
        return both.decision, (_words(self.timed), both.words, *reasons[1:])

    def _changed(self) -> str | None:
        names = [path.name for path, digest in self.hashes.items() if sha256_of(path) != digest]
        if own_files_sha256() != self.own_files:
            names.append("the judge's own files")
        return f"{', '.join(names)} changed while it was judged" if names else None

    def _run(self) -> tuple[VerdictName, tuple[str, ...]]:
        with contextlib.ExitStack() as stack:
            with self._phase("start"):
                reference, mine, facts = self._started(stack, self.session.unconfinable)
                self._same_weights(reference, mine, facts)
            with self._phase("build"):
                self._build(mine)
            with self._phase("correctness"):
                rounds = self._check_outputs(reference, mine)
            if not self.options.timing:
                cheat, _ = self._audit(reference, mine, rounds)
                told = self.correctness.reasons if self.correctness else ()
                return ("CHEAT", (cheat,)) if cheat else ("AMBIGUOUS", ("right; timing was not asked for", *told))
            return self._time(reference, mine, rounds)

    def _started(self, stack: contextlib.ExitStack, unconfinable: str) -> tuple[Exchange, Exchange, Loaded]:
        """Both sides, loaded. A workload that cannot be loaded in a confined process is loaded again in one that is only watched."""
        folder = self.session.workspace()
        stack.callback(remove, folder)
        self.confinement = Confinement(
            folder, self.options, self.hashes[self.candidate], self.workload.path, self.candidate, self.session.private,
            (os.getpid(), self.session.living().process.pid), unconfinable)
        worker = stack.enter_context(Worker("candidate", self.session.interpreter.path, self.session.shared, device=self.options.device,
                                            confinement=self.confinement))
        try:
            with self._failures():
                worker.send("load", **self.session.load_request())
            reference = self.session.ready(self.deadline, survey=self.options.surveys)
            mine = Exchange(worker, folder, self.options.timeout_s, self.deadline)
            with self._failures():
                return reference, mine, mine.receive("load", Loaded)
        except _Refused as refused:
            if not self.confinement.confines():
                raise
            worker.close()
            started = self._started(stack, f"the workload could not be loaded in a confined process: {refused.reasons[0]}")
            self.session.unconfinable = self.confinement.unconfinable
            return started

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """A failure of the candidate's worker is a verdict; one of the reference's is the workload's own."""
        try:
            yield
        except WorkerFailed as error:
            if error.role == "reference":
                raise self.session.failure(error) from error
            raise _Refused(*verdict_of(error)) from error
        except OfReference as error:
            error.where = error.where or str(self.workload.path)
            raise

    def _same_weights(self, reference: Exchange, mine: Exchange, facts: Loaded) -> None:
        theirs = self.session.facts.state
        if facts.state == theirs:
            return
        if facts.state.keys() != theirs.keys():
            raise _Refused("FAILED", "the workload builds another model in the candidate's process than in the reference's")
        file = self.session.shared / f"{secrets.token_hex(8)}.tensors"
        try:
            with self._failures():
                reference.ask("dump_state", Done, file=str(file))
                loaded = mine.ask("load_state", StateTaken, file=str(file)).loaded
        finally:
            remove(file)
        if not loaded:
            raise _Refused("FAILED", "the workload's weights do not follow the seed, and could not be copied between the processes")
        self.notes.append("the workload's weights do not follow the seed: the reference's were copied")

    def _build(self, mine: Exchange) -> None:
        try:
            built = mine.ask("build", Built, candidate=str(self.candidate), seed=self.session.workload_seed)
        except WorkerFailed as error:
            if error.code in ENTRY_CODES:
                raise BadInput(error.code, error.message, where=error.where or str(self.candidate), fix=error.fix) from error
            raise _Refused(*verdict_of(error)) from error
        self.setup_s = built.build_s
        self.notes += built.notes
        self.declared = built.precision
        if PRECISION_ORDER.index(self.declared) > PRECISION_ORDER.index(self.options.precision):
            raise _Refused(
                "WRONG", f"it declares PRECISION = \"{self.declared}\", and --precision {self.options.precision} does not allow that")

    def _check_outputs(self, reference: Exchange, mine: Exchange) -> Rounds:
        self.say(f"judging {self.candidate.name}: {self.options.rounds} rounds of fresh inputs")
        rounds = Rounds(reference, mine, self.seeds, self.options.rounds, self.declared, self.session.shared, self.options,
                        self.session.survey or Surveyed(applicable=False), self.deadline, training=self.session.facts.training)
        with self._failures():
            rounds.share_inputs()
            rounds.run()
            name, self.correctness = rounds.verdict()
            self.reproducer = rounds.reproducer
        self.setup_s = (self.setup_s or 0.0) + rounds.first_call_s
        if name is not None:
            raise _Refused(name, *self.correctness.reasons)
        changed = self._changed()
        if changed:
            raise _Refused("CHEAT", changed)
        return rounds

    def _sanitize(self) -> None:
        """compute-sanitizer, where it was asked for: an error in a kernel of the candidate's own ends the judgement."""
        if not self.options.sanitize:
            return
        self.deadline.check("compute-sanitizer was to start")
        self.say(f"judging {self.candidate.name}: compute-sanitizer ({', '.join(self.options.sanitize)})")
        scratch = Scratch("sanitizer")
        try:
            asked = sanitizer.Asked(
                self.session.interpreter.path, self.options.device,
                {**self.session.load_request(), "device": self.session.facts.environment.get("device", self.options.device),
                 "inputs_seed": self.seeds.of("inputs of sanitizer"), "call_seed": self.seeds.of("call of sanitizer")},
                self.candidate, scratch.folder, min(self.options.timeout_s, self.deadline.left_s()))
            rows = sanitizer.audit(asked, self.options.sanitize)
        finally:
            scratch.remove()
        self.audits += rows
        failed = [f"{row.name}: {row.detail}" for row in rows if row.result == "failed"]
        if failed:
            raise _Refused("FAILED", *failed)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """The one-profile-at-a-time lock; waits for another holder no longer than the deadline."""
        if not self.options.lock:
            yield
            return
        left = self.deadline.left_s()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(device_lock(f"judge {self.candidate.name}", self.say, timeout_s=left if left < math.inf else None))
            except MachineLacks as error:
                if error.code != "busy":
                    raise
                raise OutOfTime("another profile or timing ran") from error
            yield

    def _time(self, reference: Exchange, mine: Exchange, rounds: Rounds) -> tuple[VerdictName, tuple[str, ...]]:
        self.say(f"judging {self.candidate.name}: right on {len(rounds.results)} rounds; timing")
        with self._failures():
            with self._lock():
                export = (lambda index: mine.export("timed", rounds.timed_seed(index))) if rounds.repeatable else None
                self.timed = compare(
                    reference, mine, self.options.max_timing_s, self.options.alpha, export=export,
                    cross_check=self.options.cross_check)
            self.phases_s |= self.timed.seconds
            self.notes += self.timed.notes
            if self.timed.cheat is not None:
                return "CHEAT", (self.timed.cheat,)
            with self._phase("audits"):
                late = [found for one in self.timed.checked if (found := rounds.check_timed(one.pool_index, one.leaves))]
                self.reproducer = rounds.reproducer
                impossible = self._impossible(reference, mine, rounds) if not late else roofs.Finding()
                on_gpu = self.session.facts.environment.get("device") == "cuda"
                self.audits += [guards.timed_calls(self.timed, late), guards.possible_speed(self.timed, impossible),
                                guards.independent_timer(self.timed, asked=self.options.cross_check, on_gpu=on_gpu)]
                self.timed.cheat = late[0] if late else impossible.cheat
            if self.timed.cheat is not None:
                return "CHEAT", (self.timed.cheat,)
            if impossible.doubt is not None:
                self.timed.decision, self.timed.doubt = "AMBIGUOUS", impossible.doubt
            # Before the conditions: a failed capture ends both processes.
            self.timed.cheat, usable = self._audit(reference, mine, rounds)
            if self.timed.cheat is not None:
                return "CHEAT", (self.timed.cheat,)
            if not usable and self.options.conditions:
                self.notes.append("further conditions were not timed: the ghost replay ended the candidate's process")
            elif self.options.conditions:
                with self._phase("conditions"), self._lock():
                    self.notes += time_further(self.timed, reference, mine, self.options.conditions, self.options.max_timing_s)
                if any(row.condition == "graph" and row.not_applicable for row in self.timed.conditions):
                    self._after_capture()
        assert self.correctness is not None
        return self.timed.decision, (self.timed.doubt or _words(self.timed), *self.correctness.reasons)

    def _audit(self, reference: Exchange, mine: Exchange, rounds: Rounds) -> tuple[str | None, bool]:
        """Audits that run the candidate once more, of one that nothing was found against: the reason for CHEAT, if any, and whether its
        process can go on."""
        if not self.options.audits:
            return None, True
        with self._phase("audits"), self._failures():
            found = kernels.audit(self.candidate, reference, mine, rounds)
        self.audits += found.rows
        return found.cheat, found.usable

    def _after_capture(self) -> None:
        """A failed capture can leave a CUDA context in which nothing works any more: another candidate gets a new reference."""
        if self.session.facts.environment.get("device") == "cuda":
            self.session.rest()

    def _impossible(self, reference: Exchange, mine: Exchange, rounds: Rounds) -> roofs.Finding:
        """Whether a faster candidate is faster than can be."""
        assert self.timed is not None
        if self.timed.decision != "FASTER":
            return roofs.Finding()
        environment = self.session.facts.environment
        on_gpu = environment.get("device") == "cuda"
        sheet = datasheet(str(environment.get("device_name", ""))) if on_gpu else None
        needed, own = reference.ask("output_bytes", OutputBytes), mine.ask("output_bytes", OutputBytes)
        work = Work()
        if sheet is not None:
            with contextlib.suppress(WorkerFailed):  # what torch cannot count is no floor
                work = reference.ask("count_work", Work)
        cache = environment.get("l2_bytes")
        device = roofs.Roofs(sheet, 0 if on_gpu else os.cpu_count() or 1, cache if isinstance(cache, int) else None)
        dtypes = {leaf.dtype for leaf in rounds.results[0].expected.reference if leaf.floating}
        return roofs.examine(
            roofs.Need(needed.output_bytes, needed.input_bytes, work.min_bytes, work.flops), device,
            candidate_ns=self.timed.comparison.candidate.median_ns, reference_ns=self.timed.comparison.reference.median_ns,
            own_output_bytes=own.output_bytes, ring=self.timed.ring, precision=self.declared, all_float32=dtypes == {"float32"})


def _timings(timed: Timed | None) -> tuple[ConditionTiming, ...]:
    """A row for each condition, warm first; none where the times are void."""
    if timed is None or timed.cheat is not None:
        return ()
    one = timed.comparison
    warm = ConditionTiming(condition="warm", reference_ns=one.reference.median_ns, candidate_ns=one.candidate.median_ns,
                           speedup=one.speedup, interval=one.interval, pairs=one.pairs, method=one.method)
    return (warm, *timed.conditions)


def _words(timed: Timed) -> str:
    comparison, (low, high) = timed.comparison, timed.comparison.interval
    level, stopped = f"{100 * (1 - timed.alpha):.4g}%", f"; {timed.stopped}" if timed.stopped else ""
    interval = f"speed-up {comparison.speedup:.3f}x, {level} interval {low:.3f} to {high:.3f} over {comparison.pairs} pairs"
    seen = f"a difference of {comparison.smallest_detectable_effect_pct:.1f}% would have been seen"
    effect = 100 * math.expm1(abs(math.log(comparison.speedup)))
    if timed.decision == "AMBIGUOUS" and not low <= 1 <= high and effect < comparison.smallest_detectable_effect_pct:
        return (f"too noisy to tell: {interval}, which excludes 1; but the effect of {effect:.1f}% is below the smallest one that this "
                f"much noise would reliably show, {comparison.smallest_detectable_effect_pct:.1f}%{stopped}")
    if timed.decision == "AMBIGUOUS":
        return f"too noisy to tell: {interval}; {seen}, a smaller one may be there{stopped}"
    return f"{interval}; {seen}{stopped}"
