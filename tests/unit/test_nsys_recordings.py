"""Recordings given by file: what reaches the results, what happens to the user's own files, and how errors name them."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import sqlite3
from pathlib import Path

import pytest

from kernelwright.model.errors import BadInput, KernelwrightError
from kernelwright.pipeline import nsys
from kernelwright.pipeline.nsys import analyse_recording, is_recording_target
from kernelwright.pipeline.trace_file import read_trace
from nsys_recordings import recording

SECRET = "hunter2-do-not-tell"
ENVIRONMENT = f"PATH=/bin\0MY_DB_PASSWORD={SECRET}\0LANG=C"


def planted(place: Path) -> Path:
    """A recording with secrets in its texts and its metadata."""
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(recording("mlp_activations") / "report.sqlite", place)
    connection = sqlite3.connect(place)
    connection.execute("INSERT INTO StringIds (id, value) VALUES (9000000, ?)", (ENVIRONMENT,))
    connection.execute("CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT)")
    connection.execute("INSERT INTO META_DATA_CAPTURE (name, value) VALUES ('ENVIRONMENT_VARIABLES', ?)", (f"T={SECRET}",))
    connection.commit()
    connection.close()
    assert SECRET.encode() in place.read_bytes()
    return place


def holding_secrets(folder: Path) -> list[str]:
    """The files in a folder that hold the secret."""
    return [path.name for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def with_report(export: Path) -> Path:
    """A report of which `export` is the export."""
    report = export.with_suffix(".nsys-rep")
    report.write_bytes(b"NVIDIA Tegra Profiler Report 1." + SECRET.encode())
    export.touch()
    return report


@pytest.mark.parametrize("as_report", [False, True])
def test_no_secret_of_a_recording_reaches_the_results(tmp_path: Path, as_report: bool) -> None:
    file = planted(tmp_path / "in" / "r.sqlite")
    before = file.read_bytes()
    done = analyse_recording(with_report(file) if as_report else file, tmp_path / "out")
    assert holding_secrets(tmp_path / "out") == [] and file.read_bytes() == before
    assert SECRET not in done.profile.model_dump_json() and done.profile.recording.file == "raw/r.sqlite"
    assert [path.name for path in (tmp_path / "out" / "raw").iterdir()] == ["r.sqlite"]


@pytest.mark.parametrize("as_report", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, BadInput("x", "it is damaged", fix="f")])
def test_an_interrupted_scrub_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_report: bool,
                                             error: BaseException) -> None:
    file = planted(tmp_path / "in" / "r.sqlite")

    def interrupted(database: Path) -> None:
        assert SECRET.encode() in database.read_bytes() and not (tmp_path / "out" / "raw" / "r.sqlite").exists()
        raise error

    monkeypatch.setattr(nsys, "scrub_environments", interrupted)
    with contextlib.suppress(KeyboardInterrupt, MemoryError, BadInput):
        analyse_recording(with_report(file) if as_report else file, tmp_path / "out")
    assert list((tmp_path / "out" / "raw").iterdir()) == []


@pytest.mark.parametrize("as_report", [False, True])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_recording_that_lies_in_the_results_is_left_as_it_is(tmp_path: Path, as_report: bool, damaged: bool) -> None:
    file = planted(tmp_path / "raw" / "r.sqlite")
    if damaged:  # in a way that the reader does not mind and the scrubber does
        with sqlite3.connect(file) as database:
            database.execute("CREATE TRIGGER t AFTER UPDATE ON StringIds BEGIN DELETE FROM StringIds; END")
    target, before = with_report(file) if as_report else file, file.read_bytes()
    done = analyse_recording(target, tmp_path)
    assert file.read_bytes() == before and done.profile.recording.file == "raw/r.sqlite"
    assert any("left as it is" in warning for warning in done.profile.warnings)


def test_errors_name_a_recording_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = gzip.compress(b'{"traceEvents": [' + b'{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1},' * 2000)
    Path("cut.json.gz").write_bytes(whole)
    Path("torn.json.gz").write_bytes(whole[:40])
    Path("bad.sqlite").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    Path("event.json").write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": -2, "pid": 1, "tid": 1}]}')
    with_report(planted(tmp_path / "rep.sqlite"))
    for name in ("cut.json.gz", "torn.json.gz", "bad.sqlite", "event.json", "absent.json"):
        for act in (lambda file: analyse_recording(file, tmp_path / "out"), read_trace):
            with pytest.raises(KernelwrightError) as caught:
                act(Path(name))
            assert caught.value.where.startswith(str(tmp_path / name)), (name, caught.value.where)
    Path("bad").write_bytes(Path("bad.sqlite").read_bytes())
    with pytest.raises(BadInput) as caught:
        is_recording_target("bad", "nsys")
    assert caught.value.where == str(tmp_path / "bad")
    with pytest.raises(BadInput) as caught:
        analyse_recording(Path("rep.nsys-rep"), tmp_path / "out", steps_from="no such range")
    assert Path(caught.value.where).is_absolute() and caught.value.code == "no_steps"
