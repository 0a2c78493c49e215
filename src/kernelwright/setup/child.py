"""Runs an installer as a child: its output goes to a log, its progress to the user, and it never outlives a clean stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HEARTBEAT_S = 5.0
NOT_INHERITED = ("PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_HASHES", "VIRTUAL_ENV")
"""Each of these would send the packages somewhere else, or break the environment's own interpreter."""
NOISE = ("WARNING", "Attempting uninstall", "Found existing", "Uninstalling", "Successfully uninstalled")
"""Starts of pip's lines that say nothing of how far it is."""


@dataclass
class Runner:
    """Runs commands one after the other; all their output is appended to one log."""

    log: Path
    say: Callable[[str], None]
    cwd: Path
    lock_descriptor: int
    output: str = ""
    """What the last command wrote."""

    def run(self, what: str, command: Sequence[str | Path]) -> bool:
        """Run one command; True if it exited 0. Says `what` at once, then every few seconds how far it is. Raises OSError.

        On KeyboardInterrupt the child and its children are ended before the exception goes on.
        """
        self.say(what)
        start = time.monotonic()
        inherited = () if sys.platform == "win32" else (self.lock_descriptor,)
        with subprocess.Popen(
            [os.fspath(part) for part in command],
            cwd=self.cwd,
            env={name: value for name, value in os.environ.items() if name not in NOT_INHERITED},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=inherited,
            start_new_session=sys.platform != "win32",
        ) as process:
            lines: list[str] = []
            reader = threading.Thread(target=self._read, args=(process, command, lines), daemon=True)
            reader.start()
            try:
                while reader.is_alive():
                    reader.join(HEARTBEAT_S)
                    if reader.is_alive():
                        newest = next((line for line in reversed(lines) if not line.startswith(NOISE)), "started")
                        self.say(f"  {time.monotonic() - start:.0f} s: {newest}"[:160])
                process.wait()
            except BaseException:
                _end(process)
                raise
        self.output = "\n".join(lines)
        return process.returncode == 0

    def _read(self, process: subprocess.Popen[bytes], command: Sequence[str | Path], lines: list[str]) -> None:
        assert process.stdout is not None
        self._note(f"$ {' '.join(map(str, command))}")
        for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip()
            self._note(line)
            if line.strip():
                lines.append(line.strip())

    def _note(self, line: str) -> None:
        with contextlib.suppress(OSError), self.log.open("a", encoding="utf-8") as log:  # a full disk must not stop the reading
            log.write(line + "\n")


def _end(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
