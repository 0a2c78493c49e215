"""Long work is never silent: at least a line every 20 s for a reader that is no terminal."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import pytest

from kernelwright.cli import progress
from kernelwright.cli.progress import QUIET_S, Heartbeat, Progress
from kernelwright.model.saying import own_lines
from kernelwright.setup import hold

PROMISED_S = 20.0


@pytest.mark.parametrize("said_at", [[], [3.0], [14.0, 15.5, 100.0], [float(second) for second in range(0, 200, 7)]])
def test_no_gap_is_longer_than_promised(said_at: list[float]) -> None:
    """Three minutes of a clock that stands in for the real one; the watcher wakes when it asked to, up to 2 s late."""
    beat, now, lines, shown = Heartbeat(0.0), 0.0, [0.0], []
    events = sorted(said_at)
    while now < 180:
        wake = now + max(beat.wait_s(now), 0.01) + 2.0
        if events and events[0] <= wake:
            now = max(now, events.pop(0))
            beat.said("stage 3 of 5", now)
            lines.append(now)
            continue
        now = wake
        line = beat.line(now)
        if line is not None:
            lines.append(now)
            shown.append(line)
    assert max(after - before for before, after in itertools.pairwise(lines)) <= PROMISED_S
    assert QUIET_S + 2 < PROMISED_S
    if not said_at:
        assert shown[0] == "still working, 17 s since the start: started"
    elif len(said_at) > 20:
        assert shown == [], "work that speaks for itself needs no more lines"
    else:
        assert shown[-1].endswith(": stage 3 of 5")


def test_the_line_comes_while_the_work_is_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "QUIET_S", 0.02)
    seen = ""
    with Progress() as shown:
        shown.say("profiling x")
        end = time.monotonic() + 30
        while "still working" not in seen and time.monotonic() < end:
            time.sleep(0.01)
            seen += capsys.readouterr().err
    assert seen.startswith("profiling x\n") and ": profiling x\n" in seen.split("still working", 1)[1]
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_a_terminal_has_its_live_line_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Progress():
        assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_waiting_for_another_set_up_is_said_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands in: each look at the lock takes 5 s, and the other ends after 90 s."""
    now = 0.0

    def sleep(_seconds: float) -> None:
        nonlocal now
        now += 5.0

    monkeypatch.setattr(hold.time, "monotonic", lambda: now)
    monkeypatch.setattr(hold.time, "sleep", sleep)
    monkeypatch.setattr(hold, "_try", lambda _descriptor: now >= 90)
    said: list[tuple[float, str]] = []
    with hold.hold(tmp_path / "lock", lambda line: said.append((now, line))):
        pass
    times = [when for when, _ in said]
    assert times[0] == 0 and times[-1] >= 75
    assert max(after - before for before, after in itertools.pairwise(times)) <= PROMISED_S
    assert "waiting for it" in said[0][1]


def test_our_lines_are_told_from_a_scripts_own():
    said: list[str] = []
    own_lines(said.append)("profiling the script train")
    beat = Heartbeat(0.0)
    beat.said(said[0], 0.0)
    assert said == ["[kernelwright] profiling the script train"]
    assert beat.line(30.0) == "[kernelwright] still working, 30 s since the start: profiling the script train"
