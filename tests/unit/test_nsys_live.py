"""Mode nsys on a workload and on files, without a GPU: nsys is a stand-in that leaves real recordings of an H200."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contract_format import check_contract
from kernelwright.capture.interpreter import Interpreter
from kernelwright.cli import main
from kernelwright.model.capture import ProbeResult
from kernelwright.model.profile import Profile
from kernelwright.pipeline import nsys_live, profile
from nsys_recordings import recording
from stand_in_nsys import StandInNsys, good
from warm_start import warm_start

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "tests" / "data" / "captures" / "h200" / "mlp_activations"
SECRET = "hunter2-do-not-tell"
OTHERS = (f"PATH=/bin\0OTHERS_TOKEN={SECRET}\0LANG=C", f"HOME=/project\0DB_URL=postgres://me:{SECRET}@host/db")


def holds_secret(folder: Path) -> list[str]:
    """Files below, packed ones unpacked, that hold the secret."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            found += [str(path)] if SECRET.encode() in data else []
    return found


class Bench:
    """A machine with a pretended GPU and nsys; `asked` has the requests that torch.profiler's process got."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.asked = folder, []
        self.file = folder / "w.py"
        self.file.write_text("def get_model_and_input():\n    return None\n")
        interpreter = Interpreter(Path(sys.executable), "2.11.0", "13.0", "--python")
        monkeypatch.setattr(profile, "find_interpreter", lambda *_a, **_k: interpreter)
        monkeypatch.setattr(profile, "run_probe", self._probe)
        monkeypatch.setattr(profile, "gpu_visible", lambda: True)
        monkeypatch.setenv("PLANTED_API_KEY", SECRET)
        monkeypatch.setenv("KERNELWRIGHT_CACHE", str(folder / "cache"))
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.setattr("kernelwright.report.nsys_write.write_pictures", lambda *_a: ())  # a second each; tests/golden draws them
        monkeypatch.chdir(folder)

    def _probe(self, request: Any, *_a: Any, **_k: Any) -> ProbeResult:
        self.asked.append(request)
        for file in CAPTURE.iterdir():
            shutil.copy(file, request.out_dir)
        return ProbeResult.model_validate_json((CAPTURE / "result.json").read_bytes())

    def run(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
        """(exit code, answer, stderr)."""
        status = main(["profile_kernel", *words, "--json"])
        out, err = capsys.readouterr()
        return status, json.loads(out), err


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_a_workload_is_recorded_and_no_secret_stays(bench: Bench, capsys: pytest.CaptureFixture[str]):
    nsys = StandInNsys(bench.folder / "bin", good(recording("slow_loader"), blocks=OTHERS))
    status, answer, err = bench.run(capsys, "w.py", "--mode", "nsys", "--nsys-executable", str(nsys.path))
    assert status == 0 and answer["recorder"] == "nsys" and not bench.asked, err
    folder = Path(answer["out_dir"])
    assert folder.relative_to(bench.folder).parts[:4] == ("out", "profiles", "nsys", "w")
    assert holds_secret(bench.folder / "out") == []
    assert not list((folder / "raw").glob("*.nsys-rep")) and (folder / "raw" / "w.sqlite").is_file()
    document = Profile.load(folder)
    assert document.recording.recorder == "nsys" and document.recording.not_nsys is None and document.recording.file == "raw/w.sqlite"
    assert any("environments of 2 other processes" in warning for warning in document.warnings)
    assert check_contract((folder / "contract.md").read_text()) == []
    assert "1. Feed the device faster" in (folder / "contract.md").read_text()
    assert {"timeline", "perfetto", "csv", "profile", "report", "contract"} <= set(answer) and all(
        Path(answer[key]).exists() for key in ("timeline", "perfetto", "csv"))


def test_a_report_without_others_environments_is_kept_and_one_with_them_if_asked_for(bench: Bench, capsys: pytest.CaptureFixture[str]):
    nsys = StandInNsys(bench.folder / "bin", good(recording("two_streams")), good(recording("two_streams"), blocks=OTHERS))
    common = ("w.py", "--mode", "nsys", "--nsys-executable", str(nsys.path))
    _status, answer, _err = bench.run(capsys, *common, "--out", "one")
    document = Profile.load(Path(answer["out_dir"]))
    assert (bench.folder / "one" / "raw" / "w.nsys-rep").is_file() and document.recording.file == "raw/w.nsys-rep"
    assert not [warning for warning in document.warnings if "environment" in warning] and holds_secret(bench.folder / "one") == []
    bench.run(capsys, *common, "--out", "two", "--keep-nsys-report")
    assert holds_secret(bench.folder / "two") == [str(bench.folder / "two" / "raw" / "w.nsys-rep")]
    assert "don't pass it on" in (bench.folder / "two" / "report.md").read_text()


@pytest.mark.parametrize(("turn", "code"), [(None, "no_nsys"), ({"exit": 1, "said": "error: no CUPTI\n"}, "nsys_failed"),
                                            ({**good(ROOT), "export_exit": 1, "result": str(CAPTURE / "result.json"), "also": []},
                                             "nsys_export_failed")])
def test_torch_s_profiler_takes_over_and_says_so(bench: Bench, capsys: pytest.CaptureFixture[str], turn: dict[str, Any] | None, code: str):
    tool = str(StandInNsys(bench.folder / "bin", turn).path) if turn is not None else "/nowhere/nsys"
    status, answer, err = bench.run(capsys, "w.py", "--mode", "nsys", "--nsys-executable", tool, "--out", "out")
    assert status == 0 and answer["recorder"] == "kineto" and "warning: torch.profiler records instead of nsys" in err
    assert [request.action for request in bench.asked] == ["annotation"]
    document, report = Profile.load(bench.folder / "out"), (bench.folder / "out" / "report.md").read_text()
    assert document.capture_metadata.mode == "nsys" and document.recording.not_nsys.code == code and document.flow is not None
    assert "**Recorded by torch.profiler, not by Nsight Systems**" in report and document.recording.tool.startswith("torch.profiler")
    assert not list((bench.folder / "out" / "raw").glob("*.nsys-rep")) and holds_secret(bench.folder / "out") == []


def test_a_workload_that_fails_under_nsys_is_tried_without(bench: Bench, capsys: pytest.CaptureFixture[str]):
    broken = bench.folder / "broken.json"
    broken.write_text(json.dumps({"status": "error", "error": {"code": "workload_raised", "message": "KeyError: 'X'", "exit_code": 4}}))
    nsys = StandInNsys(bench.folder / "bin", {"result": str(broken), "exit": 4})
    status, answer, err = bench.run(capsys, "w.py", "--mode", "nsys", "--nsys-executable", str(nsys.path))
    assert status == 0 and answer["recorder"] == "kineto" and "KERNELWRIGHT_NCU_ENV" in err


def test_on_the_cpu_and_without_a_gpu(bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    _status, answer, _err = bench.run(capsys, "w.py", "--mode", "nsys", "--device", "cpu")
    assert Profile.load(Path(answer["out_dir"])).recording.not_nsys.code == "cpu"
    monkeypatch.setattr(profile, "gpu_visible", lambda: False)
    status, answer, _err = bench.run(capsys, "w.py", "--mode", "nsys")
    assert status == 3 and answer["error"]["code"] == "no_nsys" and ".nsys-rep" in answer["error"]["fix"]


def test_a_timeout_that_was_asked_for_is_the_users(bench: Bench, capsys: pytest.CaptureFixture[str]):
    nsys = StandInNsys(bench.folder / "bin", {"sleep_s": 30})
    status, answer, _err = bench.run(capsys, "w.py", "--mode", "nsys", "--nsys-executable", str(nsys.path), "--timeout", "1s")
    assert status == 4 and answer["error"]["code"] == "timeout"


SCRIPT = """
import torch

