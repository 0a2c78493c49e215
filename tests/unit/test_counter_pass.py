"""Annotation with counters, without a GPU: the timeline's process is a recording of an H200, ncu a stand-in."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path

import pytest

from counter_bench import ROOT, Bench
from kernelwright.capture.doctor import examine
from kernelwright.capture.interpreter import Interpreter
from kernelwright.model.workload import ScriptRef, WorkloadRef
from kernelwright.pipeline import counters as counter_module
from kernelwright.pipeline import profile as profile_module
from kernelwright.pipeline.counters import CounterOptions
from kernelwright.pipeline.profile import ProfileOptions, profile
from kernelwright.roofline.counters import metric_names
from ncu_reports import DATA
from published_schemas import check_document
from stand_in_ncu import DENIED, StandInNcu, good, stand_in_sudo


@pytest.fixture
def bench(tmp_path, monkeypatch):
    return Bench(tmp_path, monkeypatch)


def test_counters_are_collected_in_a_second_process_and_reported(bench):
    ncu = StandInNcu(bench.folder / "nsight", good(bench.report))
    done, files = bench.run(ncu.path, budget_s=30.0)
    counters = done.profile.counters
    assert done.profile.no_counters is None and counters is not None
    assert (counters.set, counters.budget_s, counters.passes) == ("default", 30.0, 12) and counters.seconds > 0
    assert counters.tool.startswith("ncu ") and counters.disagreements == () and counters.time_share_pct > 95
    assert counters.launches == 38 and counters.launches_with_counters > counters.launches_measured > 0
    assert (done.out_dir / "raw" / "counters.ncu-rep").read_bytes() == bench.report.read_bytes()
    kernels = [kernel for operator in done.profile.operators for kernel in operator.kernels if kernel.metrics.raw]
    assert {kernel.metrics.origin for kernel in kernels} == {"measured", "propagated"}
    heaviest = max(done.profile.operators, key=lambda operator: operator.aggregated.total_duration_ns)
    assert heaviest.aggregated.achieved_occupancy and any(row.aggregated.total_dram_bytes_read for row in done.profile.operators)
    assert any(stage.dram_pct is not None for stage in done.profile.stages)
    assert done.profile.evidence["counters"] == "counters"
    check_document(json.loads(files["profile"].read_text()))
    assert done.params["options"]["counters"] == {"choice": "default", "budget_s": 30.0, "executable": str(ncu.path), "sudo": False,
                                                  "within_s": None}
    page = files["timeline"].read_text()
    assert "(counters)" in page and "(counters of a launch like it)" in page
    report = files["report"].read_text()
    assert "## Counters" in report and re.search(r"counters for \d+\.\d% of kernel time", report) and "12 times each" in report
    assert "--ncu-budget" in report
    words = ncu.calls()[0]["argv"]
    assert words[words.index("--metrics") + 1] == ",".join(metric_names("9.0", "default"))
    assert any(re.fullmatch(r"regex:\.\*op_id = \([\d|]+\)\[\^0-9\]\.\*/", word) for word in words)
    request = json.loads(Path(words[-1]).read_text())
    plain = bench.asked[0]
    assert (request["action"], request["calibrate"], request["stacks"]) == ("counters", False, False)
    assert bench.asked[0].variation and not request["variation"], "what changes from call to call was looked for already"
    assert (request["workload"], request["seed"], request["compile_mode"]) == (
        plain.workload.model_dump(mode="json"), plain.seed, plain.compile_mode)
    assert not any("no counters" in line for line in bench.said)


def test_the_first_processs_files_stay_as_they_were(bench):
    done, _ = bench.run(StandInNcu(bench.folder / "nsight", good(bench.report)).path)
    assert (done.out_dir / "raw" / "trace.json.gz").read_bytes() == (DATA / "ncu" / "conv.json.gz").read_bytes()
    assert done.profile.timeline is not None and done.profile.timeline.steps == 2


def told_once(bench, done, files, code):
    """The reason and the fix: one line on stderr, in report.md and in profile.json; nothing else is missing."""
    why = done.profile.no_counters
    assert done.profile.counters is None and why is not None and why.code == code
    lines = [line for line in bench.said if line.startswith("no counters: ")]
    assert len(lines) == 1 and why.fix in lines[0]
    report = files["report"].read_text()
    assert "## Counters" in report and "Fix: " in report
    document = json.loads(files["profile"].read_text())
    assert document["no_counters"]["code"] == code and document["operators"] and document["stages"]
    check_document(document)
    return why


def test_with_no_time_left_ncu_is_not_started(bench):
    ncu = StandInNcu(bench.folder / "nsight", good(bench.report))
    done, files = bench.run(ncu.path, within_s=5.0)
    told_once(bench, done, files, "no_time")
    assert ncu.calls() == []


def test_both_processes_end_within_their_time(bench, monkeypatch):
    began, asked = time.monotonic(), []
    plain = counter_module.run_ncu
    monkeypatch.setattr(counter_module, "run_ncu", lambda *args, **more: asked.append(more["until_s"] - began) or plain(*args, **more))
    done, _ = bench.run(StandInNcu(bench.folder / "nsight", good(bench.report)).path, within_s=40.0)
    assert done.profile.counters is not None and asked[0] == pytest.approx(40.0, abs=1.0)


def test_denied_by_ncu_the_profile_goes_on(bench):
    done, files = bench.run(StandInNcu(bench.folder / "nsight", {"log": DENIED, "result": {"status": "ok"}, "exit": 1}).path)
    why = told_once(bench, done, files, "counters_denied")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in why.fix and "--ncu-sudo" in why.advice
    assert why.fix.replace("|", "\\|") in files["report"].read_text() or why.fix in files["report"].read_text()


def test_known_to_be_denied_ncu_is_not_tried_and_doctor_says_the_same(bench):
    bench.admins_only()
    ncu = StandInNcu(bench.folder / "nsight", good(bench.report))
    done, files = bench.run(ncu.path)
    why = told_once(bench, done, files, "counters_denied")
    assert ncu.calls() == []
    view = dataclasses.replace(bench.view(), nvml_gpus=lambda: (), interpreter=lambda: Interpreter(Path("/p"), "2", "13.0", "p"))
    check = next(check for check in examine(view, ("annotation",)).checks if check.name == "counters")
    assert check.status == "missing" and check.detail in why.reason and (check.fix, check.advice) == (why.fix, why.advice)


def test_denied_in_a_container_the_fix_is_the_containers(bench):
    bench.admins_only()
    bench.uid = 0
    (bench.machine / ".dockerenv").write_text("")
    done, files = bench.run(StandInNcu(bench.folder / "nsight").path)
    assert "--cap-add=SYS_ADMIN" in told_once(bench, done, files, "counters_denied").fix


def test_sudo_is_tried_where_the_user_is_denied(bench, monkeypatch):
    bench.admins_only()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(bench.folder / "inductor"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(bench.folder / "triton"))
    programs = stand_in_sudo(bench.folder / "bin", allows=True)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    done, _ = bench.run(StandInNcu(bench.folder / "nsight", good(bench.report)).path, sudo=True)
    assert done.profile.counters is not None
    stand_in_sudo(bench.folder / "bin", allows=False)
    again, files = bench.run(StandInNcu(bench.folder / "nsight", good(bench.report)).path, sudo=True)
    told_once(bench, again, files, "sudo_refused")


def test_without_ncu(bench):
    done, files = bench.run(bench.folder / "nowhere" / "ncu")
    why = told_once(bench, done, files, "no_ncu")
    assert "is no executable" in why.reason and "--ncu-executable" in why.fix


def test_a_broken_ncu(bench):
    broken = bench.folder / "ncu"
    broken.write_text("#!/bin/sh\necho 'libfoo.so: cannot open shared object file' >&2\nexit 127\n")
    broken.chmod(0o755)
    done, files = bench.run(broken)
    assert "libfoo.so" in told_once(bench, done, files, "ncu_broken").reason


def test_a_report_that_is_cut_short_costs_the_counters_alone(bench):
    bench.report.write_bytes(bench.report.read_bytes()[:-1000])
    done, files = bench.run(StandInNcu(bench.folder / "nsight", good(bench.report)).path)
    code = done.profile.no_counters.code
    assert "counters.ncu-rep" in told_once(bench, done, files, code).reason


def test_a_gpu_without_known_counter_names(bench):
    bench.capability = "5.2"
    ncu = StandInNcu(bench.folder / "nsight", good(bench.report))
    done, files = bench.run(ncu.path)
    assert "5.2" in told_once(bench, done, files, "unknown_gpu").reason and ncu.calls() == []


def test_a_budget_that_one_launch_passes(bench):
    ncu = StandInNcu(bench.folder / "nsight", good(bench.report))
    done, files = bench.run(ncu.path, budget_s=0.001)
    told_once(bench, done, files, "nothing_to_replay")
    assert ncu.calls() == []


def test_few_of_many_alike_are_asked_for_by_count(bench, monkeypatch):
    plan = counter_module.plan_counters
    monkeypatch.setattr(counter_module, "plan_counters", lambda *a, **k: dataclasses.replace(plan(*a, **k), launch_count=2))
    ncu = StandInNcu(bench.folder / "nsight", good(bench.report))
    bench.run(ncu.path)
    words = ncu.calls()[0]["argv"]
    assert words[words.index("--filter-mode"):][:4] == ["--filter-mode", "per-launch-config", "--launch-count", "2"]


def test_nothing_to_replay(bench, monkeypatch):
    plan = counter_module.plan_counters
    monkeypatch.setattr(counter_module, "plan_counters", lambda *a, **k: dataclasses.replace(plan(*a, **k), op_ids=()))
    ncu = StandInNcu(bench.folder / "nsight", good(bench.report))
    done, files = bench.run(ncu.path)
    told_once(bench, done, files, "nothing_to_replay")
    assert ncu.calls() == []


def test_not_asked_for_is_no_complaint(bench):
    ncu = StandInNcu(bench.folder / "nsight", good(bench.report))
    done, files = bench.run(ncu.path, choice="none")
    assert done.profile.no_counters.code == "not_asked" and ncu.calls() == []
    assert not any("no counters" in line for line in bench.said) and "None: none were asked for" in files["report"].read_text()


def test_unknown_metrics_are_noted(bench):
    unknown = {"log": "==ERROR== Failed to find metric dram__bytes_read.sum\n", "exit": 1}
    done, files = bench.run(StandInNcu(bench.folder / "nsight", unknown, good(bench.report)).path)
    assert done.profile.counters is not None and "dram__bytes_read.sum" in done.profile.counters.notes[-1]
    assert "this ncu has no dram" in files["report"].read_text()


def test_a_script_is_not_run_twice(bench, monkeypatch):
    ncu = StandInNcu(bench.folder / "nsight", good(bench.report))
    monkeypatch.setattr(profile_module, "capture_script", lambda request, *_a, **_k: bench._probe(request))
    workload = WorkloadRef(path=ROOT / "examples" / "train.py", name="train", script=ScriptRef(argv0="train.py", argv=()))
    done = profile(workload, "annotation", bench.folder / "out", ProfileOptions(counters=CounterOptions(executable=str(ncu.path))),
                   say=bench.said.append)
    assert done.profile.no_counters.code == "script" and "--mode ncu" in done.profile.no_counters.fix
    assert ncu.calls() == [] and not any("no counters" in line for line in bench.said)
