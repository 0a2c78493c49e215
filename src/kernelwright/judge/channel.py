"""One worker process and its line to the parent: a pair of pipes that only the two of them hold, each reply under a seal.

The seal is an HMAC under a key that the worker reads before anything of the candidate is imported. It refuses whatever writes to the pipe
without knowing this process from the inside; code of the candidate's that looks for the key in its own interpreter can find it. What a
worker says about itself is therefore never believed: outputs and times are the parent's own."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import select
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..capture.process import spawn, tell_to_end, terminate
from ..model.workload import Device
from .confine import MAX_LOG_BYTES, Confinement
from .options import Deadline, OutOfTime
from .untrusted import open_regular, remove

MAX_REPLY_BYTES = 64 * 2**20
POLL_S = 0.1
EXIT_GRACE_S = 0.5
"""After the process has ended, what it wrote before may still arrive for this long."""
SUPERVISED_GRACE_S = 12.0
"""A supervisor takes at most 10 s to end all that the candidate started (probe/confine_watch.py)."""
REPORT_S = 1.0
"""A worker below a supervisor reports 0.2 s after its start, any other has begun by then, but on a machine that has no time for it."""
LOG_TAIL_CHARACTERS = 300
ENDED = ("died", "timeout", "noisy", "forged", "malformed")
"""Codes of a failure after which the process is gone."""
STEADY_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 27)}
"""glibc raises both thresholds by itself after large blocks were freed, in one process and not in the other: on the CPU that made
the same convolution 8 to 14% faster in the reference, whose float64 run had freed some. Both start where it stops raising them (32 and
64 MiB, mallopt(3)), which is where a process that runs for a while has them: more would be faster than what users see. 64 MiB more may lie
free: so much the judge itself allocates between calls (judge_program's TOUCHED_BYTES and fillings)."""


class WorkerFailed(Exception):
    """A worker gave an error instead of a reply, or none at all.

    code: the probe's error code, or died, timeout, noisy, forged, malformed.
    """

    def __init__(
        self, code: str, message: str, *, where: str = "", fix: str = "", exit_code: int = 4, trace: str = "", role: str = "candidate",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.fix = fix
        self.exit_code = exit_code
        self.trace = trace
        self.role = role
        """Whose worker it was."""


class Worker:
    """Starts on creation; `close` (or leaving the with block) ends its whole process group, or with a confinement all its descendants."""

    def __init__(
        self, role: str, interpreter: Path, folder: Path, *, device: Device, confinement: Confinement | None = None,
        variables: Mapping[str, str] | None = None, ahead: bool = False,
    ) -> None:
        """folder: of its log. variables: of its environment. ahead: until the first command it imports what compilers need.

        Raises MachineLacks, OSError.
        """
        self.role = role
        self.confinement = confinement
        self.log = folder / f"{role}.log"
        remove(self.log)  # an earlier candidate's words are not this one's
        request_read, self._request = os.pipe()
        self._reply, reply_write = os.pipe()
        self._status, status_write = os.pipe()
        self._key = secrets.token_bytes(32)
        self._told, self._over = bytearray(), ""
        self._begins_by = time.monotonic() + REPORT_S
        try:
            plan = confinement.variables(status_write) if confinement is not None else {}
            self._supervised = bool(plan)
            self.process = spawn(
                interpreter, ["judge", "--role", role, "--request-fd", str(request_read), "--reply-fd", str(reply_write),
                              *(["--ahead"] if ahead else [])],
                device=device, cwd=Path.cwd(), log_path=self.log, pass_fds=(request_read, reply_write, status_write),
                variables={**STEADY_MEMORY, **(variables or {}), **(plan or {"KERNELWRIGHT_BEGUN_FD": str(status_write)})})
            _write_all(self._request, self._key.hex().encode() + b"\n")
        except BaseException:
            self._close_pipes("_request", "_reply", "_status")
            raise
        finally:
            os.close(request_read)
            os.close(reply_write)
            os.close(status_write)
        self._buffer = bytearray()
        self._pending: tuple[str, str] | None = None
        self._paused = False
        self.is_ending = False
        """It was told to end, and may take a moment: with a gigabyte of a GPU's memory a second, in which others can end too."""

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the process that runs the program (below its supervisor, where it has one)."""
        report = self.confinement.report if self.confinement is not None else None
        return report.pid if report is not None else self.process.pid

    def reported(self, within_s: float) -> bool:
        """Whether it is known which process runs the program, and that this process leaves with ours, however that ends. Below a supervisor
        it reports itself 0.2 s after its start; any other closes its end of the status pipe (probe/start.py), or is not waited for again
        once it had the time for that."""
        until = time.monotonic() + within_s
        if not self._supervised:
            until = min(until, self._begins_by)
        while not self._is_known():
            self.hear()
            if self.process.poll() is not None or time.monotonic() > until:
                return self._is_known()
            time.sleep(0.01)
        return True

    def _is_known(self) -> bool:
        if self._supervised and self.confinement is not None:
            return self.confinement.report is not None
        return self._status < 0

    def send(self, op: str, **fields: Any) -> None:
        """Give a command without waiting for its reply. Raises WorkerFailed when the worker is gone."""
        self.resume()
        identity = secrets.token_hex(8)
        self._pending = (identity, op)
        try:
            _write_all(self._request, json.dumps({"id": identity, "op": op, **fields}).encode() + b"\n")
        except OSError as error:
            failure = self._died(op)
            failure.role = self.role
            raise failure from error

    def receive(self, *, timeout_s: float, deadline: Deadline | None = None) -> dict[str, Any]:
        """The reply to the last command. Raises WorkerFailed (and the worker is ended, but after an error reply), OutOfTime (it is told to
        end, and whoever started it closes it)."""
        assert self._pending is not None
        (identity, op), self._pending = self._pending, None
        try:
            line = self._read_line(op, timeout_s, deadline)
            reply = _parse(line, identity, self._key)
        except WorkerFailed as error:
            error.role = self.role
            self.close()
            raise
        except OutOfTime:
            self.tell_to_end()
            raise
        if reply.get("ok") is not True:
            raise _reported(reply.get("error"), self.role)
        return reply

    def answered(self) -> bool:
        """Whether `receive` would not wait: a reply, or the worker's end, is there."""
        return bool(self._buffer) or self.process.poll() is not None or bool(select.select([self._reply], [], [], 0)[0])

    def ask(self, op: str, *, timeout_s: float, deadline: Deadline | None = None, **fields: Any) -> dict[str, Any]:
        """`send` and `receive`."""
        self.send(op, **fields)
        return self.receive(timeout_s=timeout_s, deadline=deadline)

    def tell_to_end(self) -> None:
        """Have its process end while others are; `close` waits for it."""
        self.is_ending = True
        self.resume()
        tell_to_end(self.process, signal.SIGTERM if self._supervised else signal.SIGKILL)

    def close(self) -> None:
        """End the process group and the pipes. Safe to repeat."""
        self.resume()
        self._close_pipes("_request", "_reply")
        terminate(self.process, grace_s=SUPERVISED_GRACE_S if self._supervised else 0.0)
        self.hear()
        self._close_pipes("_status")

    def pause(self) -> None:
        """Stop it until the next command: what it left behind, a thread or OpenMP's, which spin for milliseconds, takes nothing from the
        other side meanwhile. With its group, but never its supervisor, which ends both when this process is killed; where there is no
        supervisor, it alone: its children, compile workers say, would stay stopped for ever. So would one that does not leave with this
        process yet, or of which that is not known (below a program that keeps the status pipe open): it goes on."""
        if not self._paused and self.reported(0.0 if self._supervised else REPORT_S) and self.process.poll() is None:
            self._paused = True  # before it is: an interrupt between the two must not leave it stopped
            self.signal(signal.SIGSTOP, alone=not self._supervised)

    def resume(self) -> None:
        """Undo `pause`. Safe to repeat."""
        if self._paused:
            self._paused = False
            self.signal(signal.SIGCONT, alone=not self._supervised)

    def signal(self, number: int, *, alone: bool = False) -> bool:
        """Send its process group, or it alone, a signal (signal(7)); False where it is gone."""
        try:
            (os.kill if alone else os.killpg)(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def log_tail(self) -> str:
        """The last line that the program printed, shortened."""
        try:
            with open_regular(self.log) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        except OSError:
            return ""
        return lines[-1][:LOG_TAIL_CHARACTERS] if lines else ""

    def _read_line(self, op: str, timeout_s: float, deadline: Deadline | None) -> bytes:
        give_up = time.monotonic() + timeout_s
        ended_at: float | None = None
        while b"\n" not in self._buffer:
            now = time.monotonic()
            if now > give_up:
                raise WorkerFailed("timeout", f"did not finish its {_words(op)} within {round(timeout_s, 1):g} s")
            if deadline is not None and deadline.left_s() <= 0:
                raise OutOfTime(f"the {self.role} was at its {_words(op)}")
            if self._log_bytes() > MAX_LOG_BYTES:
                raise WorkerFailed("noisy", f"printed more than {MAX_LOG_BYTES // 2**20} MiB")
            if ended_at is None and self.process.poll() is not None:
                ended_at = now
            if ended_at is not None and now - ended_at > EXIT_GRACE_S:
                raise self._died(op)
            ready, _, _ = select.select([self._reply], [], [], min(POLL_S, max(give_up - now, 0.001)))
            self.hear()
            if self._over:
                raise WorkerFailed("died", self._over)
            if ready:
                chunk = os.read(self._reply, 1 << 20)
                if not chunk:
                    raise self._died(op)
                self._buffer += chunk
            if len(self._buffer) > MAX_REPLY_BYTES:
                raise WorkerFailed("forged", f"wrote more than {MAX_REPLY_BYTES // 2**20} MiB on the judge's channel")
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        if rest:
            raise WorkerFailed("forged", "wrote to the judge's channel on its own")
        return line

    def hear(self) -> None:
        """What came over the status pipe so far: the worker's report, and why its supervisor ended it."""
        while self._status >= 0 and select.select([self._status], [], [], 0)[0]:
            chunk = os.read(self._status, 65536)
            if not chunk:
                os.close(self._status)
                self._status = -1
                break
            self._told += chunk
        while self.confinement is not None and b"\n" in self._told:
            line, _, rest = bytes(self._told).partition(b"\n")
            self._told = bytearray(rest)
            over = self.confinement.take(line)
            self._over = self._over or over

    def _wait_for_exit(self) -> None:
        """A supervisor whose worker has ended still ends what that left behind."""
        start = time.monotonic()
        while self.process.poll() is None:
            ending = self._supervised and not Path(f"/proc/{self.pid}").exists()
            if time.monotonic() - start > (SUPERVISED_GRACE_S if ending else EXIT_GRACE_S):
                return
            time.sleep(0.01)

    def _died(self, op: str) -> WorkerFailed:
        self._wait_for_exit()
        self.hear()
        if self._over:
            return WorkerFailed("died", self._over)
        status = self.process.poll()
        if status is None:
            how = "closed the judge's channel"
        else:
            how = f"was killed by signal {-status}" if status < 0 else f"ended its process with status {status}"
        tail = self.log_tail()
        return WorkerFailed("died", f"{how} during its {_words(op)}" + (f"; last words: {tail}" if tail else ""))

    def _log_bytes(self) -> int:
        try:
            return self.log.lstat().st_size
        except OSError:
            return 0

    def _close_pipes(self, *names: str) -> None:
        for name in names:
            fd = getattr(self, name, -1)
            setattr(self, name, -1)
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)


def _reported(found: Any, role: str) -> WorkerFailed:
    """The error object of a reply, checked field by field."""
    told = found if isinstance(found, dict) else {}
    exit_code = told.get("exit_code")

    def text(name: str, longest: int, default: str = "") -> str:
        value = told.get(name, default)
        return value[:longest] if isinstance(value, str) else default

    return WorkerFailed(
        text("code", 100, "unknown"), text("message", 1000, "no reason given"), where=text("where", 1000), fix=text("fix", 1000),
        exit_code=exit_code if isinstance(exit_code, int) else 4, trace=text("traceback", 20000), role=role)


def _parse(line: bytes, identity: str, key: bytes) -> dict[str, Any]:
    seal, _, text = line.partition(b" ")
    if not hmac.compare_digest(seal, hmac.new(key, text, "sha256").hexdigest().encode()):
        raise WorkerFailed("forged", "wrote something on the judge's channel that does not bear its worker's seal")
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WorkerFailed("forged", "wrote something that is no reply on the judge's channel") from error
    if not isinstance(reply, dict) or reply.get("id") != identity:
        raise WorkerFailed("forged", "forged a reply on the judge's channel")
    return reply


_WORDS = {
    "admit": "start", "load": "start and load", "build": "import and build",
    "prepare": "build and first calls", "prepare_timing": "warm-up", **dict.fromkeys(
        ("time", "lead_in", "prepare_condition", "time_condition", "end_conditions", "renew", "time_single"), "timed calls"),
    "churn": "many calls in turn", "forget": "clearing of inputs", "export": "copying of outputs", "dump_state": "copying of its weights",
    "oracle": "call in float64", "yardstick": "call in lower precision", "perturbed": "call on moved inputs",
    "rounded": "call with rounded weights", "count_work": "count of FLOPs and bytes", "record_window": "recorded calls",
    "withhold": "calls without its kernels", "withheld": "calls without its kernels",
}
"""What a person reads of an operation that has another name there than in the protocol."""


def _words(op: str) -> str:
    return _WORDS.get(op, op.replace("_", " "))


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data):]
