"""The first code of a judge's worker: with a plan from the parent it becomes a supervisor, and its child the confined worker.

The plan is JSON in KERNELWRIGHT_CONFINE; without one the worker starts as it is. The child confines itself before torch is imported
(neither Landlock nor a filter reaches threads that exist already), tries from inside what must be refused, reports, and only then
goes on. So the report is written before any of the candidate's code ran. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import json
import os
import resource
import secrets
import signal
import socket
import stat
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from . import confine_landlock, confine_seccomp, confine_watch

VARIABLE = "KERNELWRIGHT_CONFINE"
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 24, 38, 39, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITY_VERSION_3 = 0x20080522
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/nvidia*", "/dev/nvidia-caps*/*",
           "/dev/dri/*", "/dev/kfd", "/dev/infiniband/*")
SHARED_MEMORY = "/dev/shm"
PTRACE_PEEKDATA = 2
PTRACE = {"x86_64": 101, "aarch64": 117}
LARGEST_REASON = 160
MOST_OPEN_FILES = 65536
Plan = dict[str, Any]
Check = dict[str, Any]


def main(argv: list[str]) -> int:
    """Entry of `start.py judge`."""
    text = os.environ.pop(VARIABLE, "")
    if text:
        _become_confined(json.loads(text), argv)
    from . import judge_worker

    return judge_worker.main(argv)


def _become_confined(plan: Plan, argv: Sequence[str]) -> None:
    """Returns in the child, confined as far as this machine allows; the parent of that child supervises and never returns."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    subreaper = confine_watch.prepare()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, confine_watch.SIGNALS)
    supervisor, child = os.getpid(), os.fork()
    if child:
        for name in ("--request-fd", "--reply-fd"):
            os.close(int(argv[argv.index(name) + 1]))
        confine_watch.supervise(child, plan)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(1)
    os.setsid()
    _first_to_go()
    checks = [_check("nothing left running", subreaper == "", subreaper or "a supervisor ends every descendant")]
    if plan["confine"]:
        checks += confine(plan, supervisor)
        checks += probe(plan, supervisor)
        for path in plan["readable"]:
            with open(path, "rb"):  # of another user's, maybe, whom only capabilities could override: the judge then does without
                pass
    os.write(plan["status_fd"], json.dumps({"pid": os.getpid(), "checks": checks}).encode() + b"\n")
    os.close(plan["status_fd"])


def _first_to_go() -> None:
    """Where memory runs out faster than the supervisor looks, the system ends this process or its children, and not the supervisor."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("500")
    except OSError:
        return


def confine(plan: Plan, supervisor: int) -> list[Check]:
    """Apply every mechanism that this machine has; one check each, those that failed with their reason."""
    protected = [supervisor, *plan["protect"]]
    return [_try("limits", lambda: _limits(plan)),
            _try("no new privileges", _no_new_privileges),
            _try("no capabilities", _drop_capabilities),
            _try("Landlock", lambda: _landlock(plan)),
            _try("seccomp", lambda: _seccomp(protected))]


def probe(plan: Plan, supervisor: int) -> list[Check]:
    """Try from inside what must be refused. Nothing of the candidate has run yet, so the answers are true."""
    others = [supervisor, *plan["protect"]]
    return [_refused("no network", [lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(),
                                    lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()]),
            _refused("no writing outside", [partial(_write_into, path) for path in plan["not_writable"]]),
            _refused("reference's files unreadable", [partial(_read, path) for path in plan["not_readable"]]),
            _refused("other processes' memory unreadable", [
                *(partial(_read, f"/proc/{pid}/{name}") for pid in others for name in ("mem", "environ")),
                *(partial(_trace, pid) for pid in others)]),
            _refused("no signals to the judge", [partial(os.kill, pid, 0) for pid in others])]


def admit(candidate: str) -> dict[str, Any]:
    """For a worker that was confined before its candidate was known: whether it can read that file, and that it cannot write it."""
    try:
        with open(candidate, "rb"):
            readable = True
    except OSError:
        readable = False
    check = _refused("no writing outside", [partial(_write_into, candidate)])
    return {"readable": readable, "held": check["held"], "detail": check["detail"]}


def _limits(plan: Plan) -> str:
    size = _lower(resource.RLIMIT_FSIZE, plan["file_bytes"])
    files = _lower(resource.RLIMIT_NOFILE, MOST_OPEN_FILES)
    return (f"memory {plan['memory_bytes'] / 2**30:.3g} GiB, {plan['processes']} processes, files of {size / 2**30:.3g} GiB, "
            f"{files} open files, no core dumps")


def _lower(kind: int, most: int) -> int:
    """Lower a limit for good, never raise one; what holds now."""
    soft, hard = (most if limit == resource.RLIM_INFINITY else min(limit, most) for limit in resource.getrlimit(kind))
    resource.setrlimit(kind, (soft, hard))
    return soft


def _no_new_privileges() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "no_new_privs is set"


def _drop_capabilities() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # of root alone; for the others the set below is empty already
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    head = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    if libc.syscall(CAPSET[os.uname().machine], head, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with open("/proc/self/status", encoding="ascii") as file:
        left = {line.split()[1] for line in file if line.startswith(("CapPrm", "CapEff"))}
    if any(int(mask, 16) for mask in left):
        raise OSError(0, "some could not be dropped")
    return "none is left"


def _landlock(plan: Plan) -> str:
    devices = [path for pattern in DEVICES for path in glob.glob(pattern) if stat.S_ISCHR(os.stat(path).st_mode)]
    own = f"/proc/{os.getpid()}"  # CUDA names its threads there, and does not start when it may not
    os.open(own, os.O_PATH | os.O_CLOEXEC)  # kept: the rule is for this very entry, which the kernel could drop and make anew
    return f"ABI {confine_landlock.restrict([*plan['write'], SHARED_MEMORY], [own, *devices], plan['hidden'])}"


def _seccomp(protected: Sequence[int]) -> str:
    confine_seccomp.install(os.getpid(), protected)
    return "network, tracing, mounting and the like are refused"


def _write_into(path: str) -> None:
    """A new file in a folder, or an existing file opened for writing (and nothing written)."""
    if not os.path.isdir(path):
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        return
    name = os.path.join(path, f".kernelwright-{secrets.token_hex(8)}")
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(name)


def _read(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        if path.endswith("/mem"):
            return
        file.read(1)


def _trace(pid: int) -> None:
    """A request for a process that is traced: a filter refuses it (EPERM) before the system finds that this one is not (ESRCH)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(PTRACE.get(os.uname().machine, -1), PTRACE_PEEKDATA, pid, None, None)
    if ctypes.get_errno() == errno.EPERM:
        raise PermissionError(errno.EPERM, "refused")


def _refused(name: str, attempts: Sequence[Callable[[], object]]) -> Check:
    for attempt in attempts:
        try:
            attempt()
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                continue
            return _check(name, False, f"could not be tried: {error}")
        return _check(name, False, "was tried from inside and succeeded")
    return _check(name, bool(attempts), "tried from inside and refused" if attempts else "nothing to try")


def _try(name: str, apply: Callable[[], str]) -> Check:
    try:
        return _check(name, True, apply())
    except Exception as error:  # noqa: BLE001 each mechanism fails by itself, with its reason
        return _check(name, False, str(error) or type(error).__name__)


def _check(name: str, held: bool, detail: str) -> Check:
    return {"name": name, "held": held, "detail": detail[:LARGEST_REASON]}
