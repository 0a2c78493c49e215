"""The quick screen's timing: how many calls a sample has, which cores launch, what the original's first time is for. Nothing is timed."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.probe import loaders
from kernelwright.probe import screen_look as look


class FakeTimer:
    """Takes so long a call whatever is called; the more calls a sample, the less each."""

    def __init__(self, program, pool, calls, *, is_alone):
        assert not is_alone  # candidate and original run in one process
        self.call_s, self.ring_size = program.call_s, calls

    def warm(self, seconds, min_calls):
        return self.call_s


def program(call_s: float) -> SimpleNamespace:
    return SimpleNamespace(call_s=call_s, restore=lambda _state: None)


def looked(device: str, nbytes: int = 4, more: int = 0) -> look.Look:
    made = look.Look.__new__(look.Look)
    made.workload = SimpleNamespace(device=device)
    made.inputs, made.more = ((torch.zeros(nbytes, dtype=torch.int8),), {}), [((), {})] * more
    made.start_state, made.altered, made.original, made.first_ns = {}, False, program(400e-6), {}
    return made


@pytest.fixture(autouse=True)
def timers(monkeypatch):
    monkeypatch.setattr(look, "Timer", FakeTimer)


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0))
def test_on_a_gpu_both_make_as_many_calls_a_sample_and_no_fewer_than_the_judge(first_s, second_s):
    one, two = looked("cuda")._timers([program(first_s), program(second_s)])
    assert one.ring_size == two.ring_size and one.ring_size in look.RINGS
    assert one.ring_size == 16 or one.ring_size * min(first_s, second_s) >= look.SAMPLE_S["cuda"] * 0.999
    assert one.ring_size == 1 or one.ring_size / 2 * min(first_s, second_s) < look.SAMPLE_S["cuda"]


def test_samples_fit_into_memory_and_have_all_shapes_alike():
    large = looked("cuda", nbytes=look.RING_BYTES["cuda"] // 3)
    assert [timer.ring_size for timer in large._timers([program(1e-5), program(1e-5)])] == [2, 2]
    assert [timer.ring_size for timer in looked("cuda", more=2)._timers([program(1e-4)])] == [6]
    assert [timer.ring_size for timer in looked("cpu")._timers([program(1e-3), program(4e-3)])] == [10, 2]


def test_the_first_time_counts_that_had_as_many_calls_a_sample(monkeypatch):
    """What the host takes before the first launch weighs more in a sample of one call: no other number says what the original took."""
    made = looked("cuda")
    made.first_ns = {ring: look.First(ns, 2 * ns) for ring, ns in ((1, 900e3), (2, 600e3), (4, 500e3))}
    monkeypatch.setattr(look, "_sample", lambda timer: timer.call_s * 1e9)
    for call_s, expected_ns, calls in ((400e-6, 900e3, 1), (300e-6, 600e3, 2), (100e-6, 500e3, 4), (50e-6, 500e3, 8)):
        made.pair = (made.original, program(call_s))
        times = made.time({"seconds": 0.02, "hopeless": None})
        assert times["reference_ns"] == expected_ns and times["speedup"] == pytest.approx(expected_ns / call_s / 1e9)
        assert times["calls"] == calls
    made.altered, made.pair = True, (made.original, program(400e-6))
    assert made.time({"seconds": 0.02, "hopeless": None})["reference_ns"] == 1800e3, "the candidate is timed on usual cores"
    made.altered, made.pair = False, (program(400e-6), program(200e-6))  # against another candidate
    assert made.time({"seconds": 0.02, "hopeless": None})["speedup"] == pytest.approx(2.0)


def test_the_originals_first_time_is_known_for_the_fastest_and_the_usual_core(monkeypatch):
    made, taken = looked("cuda", nbytes=look.RING_BYTES["cuda"] // 4), []
    monkeypatch.setattr(look, "_sample", lambda timer: taken.append(timer.ring_size) or (900.0 if len(taken) % 4 else 300.0))
    found = made._alone()
    assert list(found) == [1, 2, 4] == sorted(set(taken)), "more would not fit"
    assert found[1] == (900.0, 900.0), "one fast sample is no fast core"
    taken.clear()
    monkeypatch.setattr(look, "_sample", lambda timer: taken.append(0) or (400.0 if (len(taken) - 1) // look.MIN_PAIRS == 2 else 700.0))
    assert made._alone()[1] == (400.0, 700.0)
    assert list(looked("cuda", more=3)._alone()) == [4, 8, 16], "four sets of inputs: each number once"


@pytest.mark.parametrize(("call_s", "most_s"), [(0.2, 1.2), (0.005, 1.0)])
def test_the_originals_first_time_does_not_use_up_the_budget(call_s, most_s, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(look.time, "perf_counter", lambda: now[0])

    def called(timer):
        now[0] += call_s * timer.ring_size
        return call_s * 1e9

    monkeypatch.setattr(look, "_sample", called)
    monkeypatch.setattr(FakeTimer, "warm", lambda timer, *_: called(timer) / 1e9)
    found = looked("cuda")._alone()
    assert 1 in found and now[0] <= most_s, now[0]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="one core, or none can be chosen")
def test_cores_are_drawn_anew_and_given_back():
    before = os.sched_getaffinity(0)
    with look.drawn_cores(on_gpu=True, seconds=0.0) as draw:
        counts, seen = [], set()
        for _ in range(40):
            counts.append(draw())
            bound = os.sched_getaffinity(0)
            assert len(bound) == 1 and bound <= before
            seen |= bound
    assert counts == list(range(1, 41)) and len(seen) > 1 and os.sched_getaffinity(0) == before
    with look.drawn_cores(on_gpu=True, seconds=60.0) as draw:
        assert [draw() for _ in range(5)] == [1] * 5, "not before the seconds are over"
    with look.drawn_cores(on_gpu=False) as draw:
        assert draw() >= look.LEAST_CORES and os.sched_getaffinity(0) == before
    with pytest.raises(ValueError, match="its own"), look.drawn_cores(on_gpu=True, seconds=0.0) as draw:
        draw()
        raise ValueError("its own")
    assert os.sched_getaffinity(0) == before
    end = threading.Event()
    with look.drawn_cores(on_gpu=True, seconds=0.0) as draw:
        draw()
        born = threading.Thread(target=end.wait)
        born.start()
        assert len(os.sched_getaffinity(born.native_id)) == 1
    try:
        assert os.sched_getaffinity(born.native_id) == before, "a thread keeps what it was born with"
    finally:
        end.set()
        born.join()


ROUNDS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))))

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=AUTOCAST):
            return self.layers(x).to(x.dtype)

def get_model_and_input():
    return Net().eval().to(DTYPE), torch.randn(16, 64).to(DTYPE)
"""
MORE_DIGITS = """
import torch

def optimize(model, inputs):
    exact = __import__("copy").deepcopy(model).float()
    def call(x):
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return FACTOR * exact.layers(x.float()).to(x.dtype)
    return call
"""


