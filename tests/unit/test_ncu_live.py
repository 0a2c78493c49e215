"""Mode ncu on a workload, without a GPU: the first process is a recording of an H200, ncu a stand-in that leaves a real report."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ncu_captures
from kernelwright.capture.interpreter import Interpreter
from kernelwright.capture.system_view import real_system
from kernelwright.cli import main
from kernelwright.model.capture import ProbeResult
from kernelwright.model.errors import BadInput, MachineLacks, WorkloadFailed
from kernelwright.model.workload import ScriptRef, WorkloadRef
from kernelwright.pipeline import ncu, ncu_live, profile
from kernelwright.pipeline.counters import CounterOptions
from kernelwright.pipeline.ncu import Selection
from kernelwright.pipeline.profile import ProfileOptions
from stand_in_ncu import DENIED, StandInNcu, good

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "h200" / "conv_block"


class Bench:
    """A machine with a pretended GPU and ncu; `asked` has the requests of the first process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.asked, self.said = folder, [], []
        self.file = folder / "w.py"
        self.file.write_text("def get_model_and_input():\n    return None\n")
        (folder / "machine").mkdir()
        interpreter = Interpreter(Path(sys.executable), "2.11.0", "13.0", "--python")
        monkeypatch.setattr(ncu_live, "find_interpreter", lambda *_a, **_k: interpreter)
        monkeypatch.setattr(ncu_live, "run_probe", self._probe)
        monkeypatch.setattr(profile, "gpu_visible", lambda: True)
        monkeypatch.setattr(ncu, "read_details", ncu_captures.read_details_once)
        view = dataclasses.replace(real_system(), root=folder / "machine", env={"PATH": ""})
        monkeypatch.setattr(ncu_live, "real_system", lambda: view)

    def _probe(self, request: Any, *_a: Any, **_k: Any) -> ProbeResult:
        self.asked.append(request)
        for file in CAPTURE.iterdir():
            shutil.copy(file, request.out_dir)
        return ProbeResult.model_validate_json((CAPTURE / "result.json").read_bytes())

    def run(self, ncu: StandInNcu | None, selection: Selection | None = None, **changes: Any) -> Any:
        options = ProfileOptions(counters=CounterOptions(executable=str(ncu.path) if ncu else None))
        workload = WorkloadRef(path=self.file, name="w", **changes)
        return ncu_live.profile_ncu(workload, self.folder / "out", options, selection or Selection(), say=self.said.append)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def turn(**more: Any) -> dict[str, Any]:
    return good(ncu_captures.known_full(), **{"result": json.loads((CAPTURE / "result.json").read_text()), **more})


def pairs(argv: list[str]) -> dict[str, str]:
    return dict(pairwise(argv))


def test_without_a_choice_the_heaviest_launches_of_a_first_recording_are_replayed_with_every_section(bench: Bench):
    ncu = StandInNcu(bench.folder / "ncu", turn())
    done = bench.run(ncu, Selection(heaviest=2))
    assert [request.action for request in bench.asked] == ["annotation"] and bench.asked[0].steps == 1 and not bench.asked[0].stacks
    call = ncu.calls()[0]["argv"]
    given = pairs(call)
    assert given["--set"] == "full" and given["--import-source"] == "yes" and given["--clock-control"] == "none"
    assert given["--source-folders"] == str(bench.folder) and "--metrics" not in call and call.count("--nvtx-include") == 2
    assert "--kernel-name" not in call
    assert json.loads((bench.folder / "out" / "raw" / "request.json").read_text())["action"] == "counters"
    assert [stage.name for stage in done.profile.stages] == ["spills", "copy_strided"]  # of the report, which is the stand-in's
    meta = done.profile.capture_metadata
    assert meta.mode == "ncu" and meta.torch_version != "n/a" and meta.dtype == "float32" and done.profile.inputs
    assert done.params["ncu_reports"] == ["w.ncu-rep"] and (bench.folder / "out" / "raw" / "w.ncu-rep").is_file()


