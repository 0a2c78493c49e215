"""SIGKILL at any moment: optimisations go on with nothing lost, profiles wait for each other, and no process is left behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from processes import soon

ROOT = Path(__file__).resolve().parents[2]
KILLS = 12
LATE = 4
"""So many of the kills, at random places among them, come just after the run got on: else a run of half a minute that is killed every
other second never would. The others come up to EARLY_S after the start, while a run reads what it finds and starts its processes."""
EARLY_S = 2.5
PROFILES = 3
"""So many are started at once."""
JUST_AFTER_S = 0.6
# It waits where a graph for gradients would be recorded, so one candidate is far faster.
CHAIN = '''
import time

import torch
from torch import nn


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(16))

    def forward(self, x):
        if torch.is_grad_enabled():
            time.sleep(0.003)
        return torch.tanh(x * self.w)


def get_model_and_input():
    return Chain().eval(), torch.ones(4, 16)
'''
# Each call notes its process and the time it took, whatever the profiler says of it.
NOTES = '''
import os
import time

import torch


def noted(x):
    begun = time.monotonic()
    time.sleep(0.002)
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{os.getpid()} {begun} {time.monotonic()}\\n")
    return x + 1


def get_model_and_input():
    return noted, torch.ones(4)
'''
# An interpreter that measures as long as a short run does, and leaves what the run in RAW left: who waits for whom is not torch's doing.
STAND_IN = '''#!{python} -I
import json, os, shutil, sys, time
if sys.argv[1] == "-c":
    print("TORCH {torch} cpu")
    sys.exit()
begun = time.monotonic()
time.sleep(0.2)
with open(sys.argv[3]) as file:
    out = json.load(file)["out_dir"]
for name in os.listdir({raw!r}):
    if name not in ("request.json", "workload.log"):
        shutil.copy(os.path.join({raw!r}, name), out)
with open(os.environ["NOTES"], "a") as file:
    file.write(f"{{os.getpid()}} {{begun}} {{time.monotonic()}}\\n")
'''


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "chain.py").write_text(CHAIN)
    (tmp_path / "notes.py").write_text(NOTES)
    (tmp_path / "tmp").mkdir()
    measured = tmp_path / "cache" / "peaks"  # the CPU's peaks, where an earlier test has measured them: tens of seconds
    measured.mkdir(parents=True)
    for file in Path(os.environ["KERNELWRIGHT_CACHE"], "peaks").glob("*.json"):
        shutil.copy(file, measured)
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    own = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "KERNELWRIGHT_CACHE": "cache", "KERNELWRIGHT_LOCK": "device.lock", "TMPDIR": "tmp",
           "NOTES": "notes.txt"}
    return {**os.environ, **{name: str(place / path) for name, path in own.items()}, "CXX": "/nonexistent/c++", "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT / "src"), "KERNELWRIGHT_PYTHON": sys.executable}


def start(place: Path, verb: str, *arguments: str, python: str | Path = sys.executable) -> subprocess.Popen[bytes]:
    """A verb in a process group of its own; what it says goes to said.txt."""
    command = [sys.executable, str(ROOT / "scripts" / f"{verb}.py"), *arguments, "--device", "cpu", "--python", str(python)]
    with (place / "said.txt").open("ab") as said:
        return subprocess.Popen(command, cwd=place, env=environment(place), stdout=said, stderr=said, start_new_session=True)


def processes_of(place: Path) -> dict[int, str]:
    """Command lines by number of the processes that were started with this place's environment."""
    found: dict[int, str] = {}
    mark = f"KERNELWRIGHT_CACHE={place / 'cache'}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def none_left(place: Path) -> bool:
    return soon(lambda: not processes_of(place))


