"""The second process of annotation mode: one step under ncu, for the launches that the timeline's recording chose.

Whatever goes wrong here costs the counters, never the profile: it becomes a NoCounters.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from ..attribute.counters import attach_counters
from ..attribute.signatures import CounterPlan, plan_counters
from ..capture.cpus import free_cpus
from ..capture.doctor import counters_closed
from ..capture.gate import Gate
from ..capture.interpreter import Interpreter
from ..capture.ncu import NcuRun, run_ncu
from ..capture.ncu_errors import denied, no_tool
from ..capture.nsight import Tool, find_ncu
from ..capture.system_view import SystemView, real_system, run_command
from ..model.capture import ProbeEnvironment, ProbeRequest, ProbeResult
from ..model.counters import Counters, NoCounters
from ..model.errors import Interrupted, KernelwrightError, one_line
from ..model.profile import Kernel, Operator
from ..model.saying import Say
from ..model.trace import Trace
from ..readers.kineto import read_kineto
from ..readers.ncu import read_ncu
from ..roofline.counters import chips, known, metric_names, unavailable

CounterChoice = Literal["default", "full", "none"]
VERSION_TIMEOUT_S = 20.0
"""`ncu --version` from a cold disk takes longer than doctor waits."""
LAUNCH_S = {"default": 0.45, "full": 1.2}
"""Replays of one launch with all counters of a set (H200: 0.43 s for 16 passes of conv_block, 0.49 s of gpt2; 1.2 s for 38 passes)."""
LEAST_TIMEOUT_S = 120.0
LEAST_PASS_S = 10.0
"""The process's start and its first launches take as long (H200): with less nothing comes of it."""
START_FACTOR, LAUNCH_FACTOR = 3.0, 4.0
"""The pass may take so many times what the first process took, and what its launches should take, before it counts as hanging."""
REPORT_FILE = "counters.ncu-rep"
TRACE_FILE, ENVIRONMENT_FILE = "trace.json.gz", "environment.json"
"""What the first process has written, each whole or not at all, by the time that its timeline is recorded."""
GATE_FILE = "go"
EARLY_CPUS = 4
"""With fewer free ones the counter process's import of torch would be felt by the first process, which still launches work then."""
EARLY_POLL_S = 0.05
T = TypeVar("T")
QUIET = ("cpu", "not_asked", "script")
"""No line on stderr for these: nothing went wrong."""


@dataclass(frozen=True)
class CounterOptions:
    """What is asked of the counter pass."""

    choice: CounterChoice = "default"
    budget_s: float | None = None
    """Longest time for replays; None: as long as the default share of kernel time takes."""
    executable: str | None = None
    sudo: bool = False
    within_s: float | None = None
    """Longest time of the timeline's process and this pass together; None: as long as it takes."""


@dataclass(frozen=True)
class CounterCapture:
    """What the counter process left, and what it was asked for."""

    options: CounterOptions
    plan: CounterPlan
    trace: Trace
    """The timeline's recording, already read."""
    run: NcuRun
    capability: str
    """Compute capability of the GPU, "9.0"."""
    metrics: tuple[str, ...]


