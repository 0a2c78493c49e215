"""A sweep's table and picture, and what --sweep may ask for."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import builders
from kernelwright.cli import main
from kernelwright.cli import sweep as sweep_cli
from kernelwright.model.errors import BadInput, WorkloadFailed
from kernelwright.model.profile import Profile
from kernelwright.model.workload import WorkloadRef
from kernelwright.report.sweep import Point, Sweep, render_sweep, write_sweep_figure


def at(version: str, t: str, median_us: float) -> Profile:
    return builders.event(capture_metadata=builders.metadata(mode="event", model_name="mla", version=version), parameters={"t": int(t)},
                          timing=builders.timing(median_us))


def test_the_table_holds_each_version_against_the_first_at_each_value(tmp_path: Path) -> None:
    sweep = Sweep("t", ("mla v1", "mla v2"), (Point("16", (at("v1", "16", 100.0), at("v2", "16", 80.0))),
                                              Point("64", (at("v1", "64", 400.0), None)), Point("256", (None, at("v2", "256", 900.0)))))
    rows = {(row["value"], row["label"]): row for row in sweep.rows()}
    assert rows["16", "mla v2"]["change"] == "faster" and round(rows["16", "mla v2"]["change_pct"]) == -20
    assert rows["64", "mla v2"]["duration_us"] is None and rows["64", "mla v1"]["change"] == "first"
    assert rows["256", "mla v2"]["duration_us"] == 900.0 and rows["256", "mla v2"]["change"] is None
    text = render_sweep(sweep, ["mla v2 t=64 failed"])
    assert "| 16 | mla v2 | 80.00 |" in text and "20.0% faster" in text and "| 64 | mla v2 | n/a | n/a | n/a |" in text
    assert text.rstrip().endswith("Warning: mla v2 t=64 failed")
    files = write_sweep_figure(sweep, "mla: $hostile <b>", tmp_path)
    again = write_sweep_figure(sweep, "mla: $hostile <b>", tmp_path / "again")
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again] and "mla v2" in files[0].read_text()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mla.py").write_text("def f(x): return x\ndef get_inputs(): return ()\nVERSIONS = {'v1': f, 'v2': f}\n")
    (tmp_path / "kernelwright.yaml").write_text("kernels: {mla: {file: mla.py, versions: [v1, v2], sweep: {t: [16, 64]}}}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_sweep_goes_through_the_projects_values_and_survives_a_failure(
        project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def measured(workload: WorkloadRef, args: argparse.Namespace, say: object) -> tuple[Profile, Path]:
        if workload.params == {"t": "64"} and workload.version == "v2":
            raise WorkloadFailed("out_of_memory", "too large", where="mla.py", fix="less")
        return at(workload.version or "", workload.params["t"], 100.0), project

    monkeypatch.setattr(sweep_cli, "_measured", measured)
    assert main(["compare", "v1", "v2", "--sweep", "--out", "swept", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [(row["value"], row["label"]) for row in answer["rows"]] == \
        [("16", "mla v1"), ("16", "mla v2"), ("64", "mla v1"), ("64", "mla v2")]
    assert answer["rows"][3]["duration_us"] is None and "too large" in answer["warnings"][0]
    figures = [Path(file) for file in answer["figures"]]
    assert [file.name for file in figures] == ["sweep.svg", "sweep.png"] and all(file.is_file() for file in figures)
    assert main(["compare", "v2", "--sweep", "t=64"]) == 4


def test_a_parameter_that_is_unknown_is_tried_once_and_all_versions_are_meant_by_all(
        project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tried: list[str | None] = []

    def measured(workload: WorkloadRef, args: argparse.Namespace, say: object) -> tuple[Profile, Path]:
        tried.append(workload.version)
        if "q" in workload.params:
            raise BadInput("unknown_parameter", "unknown parameter 'q'", where="mla.py", fix="known: t")
        return at(workload.version or "", workload.params["t"], 100.0), project

    monkeypatch.setattr(sweep_cli, "_measured", measured)
    assert main(["compare", "v1", "v2", "--sweep", "q=1,2,3"]) == 2
    assert tried == ["v1"] and "unknown parameter 'q'" in capsys.readouterr().err
    tried.clear()
    assert main(["compare", "mla", "--all", "--sweep", "t=16"]) == 0 and tried == ["v1", "v2"]


@pytest.mark.parametrize(("words", "says"), [
    (["--sweep", "t="], "no sweep"), (["--sweep", "u"], "the project file has t"),
    (["--sweep", "t=1,2", "--t=3"], "swept and given"),
    (["--sweep", "t=1", "--fail-above", "3"], "a sweep has many"), (["--stored"], "is for a sweep"),
    (["--device", "cpu"], "is for a sweep"),
    (["--sweep", "t=" + ",".join(map(str, range(300)))], "more than 200"),
])
def test_what_cannot_be_swept_is_one_line(project: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "v1", "v2", *words]) == 2
    assert says in capsys.readouterr().err


def test_the_projects_only_sweep_is_meant(project: Path) -> None:
    ref = WorkloadRef(path=project / "mla.py", name="mla", kernel="mla", project=project / "kernelwright.yaml")
    assert sweep_cli._asked("", [ref], {}) == ("t", ["16", "64"]) and sweep_cli._asked("t=8, 8,9", [ref], {}) == ("t", ["8", "9"])
    with pytest.raises(BadInput, match="which values"):
        sweep_cli._asked("", [ref.model_copy(update={"project": None})], {})
