"""A project from a shell: versions as functions, several in one table, a crash right after autotuning."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from kernelwright.cli.main import main
from warm_start import warm_start

HARNESS = "import torch\nPARAMS = {'n': 8}\ndef get_inputs(n): return torch.ones(n, 8)\n"
CRASHING = """
import os, pathlib, sys, types
import torch
import triton.runtime.autotuner as autotuner
HERE = pathlib.Path(__file__).parent
def get_model_and_input():
    tuner = autotuner.Autotuner()
    assert tuner._bench(config="BLOCK: 64") == 1.5
    with open(HERE / "runs", "a") as runs:
        runs.write("x")
        run = runs.tell()
    if run == 1:
        os.abort()
    assert run > 2 or not tuner.benched, "the second run measured anew"  # a third measures the machine's peaks, where it must
    return torch.nn.Identity(), torch.ones(4)
"""
AUTOTUNER = """
class Autotuner:
    def __init__(self):
        self.benched = []
        self.__name__ = "add_kernel"
    def _bench(self, *args, config, **meta):
        self.benched.append(config)
        return 1.5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mla.py").write_text(HARNESS)
    (tmp_path / "mla_v1.py").write_text("def forward(x): return x @ x.T\n")
    (tmp_path / "mla_v2.py").write_text("def forward(x): raise ValueError('not yet')\n")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    return tmp_path


def test_a_day_with_a_project(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", ".."]) == 0
    assert "mla: v1, v2" in capsys.readouterr().out
    run = ["profile_kernel", "--mode", "event", "--device", "cpu", "--python", sys.executable, "--warmup", "1", "--steps", "5"]
    with warm_start():
        assert main([*run, "mla", "--all", "--n=4", "--json"]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert [(row["version"], row["status"]) for row in answer["profiles"]] == [("v1", "ok"), ("v2", "error")]
    assert answer["error"]["code"] == "workload_raised" and "mla_v2.py:1" in answer["error"]["where"]
    document = json.loads(Path(answer["profiles"][0]["profile"]).read_text())
    assert document["parameters"] == {"n": 4} and document["capture_metadata"]["version"] == "v1"
    (folder / "mla_v2.py").write_text("def forward(x): return x.T @ x\n")
    with warm_start():
        assert main(run) == 0
    shown = capsys.readouterr()
    assert "## Profile: mla v2" in shown.out and "mla v2: the newest version that was never profiled" in shown.err


def test_a_crash_right_after_autotuning_is_tried_once_more(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = folder / "triton" / "runtime"
    package.mkdir(parents=True)
    (folder / "triton" / "__init__.py").write_text("__version__ = '3.0.0'\n")
    (package / "__init__.py").write_text("")
    (package / "autotuner.py").write_text(AUTOTUNER)
    (folder / "crashing.py").write_text(CRASHING)
    assert main(["profile_kernel", "../crashing.py", "--mode", "event", "--device", "cpu", "--python", sys.executable, "--json"]) == 0
    shown = capsys.readouterr()
    report = Path(json.loads(shown.out)["report"]).read_text()
    assert "once more, from the caches" in shown.err and "crashed after autotuning" in report and "1 timings of the autotuner" in report


def test_a_function_of_another_file_is_judged_again_from_a_bundle_and_optimised(
        folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its file, what that imports (a folder of the project's too), and the file with the inputs go along."""
    for name, text in (("mla_v1.py", "import beside, built\ndef forward(x): return beside.twice(x) * built.ONE\n"),
                       ("kernels/beside.py", "def twice(x): return x + x\n"), ("build/built.py", "ONE = 1\n")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "mla_v1.py").rename(folder / "kernels" / "mla_v1.py")
    (folder / "kernelwright.yaml").write_text(
        "import_from: [build]\nkernels:\n  mla:\n    file: mla.py\n    versions: {v1: 'kernels/mla_v1.py:forward'}\n")
    (folder / "candidate.py").write_text("def forward(x): return 2 * x\n")
    on = ["--device", "cpu", "--python", sys.executable, "--json"]
    assert main(["judge", "mla", "../candidate.py", "--max-timing", "0.3s", "--bundle", "b.tar.xz", *on]) == 0
    capsys.readouterr()
    assert main(["optimize", "mla", "--budget", "8s", *on]) == 0, "its candidates are judged against the function too"
    done = json.loads(capsys.readouterr().out)
    assert Path(done["report"]).is_file() and "mla v1" in (folder / "sub" / "out" / "workloads" / "mla-v1.py").read_text()
    shutil.rmtree(folder / "sub" / "out")
    away = tmp_path / "away"
    away.mkdir()
    (folder / "sub" / "b.tar.xz").rename(away / "b.tar.xz")
    shutil.rmtree(folder / "kernels")
    monkeypatch.chdir(away)
    assert main(["judge", "b.tar.xz", *on]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] in ("FASTER", "SAME", "SLOWER", "AMBIGUOUS")
    assert sorted(path.name for path in away.rglob("*.py")) == ["beside.py", "built.py", "candidate.py", "mla.py", "mla_v1.py"]
