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
from ..model.verdict import ACCEPTABLE, Audit, Correctness, Reproducer, Verdict, VerdictName
from ..model.workload import Precision, WorkloadRef
from . import conditions, guards, kernels, pairs, recurring, roofs, sanitizer, screening, undisturbed
from .channel import Worker, WorkerFailed
from .confine import Confinement, own_files_sha256
from .correctness import PRECISION_ORDER
from .exchange import TIMED, Exchange, Seeds
from .machine import environment_of
from .options import Deadline, JudgeOptions, OfReference, OutOfTime
from .outcome import timings, words
from .reasons import verdict_of
from .replies import Built, Done, Loaded, StateTaken, Surveyed
from .rounds import Rounds
from .scratch import Scratch
from .session import ReferenceSession, sha256_of
from .timing import Timed, compare, time_further
from .untrusted import remove

FURTHER_SHARE = {"cuda": 0.5, "cpu": 0.8}
"""A further pair's timing against the first one's: on a CPU the noise of the quads is what is left, on a GPU the luck of the pair."""
CONFIRMING_ROUNDS = 2
"""Rounds of fresh inputs of the second pair: the second refills the tensors of the first."""
WAITING = "waiting for the lock"
AFTER_TIMING_S, AFTER_TIMING_ROUNDS = 1.0, 4.0
"""What follows the timing (outputs of timed calls, audits) is expected to take so many seconds, and so many of the generator's rounds: it
took 0.2 to 0.6 s on two CPU cores, and 8.5 s on an H200 with outputs of 4 GB, which are compared as in a round."""
LEAST_TIMING_S = 0.5
"""With less it is tried all the same, and may be out of time."""
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
        return _Judgement(workload, candidate, options, session, deadline, say, alone=not options.confirm).verdict()


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
    alone: bool
    """No other pair of processes will be asked."""
    is_further: bool = False
    """It is one after the first."""
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
            if self.options.confirm and name in ACCEPTABLE and self.timed is not None:
                name, reasons = self._by_pairs(name, reasons)
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
            timings=timings(self.timed), phases_s={part: round(spent, 3) for part, spent in self.phases_s.items()})

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """What happens inside it is counted as this phase, whatever comes of it."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.phases_s[name] = self.phases_s.get(name, 0.0) + time.monotonic() - begin

    def _by_pairs(self, name: VerdictName, reasons: tuple[str, ...]) -> tuple[VerdictName, tuple[str, ...]]:
        """Further pairs of processes, until they decide together: the verdict of one that refuses, else what all say."""
        assert self.timed is not None
        device, alpha = "cuda" if self._on_gpu() else "cpu", self.options.alpha
        found = [self.timed]
        while self.timed.doubt is None and pairs.worth_another([pairs.Pair.of(one.found) for one in found], device, alpha):
            self.say(f"judging {self.candidate.name}: {found[-1].decision} by pair {len(found)} of processes; another pair")
            if self._on_gpu():
                self.session.rest()  # the device's memory is for one pair
            with self._phase("further pairs"):
                again, why, timed = self._another_pair(len(found))
            if again not in ACCEPTABLE or timed is None or timed.doubt:
                self.timed.doubt = self.timed.doubt or (timed.doubt if timed is not None else None)
                return again, (f"in a fresh pair of processes: {why[0]}", *(reasons[1:] if again in ACCEPTABLE else why[1:]))
            found.append(timed)
        if len(found) == 1:
            return name, reasons
        pooled = pairs.pool([pairs.Pair.of(one.found) for one in found], device, alpha)
        told = pairs.words(pooled, [(one.decision, one.comparison) for one in found])
        self.timed.comparison = pairs.combined(pooled, [one.comparison for one in found])
        self.timed.decision, self.timed.alpha, self.timed.stopped = pooled.decision, 1 - pooled.level, ""
        by_clock = [pairs.Pair.of(one.by_own_clock or one.found) for one in found]
        doubt = pairs.doubt_of(pooled, [one.decision for one in found], by_clock, device, alpha)
        if doubt is not None:
            self.timed.decision, self.timed.doubt = "AMBIGUOUS", doubt
            return "AMBIGUOUS", (doubt, told, *reasons[1:])
        first = (told, words(self.timed)) if told.startswith("not") else (words(self.timed), told)
        return pooled.decision, (*first, *reasons[1:])

    def _another_pair(self, earlier: int) -> tuple[VerdictName, tuple[str, ...], Timed | None]:
        """A judgement by fresh processes, which of them starts first taking turns."""
        timing_s = self.options.max_timing_s * FURTHER_SHARE["cuda" if self._on_gpu() else "cpu"]
        options = self.options.model_copy(update={
            "rounds": CONFIRMING_ROUNDS, "distributions": False, "steadiness": False, "degenerate": False, "conditions": (),
            "cross_check": False, "confirm": False, "audits": False, "max_timing_s": timing_s,
            "seed": self.seeds.of(f"pair {earlier + 1}")})
        with self.session.quiet(), ReferenceSession(self.workload, options, say=self.say, start=earlier % 2 == 0) as session:
            fresh = _Judgement(self.workload, self.candidate, options, session, self.deadline, silent, alone=False, is_further=True)
            fresh.hashes, fresh.own_files = self.hashes, self.own_files
            fresh.seeds = Seeds(session.seed, self.seeds.candidate_sha256, self.seeds.earlier)
            try:
                again, why = fresh._run()
            except _Refused as refused:
                again, why = refused.name, refused.reasons
            if fresh.timed is not None and again in ACCEPTABLE and self._on_gpu():
                with fresh._failures():
                    again, why = self._undisturbed(fresh, again, why)
        for part, shown in (("start", "further pairs' start"), (WAITING, WAITING)):
            self.phases_s[shown] = self.phases_s.get(shown, 0.0) + fresh.phases_s.get(part, 0.0)
        return again, why, fresh.timed

    def _undisturbed(self, fresh: _Judgement, again: VerdictName, why: tuple[str, ...]) -> tuple[VerdictName, tuple[str, ...]]:
        """What a pair said, held against the reference's time without the candidate, whose process has ended."""
        session, timed = fresh.session, fresh.timed
        if session.worker is None or timed is None:
            return again, why
        with fresh._exclusive():
            alone_ns = undisturbed.time_alone(Exchange(session.worker, session.private, self.options.timeout_s, self.deadline), timed)
        self.audits = [*(row for row in self.audits if row.name != undisturbed.NAME), undisturbed.audit(timed, alone_ns)]
        if doubt := undisturbed.doubt(timed, alone_ns):
            timed.doubt = timed.doubt or doubt
            return "AMBIGUOUS", (doubt, *why[1:])
        return again, why

    def _on_gpu(self) -> bool:
        return self.session.facts.environment.get("device") == "cuda"

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
            self.session.prepare_next()
            if surveyed_s := self.session.surveyed_s():
                self.phases_s["start"] -= surveyed_s
                self.phases_s["survey"] = surveyed_s
            with self._exclusive() if self.options.measures else contextlib.nullcontext():  # graphs are rewritten in the first call
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
        worker, folder = self._worker(stack, unconfinable)
        assert self.confinement is not None
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

    def _worker(self, stack: contextlib.ExitStack, unconfinable: str) -> tuple[Worker, Path]:
        """The candidate's process, not told to load anything yet, and its folder: a spare one, or a new one."""
        digest = self.hashes[self.candidate]
        spare = None if unconfinable else self.session.take_spare(stack, self.candidate, digest, self.options, self.deadline)
        if spare is not None:
            self.confinement = spare.confinement
            return spare.worker, spare.folder
        folder = self.session.workspace()
        stack.callback(remove, folder)
        self.confinement = Confinement(
            folder, self.options, digest, self.workload.path, self.candidate, self.session.private,
            (os.getpid(), self.session.living().process.pid), unconfinable)
        return stack.enter_context(Worker(
            "candidate", self.session.interpreter.path, self.session.shared, device=self.options.device, confinement=self.confinement,
            variables=self.session.byte_code)), folder

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
                with self._phase(WAITING):
                    stack.enter_context(device_lock(f"judge {self.candidate.name}", self.say, timeout_s=left if left < math.inf else None))
            except MachineLacks as error:
                if error.code != "busy":
                    raise
                raise OutOfTime("another profile or timing ran") from error
            yield

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Under the lock, and with what was started ahead kept still."""
        with self._lock(), self.session.quiet(), self.session.others():
            yield

    def _time(self, reference: Exchange, mine: Exchange, rounds: Rounds) -> tuple[VerdictName, tuple[str, ...]]:
        self.say(f"judging {self.candidate.name}: right on {len(rounds.results)} rounds; timing")
        with self._failures():
            with self._exclusive():
                timing_s = self._timing_s(rounds)
                export = (lambda index: mine.export("timed", rounds.timed_seed(index), TIMED)) if rounds.repeatable() else None
                self.timed = compare(
                    reference, mine, timing_s, self.options.alpha, export=export,
                    cross_check=self.options.cross_check, alone=self.alone)
            self.phases_s |= self.timed.seconds
            self.notes += self.timed.notes
            if self.timed.cheat is not None:
                return "CHEAT", (self.timed.cheat,)
            with self._phase("audits"):
                late = [found for one in self.timed.checked if (found := rounds.check_timed(one.pool_index, one.leaves))]
                self.reproducer = rounds.reproducer
                impossible = guards.impossible(self.timed, reference, mine, rounds, self.session.facts.environment, self.declared) \
                    if not late else roofs.Finding()
                on_gpu = self._on_gpu()
                self.audits += [guards.timed_calls(self.timed, late), guards.possible_speed(self.timed, impossible),
                                guards.independent_timer(self.timed, asked=self.options.cross_check, on_gpu=on_gpu)]
                self.timed.cheat = late[0] if late else impossible.cheat
            if self.timed.cheat is not None:
                return "CHEAT", (self.timed.cheat,)
            if impossible.doubt is not None:
                self.timed.decision, self.timed.doubt = "AMBIGUOUS", impossible.doubt
            cheat = self._on_new_values(reference, mine, rounds)
            if cheat is not None:
                self.timed.cheat = cheat
                return "CHEAT", (cheat,)
            # Before the conditions: a failed capture ends both processes.
            self.timed.cheat, usable = self._audit(reference, mine, rounds)
            if self.timed.cheat is not None:
                return "CHEAT", (self.timed.cheat,)
            if not usable and self.options.conditions:
                self.notes.append("further conditions were not timed: the ghost replay ended the candidate's process")
            elif self.options.conditions and (self.timed.decision == "FASTER" or not self.options.conditions_if_faster):
                self._time_further(reference, mine)
        assert self.correctness is not None
        return self.timed.decision, (self.timed.doubt or words(self.timed), *self.correctness.reasons)

    def _timing_s(self, rounds: Rounds) -> float:
        """The longest time for timing; with ends_in_time no more than the deadline leaves beside what follows."""
        if not self.options.ends_in_time:
            return self.options.max_timing_s
        left_s = self.deadline.left_s() - AFTER_TIMING_S - AFTER_TIMING_ROUNDS * rounds.round_s
        return min(self.options.max_timing_s, round(max(LEAST_TIMING_S, left_s), 1))

    def _on_new_values(self, reference: Exchange, mine: Exchange, rounds: Rounds) -> str | None:
        """Whether what may be faster is so on new values too: the reason for CHEAT, if any; a doubt is noted. Each pair of processes is
        asked: a candidate may tell one from another."""
        assert self.timed is not None
        if not self.options.audits and not self.is_further:
            return None
        seen, finding = None, roofs.Finding()
        if recurring.is_asked(self.timed):
            with self._exclusive(), self._phase("audits"):
                seen = recurring.measure(self.timed, reference, mine, rounds)
            finding = recurring.found(self.timed, seen)
        self.audits.append(recurring.audit(seen, finding))
        if finding.doubt is not None:
            self.timed.decision, self.timed.doubt = "AMBIGUOUS", finding.doubt
        return finding.cheat

    def _time_further(self, reference: Exchange, mine: Exchange) -> None:
        """The conditions decide nothing: the end of the time costs them and the processes, not what this pair said."""
        assert self.timed is not None
        try:
            with self._exclusive(), self._phase("conditions"):
                time_further(self.timed, reference, mine, self.options.conditions, self.options.max_timing_s)
        except OutOfTime as error:
            self.notes.append(f"further conditions were left out: {error.message}")
            self.session.rest()
        self.notes += conditions.slower_cold(self.timed.decision, self.timed.conditions)
        if any(row.condition == "graph" and row.not_applicable for row in self.timed.conditions):
            self._after_capture()

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
        if self._on_gpu():
            self.session.rest()
