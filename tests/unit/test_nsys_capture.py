"""Running nsys and taking secrets out of what it leaves, with a stand-in that leaves real recordings."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kernelwright.capture import nsys
from kernelwright.capture.alone import alone_prefix
from kernelwright.capture.interpreter import Interpreter
from kernelwright.capture.nsight import Tool
from kernelwright.capture.nsys_secrets import scrub_environments
from kernelwright.model.capture import ProbeRequest, ProbeWorkload
from kernelwright.model.errors import BadInput, Interrupted
from nsys_recordings import recording
from processes import soon
from stand_in_nsys import StandInNsys, good

ME = Interpreter(Path(sys.executable), "2.11.0", "13.0", "--python")
SECRET = "hunter2-do-not-tell"


def run(folder: Path, stand_in: StandInNsys, **more: Any) -> nsys.NsysRun:
    out = folder / "raw"
    out.mkdir(exist_ok=True)
    request = ProbeRequest(action="nsys", workload=ProbeWorkload(path=str(folder / "w.py")), device="auto", out_dir=str(out))
    tool = Tool("nsys", stand_in.path, "2025.3.2", "--nsys-executable")
    options = {"report": out / "w.nsys-rep", "cwd": folder, "timeout_s": 60.0, **more}
    return nsys.run_nsys(request, ME, tool=tool, **options)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process namespace of its own."""
    monkeypatch.setattr(nsys, "alone_prefix", lambda: None)


def failure(folder: Path, **error: Any) -> Path:
    file = folder / "failed.json"
    file.write_text(json.dumps({"status": "error", "error": {"code": "x", "message": "m", "where": "w.py:3", "fix": "f", **error}}))
    return file