@pytest.mark.parametrize(("selection", "words"), [
    (Selection(kernel="gemm|copy"), ["--kernel-name", "regex:gemm|copy", "--filter-mode", "per-launch-config", "--launch-count", "1"]),
    (Selection(kernel="gemm", launch=4), ["--kernel-name", "regex:gemm", "--launch-skip", "4", "--launch-count", "1"]),
    (Selection(operator="aten::add/mm,[x]"), ["--nvtx-include", "regex:.*aten::add.mm..x..*/", *ncu_live.ONCE_EACH]),
    (Selection(launch=0), ["--launch-skip", "0", "--launch-count", "1"]),
])
def test_a_choice_is_ncus_own_filter_and_needs_no_first_process(bench: Bench, selection: Selection, words: list[str]):
    ncu = StandInNcu(bench.folder / "ncu", turn())
    done = bench.run(ncu, selection)
    call = ncu.calls()[0]["argv"]
    place = call.index(words[0])
    assert call[place:place + len(words)] == words and not bench.asked
    assert len(done.profile.stages) == 9 and done.params["asked"]["kernel"] == selection.kernel


def test_denied_counters_end_it_with_the_fix(bench: Bench):
    with pytest.raises(MachineLacks) as caught:
        bench.run(StandInNcu(bench.folder / "ncu", {"log": DENIED, "result": {"status": "ok"}}), Selection(kernel="x"))
    assert caught.value.code == "counters_denied" and caught.value.exit_code == 3 and caught.value.fix
    assert json.loads((bench.folder / "out" / "error.json").read_text())["code"] == "counters_denied"


def test_a_driver_that_keeps_counters_is_told_before_anything_runs(bench: Bench):
    for name, text in {"proc/driver/nvidia/params": "RmProfilingAdminOnly: 1\n", "proc/self/status": "CapEff:\t0000000000000000\n"}.items():
        (bench.folder / "machine" / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.folder / "machine" / name).write_text(text)
    ncu = StandInNcu(bench.folder / "ncu", turn())
    with pytest.raises(MachineLacks) as caught:
        bench.run(ncu)
    assert caught.value.code == "counters_denied" and not ncu.calls() and not (bench.folder / "out").exists()


def test_no_ncu_is_told_before_anything_runs(bench: Bench):
    with pytest.raises(MachineLacks) as caught:
        bench.run(None)
    assert caught.value.code == "no_ncu" and caught.value.fix and not bench.asked


def test_a_choice_that_no_launch_meets_is_told_as_such(bench: Bench):
    log = "==PROF== Connected to process 1 (/usr/bin/python3)\n==WARNING== No kernels were profiled.\n"
    with pytest.raises(MachineLacks) as caught:
        bench.run(StandInNcu(bench.folder / "ncu", {"log": log, "result": {"status": "ok"}}), Selection(kernel="nothing"))
    assert "is the one asked for" in caught.value.message and "--kernel" in caught.value.fix


def test_a_workload_that_fails_under_ncu_is_the_workloads_failure(bench: Bench):
    failed = {"status": "error", "error": {"code": "x", "message": "out of memory", "where": "w.py:3", "fix": "", "exit_code": 4}}
    log = "==PROF== Connected to process 1 (/usr/bin/python3)\n==ERROR== The application returned an error code (4).\n"
    with pytest.raises(WorkloadFailed) as caught:
        bench.run(StandInNcu(bench.folder / "ncu", {"log": log, "result": failed, "exit": 4}), Selection(kernel="x"))
    assert "out of memory" in caught.value.message


def test_scripts_and_broken_patterns_are_refused(bench: Bench):
    ncu = StandInNcu(bench.folder / "ncu", turn())
    with pytest.raises(BadInput) as caught:
        bench.run(ncu, script=ScriptRef(argv0="w.py", argv=()))
    assert caught.value.code == "script_not_taken" and "--import-source yes" in caught.value.fix
    with pytest.raises(BadInput) as caught:
        bench.run(ncu, Selection(kernel="["))
    assert caught.value.code == "bad_pattern" and not ncu.calls()


def test_the_command_line_captures_writes_and_compares(bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    ncu = StandInNcu(bench.folder / "ncu", turn())
    monkeypatch.chdir(bench.folder)
    shared = ["--mode", "ncu", "--ncu-executable", str(ncu.path), "--json"]
    assert main(["profile_kernel", "w.py", *shared, "--kernel", "copy"]) == 0
    first = json.loads(capsys.readouterr().out)
    folder = Path(first["out_dir"])
    assert folder.parent.parent == bench.folder / "out" / "profiles" / "ncu" / "w" and Path(first["report_verbose"]).is_file()
    assert {path.name for path in folder.iterdir()} >= {"annotated", "sass", "ptx", "raw", "contract.md", "report.md", "params.json"}
    assert json.loads((folder / "params.json").read_text())["out_dir"] == str(folder)
    assert main(["compare", str(folder), str(ncu_captures.known_full()), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["kernels"]) == 9 and answer["warnings"] == []
