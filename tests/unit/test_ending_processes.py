"""Processes are told to end without waiting, and waited for afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys

from kernelwright.capture.process import tell_to_end, terminate


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)


def test_what_is_told_to_end_ends_and_is_waited_for_once():
    several = [sleeper() for _ in range(3)]
    for process in several:
        tell_to_end(process, signal.SIGKILL)
    assert [process.wait(timeout=60.0) for process in several] == [-signal.SIGKILL] * 3, "before anybody waited for one"
    assert [terminate(process) for process in several] == [-signal.SIGKILL] * 3
    for process in several:
        tell_to_end(process, signal.SIGKILL)  # its number may be somebody else's by now: nothing is sent
