"""Warm-up and sampling, with calls whose duration the test decides."""

import time

import numpy as np
import pytest

from kernelwright.model.measurement import median_interval as model_interval
from kernelwright.probe import timers


class Clock:
    """Stands in for the timers' clock: a call takes exactly as long as it says."""

    def __init__(self, monkeypatch, durations):
        self.now, self.calls, self.durations = 0, 0, durations
        monkeypatch.setattr(timers, "perf_counter", lambda: self.now / 1e9)
        monkeypatch.setattr(timers, "perf_counter_ns", lambda: self.now)

    def __call__(self):
        self.now += int(self.durations(self.calls) * 1e9)
        self.calls += 1


def test_warmup_waits_until_windows_agree(monkeypatch):
    clock = Clock(monkeypatch, lambda call: 0.05 if call < 30 and call % 10 < 5 else 0.02)
    warmup = timers.warm_up(clock, "cpu")
    assert warmup.stable and warmup.calls > 30 and warmup.call_s == pytest.approx(0.02)


def test_warmup_of_an_unstable_call_ends_at_the_cap(monkeypatch):
    clock = Clock(monkeypatch, lambda call: 0.01 * 1.2**(call // 5))
    warmup = timers.warm_up(clock, "cpu")
    assert not warmup.stable and timers.WARMUP_CAP_S < warmup.seconds < 3 * timers.WARMUP_CAP_S


def test_slow_calls_are_warmed_up_three_times(monkeypatch):
    assert timers.warm_up(Clock(monkeypatch, lambda call: 4.0), "cpu").calls == 3


def test_fixed_warmup(monkeypatch):
    assert timers.warm_up(Clock(monkeypatch, lambda call: 1.0), "cpu", 7).calls == 7


def test_sampling_stops_when_precise(monkeypatch):
    clock = Clock(monkeypatch, lambda call: 0.02)
    assert len(timers.time_calls(clock, "cpu", 0.02).samples_ns) == timers.MIN_SAMPLES
    clock = Clock(monkeypatch, lambda call: 0.001)
    timing = timers.time_calls(clock, "cpu", 0.001)
    assert timers.TIMING_FLOOR_S <= clock.now / 1e9 <= 1.2 * timers.TIMING_FLOOR_S and timing.median_ns == pytest.approx(1e6)
    assert timing.timer == "perf_counter" and timing.calls_per_sample == 1


def test_noisy_sampling_stops_at_the_cap(monkeypatch):
    clock = Clock(monkeypatch, lambda call: 0.002 * (1 + call % 7))
    timing = timers.time_calls(clock, "cpu", 0.002)
    assert timers.MIN_SAMPLES < len(timing.samples_ns) < timers.MAX_SAMPLES
    assert timers.TIMING_CAP_S < clock.now / 1e9 < 1.05 * timers.TIMING_CAP_S


def test_slow_calls_get_five_samples(monkeypatch):
    assert len(timers.time_calls(Clock(monkeypatch, lambda call: 2.0), "cpu", 2.0).samples_ns) == timers.MIN_SAMPLES_SLOW


def test_short_calls_share_a_sample_and_are_divided(monkeypatch):
    clock = Clock(monkeypatch, lambda call: 1e-6)
    timing = timers.time_calls(clock, "cpu", 1e-6, samples=4)
    assert timing.calls_per_sample == 20 and clock.calls == 80 and timing.samples_ns == pytest.approx([1000.0] * 4)


def test_flushing_times_single_calls(monkeypatch):
    flushed = []
    monkeypatch.setattr(timers, "_flusher", lambda device: lambda: flushed.append(device))
    timing = timers.time_calls(Clock(monkeypatch, lambda call: 1e-6), "cpu", 1e-6, samples=3, flush_l2=True)
    assert timing.flushed_l2 and timing.calls_per_sample == 1 and flushed == ["cpu"] * 3


def test_a_sleep_is_timed_truly():
    timing = timers.time_calls(lambda: time.sleep(0.01), "cpu", 0.01, samples=5)
    assert 10e6 <= min(timing.samples_ns) < 60e6


def test_the_interval_is_the_models():
    for n in (1, 2, 5, 6, 10, 99, 1000):
        values = [float(value) for value in range(n)]
        assert timers.median_interval(values) == model_interval(np.asarray(values))


@pytest.mark.parametrize(("wall", "outlasts"), [(1_000_000.0, False), (2_000_000.0, True)])
def test_work_on_other_streams_is_noticed(wall, outlasts):
    timing = timers.Timing([950_000.0], [10.0], [wall], "cuda_events", 1, False, 0)
    assert timing.outlasts() is outlasts
