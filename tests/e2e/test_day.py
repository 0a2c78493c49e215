"""examples/project/day.py: a day of a small project on the CPU, its verbs called in this process."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from kernelwright.cli.main import main
from warm_start import warm_start

DAY = Path(__file__).parents[2] / "examples" / "project" / "day.py"
INPUTS = """
import torch
PARAMS = {"n": 48}
def get_inputs(n): return (torch.rand(n, n),)
def reference(x): return x.t().contiguous()
def flops(n): return 0
def bytes_moved(n): return 8 * n * n
"""
PROJECT = """
kernels:
  tr:
    file: tr.py
    versions: "tr_v*.py:tr"
    sweep: {n: [48, 64]}
    devlog: devlog/tr.md
    budgets: [{version: v2, versus: v1, slower_pct: 0}]
"""


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module; git and nothing else is started as a process of its own."""
    spec = importlib.util.spec_from_file_location("kernelwright_day", DAY)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    started = subprocess.run

    def run(argv: list[str], *, cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
        if Path(argv[1]).parent != module.SCRIPTS:
            return started(argv, cwd=cwd, **options)  # type: ignore[no-any-return, unused-ignore]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([Path(argv[1]).stem, *argv[2:]])
        return subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())

    monkeypatch.setattr(module, "subprocess", type("Processes", (), {"run": staticmethod(run)}))
    return module


def test_a_day_of_a_project(day: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, out = tmp_path / "project", tmp_path / "results"
    project.mkdir()
    for name, text in (("tr.py", INPUTS), ("kernelwright.yaml", PROJECT), ("tr_v2.py", "def tr(x): return x.t().contiguous()\n"),
                       ("tr_v1.py", "import torch\ndef tr(x): return torch.stack([c.clone() for c in x.unbind(1)])\n")):
        (project / name).write_text(text)
    monkeypatch.setattr(sys, "argv", [str(DAY), "--out", str(out), "--project", str(project), "--", "--device=cpu",
                                      f"--python={sys.executable}"])
    with warm_start():
        assert day.main() == 0, (out / "session.md").read_text()
    assert sorted(file.name for file in out.iterdir()) == [
        "bench.xml", "session.md", "tr.jsonl", "tr.md", "tr.sweep.svg", "tr.versions.svg"]
    session = (out / "session.md").read_text()
    assert session.count("## Profile: tr v") == 3 and "## Sweep of n" in session and "1 within" in session
    assert "now stands in place of the one that init wrote" in session
    contract = session[session.rindex("## Profile: tr v2"):]
    cause, = [line.partition(": ")[2] for line in contract.splitlines() if line.startswith("Root cause")]
    entries = [json.loads(line) for line in (out / "tr.jsonl").read_text().splitlines()]
    assert [(entry["version"], entry["mode"]) for entry in entries] == [("v1", "event"), ("v2", "event"), ("v2", "annotation")]
    assert entries[2]["insights"] == [cause]
    assert "Version v2." in (out / "tr.md").read_text() and "day-" not in session and "(tr.md)" in session
    assert ElementTree.parse(out / "bench.xml").getroot().tag == "testsuites"


def test_what_fails_is_told_at_once_and_the_session_goes_on(day: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(sys, "argv", [str(DAY), "--out", str(tmp_path), "--project", str(tmp_path / "empty")])
    assert day.main() == 1
    told, session = capsys.readouterr().out, (tmp_path / "session.md").read_text()
    lines = told.splitlines()
    assert "exit 2" in lines[1] and "Fix: " in lines[2] and "$ bench.py" in lines[3]
    assert "exit 2" in lines[4] and lines[5].startswith("  kernelwright: bench: ") and told.count(lines[5].strip()) == 2
    assert "init.py --json    # exit 2" in session and lines[5].strip() in session
