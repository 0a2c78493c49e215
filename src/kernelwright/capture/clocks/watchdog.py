"""Starts and ends the watchdog process that undoes a lock when this process dies."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..clockguard import leases
from ..clockguard.switch import Refused

START = Path(__file__).resolve().parents[1] / "clockguard" / "start.py"
READY_S = 10.0


class Watchdog:
    """One watchdog for one lease; a session of its own, so that no signal to this process's group or terminal reaches it."""

    def __init__(self, binding: Any, uuid: str, token: str) -> None:
        """Start it and wait until it watches. Raises Refused."""
        order = {"uuid": uuid, "token": token, "nvml": getattr(binding, "__file__", None), "parent": os.getpid(),
                 "start": leases.start_of(os.getpid())}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(START), "watch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True, cwd="/" if os.name == "posix" else None)
        except OSError as error:
            raise Refused(f"the watchdog that would undo the lock does not start: {error.strerror}") from error
        if not self._tell(json.dumps(order)) or not self._ready():
            self.end()
            raise Refused("the watchdog that would undo the lock does not answer")

    @property
    def alive(self) -> bool:
        """Whether it still watches."""
        return self._process.poll() is None

    def end(self, *, done: bool = False) -> None:
        """done: the lease is ended, so it has nothing to do; else it ends the lease."""
        if done:
            self._tell("done")
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)

    def _tell(self, line: str) -> bool:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
            return True
        except (OSError, ValueError):
            return False

    def _ready(self) -> bool:
        assert self._process.stdout is not None
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and self.alive:
            if select.select([self._process.stdout], [], [], 0.2)[0]:
                return self._process.stdout.readline() == b"ready\n"
        return False
