"""Runs the probe's counters action under ncu, and says why there is no report when there is none."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ..model.capture import ProbeRequest, ProbeResult
from ..model.counters import NoCounters
from ..model.errors import one_line
from ..model.files import write_text_atomic
from ..model.saying import Say, silent
from .byte_code import byte_code_variables
from .gate import Gate
from .interpreter import Interpreter
from .ncu_errors import errors, short, unknown_metrics, why_none
from .nsight import Tool
from .process import PROBE_START, myself, probe_environment, start, terminate
from .profiled import allowed
from .root import as_root, end_as_root, give_back
from .run import PROGRESS_EVERY_S
from .system_view import SystemView, real_system

POLL_S = 0.05
MAX_LOG_BYTES = 8 << 20
IDS_A_FILTER = 1000
NO_DEPLOYMENT = "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT"
"""Without it ncu's first run copies its section files into the user's Documents folder."""
NCU_LOG, PROGRAM_LOG = "ncu.log", "workload.log"
_PASSES = re.compile(r"^==PROF== Profiling .*?- (\d+) pass(?:es)?\s*$", re.MULTILINE)
_STARTED = re.compile(r"^==PROF== Profiling ", re.MULTILINE)


@dataclass(frozen=True)
class NcuRun:
    """What one run of ncu left. report None: `denied` says why."""

    report: Path | None
    denied: NoCounters | None
    passes: int | None
    """Most replays of one launch; None where ncu did not tell."""
    launches: int
    """Launches that ncu replayed."""
    seconds: float
    """Wall time of the process; of one that waited at a gate, since that opened."""
    log: Path
    """ncu's own words."""
    unknown: tuple[str, ...] = ()
    """Metrics that this ncu does not know for this GPU; left out."""


def run_ncu(
    request: ProbeRequest, interpreter: Interpreter, *, tool: Tool, metrics: Sequence[str], op_ids: Sequence[int] | None,
    extra: Sequence[str] = (), sudo: bool = False, report: Path, cwd: Path, timeout_s: float, until_s: float = math.inf,
    say: Say = silent, view: SystemView | None = None, gate: Gate | None = None,
) -> NcuRun:
    """Run one step of the workload under ncu. request: its action is "counters" and its out_dir exists; ncu's log lies there.

    op_ids: of the operators whose launches are replayed; None: all launches of the step. extra: further options of ncu. Metrics that ncu
    does not know are left out in a second try. gate: which the process waits at; timeout_s counts from its opening, and an abandoned one
    ends the run. until_s: on the monotonic clock, the gate's time included. Raises nothing but OSError for files of ours that can't be
    written, and KeyboardInterrupt.
    """
    view = view or real_system()
    sudo = sudo and view.uid != 0
    began = time.monotonic()
    ran = _once(request, interpreter, tool, metrics, op_ids, extra, sudo, report, cwd, timeout_s, until_s, say, view, gate)
    unknown = () if ran.report else unknown_metrics(_read(ran.log))
    known = [name for name in metrics if name not in unknown]
    if unknown and known:
        left = max(1.0, timeout_s - _seconds(began, gate))
        ran = _once(request, interpreter, tool, known, op_ids, extra, sudo, report, cwd, left, until_s, say, view, gate)
    return NcuRun(ran.report, ran.denied, ran.passes, ran.launches, _seconds(began, gate), ran.log, unknown if known else ())


def _seconds(began: float, gate: Gate | None) -> float:
    return time.monotonic() - began if gate is None else gate.seconds_since(began)


def command_line(tool: Tool, interpreter: Path, request_file: Path, *, metrics: Sequence[str], op_ids: Sequence[int] | None,
                 extra: Sequence[str], report: Path, log: Path) -> list[str]:
    """ncu's arguments, one a word. Clocks are left alone: we lock them, or nobody does."""
    assert tool.path is not None
    names = ["--metrics", ",".join(metrics)] if metrics else []
    return [str(tool.path), "--config-file", "off", "--clock-control", "none", "--profile-from-start", "off", "--nvtx",
            "--target-processes", "all", "--log-file", _plain(log), "--force-overwrite", "--export", _plain(report), *names,
            *nvtx_filters(op_ids), *extra, str(interpreter), str(PROBE_START), "run", str(request_file)]


def nvtx_filters(op_ids: Sequence[int] | None) -> list[str]:
    """The launches inside the ranges of these operators. Two filters each: the id stands before more, or ends the range's name.

    A bare `(13)` would match 131 too: ncu looks for the expression anywhere in the name. Commas part ranges in ncu's grammar.
    """
    words: list[str] = []
    ids = sorted(set(op_ids)) if op_ids is not None else []
    for first in range(0, len(ids), IDS_A_FILTER):
        some = "|".join(map(str, ids[first:first + IDS_A_FILTER]))
        words += ["--nvtx-include", f"regex:.*op_id = ({some})[^0-9].*/", "--nvtx-include", f"regex:.*op_id = ({some})$/"]
    return words


