"""The counter process: ncu's command line and environment, and what each way of failing becomes."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import pytest

from kernelwright.capture.gate import Gate
from kernelwright.capture.interpreter import Interpreter
from kernelwright.capture.ncu import command_line, nvtx_filters, run_ncu
from kernelwright.capture.nsight import Tool, find_ncu
from kernelwright.capture.profiled import allowed
from kernelwright.capture.root import cache_folders
from kernelwright.capture.system_view import real_system
from kernelwright.model.capture import ProbeRequest, ProbeWorkload
from processes import gone
from stand_in_ncu import CONNECTED, DENIED, GOOD, NOTE, StandInNcu, good, stand_in_sudo

PYTHON = Interpreter(Path(sys.executable), "2.11.0", "13.0", "--python")


@pytest.fixture
def report(tmp_path):
    file = tmp_path / "recorded.ncu-rep"
    file.write_bytes(b"NVR\0 recorded")
    return file


def run(tmp_path, stand_in, *, uid=0, metrics=("a.sum", "b.sum"), op_ids=(9, 13), timeout_s=30.0, sudo=False, say=lambda _line: None,
        interpreter=PYTHON, gate=None):
    folder = tmp_path / "raw" / "counters"
    folder.mkdir(parents=True, exist_ok=True)
    request = ProbeRequest(action="counters", workload=ProbeWorkload(path=str(tmp_path / "w.py")), device="cuda", out_dir=str(folder))
    tool = find_ncu(real_system(), str(stand_in.path))
    assert tool.works and tool.version == "2025.3.1.0"
    view = dataclasses.replace(real_system(), uid=uid, root=tmp_path / "machine")
    return run_ncu(request, interpreter, tool=tool, metrics=metrics, op_ids=op_ids, sudo=sudo, report=tmp_path / "raw" / "counters.ncu-rep",
                   cwd=tmp_path, timeout_s=timeout_s, say=say, view=view, gate=gate)


def test_a_run_that_works_leaves_the_report(tmp_path, report):
    stand_in = StandInNcu(tmp_path / "nsight", good(report))
    done = run(tmp_path, stand_in)
    assert done.denied is None and done.report is not None and done.report.read_bytes() == report.read_bytes()
    assert (done.passes, done.launches, done.unknown) == (12, 3, ()) and done.log.read_text() == GOOD
    words = stand_in.calls()[0]["argv"]
    assert words[words.index("--clock-control") + 1] == "none" and words[words.index("--profile-from-start") + 1] == "off"
    assert words[words.index("--metrics") + 1] == "a.sum,b.sum" and "--nvtx" in words
    request = json.loads(Path(words[-1]).read_text())
    assert request["action"] == "counters" and words[-4] == sys.executable


def test_the_filter_names_whole_numbers(tmp_path):
    """As ncu was seen to match: the expression is looked for in the range's name, whose end is that of the string."""
    import re

    words = nvtx_filters([13, 9])
    patterns = [re.compile(word.removeprefix("regex:").removesuffix("/")) for word in words[1::2]]
    assert words[::2] == ["--nvtx-include"] * 2 and not any("," in word for word in words)

    def met(name):
        return any(pattern.search(name) for pattern in patterns)

    assert met("aten::addmm, seq = 70, op_id = 13, sizes = [[768]]") and met("## Call CompiledFxGraph f ##, op_id = 9")
    assert not met("aten::add, op_id = 131, sizes = [[1]]") and not met("aten::add, op_id = 113") and not met("aten::add, op_id = 1")
    assert nvtx_filters(None) == [] and len(nvtx_filters(range(2500))) == 12


def test_paths_with_percent_signs_are_not_expanded(tmp_path):
    words = command_line(Tool("ncu", Path("/ncu")), Path("/python"), tmp_path / "request.json", metrics=(), op_ids=None,
                         extra=["--set", "full"], report=Path("/50%q{HOME}/c.ncu-rep"), log=Path("/50%h/l"))
    assert "/50%%q{HOME}/c.ncu-rep" in words and "/50%%h/l" in words and "--metrics" not in words
    assert words[words.index("--set"):][:3] == ["--set", "full", "/python"]


def test_secrets_do_not_reach_what_ncu_records(tmp_path, report, monkeypatch):
    planted = {"GITHUB_TOKEN": "s3cret1", "AWS_SECRET_ACCESS_KEY": "s3cret2", "PYTHON_REGISTRY_PASSWORD": "s3cret3", "HF_TOKEN": "s3cret4",
               "TORCHINDUCTOR_REMOTE_CACHE": "redis://me:s3cret5@host", "MY_SETTING": "s3cret6", "TORCH_API_KEY": "s3cret7",
               "DATABASE_URL": "s3cret8"}
    for name, value in {**planted, "TRITON_CACHE_DIR": "/cache/t", "TORCHINDUCTOR_CACHE_DIR": "/cache/i"}.items():
        monkeypatch.setenv(name, value)
    stand_in = StandInNcu(tmp_path / "nsight", good(report))
    run(tmp_path, stand_in)
    environment = stand_in.calls()[0]["env"]
    assert not any("s3cret" in value for value in environment.values())
    assert environment["TRITON_CACHE_DIR"] == "/cache/t" and environment["TORCHINDUCTOR_CACHE_DIR"] == "/cache/i"
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT"] == "1"  # nothing is copied into the user's home


