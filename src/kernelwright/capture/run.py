"""Runs the probe once, plain, and reads what it left."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from ..model.capture import ProbeRequest, ProbeResult
from ..model.errors import ERROR_BY_EXIT_CODE, EXIT_INTERRUPTED, Interrupted, WorkloadFailed
from ..model.files import check_writable, write_text_atomic
from ..model.saying import Say, silent
from .byte_code import byte_code_variables
from .interpreter import Interpreter
from .process import spawn, terminate

POLL_S = 0.02
PROGRESS_EVERY_S = 20.0
LOG_TAIL_CHARACTERS = 400


def run_probe(
    request: ProbeRequest,
    interpreter: Interpreter,
    *,
    cwd: Path,
    timeout_s: float | None = None,
    say: Say = silent,
    while_running: Callable[[], None] = lambda: None,
    when_measuring: Callable[[bool], None] = lambda _is_measuring: None,
) -> ProbeResult:
    """Run one capture to its end and return its result.

    The request and the result stay in request.out_dir beside workload.log. `while_running` is called once after the
    start: imports done there cost no time of their own. `when_measuring` is called whenever the file
    request.measuring comes (with True) and goes, or the process ends. Raises the KernelwrightError that the probe reported,
    WorkloadFailed when it died or ran longer than timeout_s; the process group is gone afterwards in every case.
    """
    folder = Path(request.out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").unlink(missing_ok=True)
    if request.measuring:
        Path(request.measuring).unlink(missing_ok=True)
    request_file = write_text_atomic(folder / "request.json", request.model_dump_json(indent=1))
    log = folder / "workload.log"
    process = spawn(interpreter.path, ["run", str(request_file)], device=request.device, cwd=cwd, log_path=log,
                    variables=byte_code_variables(interpreter))
    try:
        while_running()
        wait(process, timeout_s, request, say, when_measuring)
    finally:
        if request.measuring:
            Path(request.measuring).unlink(missing_ok=True)
        terminate(process, grace_s=0 if process.poll() is not None else 2.0)
    return read_result(folder / "result.json", process.returncode, log, request)


def wait(
    process: subprocess.Popen[bytes], timeout_s: float | None, request: ProbeRequest, say: Say,
    when_measuring: Callable[[bool], None] = lambda _is_measuring: None,
) -> None:
    """Wait for the process's end. when_measuring: see run_probe. Raises WorkloadFailed after timeout_s."""
    start = told = time.monotonic()
    is_measuring = False
    while process.poll() is None:
        now = time.monotonic()
        if request.measuring and os.path.exists(request.measuring) is not is_measuring:
            is_measuring = not is_measuring
            when_measuring(is_measuring)
        if timeout_s is not None and now - start > timeout_s:
            raise WorkloadFailed("timeout", f"the workload did not finish within {timeout_s:g} s", where=request.workload.path,
                                 fix="raise --timeout, or make the workload smaller")
        if now - told > PROGRESS_EVERY_S:
            say(f"{request.action}: the workload has run for {now - start:.0f} s")
            told = now
        time.sleep(POLL_S)
    if is_measuring:
        when_measuring(False)


def read_result(file: Path, status: int, log: Path, request: ProbeRequest) -> ProbeResult:
    """The probe's result. status, log: of its process. Raises what it reports, WorkloadFailed when there is none."""
    try:
        result = ProbeResult.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        check_writable(file.parent)  # a full disk is not the workload's fault
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise WorkloadFailed("workload_died", f"the workload's process {how} before it gave a result{_tail(log)}",
                             where=request.workload.path, fix=f"run the file by itself; its output is in {log}") from error
    if result.status == "error":
        if result.error is None:
            raise WorkloadFailed("workload_died", "the workload failed without a reason", where=request.workload.path,
                                 fix=f"run the file by itself; its output is in {log}")
        failure = result.error
        if failure.exit_code == EXIT_INTERRUPTED:
            raise Interrupted(failure.where or request.workload.path)
        raise ERROR_BY_EXIT_CODE.get(failure.exit_code, WorkloadFailed)(
            failure.code, failure.message, where=failure.where or request.workload.path, fix=failure.fix)
    return result


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return f"; last words: {lines[-1][:LOG_TAIL_CHARACTERS]}" if lines else ""
