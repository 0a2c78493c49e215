"""What the judge stops while the other side is timed, and that it never stays stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.judge import channel
from kernelwright.judge.channel import Worker
from processes import soon


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def becomes(process: int, *states: str) -> bool:
    until = time.monotonic() + 5
    while state(process) not in states and time.monotonic() < until:
        time.sleep(0.01)
    return state(process) in states


@pytest.fixture
def worker():
    """A worker without a supervisor whose program has a child of its own, as Inductor's compile workers are."""
    found = Worker.__new__(Worker)
    found._supervised, found._paused, found.confinement, found._status, found._begins_by = False, False, None, -1, 0.0  # it has begun
    found.process = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True)
    yield found
    os.killpg(found.process.pid, signal.SIGKILL)
    found.process.communicate()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_without_a_supervisor_only_the_process_is_stopped(worker):
    """When the judge is killed meanwhile, the process dies with it (PR_SET_PDEATHSIG); its children would stay stopped for ever."""
    child = int(worker.process.stdout.readline())
    worker.pause()
    assert becomes(worker.process.pid, "T") and becomes(child, "S")
    worker.resume()
    assert becomes(worker.process.pid, "S")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_an_interrupt_while_it_is_stopped_does_not_leave_it_so(worker, monkeypatch):
    send = Worker.signal

    def interrupted(self, number, **whom):
        monkeypatch.setattr(Worker, "signal", send)
        send(self, number, **whom)
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "signal", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.pause()
    assert becomes(worker.process.pid, "T")
    worker.resume()
    assert becomes(worker.process.pid, "S")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_a_process_that_has_not_begun_is_not_stopped(tmp_path, monkeypatch):
    """It does not leave with the judge yet: were that killed now, it would stay stopped for ever."""
    slow = tmp_path / "slow_python"
    slow.write_text(f'#!/bin/sh\nwhile ! [ -e {tmp_path / "go"} ]; do sleep 0.05; done\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(channel, "REPORT_S", 0.1)
    with Worker("reference", slow, tmp_path, device="cpu") as worker:
        worker.pause()
        assert not worker.reported(0.0) and state(worker.pid) != "T"
        (tmp_path / "go").touch()
        assert soon(lambda: worker.reported(0.0))
        worker.pause()
        assert becomes(worker.pid, "T")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_below_a_program_that_keeps_the_status_pipe_open_nothing_is_waited_for_again(tmp_path):
    """A wrapper that starts Python and waits for it."""
    wrapper = tmp_path / "wrapped_python"
    wrapper.write_text(f'#!/bin/sh\n{sys.executable} "$@"\nexit $?\n')
    wrapper.chmod(0o755)
    with Worker("reference", wrapper, tmp_path, device="cpu") as worker:
        worker.pause()
        start = time.monotonic()
        for _ in range(20):
            worker.pause()
        assert time.monotonic() - start < channel.REPORT_S and not worker.reported(0.0)