def test_what_decides_caches_devices_and_libraries_is_kept():
    kept = {"HOME": "/h", "TMPDIR": "/t", "USER": "u", "XDG_CACHE_HOME": "/x", "CUDA_VISIBLE_DEVICES": "1", "LD_LIBRARY_PATH": "/l",
            "LANG": "C.UTF-8", "PYTHONPATH": "/p", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "2", "TRITON_INTERPRET": "0",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "CUDA_MODULE_LOADING": "LAZY", "PYTORCH_CUDA_ALLOC_CONF": "backend:native"}
    assert allowed(kept) == kept
    mine = {"MY_DATA": "/d", "MY_URL": "http://me:x@h", "OTHER": "o", "KERNELWRIGHT_NCU_ENV": "MY_DATA, MY_URL"}
    assert allowed(mine) == {"MY_DATA": "/d", "MY_URL": "http://me:x@h"}


OLD = "==ERROR== An error was reported by the driver:\n==ERROR== Cuda driver is not compatible with Nsight Compute.\n"
CHIP = "==WARNING== Profiling is not supported on device 0. To find out supported GPUs refer --list-chips option.\n"
BUSY = ("==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) is concurrently "
        "collecting profiling data.\n")
FAILED = {"status": "error",
          "error": {"code": "workload_raised", "message": "KeyError: 'DATA'", "where": "w.py:3", "fix": "f", "exit_code": 4}}
APPLICATION = "==ERROR== The application returned an error code (4).\n"
NOTHING = "==WARNING== No kernels were profiled.\n"


@pytest.mark.parametrize(("turn", "code", "reason", "mend"), [
    ({"log": DENIED, "result": {"status": "ok"}, "exit": 1}, "counters_denied", "ERR_NVGPUCTRPERM", "ProfilingToAdminUsers=0"),
    ({"log": CONNECTED + OLD, "exit": 1}, "ncu_too_old", "2025.3.1.0 does not go with this GPU or driver", "--ncu-executable"),
    ({"log": CONNECTED + CHIP + NOTHING, "result": {"status": "ok"}}, "ncu_too_old", "not supported on device 0", "--ncu-executable"),
    ({"log": CONNECTED + BUSY, "result": {"status": "ok"}, "exit": 1}, "counters_busy", "driver resource was unavailable", "dcgmi"),
    ({"log": NOTE + "==ERROR== Profiler is already attached to the target.\n", "exit": 1}, "counters_busy", "already attached", "dcgmi"),
    ({"log": NOTE + "==ERROR== LibraryNotLoaded\n", "exit": 1}, "ncu_library", "lacks a library", "--ncu-executable"),
    ({"log": "==ERROR== Failed to open /tmp/nsight-compute-lock\n", "exit": 1}, "ncu_lock", "lock file", "rm -f /tmp/nsight-compute-lock"),
    ({"log": CONNECTED + APPLICATION, "result": FAILED, "exit": 4}, "failed_under_ncu", "KeyError: 'DATA' (w.py:3)", "NCU_ENV"),
    ({"log": CONNECTED + APPLICATION, "exit": 9}, "failed_under_ncu", "its process ended early", "KERNELWRIGHT_NCU_ENV"),
    ({"log": CONNECTED + NOTHING, "result": {"status": "ok"}}, "no_kernels_replayed", "none of the chosen launches", "fixed seeds"),
    ({"log": CONNECTED + "==ERROR== Unknown Error on device 0.\n", "exit": 1}, "ncu_failed", "Unknown Error on device 0", "ncu.log"),
    ({"log": CONNECTED, "kill": 9}, "ncu_failed", "killed by signal 9", "again"),
    ({"exit": 3}, "ncu_failed", "ended with status 3", "ncu.log"),
    ({"said": DENIED, "exit": 3}, "ncu_failed", "ended with status 3", "ncu.log"),
], ids=["denied", "old-driver", "old-chip", "dcgm", "attached", "library", "lock", "raises", "dies", "no-kernels", "unknown", "killed",
        "silent", "a program that only prints ncu's words"])
def test_each_failure_is_told_with_its_mend(tmp_path, turn, code, reason, mend):
    done = run(tmp_path, StandInNcu(tmp_path / "nsight", turn))
    assert done.report is None and done.denied is not None and not (tmp_path / "raw" / "counters.ncu-rep").exists()
    assert done.denied.code == code and reason in done.denied.reason
    assert mend in f"{done.denied.fix} {done.denied.advice}" and done.denied.fix