def kill(place: Path, process: subprocess.Popen[bytes], *, everything: bool) -> None:
    """SIGKILL for the command alone, or for all that belongs to it at once, as the kernel does for a control group without memory."""
    for number in processes_of(place) if everything else [process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.kill()
    process.wait()


def whole_lines(file: Path) -> list[str]:
    """The lines of a file that only grows; what a kill cut short is not counted."""
    return file.read_text().split("\n")[:-1] if file.is_file() else []


def finished(lines: list[str]) -> dict[str, str]:
    """Line by name of what need not run again (of a finalist: its screen and its judgement); one that stands twice is an error."""
    found: dict[str, str] = {}
    for line in lines:
        row = json.loads(line)
        if row["status"] == "out_of_budget" or row["tags"].get("cause") == "original":
            continue
        name = f"{row['name']}{' (screen)' if row['status'] == 'screened' else ''}"
        assert name not in found, f"{name} was run twice"
        found[name] = line
    return found


def check_documents(folder: Path) -> None:
    for file in folder.rglob("*.json"):
        json.loads(file.read_text())
    for file in folder.rglob("*.jsonl"):
        for line in whole_lines(file):
            json.loads(line)


def optimize(place: Path) -> subprocess.Popen[bytes]:
    """Begins the run, or goes on with it where there is something to go on with."""
    resume = ["--resume"] if (place / "run" / "state.json").is_file() else []
    return start(place, "optimize", "chain.py", "--out", str(place / "run"), "--budget", "5m", *resume)


def reached(folder: Path) -> tuple[int, int]:
    """How far a run came: of its milestones so many files are there, of experiments so many lines."""
    milestones = ("state.json", "optimized.py", "after/contract.md", "report.md", "report.json")
    return sum((folder / name).is_file() for name in milestones), len(whole_lines(folder / "ledger.jsonl"))


@pytest.mark.timeout(290)
def test_optimize_killed_at_random_moments_loses_nothing(place: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    moments = random.Random(seed)
    print(f"seed {seed}")
    late = moments.sample(range(KILLS), LATE)
    folder, known, progress = place / "run", {}, []
    ledger = folder / "ledger.jsonl"
    for attempt in range(KILLS):
        before = reached(folder)
        process = optimize(place)
        give_up = time.monotonic() + 20
        while attempt in late and reached(folder) == before and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.03)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0, JUST_AFTER_S if attempt in late else EARLY_S))
        kill(place, process, everything=bool(moments.getrandbits(1)))
        assert none_left(place), f"left after kill {attempt} (seed {seed}): {processes_of(place)}"
        check_documents(folder)
        now = finished(whole_lines(ledger))
        assert known.items() <= now.items(), f"lost by kill {attempt} (seed {seed})"
        known = now
        progress.append(reached(folder))
    print(f"files and experiments after each kill: {progress}")
    assert optimize(place).wait(150) == 0, said(place)
    assert known.items() <= finished(whole_lines(ledger)).items()
    check_documents(folder)
    assert ledger.read_bytes().endswith(b"\n")
    # On a machine so busy that no judgement ends FASTER nothing is kept, and all the rest holds.
    kept = json.loads((folder / "report.json").read_text())["kept"] is not None
    whole = ("baseline/profile.json", "baseline/contract.md", "state.json", "report.md", "report.json")
    for name in (*whole, *(("after/profile.json", "after/contract.md", "optimized.py") if kept else ())):
        assert (folder / name).is_file(), name
    assert not [path for path in folder.rglob("*") if path.name.startswith(".") and path.name != ".lock"]
    entries = [json.loads(line)["extra"]["role"] for line in whole_lines(place / "out" / "devlog" / "chain.devlog.jsonl")]
    assert entries == ["baseline", *(["optimized"] if kept else [])]


def said(place: Path) -> str:
    return (place / "said.txt").read_text()[-2000:]


def spans(place: Path) -> dict[int, tuple[float, float]]:
    """(begin, end) of the calls of each process that ran the workload, by its own clock."""
    rows = [line.split() for line in whole_lines(place / "notes.txt")]
    stamps: dict[int, list[float]] = {}
    for number, begun, ended in rows:
        stamps.setdefault(int(number), []).extend((float(begun), float(ended)))
    return {number: (min(times), max(times)) for number, times in stamps.items()}


@pytest.mark.timeout(290)
def test_profiles_started_at_once_run_one_after_another_and_a_killed_one_lets_the_next_go_on(place: Path) -> None:
    first = place / "first"
    assert start(place, "profile_kernel", "notes.py", "--mode", "event", "--steps", "20", "--out", str(first)).wait(120) == 0, said(place)
    stand_in = place / "python"
    stand_in.write_text(STAND_IN.format(python=sys.executable, torch=json.loads((first / "raw" / "result.json").read_text())[
        "environment"]["torch_version"], raw=str(first / "raw")))
    stand_in.chmod(0o755)
    victim = start(place, "profile_kernel", "notes.py", "--mode", "event", "--steps", "100000")  # minutes, were it not killed
    assert soon(lambda: len(spans(place)) == 2, 60)
    profiles = [start(place, "profile_kernel", "notes.py", "--mode", "event", "--steps", "20", python=stand_in) for _ in range(PROFILES)]
    time.sleep(1)  # the first of them wait for the lock by now
    kill(place, victim, everything=False)
    assert [process.wait(120) for process in profiles] == [0] * PROFILES, said(place)
    measured = sorted(spans(place).values())
    assert len(measured) == PROFILES + 2
    assert all(earlier[1] < later[0] for earlier, later in itertools.pairwise(measured)), measured
    done = [path.parent for path in place.glob("out/profiles/event/notes/*/*/contract.md")]
    assert len(done) == PROFILES and len(set(done)) == PROFILES
    for folder in done:
        assert {"params.json", "profile.json", "report.md", "contract.md", "raw"} <= {path.name for path in folder.iterdir()}
    check_documents(place / "out")
    assert none_left(place)
