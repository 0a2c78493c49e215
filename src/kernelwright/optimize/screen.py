"""The quick screen as the search sees it: one process that holds the workload, candidates one after another, times under the lock.

It is started again after whatever spoiled it, and given up after it could not load the workload: the judge then decides alone. Other
processes compile upcoming candidates into the compilers' caches meanwhile; they are stopped while anything is timed, also by a candidate
that chooses its kernels so.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from pydantic import Field, ValidationError

from ..capture.byte_code import byte_code_variables
from ..capture.cpus import granted_cpus
from ..capture.interpreter import find_interpreter
from ..capture.lock import device_lock
from ..judge.channel import REPORT_S, Worker, WorkerFailed
from ..judge.confine import Confinement
from ..judge.options import Deadline, JudgeOptions, OutOfTime
from ..judge.reasons import verdict_of
from ..judge.replies import R, Reply, Seconds, Text
from ..judge.scratch import Scratch
from ..judge.session import ReferenceSession, sha256_of
from ..judge.spare import worthwhile
from ..model.errors import MachineLacks
from ..model.saying import Say, silent
from ..model.trial import Screen
from ..model.workload import Precision, WorkloadRef

TIMING_S = 2.0
"""Longest timing of one candidate."""
TIMING_LIMIT_S = 2 * TIMING_S
"""The same with its warm-up."""
GRACE_S = 5.0
"""The worker ends a candidate itself at its limit; this much later it is ended with it."""
LEAST_GRACE_S = 1.0
"""The same after the time that there is, where the next seconds are a confirmation's: on an H200 five of nine went to a candidate that did
not end itself, and what was kept stayed unconfirmed."""
DROP_S = 10.0
"""To forget a candidate: else a new process, which loads the workload anew."""
CORES_A_COMPILER = 4
MOST_COMPILERS = 3
"""Processes that compile ahead: one for each CORES_A_COMPILER CPUs that may be used, beyond the first four."""
NOT_APPLICABLE = re.compile(r"not applicable: (.*?)(?: \([^()]*\))?$")
UNCONFINED = "the screen runs kernelwright's own candidates: its processes are watched, not confined"


class _Ready(Reply):
    device: Text


class _Prepared(Reply):
    build_s: Seconds
    error: float | None
    limit: float | None
    wrong: Text
    spoiled: bool


class _Times(Reply):
    speedup: float = Field(gt=0, allow_inf_nan=False)
    interval: list[float] | None
    pairs: int = Field(ge=1)
    reference_ns: float = Field(gt=0, allow_inf_nan=False)
    candidate_ns: float = Field(gt=0, allow_inf_nan=False)
    calls: int = Field(ge=1)
    hopeless: bool


class _Dropped(Reply):
    spoiled: bool


class Unusable(Exception):
    """The workload can't be screened; the words say why."""


class _Busy(Exception):
    """Another process held the lock for as long as a candidate may take."""

    def __init__(self) -> None:
        super().__init__("another profile or timing ran")


@dataclass(frozen=True)
class Ask:
    """One candidate for the screen."""

    file: Path
    precision: Precision
    limit_s: float
    """For building, calls, comparison and waiting for the lock together, once the workload is loaded; the timing (TIMING_LIMIT_S), and what
    importing the compiler takes (GRACE_S at most), come on top."""
    left_s: float = math.inf
    """Seconds that there are for all but what comes on top. The workload's process may take them to load."""
    strict: bool = False
    """What comes after left_s is a confirmation's: of all but the timing, LEAST_GRACE_S at most come on top of it."""
    compiles: bool = False
    measures: bool = False
    """It times kernels while it is built and first called: that is done alone, as the timing is."""
    lasts: bool = False
    """It leaves settings in its process: the original's time from before counts, and the next candidate gets another process."""
    hopeless: float | None = None
    """A speed-up below which timing need not go on."""
    against: Path | None = None
    """Timed against this candidate; None: the original."""
    against_name: str = ""
    shapes: bool = False
    """Input shapes or plain values follow the seed: several inputs are looked at and timed in turns."""


