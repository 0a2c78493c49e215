"""The judge's timing on a GPU: conditions, the profiler's window, SM clocks, poisoned memory, the second pair, and the time it takes."""

import sys
from pathlib import Path

import pytest

from kernelwright.judge import JudgeOptions, ReferenceSession, judge
from kernelwright.model.verdict import ACCEPTABLE
from kernelwright.model.workload import WorkloadRef

pytestmark = pytest.mark.gpu
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLAIN = "def optimize(model, inputs):\n    return model\n"
TWICE = """
import torch
def optimize(model, inputs):
    def call(x):
        model(x)
        return model(x)
    return call
"""
STATIC_BUFFER = """
import torch
def optimize(model, inputs):
    kept = model(inputs).detach().clone()
    def call(x):
        with torch.no_grad():
            return kept.copy_(model(x))
    return call
"""
OWN_GRAPH = """
import torch
def optimize(model, inputs):
    static = inputs.clone()
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            model(static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = model(static)
    def call(x):
        static.copy_(x)
        graph.replay()
        return out.clone()
    return call
"""
WAITS = """
def optimize(model, inputs):
    def call(x):
        out = model(x)
        float(out.detach().flatten()[0])
        return out
    return call
"""
UNINITIALISED = """
import torch
def optimize(model, inputs):
    calls, shape = 0, model(inputs).shape
    def call(x):
        nonlocal calls
        calls += 1
        return model(x) if calls <= 3 else torch.empty(shape, device="cuda")
    return call
"""
LYING_EVENTS = """
import sys
def optimize(model, inputs):
    program = sys.modules["kernelwright_probe.judge_program"]
    honest = program._elapsed_time
    program._elapsed_time = lambda start, end: honest(start, end) / 3
    return model
"""
HIDDEN_STREAM = """
import torch
side = torch.cuda.Stream()
def optimize(model, inputs):
    def call(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            return model(x)
    return call
"""


def options(**changes):
    return JudgeOptions(device="cuda", python=sys.executable, max_timing_s=2.0, timeout_s=200).model_copy(update=changes)


@pytest.fixture(scope="module")
def session():
    with ReferenceSession(WorkloadRef(path=EXAMPLES / "mlp_activations.py", name="mlp_activations"), options()) as session:
        yield session


def judged(session, tmp_path, text, **changes):
    candidate = tmp_path / "candidate_under_test.py"
    candidate.write_text(text)
    return judge(session.workload, candidate, options(**changes), session=session)


def test_every_condition_is_timed(session, tmp_path):
    verdict = judged(session, tmp_path, PLAIN)
    assert verdict.verdict in ("SAME", "AMBIGUOUS"), verdict.reasons
    rows = {row.condition: row for row in verdict.timings}
    assert list(rows) == ["warm", "cold L2", "end to end", "graph"]
    assert all(not row.not_applicable and row.interval[0] <= row.speedup <= row.interval[1] for row in rows.values()), rows
    assert rows["cold L2"].reference_ns > 0.5 * rows["warm"].reference_ns
    assert rows["end to end"].reference_ns > rows["warm"].reference_ns > 0 and rows["graph"].reference_ns > 0
    assert all(0.5 < row.speedup < 2 for row in rows.values()), "the same program on both sides"


def test_a_candidate_with_a_graph_of_its_own_is_held_against_the_captured_original(session, tmp_path):
    verdict = judged(session, tmp_path, OWN_GRAPH)
    assert verdict.verdict in ACCEPTABLE, verdict.reasons
    warm, graph = (next(row for row in verdict.timings if row.condition == name) for name in ("warm", "graph"))
    assert graph.speedup is not None and graph.note == "candidate: as it is, with CUDA graphs of its own", graph
    assert graph.reference_ns < warm.reference_ns and graph.candidate_ns == pytest.approx(warm.candidate_ns, rel=0.3), (warm, graph)


def test_a_candidate_that_cannot_be_captured_has_a_reason_and_keeps_its_verdict(session, tmp_path):
    verdict = judged(session, tmp_path, WAITS)
    assert verdict.verdict in ("SAME", "AMBIGUOUS", "SLOWER"), verdict.reasons
    graph = next(row for row in verdict.timings if row.condition == "graph")
    assert graph.not_applicable.startswith("candidate: cannot be captured") and graph.speedup is None and not graph.note, graph


def test_a_slower_candidate_is_found_by_two_pairs_within_20_s_beyond_their_starts(session, tmp_path):
    verdict = judged(session, tmp_path, TWICE, max_timing_s=6.0)
    assert verdict.verdict == "SLOWER", verdict.reasons
    assert any("pairs of processes" in reason for reason in verdict.reasons), verdict.reasons
    starts = verdict.phases_s["start"] + verdict.phases_s["further pairs' start"]
    assert verdict.elapsed_s - starts < 20, verdict.phases_s
    assert "cross-check" in verdict.phases_s


def test_a_buffer_that_every_call_writes_anew_is_wrong_and_no_cheat(session, tmp_path):
    verdict = judged(session, tmp_path, STATIC_BUFFER, confirm=False)
    assert verdict.verdict == "WRONG" and "the next call overwrites it" in verdict.reasons[0]


def test_memory_that_was_not_written_is_poisoned(session, tmp_path):
    verdict = judged(session, tmp_path, UNINITIALISED, confirm=False)
    assert verdict.verdict in ("WRONG", "CHEAT") and "nan" in verdict.reasons[0], verdict.reasons


@pytest.mark.parametrize("text", [LYING_EVENTS, HIDDEN_STREAM], ids=["events_divided", "side_stream"])
def test_a_timer_that_misses_time_gains_nothing(session, tmp_path, text):
    verdict = judged(session, tmp_path, text)
    assert verdict.verdict != "FASTER" and (verdict.speedup is None or verdict.speedup < 1.25), verdict.reasons


def test_the_window_of_the_same_program_raises_no_doubt(session, tmp_path):
    for _ in range(3):
        verdict = judged(session, tmp_path, PLAIN, confirm=False, conditions=())
        assert not any("torch.profiler" in reason or "not believed" in reason for reason in verdict.reasons), verdict.reasons
        assert "SM clocks were not watched" not in " ".join(verdict.reasons)