@dataclass
class CounterPass:
    """The counter pass of one profile. `begin` may run beside the first process: it looks for ncu, and once that process has recorded its
    timeline chooses the launches and starts the counter process, which imports torch and then waits until `collect` lets it go on. So GPU
    timings, calibration and replays never meet.
    """

    options: CounterOptions
    say: Say
    view: SystemView = field(default_factory=lambda: dataclasses.replace(
        real_system(), run=partial(run_command, timeout_s=VERSION_TIMEOUT_S)))
    _tool: Future[Tool] | None = None
    _early: Future[CounterCapture | NoCounters | None] | None = None
    _gate: Gate | None = None
    _first_ended: threading.Event = field(default_factory=threading.Event)

    def prepare(self) -> None:
        """Start looking for ncu."""
        if self.options.choice != "none" and self._tool is None:
            self._tool = _beside(partial(find_ncu, self.view, self.options.executable))

    def begin(self, request: ProbeRequest, interpreter: Interpreter, *, raw: Path, cwd: Path, timeout_s: float | None) -> None:
        """Start as much as can be done beside the first process, whose request this is."""
        self.prepare()
        if self._tool is None or self.options.sudo:  # which may ask for a password: not among other lines
            return
        if free_cpus(self.view) < EARLY_CPUS:
            return
        (raw / "counters").mkdir(exist_ok=True)
        self._gate = Gate(raw / "counters" / GATE_FILE)
        self._early = _beside(partial(self._ahead, request, interpreter, raw, cwd, timeout_s))

    def abandon(self) -> None:
        """The profile has failed: end a counter process that was started, and wait until it has gone."""
        self._first_ended.set()
        if self._gate is not None and self._early is not None:
            self._gate.abandon()
            wait([self._early])

    def _ahead(self, request: ProbeRequest, interpreter: Interpreter, raw: Path, cwd: Path,
               timeout_s: float | None) -> CounterCapture | NoCounters | None:
        """None: the first process ended before there was anything to start from."""
        began = time.monotonic()
        trace, told = raw / TRACE_FILE, raw / ENVIRONMENT_FILE
        while not (trace.is_file() and told.is_file()):
            if self._first_ended.wait(EARLY_POLL_S) and not (trace.is_file() and told.is_file()):
                return None
        try:
            environment = ProbeEnvironment.model_validate_json(told.read_bytes())
        except ValidationError:
            return None
        return self._collect(request, environment, TRACE_FILE, interpreter, raw, cwd, timeout_s, time.monotonic() - began)

    def collect(self, request: ProbeRequest, result: ProbeResult, interpreter: Interpreter, *, raw: Path, cwd: Path,
                timeout_s: float | None, first_s: float) -> CounterCapture | NoCounters:
        """Run the workload once more, under ncu. request, result: of the timeline's process, which took first_s seconds."""
        try:
            self._first_ended.set()
            if self._gate is not None and self._early is not None:
                self._gate.open()
                if (found := self._early.result()) is not None:
                    return found
            self._gate = None
            return self._collect(request, result.environment, result.trace_file, interpreter, raw, cwd, timeout_s, first_s)
        except Interrupted:
            raise
        except KernelwrightError as error:
            return _fault(error)
        except OSError as error:
            return NoCounters(code="counters_failed", reason=f"the counter pass failed: {error.strerror or error}",
                              fix=f"look at {error.filename or raw}")

    def _collect(self, request: ProbeRequest, environment: ProbeEnvironment | None, trace_file: str | None, interpreter: Interpreter,
                 raw: Path, cwd: Path, timeout_s: float | None, first_s: float) -> CounterCapture | NoCounters:
        options, gate = self.options, self._gate
        if options.choice == "none":
            return NoCounters(code="not_asked", reason="none were asked for", fix="profile with --counters default")
        if environment is None or environment.device != "cuda" or trace_file is None:
            return NoCounters(code="cpu", reason="the workload ran on the CPU; only a GPU's counters are read")
        self.prepare()
        assert self._tool is not None
        tool = self._tool.result()
        if not tool.works:
            return no_tool(tool)
        until_s = math.inf if options.within_s is None else time.monotonic() + options.within_s - first_s
        if until_s - time.monotonic() < LEAST_PASS_S:
            return NoCounters(code="no_time", reason=f"the timeline's process took {first_s:.0f} s, and both have {options.within_s:.0f} s",
                              fix="give it longer, or profile it with --counters default")
        closed = "" if options.sudo else counters_closed(self.view)
        if closed:
            return denied(self.view, f"the driver keeps them {closed}")
        capability = environment.compute_capability or ""
        trace = read_kineto(raw / trace_file)
        plan = plan_counters(trace, budget_s=options.budget_s, per_launch_s=LAUNCH_S[options.choice])
        if not plan.op_ids:
            return NoCounters(code="nothing_to_replay", reason="the timeline holds no launch that ncu could replay",
                              fix="look at its warnings; copies, memsets and NCCL kernels are never replayed")
        folder = raw / "counters"
        folder.mkdir(exist_ok=True)
        metrics = metric_names(capability, options.choice)
        if not metrics:
            listed = ", ".join(sorted({one for chip in chips().values() for one in chip.capabilities}))
            return NoCounters(code="unknown_gpu", reason=f"no counter names are known for compute capability {capability or 'n/a'}",
                              fix="use a newer kernelwright, or look at the kernels with ncu itself", advice=f"known: {listed}")
        self.say(f"counters: replaying {plan.launches} launches under ncu, for {plan.expected_share_pct:.0f}% of kernel time")
        asked = request.model_copy(update={"action": "counters", "out_dir": str(folder), "calibrate": False, "stacks": False,
                                           "variation": False, "wait_for": str(gate.file) if gate is not None else None})
        few = [] if plan.launch_count is None else ["--filter-mode", "per-launch-config", "--launch-count", str(plan.launch_count)]
        run = run_ncu(asked, interpreter, tool=tool, metrics=metrics, op_ids=plan.op_ids, extra=few, sudo=options.sudo,
                      report=raw / REPORT_FILE, cwd=cwd, say=self.say, view=self.view, gate=gate,
                      timeout_s=timeout_s or _limit_s(first_s, plan.launches, options.choice), until_s=until_s)
        if run.report is None:
            return run.denied or NoCounters(code="ncu_failed", reason="ncu left no report", fix=f"look into {run.log}")
        return CounterCapture(options, plan, trace, run, capability, metrics)


