"""Runs the probe's nsys action under Nsight Systems, exports the report to SQLite, and says why there is nothing when there is nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from ..model.capture import ProbeRequest, ProbeResult
from ..model.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, BadInput, Interrupted, MachineLacks, one_line
from ..model.files import write_text_atomic
from ..model.recording import NotNsys
from ..model.saying import Say, silent
from .alone import alone_prefix
from .interpreter import Interpreter
from .nsight import Tool
from .process import PROBE_START, myself, probe_environment, start, terminate
from .profiled import allowed
from .run import PROGRESS_EVERY_S

POLL_S = 0.05
EXPORT_TIMEOUT_S = 1800.0
MAX_LOG_BYTES = 1 << 20
PROGRAM_LOG, EXPORT_LOG = "workload.log", "nsys_export.log"
REPORT_SUFFIX = ".nsys-rep"
OPTIONS = ("--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--capture-range=cudaProfilerApi", "--capture-range-end=stop",
           "--cuda-graph-trace=node", "--cuda-memory-usage=true", "--stats=false", "--force-overwrite=true")
"""Without sampling and context switches: they cost host time, and need rights that containers lack. Graph nodes one by one."""
_WORDS = re.compile(r"(error|fail|cannot|can't|unable|not permitted|denied|unrecogni[sz]ed)", re.IGNORECASE)


@dataclass(frozen=True)
class NsysRun:
    """What one run of nsys left. sqlite None: `failed` says why."""

    report: Path | None
    sqlite: Path | None
    failed: NotNsys | None
    seconds: float
    """Wall time of the recording, without the export."""
    export_s: float
    alone: bool
    """nsys could see its own processes only."""
    log: Path
    """What nsys and the workload said."""
    variables: frozenset[str] = frozenset()
    """Names of the environment that they got."""


def run_nsys(request: ProbeRequest, interpreter: Interpreter, *, tool: Tool, report: Path, cwd: Path, timeout_s: float,
             say: Say = silent) -> NsysRun:
    """Record the workload and export the report beside it (`report` with the suffix .sqlite).

    request: its action is "nsys" and its out_dir exists. Raises what the probe reports of wrong usage (exit 2), Interrupted, OSError for
    files of ours that can't be written; all else is told in `failed`.
    """
    prefix = alone_prefix()
    ran = _once(request, interpreter, tool, report, cwd, timeout_s, prefix or (), say)
    if prefix is not None and ran.failed is not None and ran.failed.code == "nsys_failed":
        # The namespace itself may be what it can't live in.
        ran = _once(request, interpreter, tool, report, cwd, max(1.0, timeout_s - ran.seconds), (), say)
    if ran.report is None:
        return ran
    began = time.monotonic()
    try:
        database = export_sqlite(tool, ran.report, report.with_suffix(".sqlite"), log=Path(request.out_dir) / EXPORT_LOG)
    except (BadInput, MachineLacks) as error:
        failed = NotNsys(code=error.code, reason=one_line(error.message), fix=one_line(error.fix))
        return replace(ran, failed=failed, export_s=time.monotonic() - began)
    return replace(ran, sqlite=database, export_s=time.monotonic() - began)


def command_line(tool: Tool, interpreter: Path, request_file: Path, report: Path) -> list[str]:
    """nsys's arguments, one a word."""
    assert tool.path is not None
    return [str(tool.path), "profile", *OPTIONS, "--output", _plain(report.with_suffix("")), str(interpreter), str(PROBE_START), "run",
            str(request_file)]


def _once(request: ProbeRequest, interpreter: Interpreter, tool: Tool, report: Path, cwd: Path, timeout_s: float, prefix: Sequence[str],
          say: Say) -> NsysRun:
    folder = Path(request.out_dir)
    log = folder / PROGRAM_LOG
    for old in (report, report.with_suffix(".sqlite"), report.with_suffix(".qdstrm"), log, folder / "result.json"):
        old.unlink(missing_ok=True)
    request_file = write_text_atomic(folder / "request.json", request.model_dump_json(indent=1))
    variables = {**allowed(probe_environment(request.device)), "PYTHONUNBUFFERED": "1", "KERNELWRIGHT_STARTER": myself(),
                 "KERNELWRIGHT_UNDER": "nsys", "KERNELWRIGHT_PYCACHE": sys.pycache_prefix or ""}
    began = time.monotonic()
    nothing = NsysRun(None, None, None, 0.0, 0.0, bool(prefix), log, frozenset(variables))
    try:
        process = start([*prefix, *command_line(tool, interpreter.path, request_file, report)], env=variables, cwd=cwd, log_path=log)
    except OSError as error:
        return replace(nothing, failed=NotNsys(code="nsys_broken", reason=f"{tool.path} could not be started: {error.strerror or error}",
                                               fix="name a working nsys with --nsys-executable PATH"))
    try:
        in_time = _wait(process, timeout_s, say)
    finally:
        terminate(process, grace_s=0 if process.poll() is not None else 2.0)
    seconds = time.monotonic() - began
    if not in_time:
        return replace(nothing, seconds=seconds, failed=NotNsys(
            code="nsys_timeout", reason=f"nsys did not end within {timeout_s:.0f} s", fix="give it longer with --timeout"))
    failed = _program_failed(folder, log) or _no_report(report, process.returncode, log)
    return replace(nothing, report=None if failed else report, failed=failed, seconds=seconds)


