"""Starts and ends processes that run the probe. Each is the leader of its own process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ..model.errors import MachineLacks
from ..model.workload import Device

PROBE_START = Path(__file__).resolve().parents[1] / "probe" / "start.py"
_ENDED: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()
GRACE_S = 2.0
"""How long an ended process may take to leave before it is killed."""


def probe_environment(device: Device) -> dict[str, str]:
    """The environment of a probe process: the user's own, with CUDA hidden where the CPU was asked for."""
    environment = dict(os.environ)
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def spawn(
    interpreter: Path,
    probe_args: Sequence[str],
    *,
    device: Device,
    cwd: Path,
    log_path: Path | None,
    pass_fds: Sequence[int] = (),
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `interpreter PROBE_START *probe_args`, stdin empty, output appended to log_path, or None: into two pipes.

    variables: set besides the user's.

    Raises MachineLacks when the interpreter can't be started, OSError when the log can't be opened.
    """
    with contextlib.ExitStack() as stack:
        log: IO[bytes] | int = subprocess.PIPE if log_path is None else stack.enter_context(log_path.open("ab"))
        environment = {**probe_environment(device), **(variables or {}), "KERNELWRIGHT_STARTER": myself(),
                       "KERNELWRIGHT_PYCACHE": sys.pycache_prefix or ""}
        try:
            return _popen([str(interpreter), str(PROBE_START), *probe_args], environment, cwd, log, pass_fds)
        except OSError as error:
            raise MachineLacks(
                "interpreter_not_started", f"could not start the workload's interpreter: {error.strerror or error}",
                where=str(interpreter), fix="name a working interpreter that has torch with --python PATH",
            ) from error


def start(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log_path: Path) -> subprocess.Popen[bytes]:
    """Start a command with exactly this environment, stdin empty, output appended to log_path. Raises OSError."""
    with log_path.open("ab") as log:
        return _popen(command, env, cwd, log, ())


def _popen(command: Sequence[str], env: Mapping[str, str], cwd: Path, log: IO[bytes] | int,
           pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd, env=dict(env),
                            start_new_session=True, pass_fds=tuple(pass_fds))


def terminate(process: subprocess.Popen[bytes], *, grace_s: float = GRACE_S) -> int:
    """End the whole process group: SIGTERM, then SIGKILL after grace_s. Returns the exit status. Safe to repeat."""
    if process in _ENDED:  # its group's number may be somebody else's by now
        return process.wait()
    _ENDED.add(process)
    if process.poll() is None and grace_s > 0:
        _signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
    _signal_group(process, signal.SIGKILL)  # also whatever the leader left behind
    return process.wait()


def tell_to_end(process: subprocess.Popen[bytes], number: int) -> None:
    """Send the process group SIGTERM or SIGKILL and wait for nothing: `terminate` does. Several end beside each other this way (one that
    holds a GPU's memory takes a moment)."""
    if process not in _ENDED and process.poll() is None:
        _signal_group(process, number)


def myself() -> str:
    """This process and the namespace that its number belongs to: the probe ends itself when it starts after this one was killed."""
    try:
        return f"{os.getpid()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
