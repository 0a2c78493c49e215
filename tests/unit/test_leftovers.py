"""What a killed run leaves on the disk is taken away by the next one, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import builders
from kernelwright.devlog import read_log
from kernelwright.judge import scratch
from kernelwright.model.files import remove_partial, write_json_atomic
from kernelwright.model.workload import WorkloadRef
from kernelwright.optimize.stages import OptimizeOptions, RealStages

ROOT = Path(__file__).resolve().parents[2]
MYSELF = f"{os.getpid()} {os.readlink('/proc/self/ns/pid')}"


def test_partial_files_are_those_that_atomic_writing_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [tmp_path / ".lock", tmp_path / "a.partial", write_json_atomic(tmp_path / "deep" / "state.json", {})]
    for path in kept[:2]:
        path.touch()
    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", cut)
    monkeypatch.setattr(os, "unlink", lambda *_: None)  # as if the process had been killed there
    with pytest.raises(KeyboardInterrupt):
        write_json_atomic(tmp_path / "deep" / "state.json", {"half": 1})
    monkeypatch.undo()
    assert len(list(tmp_path.rglob(".*.partial"))) == 1
    remove_partial(tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)


def test_a_session_removes_what_killed_ones_left_and_nothing_of_running_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    running, long_ago = scratch.Scratch("reference"), time.time() - 3600
    dead, young, foreign = (tmp_path / f"{scratch.PREFIX}{name}" for name in ("candidate-dead", "candidate-young", "elsewhere"))
    for folder in (dead, young):
        folder.mkdir()
        (folder / "tensor").write_bytes(b"x")
    target = tmp_path / "precious"
    target.mkdir()
    foreign.symlink_to(target)
    for folder in (dead, running.folder):
        os.utime(folder, (long_ago, long_ago))
    other = scratch.Scratch("candidate")
    assert not dead.exists() and young.exists() and running.folder.exists() and target.exists() and foreign.is_symlink()
    running.remove()
    other.remove()
    other.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([young.name, foreign.name, "precious"])


def test_a_run_killed_while_it_logs_does_not_log_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    workload = WorkloadRef(path=tmp_path / "net.py", name="net")
    stages = RealStages(OptimizeOptions(), lambda _line: None)
    profile = builders.gpu_annotation()
    first = (profile, [], {"optimization": "/run", "result": "1.5x", "role": "baseline"})
    second = (profile, ["1.5x"], {"optimization": "/run", "result": "1.5x", "role": "optimized"})
    stages.log(workload, [first])  # killed before the second
    stages.log(workload, [first, second])
    log = stages.log(workload, [first, second])  # killed before its report
    entries, notes = read_log(log.with_suffix(".jsonl"))
    assert [entry.extra["role"] for entry in entries] == ["baseline", "optimized"] and notes == []


@pytest.mark.parametrize(("starter", "status"), [
    (MYSELF, 2), ("", 2), ("1073741824 pid:[0]", 2), (f"1073741824 {MYSELF.partition(' ')[2]}", 1),
], ids=["this process", "none", "another namespace", "gone"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_probe_does_not_outlive_a_starter_that_is_gone_already(starter: str, status: int, wrapped: bool) -> None:
    """Status 2: it got as far as its usage; 1: it ended itself. Another namespace's numbers say nothing."""
    command = [sys.executable, str(ROOT / "src" / "kernelwright" / "probe" / "start.py"), "run"]
    if wrapped:  # by a program between the two, such as a profiler
        command = [sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)", *command]
    code = ("import importlib.util, sys; spec = importlib.util.spec_from_file_location('start', sys.argv[1]); start = "
            "importlib.util.module_from_spec(spec); spec.loader.exec_module(start); start.die_with_parent(); sys.exit(2)")
    command[-2:] = ["-c", code, command[-2]]
    done = subprocess.run(command, env={**os.environ, "KERNELWRIGHT_STARTER": starter}, capture_output=True, text=True, timeout=30)
    assert done.returncode == status, done.stderr
