"""Mode nsys on a workload: a few steps under Nsight Systems; where that can't be, torch.profiler records them, and the profile says so."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from .. import __version__
from ..capture.interpreter import Interpreter
from ..capture.lock import device_lock
from ..capture.nsight import Tool, find_nsys
from ..capture.nsys import NsysRun, run_nsys
from ..capture.nsys_secrets import scrub_environments
from ..capture.system_view import real_system, run_command
from ..model.capture import ProbeRequest, ProbeResult, ProbeWorkload
from ..model.counters import NoCounters
from ..model.errors import BadInput, WorkloadFailed, one_line
from ..model.profile import ClockReading
from ..model.recording import NotNsys, Recording
from ..model.saying import Say, silent
from ..model.workload import WorkloadRef
from ..readers.lines import read_lines
from ..readers.nsys import read_nsys
from .assemble import Run
from .counters import VERSION_TIMEOUT_S, CounterOptions
from .meanwhile import Part
from .profile import ProfileOptions, ProfileRun, capture_script_run, capture_workload, clocks_of_run, known_peaks, profile
from .recorded import Recorded, by_torch, kineto_recorded
from .stored import safe_name

TIMEOUT_S = 1800.0
SUFFIX = ".nsys-rep"
_SCRIPT = NotNsys(code="script", reason="a script is recorded by torch.profiler: it runs once, as it is, and its steps are counted there",
                  fix="nsys profile --trace=cuda,nvtx -o FILE python SCRIPT.py, then profile_kernel FILE.nsys-rep")
_CPU = NotNsys(code="cpu", reason="the workload runs on the CPU, and Nsight Systems records GPU work")
_NO_COUNTERS = NoCounters(code="nsys", reason="mode nsys reads no counters", fix="use --mode annotation or --mode ncu")


def profile_nsys(workload: WorkloadRef, out_dir: Path | None, options: ProfileOptions, *, say: Say = silent) -> ProfileRun:
    """Record and analyse a workload or a script. The caller writes the documents (report layer).

    Raises BadInput, MachineLacks (no GPU is visible), WorkloadFailed; a failed run leaves error.json.
    """
    return profile(workload, "nsys", out_dir, options, say=say, capture=_capture)


def _capture(workload: WorkloadRef, mode: str, folder: Path, interpreter: Interpreter, options: ProfileOptions, say: Say,
             meanwhile: Sequence[Part]) -> Run:
    view = dataclasses.replace(real_system(), run=partial(run_command, timeout_s=VERSION_TIMEOUT_S))
    tool = find_nsys(view, options.nsys_executable) if workload.script is None and options.device != "cpu" else None
    reason = _SCRIPT if workload.script is not None else _CPU if tool is None else no_tool(tool)
    if tool is None or reason is not None:
        assert reason is not None
        return _by_torch(workload, folder, interpreter, options, reason, say, meanwhile)
    report = folder / "raw" / f"{safe_name(workload.name)}{SUFFIX}"
    try:
        return _under_nsys(workload, mode, folder, interpreter, options, tool, report, say, meanwhile)
    except BaseException:
        _forget(report)
        raise


def _under_nsys(workload: WorkloadRef, mode: str, folder: Path, interpreter: Interpreter, options: ProfileOptions, tool: Tool, report: Path,
                say: Say, meanwhile: Sequence[Part]) -> Run:
    ran, clocks = _record(workload, report, interpreter, options, tool, say)
    if ran.failed is not None:
        _forget(report)
        if ran.failed.code == "nsys_timeout" and options.timeout_s is not None:
            raise WorkloadFailed("timeout", f"the workload did not finish under nsys within {options.timeout_s:g} s",
                                 where=str(workload.path), fix="raise --timeout, or make the workload smaller")
        return _by_torch(workload, folder, interpreter, options, ran.failed, say, meanwhile)
    result = ProbeResult.model_validate_json((folder / "raw" / "result.json").read_bytes())
    return Run(workload=workload, mode=mode, raw=folder / "raw", result=result, peaks=known_peaks(interpreter, options, result),
               clocks=clocks, compile_mode=options.compile_mode, device_name=options.device_name, version=__version__,
               recorded=_read(folder / "raw", result, ran, tool, options))


def _forget(report: Path) -> None:
    """What nsys left and nobody looked through for secrets."""
    for file in (report, report.with_suffix(".sqlite"), report.with_suffix(".qdstrm")):
        file.unlink(missing_ok=True)


def no_tool(tool: Tool) -> NotNsys | None:
    """Why this nsys can't be used; None when it can."""
    if tool.works:
        return None
    return NotNsys(code="no_nsys", reason=one_line(tool.problem) or "there is no nsys", fix=tool.fix or tool.advice,
                   advice=tool.advice if tool.fix else "")


