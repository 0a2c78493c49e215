"""Probe processes that start with torch already imported: a fork of the test run's own process, with the probe's start.py run in it.

A real process with its own session, output, folder and environment, which can hang, be killed or leave; only the import of torch, over a
second each time, is not repeated. For tests of what becomes of a workload or a candidate. What a fresh interpreter does is tested by those
that run the scripts.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib.machinery
import importlib.util
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import pytest

from kernelwright.capture import process

INHERITED = ("kernelwright", "tests", "_pytest", "pytest", "xdist", "execnet")
FIRST_FREE = 3
TRIAL_S = 20
"""A backward pass that has not ended by then never does."""


class Forked(subprocess.Popen):  # type: ignore[type-arg]
    """`PYTHON start.py ...` as a child that forks instead of starting PYTHON."""

    before_torch = False

    def _execute_child(self, args: Sequence[str], executable: object, preexec_fn: object, close_fds: object, pass_fds: Sequence[int],
                       cwd: Any, env: Mapping[str, str], startupinfo: object, creationflags: object, shell: object, p2cread: int,
                       p2cwrite: int, c2pread: int, c2pwrite: int, errread: int, errwrite: int, *_: object) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            _become(args, (p2cread, c2pwrite, errwrite), pass_fds, cwd, env, self.before_torch)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


class ForkedBeforeTorch(Forked):
    """One to which torch looks not yet imported: its `import torch` is found and loaded like any other, only at once. What scripts need,
    whose steps are counted from their import of torch on."""

    before_torch = True


class PutBack(importlib.machinery.SourceFileLoader):
    """Loads torch by handing out again what was put away of it."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self.modules = modules
        self.spec = modules["torch"].__spec__
        super().__init__("torch", str(modules["torch"].__file__))

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == "torch" else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self.modules["torch"]

    def exec_module(self, module: ModuleType) -> None:
        sys.meta_path.remove(self)
        module.__spec__ = self.spec
        sys.modules.update(self.modules)


def _put_torch_away() -> None:
    sys.meta_path.insert(0, PutBack({name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "torch"}))


def _become(args: Sequence[str], streams: tuple[int, int, int], keep: Sequence[int], cwd: Any, env: Mapping[str, str],
            before_torch: bool) -> NoReturn:
    """The child's life: as much as can be of a fresh interpreter, then the program, then the end."""
    status = 1
    try:
        os.setsid()
        if cwd is not None:
            os.chdir(cwd)
        _wire(streams, keep)
        os.environ.clear()
        os.environ.update(env)
        _set_malloc(env)
        os.register_at_fork(after_in_child=_renewal())  # a judge's candidate is a fork of its supervisor
        if lost_autograd():
            os.execve(args[0], list(args), dict(env))  # a fresh interpreter instead
        _forget()
        sys.dont_write_bytecode = bool(env.get("PYTHONDONTWRITEBYTECODE"))
        if before_torch:
            _put_torch_away()
        sys.argv = list(args[1:])
        sys.path[:] = [os.path.dirname(args[1]), *(path for path in sys.path if "-packages" in path or "lib/python" in path)]
        status = _program(args[1])
    except BaseException:  # noqa: BLE001 - the child must never go on as a second test run
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _set_malloc(env: Mapping[str, str]) -> None:
    """What glibc reads from these variables when a program starts (mallopt(3)): a fork has the test run's own thresholds, which move by
    what it and the fork have freed, in one side of a judgement and not in the other."""
    libc = ctypes.CDLL(None)
    for name, option in (("MALLOC_MMAP_THRESHOLD_", -3), ("MALLOC_TRIM_THRESHOLD_", -1)):
        if name in env and hasattr(libc, "mallopt"):
            libc.mallopt(option, min(int(env[name]), 2**31 - 1))


def lost_autograd() -> bool:
    """Whether no backward pass can be made in this fork, since the test run's own process has started threads: it raises, or aborts the
    process, so a fork of its own tries it. Seen only with a torch that is built for CUDA, on a machine without a GPU."""
    import torch

    _renew_pool()
    if torch.version.cuda is None:
        return False
    trial = os.fork()
    if trial == 0:
        status = 1
        try:
            _renew_pool()
            faulthandler.disable()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(TRIAL_S)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(trial, 0)[1] != 0


def _renew_pool() -> None:
    _renewal()()


def _renewal() -> Callable[[], None]:
    """In a fork torch renews its pool of threads at the pool's first use. Two threads at once, this one and a backward pass's, can find
    none ("Invalid thread pool!", and the process aborts; seen on a busy machine): so it is used while there is one thread. torch is looked
    for at once: in a fork it may have been put away."""
    import torch

    return lambda: torch.set_num_threads(torch.get_num_threads())


def _wire(streams: tuple[int, int, int], keep: Sequence[int]) -> None:
    for number, stream in enumerate(streams):
        if stream >= 0:  # else as the test run has it
            os.dup2(stream, number)
    first = FIRST_FREE
    for number in sorted(keep):
        os.closerange(first, number)
        os.set_inheritable(number, True)
        first = number + 1
    os.closerange(first, 4096)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)


def _forget() -> None:
    """What the test run has set in this process."""
    faulthandler.disable()
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    atexit._clear()
    warnings.resetwarnings()
    tempfile.tempdir = None
    gc.freeze()
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
    for name in [name for name in sys.modules if name.partition(".")[0].startswith(INHERITED)]:
        del sys.modules[name]
    if (compiler := sys.modules.get("torch._dynamo.utils")) is not None:  # what other tests have compiled
        compiler.counters.clear()


def _program(path: str) -> int:
    """Run it as `python PATH` would; the exit status."""
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as left:
        if left.code is not None and not isinstance(left.code, int):
            sys.stderr.write(f"{left.code}\n")
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001 - as an interpreter ends
        traceback.print_exc()
        status = 1
    else:
        status = 0
    atexit._run_exitfuncs()
    return status & 0xFF


def starter(before_torch: bool = False) -> type[subprocess.Popen]:  # type: ignore[type-arg]
    """Forked, or ForkedBeforeTorch; the plain Popen where torch has a GPU, since what CUDA has begun in a process is broken in its forks,
    and where torch has a pool of threads, which does not come along: a fork that needs it waits forever."""
    import torch

    if torch.get_num_threads() > 1 or torch.cuda.is_available():
        return subprocess.Popen
    return ForkedBeforeTorch if before_torch else Forked


@contextlib.contextmanager
def warm_start(before_torch: bool = False) -> Iterator[None]:
    """Probe processes of this interpreter are started by `starter` while this holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "subprocess", SimpleNamespace(Popen=starter(before_torch), PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL))
        yield