def test_a_report_without_a_replayed_launch_is_none(tmp_path, report):
    done = run(tmp_path, StandInNcu(tmp_path / "nsight", {"log": CONNECTED + NOTHING, "report": str(report), "result": {"status": "ok"}}))
    assert done.report is None and done.denied is not None and done.denied.code == "no_kernels_replayed"
    assert not (tmp_path / "raw" / "counters.ncu-rep").exists()


def test_a_hanging_ncu_is_ended_with_all_that_it_started(tmp_path):
    sleeper = tmp_path / "sleeper"
    sleeper.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    sleeper.chmod(0o755)
    stand_in = StandInNcu(tmp_path / "nsight", {"log": CONNECTED + '==PROF== Profiling "spin" - 0: 0%', "run": True})
    start = time.monotonic()
    done = run(tmp_path, stand_in, timeout_s=4.0, interpreter=Interpreter(sleeper, "2.11.0", "13.0", "--python"))
    assert time.monotonic() - start < 30
    assert done.denied is not None and done.denied.code == "ncu_timeout" and "in its 1. launch" in done.denied.reason
    assert "--ncu-budget" in done.denied.fix
    assert gone([int((tmp_path / "pid").read_text())])


def test_metrics_that_this_ncu_does_not_know_are_left_out(tmp_path, report):
    stand_in = StandInNcu(tmp_path / "nsight", {"log": "==ERROR== Failed to find metric regex:b.sum\n", "exit": 1}, good(report))
    done = run(tmp_path, stand_in)
    assert done.report is not None and done.unknown == ("b.sum",)
    words = stand_in.calls()[1]["argv"]
    assert words[words.index("--metrics") + 1] == "a.sum"
    only = StandInNcu(tmp_path / "alone" / "nsight", {"log": "==ERROR== Failed to find metric b.sum\n", "exit": 1})
    alone = run(tmp_path / "alone", only, metrics=("b.sum",))
    assert alone.report is None and alone.denied is not None and "Failed to find metric b.sum" in alone.denied.reason


def test_sudo_gets_the_variables_by_name_and_is_not_asked_twice(tmp_path, report, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "s3cret")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "a b;c"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    programs = stand_in_sudo(tmp_path / "bin", allows=True)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    stand_in = StandInNcu(tmp_path / "nsight", good(report))
    done = run(tmp_path, stand_in, uid=1000, sudo=True)
    assert done.report is not None
    environment = stand_in.calls()[0]["env"]
    assert environment["TRITON_CACHE_DIR"] == str(tmp_path / "a b;c") and "GITHUB_TOKEN" not in environment
    lines = (programs / "sudo.log").read_text().splitlines()
    assert lines[0].startswith("-n env -i ") and "s3cret" not in lines[0]
    assert lines[-1].startswith("-n chown -hR --from=0 ")  # what root wrote into the user's folders


def test_a_sudo_that_refuses_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{stand_in_sudo(tmp_path / 'bin', allows=False)}{os.pathsep}{os.environ['PATH']}")
    done = run(tmp_path, StandInNcu(tmp_path / "nsight"), uid=1000, sudo=True)
    assert done.denied is not None and done.denied.code == "sudo_refused" and "a password is required" in done.denied.reason
    assert "NOPASSWD" in done.denied.fix


def test_root_needs_no_sudo(tmp_path, report, monkeypatch):
    monkeypatch.setenv("PATH", f"{stand_in_sudo(tmp_path / 'bin', allows=False)}{os.pathsep}{os.environ['PATH']}")
    assert run(tmp_path, StandInNcu(tmp_path / "nsight", good(report)), uid=0, sudo=True).report is not None


def test_caches_are_where_the_compilers_look(monkeypatch):
    assert cache_folders({"TORCHINDUCTOR_CACHE_DIR": "/i", "TRITON_CACHE_DIR": "/t"}) == [Path("/i"), Path("/t")]
    inductor, triton = cache_folders({"USER": "me", "HOME": "/project"})
    assert inductor.name == "torchinductor_me" and triton == Path("/project/.triton/cache")


def test_time_at_a_gate_is_no_time_of_the_run_and_an_abandoned_one_ends_it(tmp_path, report):
    stand_in = StandInNcu(tmp_path / "nsight", good(report, sleep_s=1.0))
    done = run(tmp_path, stand_in, timeout_s=0.3, gate=Gate(tmp_path / "closed"))
    assert done.report is not None and done.seconds == 0.0  # it ended by itself; a closed gate has no time limit
    gate = Gate(tmp_path / "abandoned")
    gate.abandon()
    began = time.monotonic()
    assert run(tmp_path, StandInNcu(tmp_path / "other", good(report, sleep_s=30.0)), gate=gate).report is None
    assert time.monotonic() - began < 25