def _record(workload: WorkloadRef, report: Path, interpreter: Interpreter, options: ProfileOptions, tool: Tool,
            say: Say) -> tuple[NsysRun, ClockReading]:
    request = ProbeRequest(
        action="nsys", workload=ProbeWorkload.of(workload),
        device=options.device, out_dir=str(report.parent), seed=options.seed, compile_mode=options.compile_mode, warmup=options.warmup,
        steps=options.steps, stacks=options.stacks)
    with device_lock(f"profile {workload.name}", say), clocks_of_run(options, interpreter, say) as clocks:
        say(f"profiling {workload.name} (nsys {tool.version or ''}".rstrip() + f") with torch {interpreter.torch_version} from "
            f"{interpreter.source}")
        ran = run_nsys(request, interpreter, tool=tool, report=report, cwd=Path.cwd(), timeout_s=options.timeout_s or TIMEOUT_S,
                       say=say)
    return ran, clocks.reading()


def _read(raw: Path, result: ProbeResult, ran: NsysRun, tool: Tool, options: ProfileOptions) -> Recorded:
    assert ran.sqlite is not None and ran.report is not None
    scrubbed = scrub_environments(ran.sqlite, ran.variables)
    warnings: tuple[str, ...] = ()
    if scrubbed.foreign and not options.keep_nsys_report:
        ran.report.unlink(missing_ok=True)
        warnings = (f"nsys had read the environments of {scrubbed.foreign} other processes into its report: they were taken out of "
                    f"raw/{ran.sqlite.name}, and the report was removed (--keep-nsys-report keeps it)",)
    elif scrubbed.foreign:
        warnings = (f"raw/{ran.report.name} holds the environments of {scrubbed.foreign} other processes, as asked for: don't pass it on",)
    trace, stacks = read_nsys(ran.sqlite)
    lines = read_lines(raw / result.lines_file) if stacks is not None and result.lines_file else ()
    kept = ran.report if ran.report.exists() else ran.sqlite
    return Recorded(trace, stacks, lines, warnings=warnings, recording=Recording(
        recorder="nsys", tool=f"Nsight Systems {tool.version or ''}".strip(), file=f"raw/{kept.name}", steps_from=trace.steps_from,
        rank=trace.rank, world_size=trace.world_size, seconds=round(ran.seconds + ran.export_s, 3), alone=ran.alone))


def _by_torch(workload: WorkloadRef, folder: Path, interpreter: Interpreter, options: ProfileOptions, reason: NotNsys, say: Say,
              meanwhile: Sequence[Part]) -> Run:
    """torch.profiler's recording, marked with the reason."""
    if reason.code not in ("script", "cpu"):
        fix = f" Fix: {reason.fix}" if reason.fix else ""
        say(f"warning: torch.profiler records instead of nsys: {reason.reason.rstrip('.')}.{fix}")
    began = time.monotonic()
    capture = capture_workload if workload.script is None else capture_script_run
    run = capture(workload, "annotation", folder, interpreter, dataclasses.replace(options, counters=CounterOptions(choice="none")), say,
                  meanwhile)
    if run.result.trace_file is None:
        raise BadInput("no_trace", "nothing was recorded", where=str(workload.path), fix="look into raw/workload.log")
    recorded = kineto_recorded(folder / "raw", run.result)
    environment = run.result.environment
    recording = by_torch(recorded, environment.torch_version if environment else interpreter.torch_version,
                         f"raw/{run.result.trace_file}", reason, round(time.monotonic() - began, 3))
    return dataclasses.replace(run, mode="nsys", counters=_NO_COUNTERS,
                               recorded=dataclasses.replace(recorded, recording=recording))