def _wait(process: subprocess.Popen[bytes], timeout_s: float, say: Say) -> bool:
    """False: it did not end in time."""
    began = told = time.monotonic()
    while process.poll() is None:
        now = time.monotonic()
        if now - began > timeout_s:
            return False
        if now - told > PROGRESS_EVERY_S:
            say(f"nsys: the workload has run for {now - began:.0f} s")
            told = now
        time.sleep(POLL_S)
    return True


def _program_failed(folder: Path, log: Path) -> NotNsys | None:
    """Why the workload has no result; None when it has one, or nsys never started it. Raises BadInput for wrong usage."""
    try:
        result = ProbeResult.model_validate_json((folder / "result.json").read_bytes())
    except OSError:
        return None
    except ValidationError:
        return NotNsys(code="failed_under_nsys", reason="the workload left a broken result under nsys", fix=f"its output is in {log}")
    if result.status == "ok" or result.error is None:
        return None
    failure = result.error
    if failure.exit_code == EXIT_BAD_INPUT:
        raise BadInput(failure.code, failure.message, where=failure.where or str(folder), fix=failure.fix)
    if failure.exit_code == EXIT_INTERRUPTED:
        raise Interrupted(failure.where or str(folder))
    if failure.code == "no_gpu":
        return NotNsys(code="cpu", reason=one_line(failure.message))
    where = f" ({one_line(failure.where)})" if failure.where else ""
    return NotNsys(
        code="failed_under_nsys", reason=f"the workload failed under nsys: {one_line(failure.message)}{where}",
        fix="if it needs a variable of your environment, pass it on: export KERNELWRIGHT_NCU_ENV=NAME,NAME",
        advice="a profiler's report holds the environment, so the workload gets an allow-list of it there")


def _no_report(report: Path, status: int | None, log: Path) -> NotNsys | None:
    """Why there is no report, or no result beside it; None when both are there."""
    if report.is_file() and (log.parent / "result.json").is_file():
        return None
    if report.with_suffix(".qdstrm").exists():
        return NotNsys(code="nsys_no_importer", reason="nsys recorded, but its importer could not make a report of it",
                       fix="install the whole of Nsight Systems (see doctor)", advice=f"nsys's words are in {log}")
    lines = [line.strip() for line in _read(log).splitlines() if _WORDS.search(line)]
    how = f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
    words = f": {one_line(lines[-1])[:300]}" if lines else ""
    return NotNsys(code="nsys_failed", reason=f"nsys {how} and left no report{words}", fix=f"look into {log}")


def export_sqlite(tool: Tool, report: Path, database: Path, *, log: Path, timeout_s: float = EXPORT_TIMEOUT_S) -> Path:
    """`nsys export` of a report. Raises MachineLacks where nsys can't run, BadInput where it makes no database of this report."""
    assert tool.path is not None
    database.unlink(missing_ok=True)
    command = [str(tool.path), "export", "--type=sqlite", "--force-overwrite=true", "--output", _plain(database), str(report)]
    try:
        with log.open("wb") as words:
            status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, env=allowed(probe_environment("auto")),
                                    timeout=timeout_s, check=False, cwd=database.parent).returncode
    except subprocess.TimeoutExpired as error:
        database.unlink(missing_ok=True)
        raise BadInput("nsys_export_failed", f"nsys export did not end within {timeout_s:.0f} s", where=str(report),
                       fix="record fewer steps, or export it yourself and name the .sqlite file") from error
    except OSError as error:
        raise MachineLacks("no_nsys", f"{tool.path} could not be started: {error.strerror or error}", where=str(tool.path),
                           fix="name a working nsys with --nsys-executable PATH") from error
    if status != 0 or not database.is_file():
        lines = [line.strip() for line in _read(log).splitlines() if line.strip()]
        database.unlink(missing_ok=True)
        raise BadInput("nsys_export_failed", f"nsys can't export it{f': {one_line(lines[-1])[:300]}' if lines else ''}", where=str(report),
                       fix="record it again; a report of a newer nsys needs that nsys (--nsys-executable PATH)")
    return database


def _plain(path: Path) -> str:
    """nsys expands %p, %h, %n and %q{NAME} in file names."""
    return str(path).replace("%", "%%")


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
