"""The quick screen of the optimiser: candidate beside original in one process (screen_look), and which process that is.

It ranks candidates; the judge decides. The workload is loaded once. On the CPU each candidate runs in a fork of the process that loaded
it, so that nothing of one reaches the next (the loader runs on one thread: a fork after OpenMP has started its threads hangs in the
first parallel loop). On a GPU, where a fork is of no use, candidates share the process, and the reply says when one left something
behind, so that the parent starts another.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence

import torch

from . import environment, failures, loaders
from .judge_program import check_dense, ready_vector_functions
from .screen_look import Look, Message

MORE_INPUTS = 3
"""Beside the workload's own, where shapes or plain values follow the seed."""


class Fork:
    """A Look in a child process; commands and replies are lines of JSON over two pipes."""

    def __init__(self, workload: loaders.LoadedWorkload, threads: int, more: Sequence[loaders.Inputs] = ()) -> None:
        inward, self._out = os.pipe()
        self._in, outward = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                if sys.platform == "linux":
                    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
                if os.getppid() == parent:
                    torch.set_num_threads(threads)
                    _serve(Look(workload, more), inward, outward)
                    code = 0
            finally:
                os._exit(code)
        os.close(inward)
        os.close(outward)

    def ask(self, op: str, message: Message, limit_s: float) -> Message:
        """The reply. Raises ProbeFailure when the child ends or takes too long; it is gone then."""
        _write(self._out, {"op": op, **message})
        give_up, buffer = time.monotonic() + limit_s, b""
        while not buffer.endswith(b"\n"):
            ready, _, _ = select.select([self._in], [], [], max(0.0, give_up - time.monotonic()))
            chunk = os.read(self._in, 1 << 16) if ready else b""
            if not chunk:
                status = self.end()
                if not ready:
                    raise failures.workload_failed("screen_timeout", f"did not finish within {limit_s:.0f} s",
                                                   fix="it is tried again by --resume")
                how = f"was killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended its process"
                raise failures.workload_failed("screen_died", how, fix="it is left out")
            buffer += chunk
        reply: Message = json.loads(buffer)
        return reply

    def end(self) -> int:
        """Kill the child; its wait status. Safe to repeat."""
        if self.pid <= 0:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        os.close(self._in)
        os.close(self._out)
        return status


class Screen:
    """The worker's operations (methods op_NAME), as judge_worker serves them."""

    def __init__(self) -> None:
        self.look: Look | None = None
        self.fork: Fork | None = None
        self.more: list[loaders.Inputs] = []
        self.workload: loaders.LoadedWorkload

    def op_load(self, message: Message) -> Message:
        """Load the workload. On the CPU on one thread, so that forks can have theirs."""
        environment.check_torch()
        device = environment.resolve_device(message["device"])
        self.threads = torch.get_num_threads()
        if device == "cpu":
            os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a pool of processes for each fork costs more than it saves
            torch.set_num_threads(1)
        ready_vector_functions(device)
        self.workload = loaders.load(message["path"], message["version"], message["params"], device, message["seed"])
        check_dense(self.workload)
        if device == "cpu" and torch.get_num_threads() != 1:  # the workload's own wish
            self.threads = torch.get_num_threads()
        return {"device": device, "training": self.workload.training}

    def op_prepare(self, message: Message) -> Message:
        """See Look.prepare; `compiles` says that the compiler may be needed: loaded before the fork it is loaded once."""
        if message["shapes"] and not self.more:
            self.more = [self.workload.fresh_inputs(message["seed"] + number) for number in range(1, MORE_INPUTS + 1)]
        if self.workload.device == "cuda":
            self.look = self.look or Look(self.workload)
            self.look.more = self.more
            return self.look.prepare(message)
        if message["compiles"] and "torch._inductor.compile_fx" not in sys.modules:
            with contextlib.suppress(Exception):  # what is amiss with it is the candidate's to say
                importlib.import_module("torch._inductor.compile_fx")
        self._end_fork()
        self.fork = Fork(self.workload, self.threads, self.more)
        return self._of_fork("prepare", message)

    def op_time(self, message: Message) -> Message:
        """See Look.time."""
        if self.fork is not None:
            return self._of_fork("time", message)
        assert self.look is not None
        return self.look.time(message)

    def op_compile(self, message: Message) -> Message:
        """See Look.compile."""
        if self.workload.device == "cuda":
            self.look = self.look or Look(self.workload)
            try:
                return self.look.compile(message)
            finally:
                torch._dynamo.reset()
                gc.collect()
                torch.cuda.empty_cache()
        self._end_fork()
        self.fork = Fork(self.workload, self.threads)
        told = self._of_fork("compile", message)
        self._end_fork()
        return told

    def op_drop(self, message: Message) -> Message:
        """End with this candidate."""
        self._end_fork()
        return self.look.drop(message) if self.look is not None else {"spoiled": False}

    def _of_fork(self, op: str, message: Message) -> Message:
        assert self.fork is not None
        try:
            reply = self.fork.ask(op, message, message["limit_s"])
        except failures.ProbeFailure:
            self.fork = None
            raise
        if "failed" in reply:
            self._end_fork()
            told = reply["failed"]
            raise failures.ProbeFailure(told["code"], told["message"], exit_code=told["exit_code"], where=told["where"], fix=told["fix"],
                                        trace=told["traceback"])
        return reply

    def _end_fork(self) -> None:
        if self.fork is not None:
            self.fork.end()
            self.fork = None


def _serve(look: Look, inward: int, outward: int) -> None:
    """The child's side: one reply a command, until the parent closes its end."""
    with os.fdopen(inward, "rb") as commands:
        for line in commands:
            message = json.loads(line)
            action: Callable[[Message], Message] = getattr(look, message["op"])
            try:
                reply = action(message)
            except BaseException as error:  # noqa: BLE001 the outermost edge: whatever the program did becomes a reply
                reply = {"failed": failures.describe(error, message.get("candidate") or "").as_dict()}
            _write(outward, reply)


def _write(fd: int, message: Message) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(fd, data):]
