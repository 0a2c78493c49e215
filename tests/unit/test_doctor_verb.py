"""The doctor verb as a user starts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.capture.system_view import real_system
from kernelwright.cli import main
from published_schemas import check_document

ROOT = Path(__file__).resolve().parents[2]


def test_json_is_one_object_that_holds_to_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "ok" and set(document["modes"]) == {"event", "annotation", "ncu", "nsys"}
    assert {"name", "status", "detail", "fix", "advice"} == set(document["checks"][0])
    assert {check["status"] for check in document["checks"]} <= {"ok", "warn", "missing"}
    for mode in document["modes"].values():
        assert isinstance(mode["works"], bool) and mode["evidence"] and (mode["works"] or mode["fix"] or mode["advice"])
    check_document(document, "doctor")


def test_text_names_every_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {mode}" in text for mode in ("event", "annotation", "ncu", "nsys"))


@pytest.mark.parametrize("argument", ["stray", "--b=3", "--no-such-option"])
def test_bad_usage_is_exit_2_with_one_line(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", argument]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1


def test_the_environment_that_the_fix_makes_is_then_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python3 -m venv .venv && .venv/bin/python -m pip install torch ...`, here with a torch that has no more than its version."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    packages = next(tmp_path.glob(".venv/lib/python3*/site-packages")) / "torch"
    packages.mkdir()
    (packages / "__init__.py").write_text("raise SystemExit('torch was imported, which takes seconds')")
    (packages / "version.py").write_text("__version__ = '9.9.9+cpu'\ncuda = None\n")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    torch = real_system().interpreter()
    assert torch.torch_version == "9.9.9+cpu" and torch.source == ".venv"
