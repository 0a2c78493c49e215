"""The judge's timing on the CPU, for real: what is checked of the timed calls, the further conditions, and the second pair of processes."""

import dataclasses
import sys
import time
from pathlib import Path

import pytest

from kernelwright.judge import JudgeOptions, ReferenceSession, conditions, judge, recurring, run, timing
from kernelwright.judge.options import Deadline
from kernelwright.judge.replies import Called, Done, InputsMade, OutputBytes, Prepared, Times, Work
from kernelwright.model.verdict import ACCEPTABLE
from kernelwright.model.workload import WorkloadRef
from warm_start import warm_start

DATA = Path(__file__).resolve().parents[1] / "data" / "judge"
WIDE = WorkloadRef(path=DATA / "wide.py", name="wide")
SAME = DATA / "wide" / "same.py"


@pytest.fixture(scope="module", autouse=True)
def quiet(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("KERNELWRIGHT_LOCK", str(tmp_path_factory.mktemp("lock") / "lock"))
        with warm_start():
            yield


def options(**changes):
    usual = JudgeOptions(device="cpu", python=sys.executable, max_timing_s=0.6, timeout_s=40, confirm=False, conditions=())
    return usual.model_copy(update=changes)


@pytest.fixture(scope="module")
def session():
    with ReferenceSession(WIDE, options()) as session:
        yield session


def judged(session, tmp_path, text, **changes):
    candidate = tmp_path / "candidate_under_test.py"
    candidate.write_text(text)
    return judge(WIDE, candidate, options(**changes), session=session)


@pytest.mark.parametrize("body", [
    "out.append(model(x)) if not out or calls % 16 == 0 else None; return out[-1]",  # one call of sixteen does its work
    "return torch.empty(x.shape)",
], ids=["stale", "uninitialised"])
def test_a_candidate_that_works_only_while_it_is_checked_is_caught(session, tmp_path, body):
    lines = "\n        ".join(body.split("; "))
    verdict = judged(session, tmp_path, distributions=False, steadiness=False, text=f"""
import torch

def optimize(model, inputs):
    calls, out = 0, []

    def call(x):
        nonlocal calls
        calls += 1
        if calls <= 3:
            return model(x)
        {lines}

    return call
""")
    assert verdict.verdict == "CHEAT" and "timed call is not" in verdict.reasons[0], verdict.reasons
    assert verdict.speedup is None and verdict.timings == ()


def test_a_buffer_that_every_call_writes_anew_is_wrong_and_no_cheat(session, tmp_path):
    """Whoever keeps an answer finds it changed; each of them was right when it was given."""
    verdict = judged(session, tmp_path, """
import torch

def optimize(model, inputs):
    kept = torch.empty_like(inputs)

    def call(x):
        with torch.no_grad():
            return kept.copy_(model(x))

    return call
""")
    assert verdict.verdict == "WRONG" and "the next call overwrites it" in verdict.reasons[0], verdict.reasons


def test_every_condition_gets_its_row_and_every_phase_its_seconds(session):
    verdict = judge(WIDE, SAME, options(conditions=("cold L2", "end to end", "graph")), session=session)
    assert [row.condition for row in verdict.timings] == ["warm", "cold L2", "end to end", "graph"]
    warm, cold, whole, graph = verdict.timings
    assert warm.candidate_ns == verdict.comparison.candidate.median_ns and warm.pairs == verdict.comparison.pairs
    assert all(row.interval[0] <= row.speedup <= row.interval[1] and row.pairs >= 6 for row in (cold, whole))
    assert graph.not_applicable == "reference: CUDA graphs need a GPU" and graph.speedup is None
    assert {"start", "build", "correctness", "warm-up", "timing", "conditions", "audits"} <= verdict.phases_s.keys()
    assert 0.8 * verdict.elapsed_s <= sum(verdict.phases_s.values()) <= verdict.elapsed_s + 0.1


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_the_end_of_the_time_costs_further_conditions_and_no_verdict(session, monkeypatch, side):
    """In the midst of the second, while the other side is stopped."""
    real, asked, begun = conditions._block, JudgeOptions().conditions, []

    def until_the_second(who, samples, calls, first):
        begun.extend([1] * (first == 0))
        if first and len(begun) == 2 and who.worker.role == side:
            who.deadline.at_s = time.monotonic()
        return real(who, samples, calls, first)

    with monkeypatch.context() as patch:
        patch.setattr(conditions, "_block", until_the_second)
        verdict = judge(WIDE, SAME, options(conditions=asked), session=session, deadline_s=time.monotonic() + 100)
    assert verdict.verdict in ACCEPTABLE and verdict.comparison is not None
    names = [row.condition for row in verdict.timings]
    assert names[0] == "warm" and "graph" not in names
    assert any(reason.startswith("further conditions were left out: the time was up while") for reason in verdict.reasons)
    again = judge(WIDE, SAME, options(conditions=asked[:1]), session=session)
    assert [row.condition for row in again.timings] == ["warm", "cold L2"], "another reference takes its place"


def test_conditions_may_be_for_what_is_faster_alone(session, monkeypatch):
    monkeypatch.setattr(run, "compare", lambda *args, **named: dataclasses.replace(timing.compare(*args, **named), decision="SAME"))
    assert len(judge(WIDE, SAME, options(conditions=("cold L2",)), session=session).timings) == 2
    assert len(judge(WIDE, SAME, options(conditions=("cold L2",), conditions_if_faster=True), session=session).timings) == 1


@pytest.mark.parametrize(("found", "expected"), [
    (["FASTER", "FASTER"], "FASTER"),
    (["SAME", "SAME"], "SAME"),
    (["FASTER", "SAME", "SAME"], "AMBIGUOUS"),
])
def test_pairs_of_fresh_processes_decide_together(session, monkeypatch, found, expected):
    """Real processes; only the statistics' answers are set."""
    made = []

    def compare(reference, candidate, *rest, **named):
        made.append((reference.worker.process.pid, candidate.worker.process.pid))
        timed = plain(reference, candidate, *rest, **named)
        speedup = {"FASTER": 1.2, "SAME": 1.0}[found[len(made) - 1]]
        estimate = dataclasses.replace(timed.found, speedup=speedup, low=speedup - 0.01, high=speedup + 0.01, standard_error=0.004)
        figures = {"interval": (estimate.low, estimate.high), "speedup": speedup}
        return dataclasses.replace(timed, decision=found[len(made) - 1], doubt=None, cheat=None, found=estimate,
                                   comparison=timed.comparison.model_copy(update=figures))

    plain = run.compare
    monkeypatch.setattr(run, "compare", compare)
    # Its two figures are real ones, and there is no real gain that a slower call on new values could be a small part of.
    monkeypatch.setattr(recurring, "found", lambda *_: recurring.Finding())
    verdict = judge(WIDE, SAME, options(confirm=True), session=session)
    assert verdict.verdict == expected, verdict.reasons
    words = f"{'not confirmed by ' if expected == 'AMBIGUOUS' else ''}{len(found)} pairs of processes, started in turn in opposite orders"
    assert any(words in reason for reason in verdict.reasons), verdict.reasons
    assert len(made) == len(found) and len({pid for pair in made for pid in pair}) == 2 * len(found)
    assert f"{len(found)} pairs of processes" in verdict.comparison.method and len(verdict.comparison.quads_of_pairs) == len(found)
    assert len(verdict.comparison.log_ratios) == verdict.comparison.pairs // 2
    assert verdict.phases_s["further pairs"] > verdict.phases_s["further pairs' start"] > 0


def test_a_window_of_timed_samples_is_recorded_and_read(session):
    side = session.ready(Deadline(None))
    file = session.shared / "inputs.tensors"
    side.ask("make_inputs", InputsMade, round=0, seed=1, file=str(file))
    file.unlink()
    side.ask("prepare_timing", Prepared, calls=4, seconds=0.0, min_calls=4)
    told, trace = side.record_window(3)
    assert told.ring == 4 and len(trace.steps) == len(told.host_ns) == 3 and told.events_ns == []
    tanh = [row for row in range(len(trace.operators)) if trace.operators.name(row) == "aten::tanh"]
    inside = [row for row in tanh if any(trace.steps.start_ns[step] <= trace.operators.start_ns[row] <= trace.steps.end_ns[step]
                                         for step in range(3))]
    assert len(inside) == 3 * 4 * 3  # samples, calls, repeats


def test_what_a_call_needs_is_counted_in_the_references_process(session):
    side = session.ready(Deadline(None))
    file = session.shared / "inputs.tensors"
    side.ask("make_inputs", InputsMade, round=0, seed=1, file=str(file))
    file.unlink()
    side.ask("prepare_timing", Prepared, calls=2, seconds=0.0, min_calls=2)
    assert len(side.ask("time", Times, samples=2, first=0, last_calls=1).host_ns) == 2
    assert side.ask("renew", Done) == Done()
    size = 256 * 192 * 4
    assert side.ask("output_bytes", OutputBytes) == OutputBytes(output_bytes=size, input_bytes=size)
    work = side.ask("count_work", Work)
    assert work.flops == 3 * 2 * 256 * 192 * 192 and work.min_bytes == 2 * size + (192 * 192 + 192) * 4
    assert side.ask("call", Called, round=0, seed=1, refill=False).call_s > 0