model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(8, 32)).sum().backward()
    optimizer.step()
"""


def test_a_script_is_recorded_by_torch_s_profiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.setattr(profile, "gpu_visible", lambda: True)
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    argv = ["profile_kernel", "train.py", "--mode", "nsys", "--device", "cpu", "--python", sys.executable, "--out", "out", "--json"]
    with warm_start(before_torch=True):
        status = main(argv)
    out, err = capsys.readouterr()
    assert status == 0, err
    document, report = Profile.load(tmp_path / "out"), (tmp_path / "out" / "report.md").read_text()
    assert document.recording.not_nsys.code == "script" and document.script is not None and document.timeline.steps == 5
    assert json.loads(out.splitlines()[-1])["recorder"] == "kineto" and "## No device work" in report and "train.py:" in report


# -- files as TARGET --------------------------------------------------------------------------------------------------------


def test_an_export_is_read_with_the_lines_beside_it(bench: Bench, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(recording("hidden_sync"), bench.folder / "there")
    status, answer, err = bench.run(capsys, "there/report.sqlite", "--model-name", "sync")
    document = Profile.load(Path(answer["out_dir"]))
    assert status == 0 and document.capture_metadata.model_name == "sync", err
    assert any(row.where == "hidden_sync.py:17" for row in document.timeline.activity.synchronizations)
    assert (Path(answer["out_dir"]) / "raw" / "report.sqlite").is_file() and document.recording.steps_from == "kernelwright"


def test_a_report_needs_nsys_or_its_export_beside_it(bench: Bench, capsys: pytest.CaptureFixture[str]):
    report = bench.folder / "mine.nsys-rep"
    report.write_text("NVIDIA Tegra Profiler Report 1.2" + "\0".join(OTHERS))
    status, answer, _err = bench.run(capsys, "mine.nsys-rep", "--nsys-executable", "/nowhere/nsys", "--out", "a")
    assert status == 3 and answer["error"]["code"] == "no_nsys" and "nsys export" in answer["error"]["fix"]
    assert json.loads((bench.folder / "a" / "error.json").read_text())["code"] == "no_nsys"
    nsys = StandInNsys(bench.folder / "bin", good(recording("two_streams"), blocks=OTHERS))
    status, answer, err = bench.run(capsys, "mine.nsys-rep", "--nsys-executable", str(nsys.path), "--out", "b")
    assert status == 0 and holds_secret(bench.folder / "b") == [], err
    assert "environments of 2 processes" in (bench.folder / "b" / "report.md").read_text()
    shutil.copy(recording("two_streams") / "report.sqlite", bench.folder / "mine.sqlite")
    os.utime(bench.folder / "mine.sqlite")
    status, _answer, err = bench.run(capsys, "mine.nsys-rep", "--nsys-executable", "/nowhere/nsys", "--out", "c")
    assert status == 0, err


def test_steps_that_nobody_marked_are_found_or_named(bench: Bench, capsys: pytest.CaptureFixture[str]):
    shutil.copy(recording("gpt2") / "report.sqlite", bench.folder / "g.sqlite")
    with closing(sqlite3.connect(bench.folder / "g.sqlite")) as database:
        for old, new in (("kernelwright.step", "mine"), ("kernelwright.stacks_step", "other")):
            database.execute("UPDATE NVTX_EVENTS SET text = replace(text, ?, ?)", (old, new))
        database.commit()
    status, _answer, err = bench.run(capsys, "g.sqlite", "--out", "found")
    document = Profile.load(bench.folder / "found")
    assert status == 0 and document.recording.steps_from == "found", err
    assert document.structure.iterations_found.launches_each == 126 and document.timeline.kernels_total % 126 == 0
    assert any("found by their repetition" in warning for warning in document.warnings)
    bench.run(capsys, "g.sqlite", "--steps-from", "mine", "--out", "named")
    document = Profile.load(bench.folder / "named")
    assert document.recording.steps_from == "range" and document.timeline.steps == 2 and document.timeline.kernels_total == 252


@pytest.mark.parametrize("packed", [True, False])
def test_a_trace_of_torch_s_profiler(bench: Bench, capsys: pytest.CaptureFixture[str], packed: bool):
    data = (CAPTURE / "trace.json.gz").read_bytes()
    file = bench.folder / ("t.pt.trace.json.gz" if packed else "t.json")
    file.write_bytes(data if packed else gzip.decompress(data))
    status, answer, err = bench.run(capsys, file.name, "--mode", "nsys")
    document = Profile.load(Path(answer["out_dir"]))
    assert status == 0 and answer["recorder"] == "kineto" and document.recording.not_nsys is None, err
    assert document.capture_metadata.model_name == "t" and document.flow.devices and document.operators
    assert "Recorded by torch.profiler, not by" not in (Path(answer["out_dir"]) / "report.md").read_text()


@pytest.mark.parametrize(("name", "content", "words", "code"), [
    ("x.json", b'{"a": 1}', (), "not_a_recording"), ("x.sqlite", b"no database", (), "not_a_recording"),
    ("gone.nsys-rep", None, (), "no_such_recording"), ("x.json", b"{}", ("--mode", "annotation"), "report_not_taken"),
    ("x.json", b"{}", ("--steps", "3"), "report_not_run"), ("x.json", b"{}", ("--ranks", "2"), "report_not_run"),
    ("x.json", b"{}", ("--kernel", "a"), "only_ncu"),
])
def test_what_is_no_recording_is_one_line(bench: Bench, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None,
                                          words: tuple[str, ...], code: str):
    if content is not None:
        (bench.folder / name).write_bytes(content)
    status, answer, _err = bench.run(capsys, name, *words)
    error = answer["error"]
    assert status == 2 and error["code"] == code and all(error.values()), error


def test_a_recording_too_large_to_list_is_listed_from_its_beginning(bench: Bench, capsys: pytest.CaptureFixture[str],
                                                                      monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(recording("gpt2"), bench.folder / "there", ignore=shutil.ignore_patterns("result.json"))
    bench.run(capsys, "there/report.sqlite", "--out", "whole")
    whole = Profile.load(bench.folder / "whole")
    monkeypatch.setattr("kernelwright.pipeline.nsys.MOST_LAUNCHES", 130)
    _status, answer, _err = bench.run(capsys, "there/report.sqlite", "--out", "a")
    document = Profile.load(bench.folder / "a")
    assert document.timeline.steps == 1 and document.timeline.kernels_total == 126 and document.flow.launches.order.launches == 252
    assert any("too many to list" in warning for warning in document.warnings) and answer["status"] == "ok"
    assert document.flow.devices == whole.flow.devices and "2 steps" in (bench.folder / "a" / "report.md").read_text()
    gains = [{finding.rule: finding.estimated_gain_pct for finding in each.findings} for each in (document, whole)]
    assert gains[0]["launch_gaps"] == pytest.approx(gains[1]["launch_gaps"])
    assert gains[0]["graph_candidate"] == pytest.approx(gains[1]["graph_candidate"])
    assert any(site.where and site.where.startswith("gpt2.py:") for site in document.flow.sites)
    monkeypatch.setattr("kernelwright.pipeline.nsys.MOST_LAUNCHES", 50)
    bench.run(capsys, "there/report.sqlite", "--out", "b")
    document = Profile.load(bench.folder / "b")
    assert document.timeline.steps == 1 and 40 <= document.timeline.kernels_total <= 50


def test_nsys_live_has_a_timeout_of_its_own():
    assert nsys_live.TIMEOUT_S >= 600
