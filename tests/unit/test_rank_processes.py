"""Ranks as processes, with a stand-in for the probe: whichever of them fails, hangs or dies, the right one is named and none is left."""

from __future__ import annotations

import json
import sys
import time

import pytest

from kernelwright.capture import ranks
from kernelwright.capture.interpreter import Interpreter
from kernelwright.model.capture import ProbeRequest, ProbeScript, ProbeWorkload
from kernelwright.model.errors import BadInput, KernelwrightError, WorkloadFailed
from kernelwright.pipeline.ranks import _said
from processes import in_groups, soon

STAND_IN = """#!{python} -S
import json, os, signal, sys, time
request = json.load(open(sys.argv[3]))
def leave(**what):
    path = request["out_dir"] + "/result.json"
    open(path + ".new", "w").write(json.dumps({{"status": "ok", "trace_file": "trace.json.gz", **what}}))
    os.rename(path + ".new", path)
def fail(code, message):
    leave(status="error", trace_file=None, error={{"code": code, "message": message, "where": "w.py", "fix": "mend it", "exit_code": 4}})
print("rank", os.environ["RANK"], os.environ["MASTER_PORT"], flush=True)
exec(request["script"]["argv"][int(os.environ["RANK"])])
"""
HANG = "time.sleep(600)"
WELL = "leave()"
AFTER_RANK_1 = "[time.sleep(0.02) for _ in range(1500) if not os.path.exists(request['out_dir'][:-1] + '1/result.json')]; time.sleep(0.05)"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs one piece of Python a rank; checks that no process is left."""
    stand_in = tmp_path / "stand_in"
    stand_in.write_text(STAND_IN.format(python=sys.executable))
    stand_in.chmod(0o755)
    monkeypatch.setattr(ranks, "FAILED_GRACE_S", 0.3)
    monkeypatch.setattr(ranks, "GRACE_S", 0.3)
    started = []
    spawn = ranks.spawn

    def remembered(*args, **options):
        started.append(spawn(*args, **options))
        return started[-1]

    monkeypatch.setattr(ranks, "spawn", remembered)

    def run(*plans, run_to_end=False, timeout_s=60.0):
        requests = [ProbeRequest(
            action="annotation", workload=ProbeWorkload(path="w.py"), device="cpu", out_dir=str(tmp_path / f"rank{rank}"),
            script=ProbeScript(argv0="w.py", argv=plans, run_to_end=run_to_end)) for rank in range(len(plans))]
        try:
            return ranks.run_ranks(requests, Interpreter(stand_in, "2.13", "cpu", "--python"), cwd=tmp_path, timeout_s=timeout_s,
                                   say=lambda line: None, stdout_to_stderr=False)
        finally:
            assert len(started) == len(plans) and all(process.returncode is not None for process in started)
            assert soon(lambda: not in_groups(process.pid for process in started))

    return run


def test_all_well_in_rank_order_with_one_place_to_meet(run, tmp_path):
    results = run("leave(trace_steps=1)", "time.sleep(0.2); leave(trace_steps=2)")
    assert [result.trace_steps for result in results] == [1, 2] and all(result.warnings == () for result in results)
    said = [(tmp_path / f"rank{rank}" / "script_stdout.txt").read_text().split() for rank in (0, 1)]
    assert [words[1] for words in said] == ["0", "1"] and said[0][2] == said[1][2]


@pytest.mark.parametrize(("plans", "words"), [
    ((HANG, "fail('workload_raised', 'no data')"), "rank 1: no data"),
    ((f"{AFTER_RANK_1}; fail('workload_raised', 'connection closed'); sys.exit(4)", "fail('workload_raised', 'no data'); sys.exit(4)"),
     "rank 1: no data"),
    ((HANG, HANG, "os.kill(os.getpid(), signal.SIGKILL)"), "rank 2: the workload's process was killed by signal 9"),
    (("leave(trace_file=None)", WELL), "rank 0 left no recording")])
def test_the_rank_that_failed_first_is_named(run, plans, words):
    began = time.monotonic()
    with pytest.raises(WorkloadFailed) as caught:
        run(*(f"{plan}; sys.exit(4)" if plan.startswith("fail") else plan for plan in plans))
    assert caught.value.message.startswith(words) and caught.value.fix and time.monotonic() - began < 30


def test_what_ranks_say_keeps_its_exit_code(run):
    with pytest.raises(BadInput) as caught:
        run("fail('too_few_steps', 'ended early'); sys.exit(2)".replace("fail(", "leave(status='error', error=dict(exit_code=2, code=")
            .replace(", 'ended early')", ", message='ended early', fix='longer'))"), HANG)
    assert caught.value.code == "too_few_steps" and caught.value.message == "rank 0: ended early"


def test_a_rank_that_hangs_after_its_recording_is_ended_with_a_warning(run, monkeypatch):
    monkeypatch.setattr(ranks, "RECORDED_GRACE_S", 0.5)
    first, second = run(WELL, f"leave(); {HANG}")
    assert first.warnings == () and "recording being complete" in second.warnings[0]


def test_a_rank_that_hangs_before_it_is_an_error(run, monkeypatch):
    monkeypatch.setattr(ranks, "ENDED_GRACE_S", 0.5)
    with pytest.raises(WorkloadFailed) as caught:
        run(WELL, HANG)
    assert caught.value.code == "rank_stuck" and "rank 1" in caught.value.message


def test_scripts_that_run_to_their_end_have_their_time(run, monkeypatch):
    monkeypatch.setattr(ranks, "ENDED_GRACE_S", 0.1)
    monkeypatch.setattr(ranks, "RECORDED_GRACE_S", 0.1)
    assert len(run(WELL, "time.sleep(1); leave()", run_to_end=True)) == 2


def test_how_a_rank_ends_after_its_recording_is_a_warning_unless_it_runs_to_its_end(run):
    assert "ended with status 7" in run(WELL, "leave(); sys.exit(7)")[1].warnings[0]


def test_to_the_end_it_is_an_error(run):
    with pytest.raises(KernelwrightError) as caught:
        run(WELL, "leave(); sys.exit(7)", run_to_end=True)
    assert caught.value.exit_code == 4 and "rank 1" in caught.value.message


def test_the_time_that_was_given_holds_for_all(run):
    with pytest.raises(WorkloadFailed) as caught:
        run(WELL, HANG, HANG, timeout_s=0.6)
    assert caught.value.code == "timeout" and "1, 2" in caught.value.message


def test_what_a_rank_started_is_ended_too(run, tmp_path):
    child = f"import subprocess; open({str(tmp_path / 'child')!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); " + HANG
    with pytest.raises(WorkloadFailed):
        run(child, f"while not os.path.exists({str(tmp_path / 'child')!r}): time.sleep(0.1)\nfail('x', 'no'); sys.exit(4)")
    assert (tmp_path / "child").exists()


def test_equal_warnings_of_ranks_are_told_once(run):
    results = run("leave(warnings=['busy'])", "leave(warnings=['busy', 'late'])")
    assert _said(results) == ("all ranks: busy", "rank 1: late") and json.dumps(_said(results))