def test_a_recording_is_made_with_an_allow_listed_environment_and_exported(tmp_path: Path, plain: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_API_TOKEN", SECRET)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    stand_in = StandInNsys(tmp_path / "bin", good(recording("mlp_activations")))
    ran = run(tmp_path, stand_in, report=tmp_path / "raw" / "100%.nsys-rep")
    assert ran.failed is None and ran.report is not None and ran.sqlite == tmp_path / "raw" / "100%.sqlite" and not ran.alone
    record, export = stand_in.calls()
    assert record["argv"][0] == "profile" and record["argv"][-2] == "run" and str(tmp_path / "raw" / "100%%") in record["argv"]
    assert {"--trace=cuda,nvtx", "--cuda-graph-trace=node", "--capture-range=cudaProfilerApi", "--sample=none"} <= set(record["argv"])
    assert export["argv"][:2] == ["export", "--type=sqlite"]
    for call in (record, export):
        assert SECRET not in json.dumps(call["env"]) and call["env"]["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.skipif(alone_prefix() is None, reason="no process namespaces here")
def test_nsys_sees_no_other_process_where_that_is_possible(tmp_path: Path):
    stand_in = StandInNsys(tmp_path / "bin", good(recording("mlp_activations")))
    ran = run(tmp_path, stand_in)
    assert ran.alone and ran.sqlite is not None and stand_in.calls()[0]["pids"] <= 3


@pytest.mark.skipif(alone_prefix() is None, reason="no process namespaces here")
def test_what_runs_alone_ends_with_its_starter_however_that_dies(tmp_path: Path):
    marker = tmp_path / "alive"
    beats = f"while :; do date +%s%N > {marker}; sleep 0.05; done"
    program = f"import subprocess; subprocess.run({[*(alone_prefix() or ()), 'sh', '-c', beats]!r})"
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as starter:
        assert soon(marker.exists, 60)
        starter.kill()
    assert soon(lambda: not beats_within(marker, 0.5))


def beats_within(marker: Path, seconds: float) -> bool:
    last = marker.stat().st_mtime_ns
    time.sleep(seconds)
    return marker.stat().st_mtime_ns != last


def test_a_namespace_that_nsys_can_t_live_in_costs_a_second_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nsys, "alone_prefix", lambda: ("/usr/bin/env",))
    stand_in = StandInNsys(tmp_path / "bin", {"said": "error: can't do that here\n", "exit": 1}, good(recording("mlp_activations")))
    ran = run(tmp_path, stand_in)
    assert ran.sqlite is not None and not ran.alone and [call["argv"][0] for call in stand_in.calls()] == ["profile", "profile", "export"]


@pytest.mark.parametrize(("turn", "code", "words"), [
    ({"said": "Collecting data...\nError: CUPTI is busy\n", "exit": 1}, "nsys_failed", "CUPTI is busy"),
    ({"exit": 0}, "nsys_failed", "status 0"),
    ({"sleep_s": 30}, "nsys_timeout", "did not end"),
])
def test_why_there_is_no_recording(tmp_path: Path, plain: None, turn: dict[str, Any], code: str, words: str):
    ran = run(tmp_path, StandInNsys(tmp_path / "bin", turn), timeout_s=1.0)
    assert ran.sqlite is None and ran.failed is not None and ran.failed.code == code and words in ran.failed.reason and ran.failed.fix


def test_a_report_that_can_t_be_exported(tmp_path: Path, plain: None):
    ran = run(tmp_path, StandInNsys(tmp_path / "bin", good(recording("mlp_activations"), export_exit=1)))
    assert ran.sqlite is None and ran.failed is not None and ran.failed.code == "nsys_export_failed"
    assert "the file is damaged" in ran.failed.reason


def test_what_the_workload_says_comes_through(tmp_path: Path, plain: None):
    with pytest.raises(BadInput) as caught:
        run(tmp_path, StandInNsys(tmp_path / "a", {"result": str(failure(tmp_path, code="no_entry_point", exit_code=2)), "exit": 2}))
    assert caught.value.code == "no_entry_point" and caught.value.where == "w.py:3"
    with pytest.raises(Interrupted):
        run(tmp_path, StandInNsys(tmp_path / "b", {"result": str(failure(tmp_path, exit_code=130)), "exit": 130}))
    ran = run(tmp_path, StandInNsys(tmp_path / "c", {"result": str(failure(tmp_path, message="KeyError: 'X'", exit_code=4)), "exit": 4}))
    assert ran.failed is not None and ran.failed.code == "failed_under_nsys" and "KERNELWRIGHT_NCU_ENV" in ran.failed.fix
    ran = run(tmp_path, StandInNsys(tmp_path / "d", {"result": str(failure(tmp_path, code="no_gpu", exit_code=3)), "exit": 3}))
    assert ran.failed is not None and ran.failed.code == "cpu"


def with_strings(folder: Path, *values: str) -> Path:
    file = folder / "x.sqlite"
    shutil.copyfile(recording("mlp_activations") / "report.sqlite", file)
    connection = sqlite3.connect(file)
    connection.executemany("INSERT INTO StringIds (id, value) VALUES (?, ?)", [(9_000_000 + at, value) for at, value in enumerate(values)])
    connection.commit()
    connection.close()
    return file


def test_environments_are_taken_out_and_everything_else_stays(tmp_path: Path):
    own = "PATH=/usr/bin\0HOME=/root\0CUDA_VISIBLE_DEVICES=0\0NSYS_PROFILING_SESSION_ID=3\0"
    others = f"PATH=/bin\0MY_DB_PASSWORD={SECRET}\0LANG=C", f"SOME_TOKEN={SECRET}", f"A=1\0B={SECRET}"
    kept = ("aten::addmm, seq = 0, op_id = 7", "x=3", "one\0two\0three", "stage:PATH")
    file = with_strings(tmp_path, own, *others, *kept)
    before = sqlite3.connect(recording("mlp_activations") / "report.sqlite")
    found = scrub_environments(file)
    assert (found.blocks, found.foreign) == (4, 3) and SECRET.encode() not in file.read_bytes()
    after = sqlite3.connect(file)
    strings = {value for (value,) in after.execute("SELECT value FROM StringIds WHERE id >= 9000000")}
    assert strings == {"", *kept}
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        query = f"SELECT * FROM {table}"
        assert after.execute(query).fetchall() == before.execute(query).fetchall()
    names = "SELECT value FROM StringIds WHERE id < 9000000"
    assert after.execute(names).fetchall() == before.execute(names).fetchall()


def test_what_the_user_passed_on_is_no_other_process_s(tmp_path: Path):
    file = with_strings(tmp_path, "PATH=/usr/bin\0MY_DATA_DIR=/data")
    assert scrub_environments(file, {"PATH", "MY_DATA_DIR"}).foreign == 0


def test_a_recording_without_environments_stays_as_it_is(tmp_path: Path):
    assert scrub_environments(with_strings(tmp_path)).blocks == 0


def test_what_is_no_export_is_told(tmp_path: Path):
    file = tmp_path / "x.sqlite"
    file.write_bytes(b"SQLite format 3\0 and nothing more")
    with pytest.raises(BadInput) as caught:
        scrub_environments(file)
    assert caught.value.code == "not_nsys_sqlite"
    file = with_strings(tmp_path)
    connection = sqlite3.connect(file)
    connection.execute("CREATE TRIGGER t AFTER UPDATE ON StringIds BEGIN DELETE FROM StringIds; END")
    connection.commit()
    connection.close()
    with pytest.raises(BadInput):
        scrub_environments(file)


def with_metadata(folder: Path) -> Path:
    """A recording whose only environment is in the table of metadata."""
    file = with_strings(folder)
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT)")
    connection.execute("INSERT INTO META_DATA_CAPTURE (name, value) VALUES ('ENVIRONMENT_VARIABLES', ?)", (f"MY_TOKEN={SECRET}",))
    connection.commit()
    connection.close()
    return file


def test_an_environment_in_the_metadata_leaves_no_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where SQLite was built to leave what is deleted."""
    file = with_metadata(tmp_path)
    connect = sqlite3.connect

    def careless(database: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(database, **options)
        connection.execute("PRAGMA secure_delete=OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", careless)
    assert scrub_environments(file).blocks == 0 and SECRET.encode() not in file.read_bytes()
