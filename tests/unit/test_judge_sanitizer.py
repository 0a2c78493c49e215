"""compute-sanitizer on request: its logs, whose error it is, and what is said where it can't look."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.capture.process import spawn
from kernelwright.capture.system_view import real_system
from kernelwright.judge import JudgeOptions, ReferenceSession, judge, sanitizer
from kernelwright.judge.sanitizer import Asked, Found, read_log
from kernelwright.model.workload import WorkloadRef
from stand_in_sanitizer import CLEAN, HEAD, OUT_OF_BOUNDS, StandInSanitizer, clean, found
from warm_start import warm_start

DATA = Path(__file__).resolve().parents[1] / "data" / "judge"
RACE = (f"{HEAD}========= Error: Race reported between Write access at sum_kernel(float *, int)+0x90 in /input/race.cu:25\n"
        "=========     and Read access at sum_kernel(float *, int)+0x250 in /input/race.cu:37 [508 hazards]\n=========\n"
        "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n")
RACE_WARNING = (f"{HEAD}========= Warning: Race reported between Write access at sum_kernel(float *)+0x90 in race.cu:25\n"
                "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n")
BARRIER = (f"{HEAD}========= Barrier error detected. Invalid arguments.\n=========     at __syncwarp(unsigned int)+0xe0 in sm_30.hpp:110\n"
           "=========     by thread (32,0,0) in block (0,0,0)\n"
           "=========         Device Frame: broken_sync(float *, unsigned long)+0xb0 in /input/kernel.cu:12\n"
           "========= Target application returned an error\n========= ERROR SUMMARY: 17 errors\n")
OLD = (f"{HEAD}========= Invalid __global__ write of size 4 bytes\n"
       "=========     at 0x3c8 in /project/a.cu:42:decrypt(int*,int*)\n========= ERROR SUMMARY: 1 error\n")
BARE = f"{HEAD}========= Uninitialized __global__ memory read of size 4 bytes\n=========     at 0x60 in Iota(unsigned char*)\n" \
       "========= ERROR SUMMARY: 3 errors\n"
CUBLAS = f"{HEAD}========= Uninitialized __global__ memory read of size 4 bytes\n=========     at void cutlass::Kernel<x>(y)+0x60\n" \
         "========= ERROR SUMMARY: 3 errors\n"
REFUSED = f"{HEAD}========= Error: Target application terminated before first instrumented API call\n"


@pytest.mark.parametrize(("text", "errors", "expected"), [
    (CLEAN, 0, []), ("", None, []), (HEAD, None, []), ("Some line of the program's\n" + CLEAN, 0, []),
    (OUT_OF_BOUNDS, 33, [Found("Invalid __global__ write of size 4 bytes", "scale(float *, int)", "kernel.cu:14"),
                         Found("Invalid __global__ read of size 4 bytes", "void at::native::copy_kernel<float>(float *)")]),
    (RACE, 1, [Found("Race between accesses to shared memory", "sum_kernel(float *, int)", "race.cu:25")]),
    (RACE_WARNING, 0, []),
    (BARRIER, 17, [Found("Barrier error detected. Invalid arguments", "broken_sync(float *, unsigned long)", "kernel.cu:12")]),
    (OLD, 1, [Found("Invalid __global__ write of size 4 bytes", "decrypt(int*,int*)", "a.cu:42")]),
    (BARE, 3, [Found("Uninitialized __global__ memory read of size 4 bytes", "Iota(unsigned char*)")]),
    (REFUSED, None, []),
])
def test_logs_are_read(text, errors, expected):
    log = read_log(text)
    assert (log.errors, list(log.found)) == (errors, expected)


@pytest.fixture
def asked(tmp_path):
    (tmp_path / "ours").mkdir()
    return Asked(Path(sys.executable), "cuda", {"path": "w.py", "device": "cuda", "seed": 1}, tmp_path / "c.py", tmp_path / "ours", 20.0)


def audited(asked, tmp_path, *tools, **turns):
    tool = StandInSanitizer(tmp_path / "bin", **turns)
    view = replace(real_system(), env={"PATH": f"{tool.folder}:/usr/bin:/bin"})
    return sanitizer.audit(asked, tools or ("memcheck",), view), tool.calls()


def test_a_clean_run_passes(asked, tmp_path):
    rows, calls = audited(asked, tmp_path, "memcheck", "racecheck", memcheck_candidate=clean(), racecheck_candidate=clean(log=RACE_WARNING))
    assert [(row.name, row.result) for row in rows] == [("sanitizer: memcheck", "passed"), ("sanitizer: racecheck", "passed")]
    assert rows[0].detail.startswith("0 errors in one call")
    first, second = (call["argv"] for call in calls)
    assert first[first.index("--report-api-errors") + 1] == "no" and "--report-api-errors" not in second
    assert calls[0]["env"]["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1" and first[-2] == "sanitize"
    assert calls[0]["request"]["candidate"] == str(asked.candidate) and calls[0]["request"]["seed"] == 1


def test_an_error_in_the_candidates_kernel_fails_with_the_first(asked, tmp_path):
    rows, calls = audited(asked, tmp_path, memcheck_candidate=found(), memcheck_reference=clean())
    assert rows[0].result == "failed"
    assert rows[0].detail == "33 errors, the first: Invalid __global__ write of size 4 bytes in scale(float *, int) at kernel.cu:14"
    assert [call["request"]["candidate"] for call in calls] == [str(asked.candidate), None]


def test_an_error_that_the_reference_has_too_is_not_the_candidates(asked, tmp_path):
    rows, _ = audited(asked, tmp_path, memcheck_candidate=found(), memcheck_reference=found())
    assert rows[0].result == "passed" and "the reference's too" in rows[0].detail


def test_what_a_library_leaves_unwritten_is_not_the_candidates(asked, tmp_path):
    rows, calls = audited(asked, tmp_path, "initcheck", initcheck_candidate=found(CUBLAS))
    assert rows[0].result == "passed" and len(calls) == 1
    rows, _ = audited(asked, tmp_path, "memcheck", memcheck_candidate=found(CUBLAS), memcheck_reference=clean())
    assert rows[0].result == "failed"  # out of bounds in a library is its caller's


@pytest.mark.parametrize(("turn", "result", "words"), [
    ({"log": REFUSED, "exit": 1, "answer": {"ok": True}}, "not_applicable", "terminated before first instrumented"),
    ({"log": "", "exit": 3, "answer": {"ok": True}}, "not_applicable", "status 3 and without a summary"),
    ({"exit": 1}, "not_applicable", "ended before it answered"),
    (clean(answer={"ok": False, "error": {"message": "out of\nmemory"}}), "not_applicable", "out of memory"),
    (clean(answer={"ok": "perhaps"}), "not_applicable", "ended before it answered"),
    (clean(exit=86), "failed", "name no kernel"),
    (found(log=None), "failed", "name no kernel"),
])
def test_what_it_cannot_say_is_said(turn, result, words, asked, tmp_path):
    rows, _ = audited(asked, tmp_path, memcheck_candidate=turn)
    assert rows[0].result == result and words in rows[0].detail, rows


def test_a_run_that_hangs_is_ended(asked, tmp_path):
    rows, _ = audited(replace(asked, timeout_s=1.5), tmp_path, memcheck_candidate=clean(sleep_s=60))
    assert rows[0].result == "not_applicable" and "--timeout" in rows[0].detail


def test_without_the_tool_or_a_gpu_the_mend_is_said(asked, tmp_path):
    view = replace(real_system(), root=tmp_path, env={"PATH": str(tmp_path)})
    row = sanitizer.audit(asked, ("memcheck",), view)[0]
    assert row.result == "not_applicable" and "not installed" in row.detail and "cuda-sanitizer" in row.detail
    for changed in (replace(asked, device="cpu"), replace(asked, request={"device": "cpu"})):
        row = sanitizer.audit(changed, ("synccheck",), view)[0]
        assert (row.name, row.result) == ("sanitizer: synccheck", "not_applicable") and "NVIDIA GPU" in row.detail


def test_it_is_found_in_the_toolkit(tmp_path):
    from kernelwright.capture.nsight import find_sanitizer

    program = tmp_path / "usr/local/cuda-13.0/bin/compute-sanitizer"
    program.parent.mkdir(parents=True)
    program.write_text("")
    view = replace(real_system(), root=tmp_path, env={"PATH": ""})
    assert find_sanitizer(view).path == program and find_sanitizer(view).works


def test_the_probe_calls_a_candidate_once(tmp_path):
    """What the tool starts, without the tool."""
    for candidate, ok in ((None, True), (DATA / "wide" / "same.py", True), (DATA / "wide" / "raises.py", False)):
        request = {"path": str(DATA / "wide.py"), "version": None, "params": {"rows": "64"}, "device": "cpu", "seed": 3, "inputs_seed": 4,
                   "call_seed": 5, "candidate": str(candidate) if candidate else None, "result": str(tmp_path / "answer.json")}
        (tmp_path / "request.json").write_text(json.dumps(request))
        with warm_start():
            process = spawn(Path(sys.executable), ["sanitize", str(tmp_path / "request.json")], device="cpu", cwd=tmp_path,
                            log_path=tmp_path / "log")
        assert process.wait(timeout=60) == 0
        answer = json.loads((tmp_path / "answer.json").read_text())
        assert answer["ok"] is ok and (ok or "no luck" in answer["error"]["message"])


def test_a_failed_audit_fails_the_candidate(tmp_path, monkeypatch):
    rows = [sanitizer._row("memcheck", "failed", "1 error, the first: x in y"), sanitizer._row("racecheck", "passed", "")]
    monkeypatch.setattr(sanitizer, "audit", lambda asked, tools: rows if tools == ("memcheck", "racecheck") else 1 / 0)
    options = JudgeOptions(device="cpu", python=sys.executable, sanitize=("memcheck", "racecheck"), timing=False)
    with warm_start(), ReferenceSession(WorkloadRef(path=DATA / "wide.py", name="wide", params={"rows": "64"}), options) as session:
        verdict = judge(session.workload, DATA / "wide" / "same.py", session=session)
    assert verdict.verdict == "FAILED" and verdict.reasons == ("sanitizer: memcheck: 1 error, the first: x in y",)
    assert set(rows) <= set(verdict.audits) and verdict.correctness.passed and verdict.speedup is None