@pytest.mark.parametrize(("dtype", "autocast", "own"), [
    ("torch.float32", False, "equal"), ("torch.bfloat16", False, "bf16"), ("torch.float16", False, "tf32"),
    ("torch.float32", True, "bf16")])
def test_an_original_that_rounds_itself_is_not_held_against_a_limit_for_float32(tmp_path, dtype, autocast, own):
    """What a compiler keeps of the digits between operators is right, and further from such an original than 1e-2."""
    path = tmp_path / "net.py"
    path.write_text(ROUNDS.replace("AUTOCAST", str(autocast)).replace("DTYPE", dtype))
    made = look.Look(loaders.load(str(path), device="cpu"))
    replies = {}
    for name, factor in (("right", 1.0), ("wrong", 1.5)):
        candidate = tmp_path / f"{name}.py"
        candidate.write_text(MORE_DIGITS.replace("FACTOR", str(factor)))
        replies[name] = made.prepare({"candidate": str(candidate), "against": "", "precision": "equal", "seed": 0, "lasts": False})
    assert made.own_precision == own and replies["right"]["wrong"] == "" and "outputs differ" in replies["wrong"]["wrong"]
    assert (replies["right"]["error"] > look.LIMITS["equal"]) == (own == "bf16")
    assert torch.autocast.__enter__.__qualname__ == "autocast.__enter__"
