"""Runs a user's script under the probe: its output shown live, an interrupt passed on to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ..model.capture import ProbeRequest, ProbeResult
from ..model.errors import WorkloadFailed
from ..model.files import write_text_atomic
from ..model.saying import Say
from .interpreter import Interpreter
from .output import Tee
from .process import spawn, terminate
from .run import read_result, wait

STDOUT_FILE, STDERR_FILE = "script_stdout.txt", "script_stderr.txt"
INTERRUPT_GRACE_S = 10.0
"""How long an interrupted script may take to clean up; a second interrupt ends it at once."""


def run_script(
    request: ProbeRequest, interpreter: Interpreter, *, cwd: Path, timeout_s: float | None, say: Say,
    stdout_to_stderr: bool,
) -> ProbeResult:
    """Run one script and return what was recorded. Its output is in request.out_dir as script_stdout.txt and script_stderr.txt.

    Raises as run_probe does; also WorkloadFailed when the script died after the recorded steps although it was to run to its end.
    """
    folder = Path(request.out_dir)
    (folder / "result.json").unlink(missing_ok=True)
    request_file = write_text_atomic(folder / "request.json", request.model_dump_json(indent=1))
    process = spawn(interpreter.path, ["run", str(request_file)], device=request.device, cwd=cwd, log_path=None)
    assert process.stdout is not None and process.stderr is not None
    tees = (Tee(process.stdout, folder / STDOUT_FILE, live_descriptor(2 if stdout_to_stderr else 1)),
            Tee(process.stderr, folder / STDERR_FILE, live_descriptor(2)))
    try:
        wait(process, timeout_s, request, say)
    except KeyboardInterrupt:
        _interrupt(process)
        raise
    finally:
        terminate(process, grace_s=0 if process.poll() is not None else 2.0)
        for tee in tees:
            tee.close()
    result = read_result(folder / "result.json", process.returncode, folder / STDERR_FILE, request)
    if process.returncode == 0:
        return result
    how = f"was killed by signal {-process.returncode}" if process.returncode < 0 else f"ended with status {process.returncode}"
    if result.script is None or result.script.run_to_end:
        raise WorkloadFailed("script_died", f"the script's process {how} after the recorded steps", where=request.workload.path,
                             fix=f"run the script by itself; its output is in {folder / STDERR_FILE}")
    return result.model_copy(update={"warnings": (*result.warnings, f"the script's process {how} while it was being ended")})


def live_descriptor(number: int) -> int | None:
    """Our own stdout or stderr, flushed so that the order is kept; None when it is closed."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        (sys.stdout if number == 1 else sys.stderr).flush()
        os.fstat(number)
        return number
    return None


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C reaches only us (the script leads a session of its own): hand it on as a terminal would, and let it clean up."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGINT)
    deadline = time.monotonic() + INTERRUPT_GRACE_S
    with contextlib.suppress(KeyboardInterrupt):
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
