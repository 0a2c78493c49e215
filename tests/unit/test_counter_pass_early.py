"""The counter process is started beside the first process, waits for its end, and never outlives a profile that failed."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from counter_bench import CAPTURES, Bench
from kernelwright.capture.cpus import free_cpus, granted_cpus
from kernelwright.capture.gate import Gate
from kernelwright.capture.system_view import real_system
from kernelwright.model.capture import ProbeResult
from kernelwright.model.errors import WorkloadFailed
from kernelwright.pipeline import counters as counter_module
from kernelwright.pipeline import profile as profile_module
from ncu_reports import DATA
from processes import soon
from stand_in_ncu import StandInNcu, good


def until(true, what):
    assert soon(true, 60), what


class Early(Bench):
    """A first process that goes on after its timeline is recorded: `meanwhile` is what it sees then."""

    def __init__(self, folder, monkeypatch, cores=8):
        super().__init__(folder, monkeypatch)
        monkeypatch.setattr(counter_module, "free_cpus", lambda _view: cores)
        self.meanwhile = lambda: None
        self.device = "cuda"

    def _probe(self, request, *_a, while_running=lambda: None, **_k):
        self.asked.append(request)
        out = Path(request.out_dir)
        out.mkdir(parents=True, exist_ok=True)
        document = json.loads((CAPTURES / "conv_block" / "result.json").read_bytes())
        document["environment"]["device"] = self.device
        while_running()
        (out / "environment.json").write_text(json.dumps(document["environment"]))
        shutil.copy(DATA / "ncu" / "conv.json.gz", out / "part")
        os.replace(out / "part", out / "trace.json.gz")
        self.meanwhile()
        return ProbeResult.model_validate({**document, "stacks_file": None, "lines_file": None, "ops_file": None})


def test_it_starts_beside_the_first_process_and_waits_for_its_end(tmp_path, monkeypatch):
    bench = Early(tmp_path, monkeypatch)
    ncu = StandInNcu(tmp_path / "nsight", good(bench.report, waits=True))
    seen = []

    def meanwhile():
        until(ncu.calls, "the counter process did not start")
        request = json.loads(Path(ncu.calls()[0]["argv"][-1]).read_text())
        time.sleep(0.2)
        seen.append((Path(request["wait_for"]).exists(), (tmp_path / "out" / "raw" / "counters.ncu-rep").exists()))

    bench.meanwhile = meanwhile
    began = time.monotonic()
    done, files = bench.run(ncu.path)
    assert seen == [(False, False)] and len(ncu.calls()) == 1
    counters = done.profile.counters
    assert counters is not None and counters.time_share_pct > 95 and counters.disagreements == ()
    assert 0 < counters.seconds < time.monotonic() - began - 0.2  # the waiting is not the replays' time
    assert "## Counters" in files["report"].read_text()


def test_the_time_for_both_counts_from_the_start_of_the_first_also_where_the_counter_process_waits_for_it(tmp_path, monkeypatch):
    """1.5 s of them go by before the gate opens; ncu would sleep a minute."""
    bench = Early(tmp_path, monkeypatch)
    monkeypatch.setattr(counter_module, "LEAST_PASS_S", 0.1)
    ncu = StandInNcu(tmp_path / "nsight", good(bench.report, waits=True, sleep_s=60.0))

    def meanwhile():
        until(ncu.calls, "the counter process did not start")
        time.sleep(1.5)

    bench.meanwhile = meanwhile
    began = time.monotonic()
    done, _ = bench.run(ncu.path, within_s=4.0)
    assert done.profile.no_counters.code == "ncu_timeout" and time.monotonic() - began < 30.0
    assert done.profile.timeline is not None


def test_a_first_process_that_fails_takes_the_counter_process_with_it(tmp_path, monkeypatch):
    bench = Early(tmp_path, monkeypatch)
    ncu = StandInNcu(tmp_path / "nsight", good(bench.report, waits=True))

    def meanwhile():
        until(ncu.calls, "the counter process did not start")
        raise WorkloadFailed("workload_died", "it died", where="w.py", fix="mend it")

    bench.meanwhile = meanwhile
    with pytest.raises(WorkloadFailed, match="it died"):
        bench.run(ncu.path)
    raw = tmp_path / "out" / "raw"
    assert not (raw / "counters" / "go").exists() and not (raw / "counters.ncu-rep").exists()
    here = str(raw / "counters" / "request.json").encode()
    assert soon(lambda: not any(_holds(folder, here) for folder in Path("/proc").glob("[0-9]*/cmdline")))


def _holds(file, words):
    try:
        return words in file.read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize(("cores", "sudo"), [(2, False), (8, True)])
def test_few_cores_or_sudo_one_after_the_other(tmp_path, monkeypatch, cores, sudo):
    bench = Early(tmp_path, monkeypatch, cores)
    bench.uid = 0  # sudo is not needed then, and asked for all the same
    ncu = StandInNcu(tmp_path / "nsight", good(bench.report))
    bench.meanwhile = lambda: (time.sleep(0.3), seen.extend(ncu.calls()))
    seen = []
    done, _ = bench.run(ncu.path, sudo=sudo)
    assert seen == [] and done.profile.counters is not None
    assert json.loads(Path(ncu.calls()[0]["argv"][-1]).read_text())["wait_for"] is None


def test_recordings_of_an_earlier_run_start_nothing(tmp_path, monkeypatch):
    bench = Early(tmp_path, monkeypatch)
    ncu = StandInNcu(tmp_path / "nsight", good(bench.report, waits=True))
    bench.run(ncu.path)
    assert (tmp_path / "out" / "raw" / "environment.json").exists()

    def dies(request, *_a, while_running=lambda: None, **_k):
        while_running()
        time.sleep(0.3)
        raise WorkloadFailed("workload_died", "it died", where="w.py", fix="mend it")

    monkeypatch.setattr(profile_module, "run_probe", dies)
    with pytest.raises(WorkloadFailed):
        bench.run(ncu.path)
    assert len(ncu.calls()) == 1


def test_no_counter_process_for_a_workload_on_the_cpu(tmp_path, monkeypatch):
    bench = Early(tmp_path, monkeypatch)
    ncu = StandInNcu(tmp_path / "nsight", good(bench.report))
    bench.device = "cpu"
    done, _ = bench.run(ncu.path)
    assert done.profile.no_counters is not None and done.profile.no_counters.code == "cpu" and ncu.calls() == []


def test_nothing_is_started_for_a_gate_that_was_abandoned(tmp_path, monkeypatch):
    bench = Early(tmp_path, monkeypatch)
    ncu = StandInNcu(tmp_path / "nsight", good(bench.report, waits=True))
    found = counter_module.find_ncu

    def slow(*args):
        until(lambda: (tmp_path / "out" / "raw" / "trace.json.gz").exists(), "the timeline was not recorded")
        time.sleep(0.3)
        return found(*args)

    def meanwhile():
        time.sleep(0.1)
        raise WorkloadFailed("workload_died", "it died", where="w.py", fix="mend it")

    bench.meanwhile = meanwhile
    monkeypatch.setattr(counter_module, "find_ncu", slow)
    with pytest.raises(WorkloadFailed, match="it died"):
        bench.run(ncu.path)
    assert ncu.calls() == []


@pytest.mark.parametrize(("files", "limit"), [
    ({"cpu.max": "250000 100000\n"}, 2.5), ({"cpu.max": "1200000 100000\n"}, 12.0), ({"cpu.max": "max 100000\n"}, 64.0),
    ({"cpu.max": "nonsense\n"}, 64.0), ({}, 64.0), ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3.0),
    ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64.0)])
def test_cpus_are_those_within_the_containers_limit_and_free_what_nobody_else_keeps_busy(tmp_path, monkeypatch, files, limit):
    for name, text in files.items():
        (tmp_path / "sys/fs/cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / name).write_text(text)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)), raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (32.0, 0.0, 0.0))
    assert granted_cpus(tmp_path) == min(16, limit)
    assert free_cpus(dataclasses.replace(real_system(), root=tmp_path)) == min(8, limit)


def test_a_gates_time_counts_from_its_opening(tmp_path):
    file = tmp_path / "go"
    file.write_text("of an earlier run")
    gate = Gate(file)
    assert not file.exists() and not gate.is_open and gate.seconds_since(time.monotonic() - 100) == 0.0
    gate.open()
    assert file.exists() and gate.is_open and gate.seconds_since(time.monotonic() - 100) < 50
