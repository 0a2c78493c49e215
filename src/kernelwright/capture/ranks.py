"""Runs a script once a rank, as `torchrun --nproc-per-node N` does, each under a probe of its own that records its steps.

The ranks live and die together: when one fails, the others get a moment to tell their own error and are then ended with all that they
started. An interrupt reaches every rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..model.capture import ProbeRequest, ProbeResult
from ..model.errors import KernelwrightError, MachineLacks, WorkloadFailed
from ..model.files import write_text_atomic
from ..model.saying import Say
from .interpreter import Interpreter
from .output import Tee
from .process import GRACE_S, spawn, terminate
from .run import POLL_S, PROGRESS_EVERY_S, read_result
from .script import INTERRUPT_GRACE_S, STDERR_FILE, STDOUT_FILE, live_descriptor

FAILED_GRACE_S = 5.0
"""How long ranks go on after one has failed: what they say may be the better reason."""
ENDED_GRACE_S = 60.0
"""How long ranks may go on after one has ended well,"""
RECORDED_GRACE_S = 15.0
"""and how long where all recordings are complete: a rank that ends may wait for peers that are gone."""
HOST = "127.0.0.1"
RESULT_FILE = "result.json"


def rank_variables(rank: int, count: int, port: int, environment: Mapping[str, str]) -> dict[str, str]:
    """What torchrun sets for one rank of `count` on one machine. OMP_NUM_THREADS is 1 as there, where the user sets none."""
    variables = {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1,
        "ROLE_RANK": rank, "ROLE_WORLD_SIZE": count, "MASTER_ADDR": HOST, "MASTER_PORT": port}
    threads = {} if environment.get("OMP_NUM_THREADS") else {"OMP_NUM_THREADS": "1"}
    return {**{name: str(value) for name, value in variables.items()}, **threads}


def free_port() -> int:
    """A port that nobody listens on now. Raises MachineLacks where there is no loopback network."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            return int(probe.getsockname()[1])
    except OSError as error:
        raise MachineLacks("no_loopback", f"no port can be opened for the ranks to meet: {error.strerror or error}", where=HOST,
                           fix="bring the loopback interface up: ip link set lo up") from error


def run_ranks(requests: Sequence[ProbeRequest], interpreter: Interpreter, *, cwd: Path, timeout_s: float | None, say: Say,
              stdout_to_stderr: bool) -> list[ProbeResult]:
    """Run one process a request, rank by rank, and return what each recorded. The output of each is in its out_dir; rank 0's is shown.

    Raises as run_script does, naming the rank that failed first; all processes are gone afterwards in every case.
    """
    port = free_port()
    processes: list[subprocess.Popen[bytes]] = []
    tees: list[Tee] = []
    try:
        for rank, request in enumerate(requests):
            process = _start(request, interpreter, cwd, rank_variables(rank, len(requests), port, os.environ))
            processes.append(process)
            tees += _shown(process, Path(request.out_dir), live=rank == 0, stdout_to_stderr=stdout_to_stderr)
        stuck = _wait(processes, requests, timeout_s, say)
    except KeyboardInterrupt:
        _interrupt(processes)
        raise
    finally:
        _end(processes)
        for tee in tees:
            tee.close()
    return [_result(rank, process, request, stuck=rank in stuck)
            for rank, (process, request) in enumerate(zip(processes, requests, strict=True))]


