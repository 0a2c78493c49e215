"""What a run removes of an earlier one in the same folder, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.model.errors import BadInput
from kernelwright.model.files import DOCUMENTS, begin_profile, leave_error

OURS = {"kernel": "mla", "mode": "event", "workload": "mla.py"}


@pytest.mark.parametrize("left", ["params", "request", "result", "error"])
def test_the_documents_of_an_earlier_run_go(tmp_path: Path, left: str) -> None:
    (tmp_path / "raw").mkdir()
    for name in DOCUMENTS:
        (tmp_path / name).write_text("{}")
    if left == "params":
        (tmp_path / "params.json").write_text(json.dumps(OURS))
    elif left == "error":
        leave_error(tmp_path, BadInput("x", "y", where="z", fix="w"))
    else:
        (tmp_path / "raw" / f"{left}.json").write_text("{}")
    (tmp_path / "notes.md").write_text("mine")
    begin_profile(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.md", "raw"]


@pytest.mark.parametrize("params", ["{}", "[]", "not json", json.dumps({"kernel": "rbf", "gamma": 1}), "[" * 100_000])
def test_a_persons_own_files_of_the_same_names_stay(tmp_path: Path, params: str) -> None:
    (tmp_path / "params.json").write_text(params)
    (tmp_path / "report.md").write_text("a thesis")
    (tmp_path / "error.json").write_text(json.dumps({"code": 1}))
    begin_profile(tmp_path)
    assert (tmp_path / "report.md").read_text() == "a thesis" and (tmp_path / "params.json").read_text() == params
    assert (tmp_path / "raw").is_dir()
