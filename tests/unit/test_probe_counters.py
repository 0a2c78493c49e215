"""The probe's counters action: what happens around the step, in order; and that it never outlives its starter."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelwright.probe import counters
from kernelwright.probe.failures import ProbeFailure
from processes import alive, gone, soon

START = Path(counters.__file__).with_name("start.py")


@pytest.fixture
def told(monkeypatch):
    """The order of events; emit_nvtx needs CUDA."""
    events: list[str] = []

    @contextmanager
    def emit(*, record_shapes):
        events.append(f"nvtx on, shapes {record_shapes}")
        yield
        events.append("nvtx off")

    @contextmanager
    def span(name):
        events.append(f"begin {name}")
        yield
        events.append(f"end {name}")

    runtime = SimpleNamespace(cudaProfilerStart=lambda: events.append("start"), cudaProfilerStop=lambda: events.append("stop"))
    monkeypatch.setattr(counters, "emit_nvtx", emit)
    monkeypatch.setattr(counters, "record_function", span)
    monkeypatch.setattr(counters, "synchronize", lambda device: events.append("idle"))
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    return events


def test_the_step_alone_is_between_start_and_stop(told):
    counters.warm_up(lambda: told.append("call"), "cuda", None)
    assert told == ["call", "call", "idle"]
    told.clear()
    counters.record_step(lambda: told.append("call"), "cuda")
    assert told == ["idle", "nvtx on, shapes True", "start", "begin kernelwright.step", "call", "end kernelwright.step", "idle", "stop",
                    "nvtx off"]


def test_the_users_number_of_warm_up_calls_counts(told):
    counters.warm_up(lambda: told.append("call"), "cuda", 5)
    assert told.count("call") == 5


def test_a_failing_step_ends_the_recording(told):
    def call():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        counters.record_step(call, "cuda")
    assert told[-1] == "stop"


def test_on_the_cpu_there_are_none():
    with pytest.raises(ProbeFailure, match="need a GPU"):
        counters.record_step(lambda: None, "cpu")


UNDER = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], env={**os.environ, "KERNELWRIGHT_UNDER": "ncu"})
print(child.pid, flush=True)
time.sleep(60)
"""
STARTER = """
import os, subprocess, sys, time
os.environ["KERNELWRIGHT_STARTER"] = f"{os.getpid()} {os.readlink('/proc/self/ns/pid')}"
profiler = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]])
print(profiler.pid, flush=True)
time.sleep(60)
"""
PROBE = f"""
import importlib.util, sys, time
spec = importlib.util.spec_from_file_location("start", {str(START)!r})
start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(start)
start.WATCH_S = 0.05
start.die_with_parent()
open(sys.argv[1], "w").close()
time.sleep(60)
"""


@pytest.mark.parametrize("killed", ["starter", "profiler"])
def test_the_probe_ends_when_the_starter_or_the_profiler_above_it_was_killed(killed, tmp_path):
    """The profiler stays when the starter alone is killed: a real one ends with its program."""
    watched = tmp_path / "watched"
    starter = subprocess.Popen([sys.executable, "-c", STARTER, UNDER, PROBE, watched], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    profiler, probe = int(starter.stdout.readline()), int(starter.stdout.readline())
    try:
        assert soon(watched.exists)
        assert alive(probe)
        os.kill(starter.pid if killed == "starter" else profiler, signal.SIGKILL)
        assert gone([probe])
    finally:
        for pid in (starter.pid, profiler):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        starter.wait()
        starter.stdout.close()


@pytest.mark.parametrize("descends", [True, False])
def test_whether_the_probe_descends_from_the_starter_is_known_before_anything_else_runs(descends, monkeypatch):
    """Else a starter that is killed before the watch has looked once is taken for one that never was an ancestor, and the probe stays."""
    spec = importlib.util.spec_from_file_location("start_of_a_test", START)
    start = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(start)
    asked, ended = [], threading.Event()

    def is_ancestor(_number, _namespace):
        asked.append(threading.current_thread())
        return descends and len(asked) == 1

    monkeypatch.setattr(start, "is_ancestor", is_ancestor)
    monkeypatch.setattr(start.os, "kill", lambda _pid, _number: ended.set())
    monkeypatch.setenv("KERNELWRIGHT_UNDER", "ncu")
    monkeypatch.setenv("KERNELWRIGHT_STARTER", "1 pid:[1]")
    start.die_with_parent()
    assert asked[0] is threading.current_thread()
    assert ended.wait(10.0 if descends else 0.1) is descends
