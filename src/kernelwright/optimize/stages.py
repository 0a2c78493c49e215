"""What the optimisation needs of the stages below it. One protocol, so that the search can be tested without torch."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..capture.interpreter import find_interpreter, gpu_visible
from ..devlog import DevlogEntry, DevlogFiles, add_entry, log_for, read_log
from ..judge import JudgeOptions, ReferenceSession, judge
from ..judge.options import CONDITIONS, Condition
from ..model.errors import KernelwrightError
from ..model.files import write_text_atomic
from ..model.measurement import Measurement
from ..model.profile import Profile
from ..model.saying import Say
from ..model.verdict import Verdict
from ..model.workload import Device, Precision, WorkloadRef
from ..pipeline.again import ignore
from ..pipeline.counters import CounterOptions
from ..pipeline.profile import ProfileOptions, ProfileRun, profile
from ..report import write_profile
from ..report.figures import headline
from .confirm import Effort
from .paired import restated
from .screen import Screener
from .screening import Screening
from .search import JudgeCandidate

COUNTED_BUDGET_S = 300.0
"""Hardware counters are collected from this budget on: ncu takes about 30 s for GPT-2 (H200), 23 s of them imports and compiling."""
COUNTED_SHARE = 0.25
"""Of the budget, the longest time of the baseline's profile where it has counters."""
LogEntry = tuple[Profile, Sequence[str], dict[str, Any]]
"""(profile, insights, extra) of an entry of the development log."""
OPTIMIZED = "optimized.py"
UNCOMPILED = "uncompiled"
"""Folder of the baseline with profile.json of the workload without its own torch.compile; not there where it has none."""
OPTIMIZED_VERSION = "optimized"
"""The version name under which optimized.py stands in contracts and the development log."""


def claimed(candidate: Path) -> tuple[Condition, ...]:
    """Conditions that a judgement is timed under, beside warm and after it: those of optimized.py are the report's claims."""
    return CONDITIONS if candidate.name == OPTIMIZED else ()


@dataclass(frozen=True)
class OptimizeOptions:
    """The defaults are those of the command line."""

    budget_s: float = 600.0
    precision: Precision = "equal"
    resume: bool = False
    device: Device = "auto"
    clocks: str = "none"
    python: str | None = None
    timeout_s: float | None = None
    """Longest time of one profile, and of one step of a judgement."""
    seed: int = 0
    command: tuple[str, ...] = field(default=())


class Stages(Protocol):
    """The stages below the search."""

    def where(self, workload: WorkloadRef) -> dict[str, str]:
        """{"device": "cuda" or "cpu", "torch": version}: what a run would use now, known without importing torch."""

    def profile(
        self, workload: WorkloadRef, folder: Path, baseline: Profile | None, timeout_s: float, timing: Measurement | None = None
    ) -> ProfileRun:
        """An annotation profile with all its documents in `folder`; with a baseline it is that of the optimised version, and `timing`
        (the judge's, paired with the baseline's) stands in it for its own."""

    def preparing(self, workload: WorkloadRef, *, judge: bool) -> contextlib.AbstractContextManager[None]:
        """Inside it the processes of the first `screening`, and with `judge` of the first `judging`, start beside `profile` and import what
        they need. They load nothing yet, and do nothing while that measures."""

    def judging(self, workload: WorkloadRef, *, confirms: bool = False) -> contextlib.AbstractContextManager[JudgeCandidate]:
        """A judge of candidates whose reference is loaded once; its processes are gone at the end, however it comes. confirms: of
        optimized.py, so that no judgement is prepared beside it."""

    def screening(self, workload: WorkloadRef) -> contextlib.AbstractContextManager[Screening | None]:
        """A quick screen of candidates; None where there is none. Its processes are gone at the end, however it comes."""

    def log(self, workload: WorkloadRef, entries: Sequence[LogEntry]) -> Path:
        """Append (profile, insights, extra) to the development log, but for entries whose extra it has already; the Markdown file."""