def _beside(work: Callable[[], T]) -> Future[T]:
    pool = ThreadPoolExecutor(max_workers=1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future


def _limit_s(first_s: float, launches: int, choice: str) -> float:
    return max(LEAST_TIMEOUT_S, START_FACTOR * first_s + LAUNCH_FACTOR * launches * LAUNCH_S[choice])


def with_counters(
    capture: CounterCapture, operators: tuple[Operator, ...], unattributed: tuple[Kernel, ...]
) -> tuple[tuple[Operator, ...], tuple[Kernel, ...], Counters | NoCounters]:
    """The timeline's kernels with their counters; unchanged, and why, where the report can't be used."""
    run = capture.run
    assert run.report is not None
    options, cc = capture.options, capture.capability
    assert options.choice != "none"
    try:
        attached = attach_counters(
            operators, unattributed, capture.plan, read_ncu(run.report), value=lambda role, raw: known(role, raw, cc),
            counter_set=options.choice, seconds=round(run.seconds, 3), wanted=capture.metrics)
    except KernelwrightError as error:
        return operators, unattributed, _fault(error)
    notes = (f"this ncu has no {', '.join(run.unknown)} for this GPU",) if run.unknown else ()
    counters = attached[2].model_copy(update={
        "budget_s": options.budget_s, "passes": run.passes, "notes": (*attached[2].notes, *notes),
        "unavailable": {**unavailable(cc, options.choice), **attached[2].unavailable}})
    return attached[0], attached[1], counters


def said(reason: NoCounters) -> str:
    """The line on stderr; "" where nothing went wrong."""
    if reason.code in QUIET:
        return ""
    line = f"no counters: {one_line(reason.reason)}"
    line += f". Fix: {one_line(reason.fix)}" if reason.fix else ""
    return line + (f" ({one_line(reason.advice)})" if reason.advice else "")


def _fault(error: KernelwrightError) -> NoCounters:
    where = f" ({one_line(error.where)})" if error.where else ""
    return NoCounters(code=error.code, reason=f"{one_line(error.message)}{where}", fix=one_line(error.fix))
