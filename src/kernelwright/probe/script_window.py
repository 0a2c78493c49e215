"""The part of a script's run that is looked at: warm-up steps, profiled steps, one with stacks, a few bare ones, then the end.

Unprofiled steps are timed by marks alone (CUDA events, or the clock on the CPU), which neither wait for the device nor
change what the script does. script_recording makes the recordings.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .failures import ProbeFailure, bad_input, describe

MOST_TRIES = 5
"""How often the script is told to end; one that goes on after that is ended from outside its own frames."""
BARE_STEPS = 2
"""Steps after the recordings that are timed without the profiler: of the warm-up steps one alone has a known beginning and is often
cold."""
LONG_STEP_S = 10.0
"""A script whose steps take longer makes no bare ones."""
MOST_LATER_STEPS = 20
"""With run_to_end: so many steps after the recordings are timed as well."""


class StopScript(SystemExit):
    """Ends the script as sys.exit(0) at the same place would."""


@dataclass(frozen=True)
class Mark:
    """One moment: the host's clock, and a CUDA event once the script uses CUDA."""

    time_ns: int
    event: Any

    @classmethod
    def now(cls, device: str) -> Mark:
        """Take one; on CUDA without waiting for the device."""
        if device == "cpu":
            return cls(time.perf_counter_ns(), None)
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return cls(time.perf_counter_ns(), event)

    def until(self, later: Mark) -> float:
        """ns from this mark to a later one; a CUDA device must have reached both."""
        if self.event is not None and later.event is not None:
            return float(self.event.elapsed_time(later.event)) * 1e6
        return float(later.time_ns - self.time_ns)


Step = tuple[Mark, Mark]


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    mode: str
    """"annotation" or "event"."""
    device: str
    """"auto", "cuda" or "cpu"."""
    out_dir: str
    folder: str
    """The script's own: source lines in it are the user's."""
    warmup: int
    steps: int
    stacks: bool
    run_to_end: bool

    @property
    def with_stacks(self) -> bool:
        """One more step is recorded with Python stacks."""
        return self.stacks and self.mode == "annotation"


@dataclass
class Window:
    """Counts steps and makes the recordings.

    phase: "warmup", "profile", "stacks", "bare", then "later" (run_to_end: only timed), "over" (nothing is counted any more) or
    "stop" (every further step ends the script).
    """

    plan: Plan
    finish: Callable[[], None]
    """Called once, when all was recorded."""
    end_by_force: Callable[[], None]
    """Called for a script that goes on after MOST_TRIES calls to end; does not return."""
    optimizers: Callable[[], list[Any]]
    """Those that have stepped so far."""
    count: int = 0
    """Steps that have ended."""
    phase: str = "warmup"
    device: str = "cpu"
    tries: int = 0
    failure: ProbeFailure | None = None
    unprofiled: list[Step] = field(default_factory=list)
    profiled: list[Step] = field(default_factory=list)
    later: list[Step] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    trace_file: str | None = None
    stacks_file: str | None = None
    lines_file: str | None = None
    _began: Mark | None = None
    _recording: Any = None
    _thread: int | None = None

    @property
    def complete(self) -> bool:
        """All steps that were asked for are recorded."""
        return len(self.profiled) >= self.plan.steps and self.failure is None

    def before(self) -> None:
        """A step's work is about to begin or go on. Raises StopScript once the recordings are over."""
        if self.phase == "stop":
            self._stop()

    def begin(self) -> None:
        """A step begins."""
        self._guarded(self._begin)
        self.before()

    def end(self) -> None:
        """A step has ended. Raises StopScript after the last one (unless run_to_end)."""
        self._guarded(self._end)
        self.before()

    def abandon(self) -> None:
        """The script ended by itself: a recording that is not whole is dropped."""
        if self._recording is not None:
            self._recording.drop()
            self._recording = None
        if self.phase == "stacks" and self.complete:
            self.warnings.append("the script ended before the step with stacks: modules and source lines are not known")
            self.finish()
        if self.phase != "stop":
            self.phase = "over"

    def _guarded(self, action: Callable[[], None]) -> None:
        if self.phase in ("over", "stop") or (self._thread is not None and self._thread != threading.get_ident()):
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the outermost edge: this runs inside the user's optimizer.step()
            self.failure = describe(error, self.plan.out_dir)
            self.phase = "over" if self.plan.run_to_end else "stop"
            if self._recording is not None:
                self._recording.drop()
                self._recording = None

    def _begin(self) -> None:
        from . import script_recording as recording

        plan = self.plan
        if self.phase in ("warmup", "bare", "later"):
            self.device = recording.default_device()
        if self.phase == "warmup" and self.count >= plan.warmup:
            self._check_device()
            self.phase, self._thread = "profile", threading.get_ident()
            if plan.mode == "annotation":
                self._recording = recording.Recording(self.device, plan.out_dir)
                self._recording.start()
        elif self.phase == "stacks":
            self._recording = recording.StacksRecording(self.device, plan.out_dir, self.optimizers(), plan.folder)
            self._recording.start()
        if self._recording is not None:
            self._recording.begin_step()
        self._began = Mark.now(self.device)

    def _check_device(self) -> None:
        if self.plan.device == "cuda" and self.device == "cpu":
            raise bad_input("no_cuda_used", "--device cuda was asked for, but the script has not used CUDA so far", where="--device",
                            fix="give the script its own option for the GPU (after --), or use --device auto")

    def _end(self) -> None:
        began, self._began = self._began, None
        if self._recording is not None:
            self._recording.end_step()
        now = Mark.now(self.device)
        self.count += 1
        if began is None:  # the first optimizer step: nobody knows when its work began
            return
        if self.phase == "warmup":
            self.unprofiled.append((began, now))
        elif self.phase == "profile":
            self.profiled.append((began, now))
            if len(self.profiled) == self.plan.steps:
                self._end_timeline()
        elif self.phase == "stacks":
            self._end_stacks()
        elif self.phase == "bare":
            self.later.append((began, now))
            if len(self.later) >= BARE_STEPS:
                self._finished()
        elif self.phase == "later":
            self.later.append((began, now))
            if len(self.later) >= MOST_LATER_STEPS:
                self.phase = "over"

    def _end_timeline(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            self.warnings += recording.finish()
            self.trace_file = recording.file
        if self.plan.with_stacks:
            self.phase = "stacks"
        else:
            self._recorded()

    def _end_stacks(self) -> None:
        recording, self._recording = self._recording, None
        try:
            self.warnings += recording.finish()
            self.stacks_file, self.lines_file = recording.file, recording.lines_file
        except Exception as error:  # noqa: BLE001 - an optional part: its failure costs its own figures only
            self.warnings.append(f"the recording with stacks failed: {describe(error, self.plan.out_dir).message}")
        self._recorded()

    def _recorded(self) -> None:
        """All is recorded."""
        began, ended = self.profiled[-1]
        if self.plan.mode == "annotation" and not self.plan.run_to_end and began.until(ended) < LONG_STEP_S * 1e9:
            self.phase = "bare"
        else:
            self._finished()

    def _finished(self) -> None:
        self.finish()
        self.phase = "later" if self.plan.run_to_end else "stop"

    def _stop(self) -> None:
        self.tries += 1
        if self.tries > MOST_TRIES:
            self.end_by_force()
        raise StopScript(0)