def _start(request: ProbeRequest, interpreter: Interpreter, cwd: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    folder = Path(request.out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULT_FILE).unlink(missing_ok=True)
    file = write_text_atomic(folder / "request.json", request.model_dump_json(indent=1))
    return spawn(interpreter.path, ["run", str(file)], device=request.device, cwd=cwd, log_path=None, variables=variables)


def _shown(process: subprocess.Popen[bytes], folder: Path, *, live: bool, stdout_to_stderr: bool) -> list[Tee]:
    assert process.stdout is not None and process.stderr is not None
    return [Tee(process.stdout, folder / STDOUT_FILE, live_descriptor(2 if stdout_to_stderr else 1) if live else None),
            Tee(process.stderr, folder / STDERR_FILE, live_descriptor(2) if live else None)]


def _wait(processes: Sequence[subprocess.Popen[bytes]], requests: Sequence[ProbeRequest], timeout_s: float | None, say: Say) -> set[int]:
    """Wait for all ranks. Returns those that had to be given up after the others had ended well. Raises WorkloadFailed."""
    start = told = time.monotonic()
    first_end: float | None = None
    while running := [rank for rank, process in enumerate(processes) if process.poll() is None]:
        now = time.monotonic()
        if any(_failed(process, request) for process, request in zip(processes, requests, strict=True)):
            _linger(processes, now + FAILED_GRACE_S)
            raise _first_failure(processes, requests)
        if len(running) < len(processes):
            first_end = first_end or now
            if _given_up(now - first_end, requests):
                return set(running)
        if timeout_s is not None and now - start > timeout_s:
            raise WorkloadFailed("timeout", f"the ranks {_listed(running)} did not finish within {timeout_s:g} s",
                                 where=requests[0].workload.path, fix="raise --timeout, or make the workload smaller")
        if now - told > PROGRESS_EVERY_S:
            say(f"{len(running)} of {len(processes)} ranks have run for {now - start:.0f} s")
            told = now
        time.sleep(POLL_S)
    if any(_failed(process, request) for process, request in zip(processes, requests, strict=True)):
        raise _first_failure(processes, requests)
    return set()


def _given_up(waited_s: float, requests: Sequence[ProbeRequest]) -> bool:
    """Whether the ranks that still run are waited for no longer. Scripts that run to their end have all the time that they take."""
    if requests[0].script is not None and requests[0].script.run_to_end:
        return False
    return waited_s > ENDED_GRACE_S or (waited_s > RECORDED_GRACE_S and all(map(_recorded, requests)))


def _failed(process: subprocess.Popen[bytes], request: ProbeRequest) -> bool:
    """Whether a rank has ended, and not well. One that was ended after its recording may end as it likes."""
    return process.poll() not in (None, 0) and (request.script is None or request.script.run_to_end or not _recorded(request))


def _recorded(request: ProbeRequest) -> bool:
    """Whether a rank's result holds a complete recording."""
    try:
        result = json.loads((Path(request.out_dir) / RESULT_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(result, dict) and result.get("status") == "ok" and bool(result.get("trace_file"))


def _linger(processes: Sequence[subprocess.Popen[bytes]], until: float) -> None:
    while any(process.poll() is None for process in processes) and time.monotonic() < until:
        time.sleep(POLL_S)


def _first_failure(processes: Sequence[subprocess.Popen[bytes]], requests: Sequence[ProbeRequest]) -> KernelwrightError:
    """The error of the rank that failed first: one that left no result (it was killed), else by the time of its result."""
    ended = [rank for rank, (process, request) in enumerate(zip(processes, requests, strict=True)) if _failed(process, request)]
    rank = min(ended, key=lambda rank: (_written(Path(requests[rank].out_dir) / RESULT_FILE), rank))
    try:
        _result(rank, processes[rank], requests[rank], stuck=False)
    except KernelwrightError as error:
        return error
    how = _how(processes[rank].returncode)
    return WorkloadFailed("script_died", f"rank {rank}: the script's process {how}", where=requests[rank].workload.path,
                          fix=f"its output is in {Path(requests[rank].out_dir) / STDERR_FILE}")


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _result(rank: int, process: subprocess.Popen[bytes], request: ProbeRequest, *, stuck: bool) -> ProbeResult:
    """A rank's result. stuck: it was ended by us after the others had ended well. Raises what it reports, the rank named."""
    folder = Path(request.out_dir)
    try:
        result = read_result(folder / RESULT_FILE, process.returncode, folder / STDERR_FILE, request)
    except KernelwrightError as error:
        if stuck:
            raise WorkloadFailed("rank_stuck", f"rank {rank} had not recorded its steps {ENDED_GRACE_S:g} s after another rank had ended",
                                 where=request.workload.path, fix="let all ranks take equally many steps") from error
        error.message = f"rank {rank}: {error.message}"
        raise
    if result.trace_file is None:
        raise WorkloadFailed("no_rank_trace", f"rank {rank} left no recording", where=request.workload.path,
                             fix=f"its output is in {folder / STDERR_FILE}")
    late = ""
    if stuck:
        late = "had not ended long after another rank had: it was ended, its recording being complete"
    elif process.returncode:
        late = f"{_how(process.returncode)} while it was being ended, its recording being complete"
    return result.model_copy(update={"warnings": (*result.warnings, late)}) if late else result


def _how(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _interrupt(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Hand an interrupt on to every rank, and let them clean up; a second one ends them at once."""
    for process in processes:
        _signal(process, signal.SIGINT)
    with contextlib.suppress(KeyboardInterrupt):
        _linger(processes, time.monotonic() + INTERRUPT_GRACE_S)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End all ranks together, with everything they started."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    _linger(processes, time.monotonic() + GRACE_S)
    for process in processes:
        terminate(process, grace_s=0)