@dataclass(frozen=True)
class RealStages:
    """The stages as they are."""

    options: OptimizeOptions
    say: Say
    open_sessions: list[ReferenceSession] = dataclasses.field(default_factory=list, init=False, compare=False)
    """The judge's, while there is one."""
    open_screeners: list[Screener] = dataclasses.field(default_factory=list, init=False, compare=False)
    """The screen, while there is one."""
    prepared: list[ReferenceSession] = dataclasses.field(default_factory=list, init=False, compare=False)
    """The next judge's, while nobody judges."""
    screeners: list[Screener] = dataclasses.field(default_factory=list, init=False, compare=False)
    """The next screen, while there is none."""
    originals: list[Path] = dataclasses.field(default_factory=list, init=False, compare=False)
    """The workload's own file, once it is known: the nearest .venv of optimized.py's folder may have another torch."""
    lifetimes: list[contextlib.ExitStack] = dataclasses.field(default_factory=list, init=False, compare=False)
    """Inside `preparing`: what ends with it."""

    def where(self, workload: WorkloadRef) -> dict[str, str]:
        """See Stages."""
        interpreter = find_interpreter(self.options.python, workload.path, self.options.device, self.say)
        self.originals[:] = [workload.path]
        on_gpu = self.options.device == "cuda" or (self.options.device == "auto" and interpreter.torch_build != "cpu" and gpu_visible())
        return {"device": "cuda" if on_gpu else "cpu", "torch": interpreter.torch_version}

    def profile(
        self, workload: WorkloadRef, folder: Path, baseline: Profile | None, timeout_s: float, timing: Measurement | None = None
    ) -> ProfileRun:
        """See Stages."""
        options = ProfileOptions(
            device=self.options.device, clocks=self.options.clocks, python=self.options.python, seed=self.options.seed,
            near=next(iter(self.originals), None),
            timeout_s=min(timeout_s, self.options.timeout_s or timeout_s), command=self.options.command or tuple(sys.argv),
            variation=baseline is None, uncompiled=baseline is None,
            counters=self._counters(timeout_s, baseline), when_begun=self._prepare if baseline is None else ignore,
            when_measuring=lambda is_measuring: self._hush(still, is_measuring),
        )
        with contextlib.ExitStack() as still:
            run = profile(workload, "annotation", folder, options, say=self.say)
        if baseline is not None:
            metadata = run.profile.capture_metadata.model_copy(update={"version": OPTIMIZED_VERSION})
            run = dataclasses.replace(run, profile=restated(run.profile.model_copy(update={"capture_metadata": metadata}), timing))
        write_profile(run.profile, run.out_dir, baseline=baseline, params_doc=run.params)
        if run.uncompiled is not None:
            (run.out_dir / UNCOMPILED).mkdir(exist_ok=True)
            write_text_atomic(run.out_dir / UNCOMPILED / "profile.json", run.uncompiled.model_dump_json(indent=1) + "\n")
        return run

    def _prepare(self) -> None:
        for one in self._waiting():
            one.prepare()

    def _waiting(self) -> list[ReferenceSession | Screener]:
        return [*self.prepared, *self.screeners]

    def _hush(self, still: contextlib.ExitStack, is_measuring: bool) -> None:
        """What was prepared does nothing while something is measured, and goes on when this stack ends."""
        still.close()
        for one in self._waiting() if is_measuring else []:
            still.enter_context(one.quiet())

    def _counters(self, timeout_s: float, baseline: Profile | None) -> CounterOptions:
        """A second process under ncu, in both profiles or in none: what passes predict of counters is held against the two."""
        if self.options.budget_s < COUNTED_BUDGET_S if baseline is None else baseline.counters is None:
            return CounterOptions(choice="none")
        return CounterOptions(within_s=COUNTED_SHARE * self.options.budget_s if baseline is None else timeout_s)

    @contextlib.contextmanager
    def preparing(self, workload: WorkloadRef, *, judge: bool) -> Iterator[None]:
        """See Stages."""
        with contextlib.ExitStack() as stack:
            for held in (self.prepared, self.screeners, self.lifetimes):
                stack.callback(held.clear)
            self.lifetimes.append(stack)
            if judge:
                self.prepared.append(stack.enter_context(self._session(workload)))
            self.screeners.append(stack.enter_context(self._screener(workload)))
            yield

    @contextlib.contextmanager
    def judging(self, workload: WorkloadRef, *, confirms: bool = False) -> Iterator[JudgeCandidate]:
        """See Stages."""
        options = self._judge_options()
        with contextlib.closing(self.prepared.pop()) if self.prepared else self._session(workload) as session, self._announced(session):

            def judge_candidate(candidate: Path, precision: Precision, seconds: float, effort: Effort) -> Verdict:
                further = CONDITIONS if effort.audits else claimed(candidate)
                allowed = options.model_copy(update={"precision": precision, "alpha": effort.alpha, "max_timing_s": effort.timing_s,
                                                     "conditions": further, "conditions_if_faster": not effort.audits,
                                                     "cross_check": effort.audits, "measures": effort.measures,
                                                     "ends_in_time": effort.ends_in_time})
                if self.open_screeners and not confirms:
                    self._prepare_confirmation(workload)
                return judge(workload, candidate, allowed, session=session, deadline_s=time.monotonic() + seconds)

            yield judge_candidate

    def _prepare_confirmation(self, workload: WorkloadRef) -> None:
        """Its processes are others than those of the search, and import what they need beside the search's first judgement."""
        if self.lifetimes and not self.prepared:
            with contextlib.suppress(KernelwrightError, OSError):  # told by the confirmation
                self.prepared.append(self.lifetimes[-1].enter_context(self._session(workload)))
                self.prepared[-1].prepare()

    @contextlib.contextmanager
    def screening(self, workload: WorkloadRef) -> Iterator[Screening | None]:
        """See Stages."""
        with contextlib.closing(self.screeners.pop()) if self.screeners else self._screener(workload) as screener:
            self.open_screeners.append(screener)
            try:
                yield screener
            finally:
                self.open_screeners.remove(screener)

    @contextlib.contextmanager
    def _announced(self, session: ReferenceSession) -> Iterator[None]:
        self.open_sessions.append(session)
        try:
            yield
        finally:
            self.open_sessions.remove(session)

    def _screener(self, workload: WorkloadRef) -> Screener:
        return Screener(workload, self._judge_options(), self.say, lambda: next(iter(self.open_sessions), None))

    def _session(self, workload: WorkloadRef) -> ReferenceSession:
        """Its reference loads with the first judgement: while candidates are screened it would take memory and cores."""
        return ReferenceSession(workload, self._judge_options(), say=self.say, start=False, others=self._others_still)

    @contextlib.contextmanager
    def _others_still(self) -> Iterator[None]:
        """What the screen has compiling beside the judge, and what is prepared for the confirmation, does nothing inside this."""
        with contextlib.ExitStack() as still:
            for screener in self.open_screeners:
                still.enter_context(screener.quiet())
            for session in self.prepared:
                still.enter_context(session.quiet())
            yield

    def _judge_options(self) -> JudgeOptions:
        return JudgeOptions(precision=self.options.precision, device=self.options.device, python=self.options.python,
                            timeout_s=self.options.timeout_s or self.options.budget_s,
                            # Its candidates are our own, and share what was compiled; the search confirms its own choice.
                            compile_cache="user", conditions=(), cross_check=False, confirm=False)

    def log(self, workload: WorkloadRef, entries: Sequence[LogEntry]) -> Path:
        """See Stages."""
        log = log_for(workload, Path.cwd() / "out")
        files = DevlogFiles.of(log)
        for document, insights, extra in not_logged(entries, read_log(files.jsonl)[0]):
            add_entry(document, log, insights=insights, extra=extra)
        return files.markdown


def not_logged(entries: Sequence[LogEntry], known: Sequence[DevlogEntry]) -> list[LogEntry]:
    """Those that the log lacks. A run killed between its entries and its report has them there when it is resumed; one that was
    interrupted after its judgements has its baseline there, under another outcome but with the figures that belong to what follows."""
    extras = [entry.extra for entry in known]
    new = [entry for entry in entries if entry[2] not in extras]
    if len(new) > 1:
        there = {(entry.extra.get("optimization"), entry.figures.duration_ns) for entry in known if entry.extra.get("role") == "baseline"}
        new = [entry for entry in new if entry[2].get("role") != "baseline"
               or (entry[2].get("optimization"), headline(entry[0]).duration_ns) not in there]
    return new