@dataclass
class Screener:
    """`with Screener(workload, options) as screener: screener.screen(ask)`."""

    workload: WorkloadRef
    options: JudgeOptions
    say: Say = silent
    judging: Callable[[], ReferenceSession | None] = lambda: None
    """The judge's session, which prepares the next judgement meanwhile."""
    _worker: Worker | None = field(default=None, init=False)
    _loading: bool = field(default=False, init=False)
    _spares: list[Worker] = field(default_factory=list, init=False)
    """Started by `prepare` and not needed yet."""
    _ahead: list[_Compiler] = field(default_factory=list, init=False)
    _ending: list[Worker] = field(default_factory=list, init=False)
    """Told to end, and not waited for yet."""
    _begun: set[Path] = field(default_factory=set, init=False)
    """Given to a process that compiles ahead: once each."""
    _compiled: set[Path] = field(default_factory=set, init=False)
    _is_quiet: bool = field(default=False, init=False)
    _seed: int = field(default_factory=lambda: secrets.randbits(32), init=False)

    def __enter__(self) -> Screener:
        self._interpreter = find_interpreter(self.options.python, self.workload.path, self.options.device, self.say)
        self._scratch = Scratch("screen")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all processes. Safe to repeat."""
        self._end_all()
        self._scratch.remove()

    def let_end(self) -> None:
        """Tell all processes to end; `close` waits for them, and others may end meanwhile. What is asked for later starts new ones."""
        self._tell_to_end(self._worker)
        self._worker = None

    def prepare(self) -> None:
        """Start the process that screens and those that compile ahead, where this machine has room for them: they import what compilers
        need, and load nothing yet. Never fails: what cannot start is started, and complained of, when it is needed."""
        if self._spares or self._worker is not None or not worthwhile(self.workload):
            return
        with contextlib.suppress(MachineLacks, OSError):
            for number in range(1 + self.processes()):
                self._spares.append(self._spawn(f"spare{number}", ahead=True))

    def screen(self, ask: Ask) -> Screen:
        """Look at one candidate; whatever it does is a Screen. Raises Unusable when the workload itself can't be loaded."""
        start = loaded = time.monotonic()
        if (session := self.judging()) is not None:
            session.prepare()
        try:
            is_new = self._worker is None or self._loading
            worker = self._ready(Deadline(start + ask.left_s))
            loaded = time.monotonic() if is_new else start
            end = Deadline(start + ask.left_s if ask.strict else None)
            screen = self._look(worker, ask, Deadline(min(time.monotonic() + ask.limit_s, start + ask.left_s)), end)
        except OutOfTime:
            self._rest()
            screen = Screen(status="out_of_budget", reason="the workload was not loaded in the time left")
        except _Busy as why:  # before anything was asked of the process
            screen = Screen(status="out_of_budget", reason=str(why))
        return screen.model_copy(update={"elapsed_s": time.monotonic() - start, "load_s": loaded - start, "against": ask.against_name})

    def compile_ahead(self, files: Sequence[Path], limit_s: float) -> None:
        """Have these compiled meanwhile, each once, as far as there are processes for it."""
        self._collect()
        for file in (file for file in files if file not in self._begun):
            idle = next((compiler for compiler in self._ahead if not compiler.busy), None)
            if idle is None and len(self._ahead) < self.processes():
                idle = _Compiler(self._new(f"compiler{secrets.token_hex(2)}"), self._load_request())
                self._ahead.append(idle)
            if idle is None:
                return
            self._begun.add(file)
            idle.begin(file, self._seed, limit_s)

    def processes(self) -> int:
        """How many may compile ahead on this machine."""
        return compilers(granted_cpus())

    def begun(self, file: Path) -> bool:
        """Whether a process was given it, whatever became of that."""
        return file in self._begun

    def compiled(self, file: Path) -> bool:
        """Whether it was compiled ahead: the compilers' caches have it."""
        self._collect()
        return file in self._compiled

    def compiling(self, files: Sequence[Path]) -> bool:
        """Whether a process is busy with one of these."""
        self._collect()
        return any(compiler.busy and compiler.file in files for compiler in self._ahead)

    def end_ahead(self) -> None:
        """End all processes but the one that screens."""
        self._wait_for(self._tell_to_end(None))

    def _collect(self) -> None:
        """Take what the processes that compile ahead have replied; end those of no use."""
        for compiler in [compiler for compiler in self._ahead if not compiler.collect(self._compiled)]:
            compiler.worker.close()
            self._ahead.remove(compiler)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """No process compiles, or imports what compilers need, inside it; one inside another changes nothing."""
        if self._is_quiet:
            yield
            return
        for spare in [spare for spare in self._spares if not (spare.reported(REPORT_S) and spare.signal(signal.SIGSTOP))]:
            spare.close()
            self._spares.remove(spare)
        stopped = [compiler for compiler in self._ahead if compiler.stop()]
        for compiler in [compiler for compiler in self._ahead if compiler not in stopped]:
            compiler.worker.close()
            self._ahead.remove(compiler)
        self._is_quiet = True
        try:
            yield
        finally:
            self._is_quiet = False
            for compiler in stopped:
                compiler.go_on()
            for spare in self._spares:
                spare.signal(signal.SIGCONT)

    @contextlib.contextmanager
    def _alone(self, ask: Ask, until: Deadline) -> Iterator[None]:
        """Nobody else computes inside it, as far as it is up to us. Raises _Busy."""
        session = self.judging()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(device_lock(f"screen {ask.file.name}", self.say, timeout_s=until.left_s()))
            except MachineLacks as error:
                if error.code != "busy":
                    raise
                raise _Busy from error
            stack.enter_context(self.quiet())
            if session is not None:
                stack.enter_context(session.quiet())
                stack.enter_context(session.others())
            yield

    def _look(self, worker: Worker, ask: Ask, until: Deadline, end: Deadline) -> Screen:
        """Build, call, compare and time it, and see to what it leaves behind. until: when it should end by itself; end: must be ended."""
        prepared: _Prepared | None = None
        alone = self._alone(ask, until) if ask.measures else contextlib.nullcontext()
        try:
            with alone:
                prepared = _asked(worker, "prepare", _Prepared, until.left_s(), end.left_s(), {
                    "candidate": str(ask.file), "against": str(ask.against) if ask.against else "", "seed": self._seed,
                    "precision": ask.precision, "compiles": ask.compiles, "shapes": ask.shapes, "lasts": ask.lasts})
            if prepared.wrong:
                screen = Screen(status="wrong", reason=prepared.wrong, error=prepared.error, limit=prepared.limit, build_s=prepared.build_s)
            else:
                screen = self._timed(worker, ask, prepared, until, end)
        except WorkerFailed as error:
            screen = _failed(error, prepared)
        if ask.lasts or self._spoiled(worker, prepared, screen):
            self._rest()
        return screen

    def _timed(self, worker: Worker, ask: Ask, prepared: _Prepared, until: Deadline, end: Deadline) -> Screen:
        try:
            with self._alone(ask, until):
                limit_s = max(0.0, until.left_s()) + TIMING_LIMIT_S  # importing the compiler may have taken building beyond its limit
                times = _asked(worker, "time", _Times, limit_s, max(0.0, end.left_s()) + TIMING_LIMIT_S,
                               {"seconds": TIMING_S, "hopeless": ask.hopeless})
        except _Busy as why:
            return Screen(status="out_of_budget", reason=str(why), build_s=prepared.build_s)
        interval = (times.interval[0], times.interval[1]) if times.interval is not None else None
        return Screen(status="hopeless" if times.hopeless else "timed", speedup=times.speedup, interval=interval, pairs=times.pairs,
                      reference_ns=times.reference_ns, candidate_ns=times.candidate_ns, calls=times.calls, error=prepared.error,
                      limit=prepared.limit, build_s=prepared.build_s)

    def _spoiled(self, worker: Worker, prepared: _Prepared | None, screen: Screen) -> bool:
        """Whether the next candidate needs a new process: on a GPU after any failure, and where something was left behind."""
        if worker.process.poll() is not None:
            return True
        if self._device == "cuda" and (prepared is None or prepared.spoiled) and screen.status != "not_applicable":
            return True
        try:
            return _asked(worker, "drop", _Dropped, DROP_S, math.inf, {}).spoiled
        except WorkerFailed:
            return True

    def _ready(self, until: Deadline) -> Worker:
        """The process with the workload loaded. Raises Unusable; OutOfTime where it takes longer than there is."""
        if self._worker is None:
            self._start()
        assert self._worker is not None
        if self._loading:
            try:
                self._device = _received(self._worker, "load", _Ready, self.options.timeout_s, until).device
            except WorkerFailed as error:
                raise self._unusable(error) from error
            self._loading = False
        return self._worker

    def _start(self) -> None:
        self._worker = self._new("screen")
        self._loading = True
        try:
            self._worker.send("load", **self._load_request())
        except WorkerFailed as error:
            raise self._unusable(error) from error

    def _unusable(self, error: WorkerFailed) -> Unusable:
        """Nobody is left to stop what compiles ahead while the judge times."""
        self._end_all()
        return Unusable(verdict_of(error)[1])

    def _end_all(self) -> None:
        self._tell_to_end(self._worker)
        self._worker = None
        self._wait_for(self._ending)

    def _tell_to_end(self, worker: Worker | None) -> list[Worker]:
        """This one, those that compile ahead and those that were started for it. What they were busy with counts as not begun."""
        told = [*([worker] if worker is not None else []), *(compiler.worker for compiler in self._ahead), *self._spares]
        self._ending += told  # first: whatever interrupts this, `close` ends them
        self._begun -= {compiler.file for compiler in self._ahead if compiler.busy}
        self._ahead.clear()
        self._spares.clear()
        for one in told:
            one.tell_to_end()
        return told

    def _wait_for(self, told: Sequence[Worker]) -> None:
        for one in list(told):
            one.close()
            self._ending.remove(one)

    def _rest(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _load_request(self) -> dict[str, object]:
        return {"path": str(self.workload.path), "version": self.workload.version, "params": self.workload.params,
                "device": self.options.device, "seed": self._seed}

    def _new(self, name: str) -> Worker:
        """A process for this, one that was started ahead where there is one."""
        while self._spares:
            spare = self._spares.pop(0)
            if spare.process.poll() is None:
                return spare
            spare.close()
        return self._spawn(name)

    def _spawn(self, name: str, *, ahead: bool = False) -> Worker:
        """A watched process: at its end all that it started ends too. ahead: it imports what compilers need before it is asked anything."""
        folder = self._scratch.folder / name
        folder.mkdir(exist_ok=True)
        watched = Confinement(folder, self.options, sha256_of(self.workload.path), self.workload.path, self.workload.path, folder,
                              (os.getpid(),), UNCONFINED)
        return Worker("screen", self._interpreter.path, folder, device=self.options.device, confinement=watched,
                      variables={"TORCHINDUCTOR_FX_GRAPH_CACHE": os.environ.get("TORCHINDUCTOR_FX_GRAPH_CACHE", "1"),
                                 **byte_code_variables(self._interpreter)}, ahead=ahead)


class _Compiler:
    """A process that compiles one candidate at a time and times nothing."""

    def __init__(self, worker: Worker, load: dict[str, object]) -> None:
        self.worker, self.file = worker, Path()
        self.busy, self._next = True, ""
        self._until = float("inf")
        self._stopped = 0.0
        self._queue: dict[str, object] | None = None
        worker.send("load", **load)

    def begin(self, file: Path, seed: int, limit_s: float) -> None:
        """Compile this file, after what it is busy with."""
        self.file, self._queue = file, {"candidate": str(file), "seed": seed, "limit_s": limit_s}
        self.busy = True
        self.collect(set())

    def collect(self, compiled: set[Path]) -> bool:
        """Take a reply that is there (a file that is done joins `compiled`), and go on with what is waiting. False: this process is of no
        use any more."""
        if time.monotonic() > self._until:
            return False
        if self._pending() and not self.worker.answered():
            return True
        try:
            if self._pending():
                self.worker.receive(timeout_s=1.0)
                if self.busy and self._queue is None:
                    compiled.add(self.file)
        except WorkerFailed:  # the candidate's own failure may have cost a GPU's context
            return False
        self.busy = False
        if self._queue is not None:
            fields, self._queue = self._queue, None
            try:
                self.worker.send("compile", **fields)
            except WorkerFailed:
                return False
            self._until, self.busy = time.monotonic() + float(str(fields["limit_s"])) + GRACE_S, True
        return True

    def stop(self) -> bool:
        """Stop it and all that it started. False: it is gone, or its supervisor has not said whom to stop; it is of no use then."""
        self._stopped = time.monotonic()
        return self.worker.reported(REPORT_S) and self.worker.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After a stop, which takes nothing of its time."""
        self._until += time.monotonic() - self._stopped
        self.worker.signal(signal.SIGCONT)

    def _pending(self) -> bool:
        return self.worker._pending is not None


def compilers(cores: float) -> int:
    """How many processes may compile ahead on so many cores."""
    return max(0, min(MOST_COMPILERS, int(cores // CORES_A_COMPILER) - 1))


def _asked(worker: Worker, op: str, shape: type[R], limit_s: float, left_s: float, fields: dict[str, object]) -> R:
    """The worker ends this itself in limit_s, and is ended GRACE_S later; LEAST_GRACE_S after left_s where that is sooner."""
    worker.send(op, **fields, limit_s=limit_s)
    return _received(worker, op, shape, min(limit_s + GRACE_S, left_s + LEAST_GRACE_S))


def _received(worker: Worker, op: str, shape: type[R], timeout_s: float, until: Deadline | None = None) -> R:
    reply = worker.receive(timeout_s=timeout_s, deadline=until)
    try:
        return shape.model_validate(reply)
    except (ValidationError, RecursionError) as error:
        raise WorkerFailed("malformed", f"gave a reply to {op} that cannot be one", role="screen") from error


def _failed(error: WorkerFailed, prepared: _Prepared | None) -> Screen:
    reason = verdict_of(error)[1]
    found = NOT_APPLICABLE.search(reason)
    if found is not None:
        return Screen(status="not_applicable", reason=found[1])
    build_s, where = (0.0, "") if prepared is None else (prepared.build_s, f", in its timing (built in {prepared.build_s:.0f} s)")
    if error.code == "screen_timeout" or error.code == "timeout":
        return Screen(status="out_of_budget", reason=reason + where, build_s=build_s)
    return Screen(status="failed", reason=reason, build_s=build_s)


__all__ = ["Ask", "OutOfTime", "Screener", "Unusable", "compilers"]
