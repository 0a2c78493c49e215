"""The supervisor: a small process between the judge and the candidate's worker, outside the confinement and without torch.

Every process that the candidate starts, however it detaches, stays its descendant (PR_SET_CHILD_SUBREAPER) and is ended with it. It
watches memory, the number of processes and the log of the whole tree, and ends itself as its child ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import struct
import time
from collections.abc import Iterator
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SA_NOCLDSTOP = 1
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
POLL_S = 0.1
BUSY_POLL_S = 0.02
"""Where there is a tree of processes: it may grow fast."""
BUSY_PROCESSES = 8
THREADS_PER_PROCESS = 64
PATIENCE_S = 0.2
"""Reading one process's shares waits while it forks (0.2 s each of 14 in a fork bomb)."""
END_WITHIN_S = 10.0
"""A process in the GPU's driver may take seconds to leave."""
Plan = dict[str, Any]


def prepare() -> str:
    """Make this process the one that orphans come to, and that leaves with its parent. "", or why it cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        return f"no subreaper: {os.strerror(ctypes.get_errno())}"
    return ""


def supervise(child: int, plan: Plan) -> NoReturn:
    """Until the child or the parent has ended, or the tree is over a limit; then end what is left."""
    parent, page = os.getppid(), os.sysconf("SC_PAGE_SIZE")
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    _hear_of_ends_only()
    status: int | None = None
    wait_s = POLL_S
    while status is None:
        came = signal.sigtimedwait(SIGNALS, wait_s)
        status = _reap(child)
        if status is not None:
            break
        if os.getppid() != parent or (came is not None and came.si_signo != signal.SIGCHLD):
            status = signal.SIGKILL
            break
        tree = list(descendants(os.getpid()))
        wait_s = BUSY_POLL_S if len(tree) > BUSY_PROCESSES else POLL_S
        over = _over(tree, plan, page)
        if over:
            _say(plan, {"ended": over})
            status = signal.SIGKILL
    left = end_all()
    if left:
        _say(plan, {"left": left})
    _leave(status)


def _hear_of_ends_only() -> None:
    """The judge stops the worker between timed blocks: woken each time, this process would take from the other side's.

    struct sigaction of 64-bit glibc and musl: handler (0: the default), 128 bytes of mask, flags, restorer.
    """
    if struct.calcsize("P") == 8:
        ctypes.CDLL(None).sigaction(int(signal.SIGCHLD), struct.pack("P128xi4xP", 0, SA_NOCLDSTOP, 0), None)


def descendants(process: int) -> Iterator[int]:
    """Ids of all processes below this one, zombies too."""
    pending = [process]
    seen = {process}
    while pending:
        for child in _children(pending.pop()):
            if child not in seen:
                seen.add(child)
                pending.append(child)
                yield child


def end_all() -> int:
    """Kill every descendant and collect it; returns how many are left after END_WITHIN_S."""
    until = time.monotonic() + END_WITHIN_S
    first = True
    while True:
        tree = list(descendants(os.getpid()))
        for number in (signal.SIGSTOP, signal.SIGKILL) if first else (signal.SIGKILL,):  # a stopped process starts no others
            for process in tree:
                with contextlib.suppress(OSError):
                    os.kill(process, number)
        first = len(tree) > BUSY_PROCESSES
        _reap(0)
        if not tree or time.monotonic() > until:
            return len(tree)
        time.sleep(0.001)


def _over(tree: list[int], plan: Plan, page: int) -> str:
    """What limit is passed, in the words of a verdict's reason; "" for none."""
    if len(tree) > plan["processes"]:
        return f"started more than {plan['processes']} processes"
    resident = threads = 0
    for process in tree:
        fields = _stat(process)
        threads += int(fields[17]) if fields else 0
        resident += int(fields[21]) * page if fields else 0
    if threads > plan["processes"] * THREADS_PER_PROCESS:
        return f"started more than {plan['processes'] * THREADS_PER_PROCESS} threads"
    if resident > plan["memory_bytes"] and _proportional(tree) > plan["memory_bytes"]:
        return f"used more than {plan['memory_bytes'] / 2**30:.3g} GiB of memory"
    with contextlib.suppress(OSError):
        if os.fstat(1).st_size > plan["log_bytes"]:
            return f"printed more than {plan['log_bytes'] // 2**20} MiB"
    return ""


def _proportional(tree: list[int]) -> float:
    """Bytes of memory of all, pages shared among them counted once; estimated from some where the system is slow to tell."""
    until, told = time.monotonic() + PATIENCE_S, []
    for process in random.sample(tree, len(tree)):
        told.append(_share(process))
        if time.monotonic() > until:
            break
    return sum(told) / len(told) * len(tree)


def _share(process: int) -> int:
    """Bytes, shared pages divided among those who share them; what is resident where the system won't tell."""
    try:
        with open(f"/proc/{process}/smaps_rollup", "rb") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
    except OSError:
        fields = _stat(process)
        return int(fields[21]) * os.sysconf("SC_PAGE_SIZE") if fields else 0


def _stat(process: int) -> list[bytes]:
    """/proc/ID/stat from the state on (proc(5)): 17 is the number of threads, 21 the resident pages."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _children(process: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        if os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
            return found  # it is gone
        found = [int(name) for name in os.listdir("/proc") if name.isdigit() and _stat(int(name))[1:2] == [str(process).encode()]]
    return found


def _reap(child: int) -> int | None:
    """Collect every process that has ended; the wait status of this child when it is among them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while True:
            process, found = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                break
            if process == child:
                status = found
    return status


def _say(plan: Plan, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(plan["status_fd"], json.dumps(message).encode() + b"\n")


def _leave(status: int) -> NoReturn:
    """End as the child did."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
