"""profile_kernel of several versions with --baseline: the one that is named is measured first, and the others stand against it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import builders
from kernelwright.cli import main, profile_kernel
from kernelwright.cli.common import Answer
from kernelwright.model.errors import WorkloadFailed
from kernelwright.report import write_profile

VERSIONS = "def f(x): return x\ndef get_inputs(): return ()\nVERSIONS = {'v1': f, 'v2': f, 'v3': f}\n"


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """(version, what it was to stand against) of each that is profiled."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mla.py").write_text(VERSIONS)
    found: list[tuple[str, str | None]] = []

    def one(workload, own, *_rest):  # type: ignore[no-untyped-def]
        found.append((workload.version, own.baseline))
        profile = builders.event(capture_metadata=builders.metadata(mode="event", model_name="mla", version=workload.version))
        files = write_profile(profile, tmp_path / workload.version, params_doc={"kernel": "mla", "version": workload.version})
        return Answer({"out_dir": str(tmp_path / workload.version), **{key: str(path) for key, path in files.items()}}, "")

    monkeypatch.setattr(profile_kernel, "_profile", one)
    return found


@pytest.mark.parametrize("words", [["--all"], ["v1", "v2", "v3"]])
def test_the_version_that_is_named_comes_first_and_stands_against_nothing(tmp_path, taken, capsys, words):  # type: ignore[no-untyped-def]
    assert main(["profile_kernel", "mla.py", *words, "--mode", "event", "--baseline", "v2", "--json"]) == 0
    assert taken == [("v2", None), ("v1", str(tmp_path / "v2")), ("v3", str(tmp_path / "v2"))]
    assert [row["version"] for row in json.loads(capsys.readouterr().out)["profiles"]] == ["v2", "v1", "v3"]


def test_another_baseline_is_everybodys_and_changes_no_order(taken):  # type: ignore[no-untyped-def]
    assert main(["profile_kernel", "mla.py", "--all", "--mode", "event", "--baseline", "old/run"]) == 0
    assert taken == [("v1", "old/run"), ("v2", "old/run"), ("v3", "old/run")]


def test_a_folder_of_a_versions_name_is_the_folder_where_no_project_says_otherwise(tmp_path, taken):  # type: ignore[no-untyped-def]
    (tmp_path / "v2").mkdir()
    assert main(["profile_kernel", "mla.py", "--all", "--mode", "event", "--baseline", "v2"]) == 0
    assert taken == [("v1", "v2"), ("v2", "v2"), ("v3", "v2")]
    taken.clear()
    (tmp_path / "kernelwright.yaml").write_text("kernels: {mla: {file: mla.py}}")
    assert main(["profile_kernel", "mla", "--all", "--mode", "event", "--baseline", "v2"]) == 0
    assert taken == [("v2", None), ("v1", str(tmp_path / "v2")), ("v3", str(tmp_path / "v2"))]


def test_where_the_named_version_fails_the_others_have_no_baseline(tmp_path, monkeypatch, capsys):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mla.py").write_text(VERSIONS)

    def failed(*_given, **_options):  # type: ignore[no-untyped-def]
        raise WorkloadFailed("workload_raised", "no", where="mla.py", fix="mend it")

    monkeypatch.setattr(profile_kernel, "profile", failed)
    assert main(["profile_kernel", "mla.py", "--all", "--mode", "event", "--baseline", "v1", "--json"]) == 4
    assert [row["error"]["code"] for row in json.loads(capsys.readouterr().out)["profiles"]] == ["workload_raised"] + ["no_baseline"] * 2