def _once(request: ProbeRequest, interpreter: Interpreter, tool: Tool, metrics: Sequence[str], op_ids: Sequence[int] | None,
          extra: Sequence[str], sudo: bool, report: Path, cwd: Path, timeout_s: float, until_s: float, say: Say,
          view: SystemView, gate: Gate | None) -> NcuRun:
    folder = Path(request.out_dir)
    log, said = folder / NCU_LOG, folder / PROGRAM_LOG
    for old in (report, log, said, folder / "result.json"):
        old.unlink(missing_ok=True)
    request_file = write_text_atomic(folder / "request.json", request.model_dump_json(indent=1))
    command = command_line(tool, interpreter.path, request_file, metrics=metrics, op_ids=op_ids, extra=extra, report=report, log=log)
    variables = {NO_DEPLOYMENT: "1", **allowed(probe_environment(request.device)), "PYTHONUNBUFFERED": "1",
                 "KERNELWRIGHT_STARTER": myself(), "KERNELWRIGHT_UNDER": "ncu", "KERNELWRIGHT_PYCACHE": sys.pycache_prefix or ""}
    if sudo:
        command = as_root(command, variables)
    else:  # root's files would stay root's
        variables.update(byte_code_variables(interpreter))
    if gate is not None and gate.is_abandoned:
        return NcuRun(None, None, None, 0, 0.0, log)
    began = time.monotonic()
    try:
        process = start(command, env=variables, cwd=cwd, log_path=said)
    except OSError as error:
        what = "sudo" if sudo else str(tool.path)
        gone = NoCounters(code="sudo_refused" if sudo else "ncu_broken", reason=f"{what} could not be started: {error.strerror or error}",
                          fix="" if sudo else "name a working ncu with --ncu-executable PATH",
                          advice="run as root, or open the counters to all (see doctor)" if sudo else "")
        return NcuRun(None, gone, None, 0, time.monotonic() - began, log)
    try:
        in_time = _wait(process, timeout_s, until_s, log, say, gate)
    finally:
        _end(process, sudo)
        if sudo:
            give_back(folder, report, variables)
    words = _read(log)
    passes = [int(count) for count in _PASSES.findall(words)]
    launches, seconds = len(passes), time.monotonic() - began
    failed = _program_failed(request, words, said, process.returncode)
    if in_time and failed is None and report.is_file() and "==WARNING== No kernels were profiled" not in words:
        return NcuRun(report, None, max(passes, default=None), launches, seconds, log)
    if not in_time:
        reason = _timed_out(min(timeout_s, seconds), len(_STARTED.findall(words)))
    else:
        reason = why_none(words, _read(said), tool, view, sudo=sudo) or failed or _other(words, process.returncode, log)
    report.unlink(missing_ok=True)
    return NcuRun(None, reason, max(passes, default=None), launches, seconds, log)


def _wait(process: subprocess.Popen[bytes], timeout_s: float, until_s: float, log: Path, say: Say, gate: Gate | None) -> bool:
    """False: it did not end in time, or is not wanted any more."""
    began = told = time.monotonic()
    while process.poll() is None:
        now = time.monotonic()
        if gate is not None and gate.is_abandoned:
            return False
        if gate is not None and not gate.is_open:
            began = told = now
        if now - began > timeout_s or now > until_s:
            return False
        if now - told > PROGRESS_EVERY_S:
            say(f"counters: ncu has run for {now - began:.0f} s and replayed {len(_PASSES.findall(_read(log)))} launches")
            told = now
        time.sleep(POLL_S)
    return True


def _end(process: subprocess.Popen[bytes], sudo: bool) -> None:
    """Ends the process group; what runs as root is out of our reach, and sudo is asked for that."""
    if sudo and not end_as_root(process):
        return  # the probe ends itself once we are gone
    terminate(process, grace_s=0 if process.poll() is not None else 1.0)


def _timed_out(timeout_s: float, started: int) -> NoCounters:
    where = f"in its {started}. launch" if started else "before the first launch was replayed"
    return NoCounters(code="ncu_timeout", reason=f"ncu did not end within {timeout_s:.0f} s: it stopped {where}",
                      fix="give it longer with --timeout, or fewer launches with --ncu-budget",
                      advice="kernels that wait for each other (NCCL, spinning on a flag) hang under ncu, which runs one at a time")


def _program_failed(request: ProbeRequest, words: str, said: Path, status: int | None) -> NoCounters | None:
    """The workload ran well without ncu; None when it did under ncu too, or ncu never started it."""
    try:
        result = ProbeResult.model_validate_json((Path(request.out_dir) / "result.json").read_bytes())
        failure = result.error if result.status == "error" else None
    except (OSError, ValidationError):
        killed = status is not None and status < 0  # ncu itself
        if killed or "==PROF== Connected" not in words or [line for line in errors(words) if "The application returned" not in line]:
            return None
        reason = "its process ended early"
    else:
        if failure is None:
            return None
        reason = one_line(failure.message) + (f" ({one_line(failure.where)})" if failure.where else "")
    return NoCounters(
        code="failed_under_ncu", reason=f"the workload failed under ncu: {reason}",
        fix="if it needs a variable of your environment, pass it on: export KERNELWRIGHT_NCU_ENV=NAME,NAME",
        advice=f"ncu's reports hold the environment, so the workload gets an allow-list of it there; its output is in {said}")


def _other(words: str, status: int | None, log: Path) -> NoCounters:
    if status is not None and status < 0:
        return NoCounters(code="ncu_failed", reason=f"ncu was killed by signal {-status}", fix=f"run the same command again; see {log}")
    if found := errors(words):
        return NoCounters(code="ncu_failed", reason=f"ncu failed: {short(' '.join(found))}", fix=f"look into {log}")
    if status == 0 or "No kernels were profiled" in words:
        return NoCounters(code="no_kernels_replayed", reason="ncu met none of the chosen launches: the program launched other ones than "
                          "in its first process", fix="make the workload launch the same kernels in each process (fixed seeds and shapes)")
    return NoCounters(code="ncu_failed", reason=f"ncu ended with status {status}", fix=f"look into {log}")


def _plain(path: Path) -> str:
    """ncu expands %p, %h and %q{NAME} in file names."""
    return str(path).replace("%", "%%")


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
