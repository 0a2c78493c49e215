"""Profiles side by side: changes, noise, stages that come and go, and the gate's rule."""

from __future__ import annotations

import json

import pytest

import builders
from kernelwright.model.measurement import COLD, PAIRED
from kernelwright.probe.event import timing
from kernelwright.probe.timers import Warmup
from kernelwright.report.compare import compare, letter, render_comparison
from kernelwright.report.figures import duration_warning


def _pair(first_us: float, second_us: float, spread: float = 0.01, limit: float | None = None):
    first, second = (builders.event(timing=builders.timing(median_us, spread)) for median_us in (first_us, second_us))
    return compare([("a", first), ("b", second)], limit)


def test_letters():
    assert [letter(place) for place in (0, 1, 25, 26)] == ["A", "B", "Z", "A2"]


def test_a_comparison_needs_two():
    with pytest.raises(ValueError):
        compare([("a", builders.event())])


@pytest.mark.parametrize(("second", "spread", "word", "change"), [
    (900.0, 0.01, "faster", -10.0), (1100.0, 0.01, "slower", 10.0), (1001.0, 0.01, "within noise", 0.1),
    (1020.0, 0.05, "within noise", 2.0), (1020.0, 0.3, "too noisy", 2.0)])
def test_words_follow_the_intervals(second, spread, word, change):
    row = _pair(1000.0, second, spread).rows[1]
    assert row.change == word and row.duration_change_pct == pytest.approx(change)


@pytest.mark.parametrize(("second", "spread", "limit", "failed"), [
    (1050.0, 0.01, 3.0, ("B",)), (1050.0, 0.01, 5.5, ()), (1050.0, 0.3, 3.0, ()), (900.0, 0.01, 0.0, ()), (1000.0, 0.01, 0.0, ())])
def test_gate_needs_the_limit_passed_and_intervals_apart(second, spread, limit, failed):
    gate = _pair(1000.0, second, spread, limit).gate
    assert gate is not None and gate.failed == failed


def test_gate_without_intervals_goes_by_the_durations():
    first = builders.gpu_annotation(timing=None)
    second = builders.gpu_annotation(timing=None, stages=(builders.stage("qk", 1200.0, 100.0),))
    result = compare([("a", first), ("b", second)], 10.0)
    assert result.rows[1].change == "no interval" and result.gate is not None and result.gate.failed == ("B",)


def test_every_later_profile_is_gated():
    profiles = [(str(us), builders.event(timing=builders.timing(us))) for us in (1000.0, 1100.0, 990.0, 1200.0)]
    gate = compare(profiles, 3.0).gate
    assert gate is not None and gate.failed == ("B", "D")


def test_stages_appear_vanish_and_grow():
    first = builders.gpu_annotation(stages=(builders.stage("qk", 300.0, 60.0), builders.stage("old", 200.0, 40.0)))
    second = builders.gpu_annotation(stages=(builders.stage("qk", 330.0, 60.0), builders.stage("new", 100.0, 40.0)))
    result = compare([("a", first), ("b", second)])
    found = {row.name: (row.parts[1].state, row.parts[1].change_pct) for row in result.stages}
    assert found == {"qk": ("present", pytest.approx(10.0)), "old": ("vanished", None), "new": ("appeared", None)}
    text = render_comparison(result)
    assert "| qk | 300.00 | 330.00 (+10.0%) |" in text and "| old | 200.00 | gone |" in text and "| new | - | 100.00 (new) |" in text


def test_other_devices_dtypes_and_ways_of_timing_are_warned_of():
    first = builders.event()
    others = [builders.event(capture_metadata=builders.metadata(mode="event", device_name="NVIDIA A100")),
              builders.event(capture_metadata=builders.metadata(mode="event", dtype="float32")), builders.gpu_annotation(timing=None)]
    result = compare([("a", first), *(("x", other) for other in others)])
    assert [row.change for row in result.rows] == ["first", "not comparable", "not comparable", "not comparable"]
    warnings = "\n".join(result.warnings)
    assert "B is not comparable with A: B ran on NVIDIA A100" in warnings
    assert "C is not comparable with A: C's dtype is float32, A's is bfloat16" in warnings
    assert "D and A took their durations in different ways (timeline, events)" in warnings
    assert render_comparison(result).count("Warning: ") == len(result.warnings)


def test_other_settings_are_warned_of():
    compiled = builders.event(capture_metadata=builders.metadata(mode="event", compile_mode="inductor"), timing=builders.timing(500.0))
    cold = builders.event(timing=builders.timing(2000.0).model_copy(update={"timer": f"cuda_events, {COLD}"}))
    result = compare([("a", builders.event(timing=builders.timing(1000.0))), ("b", compiled), ("c", cold)])
    assert [row.change for row in result.rows] == ["first", "faster", "not comparable"]
    warnings = "\n".join(result.warnings)
    assert "B ran with --compile-mode inductor, A with eager" in warnings
    assert "C is not comparable with A: one was timed with --flush-l2, the other without" in warnings


def test_noisy_timings_are_warned_of():
    assert any("noisy" in warning for warning in _pair(100.0, 100.0, 0.5).warnings)


def test_unmeasured_figures_are_na():
    result = compare([("a", builders.no_peaks()), ("b", builders.no_peaks(timing=None))])
    assert result.rows[1].duration_us is None and result.rows[1].tflops is None
    last = [line for line in render_comparison(result).splitlines() if line.startswith("| B |")][-1]
    assert last == "| B | n/a | n/a | not comparable | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a |"


def test_a_hostile_profile_breaks_no_table():
    text = render_comparison(compare([(builders.HOSTILE, builders.hostile()), ("b", builders.hostile())], 3.0))
    starts = ("|", "## Comparison", "### Stages", "Warning: ", "Gate: ")
    assert not [line for line in text.splitlines() if line and not line.startswith(starts)]


def test_the_answer_is_json():
    json.dumps(_pair(1000.0, 1100.0, limit=3.0).as_dict(), allow_nan=False)


def test_a_profile_without_stages_says_nothing_about_them():
    first = builders.gpu_annotation(stages=(builders.stage("qk", 300.0, 60.0),))
    result = compare([("a", first), ("b", builders.event()), ("c", first)])
    assert [part.state for part in result.stages[0].parts] == ["present", "unknown", "present"]
    assert "gone" not in render_comparison(result) and "| qk | 300.00 | n/a | 300.00 (+0.0%) |" in render_comparison(result)


UNSTABLE = "the call was not stable after 50 warm-up calls (5.0 s)"


@pytest.mark.parametrize("changes", [{"timing": builders.timing(400.0, 0.25)}, {"timing": builders.timing(400.0, samples=3)},
                                     {"timing": builders.timing(400.0), "warnings": (UNSTABLE,)}])
@pytest.mark.parametrize("noisy_first", [True, False])
def test_a_timing_in_doubt_is_neither_faster_nor_slower(changes, noisy_first):
    noisy, sound = builders.event(**changes), builders.event(timing=builders.timing(1000.0))
    result = compare([("a", noisy), ("b", sound)] if noisy_first else [("a", sound), ("b", noisy)])
    text = render_comparison(result)
    assert result.rows[1].change == "too noisy" and "| too noisy to compare |" in text
    assert "faster" not in text and "slower" not in text and any(w.startswith("A: " if noisy_first else "B: ") for w in result.warnings)


def test_a_gate_that_fails_on_a_timing_in_doubt_says_so():
    pair = [("a", builders.event(timing=builders.timing(400.0, 0.25))), ("b", builders.event(timing=builders.timing(1000.0)))]
    result = compare(pair, 3.0)
    assert result.gate is not None and result.gate.failed == ("B",)
    assert any(warning.startswith("B failed the gate, but the timing of A or of B carries a warning") for warning in result.warnings)
    assert "by more than 3.00%, timing in doubt: B\n" in render_comparison(result) and "beyond noise: B" not in render_comparison(result)
    assert not any("failed the gate" in warning for warning in _pair(1000.0, 1100.0, limit=3.0).warnings)


def test_a_gate_that_passes_on_a_timing_in_doubt_says_so():
    pair = [("a", builders.event(timing=builders.timing(1000.0))), ("b", builders.event(timing=builders.timing(990.0, 0.25)))]
    result = compare(pair, 3.0)
    assert result.gate is not None and not result.gate.failed
    assert any(warning.startswith("B passed the gate, but the timing of A or of B") for warning in result.warnings)
    assert "beyond noise (timing in doubt: B)\n" in render_comparison(result)


def test_a_timing_taken_in_pairs_by_the_judge_is_compared_though_it_is_noisy():
    timings = (builders.timing(us, 0.25).model_copy(update={"timer": f"cuda_events, {PAIRED}"}) for us in (1000.0, 400.0))
    assert compare([("x", builders.event(timing=timing)) for timing in timings]).rows[1].change == "faster"


def test_an_unstable_warm_up_is_warned_of_in_the_words_that_are_looked_for():
    warmup = Warmup(calls=50, seconds=5.0, call_s=0.001, stable=False)
    _, warnings = timing(lambda: None, "cpu", warmup, samples=5, flush_l2=False)
    assert duration_warning(builders.event(timing=builders.timing(400.0), warnings=tuple(warnings))) == warnings[0]


def test_unlike_parameters_are_told_with_whose_they_are():
    result = compare([("a", builders.event()), ("b", builders.event(parameters={"b": 4}))])
    assert "B is not comparable with A: B's parameters are b=4, A's are b=32, s=16, t=4096, dtype=bfloat16" in result.warnings


def test_on_a_cpu_operators_and_stages_carry_the_durations_noise():
    noisy = [builders.cpu_annotation(timing=builders.timing(us, 0.3)) for us in (1000.0, 900.0)]
    result = compare([("a", noisy[0]), ("b", noisy[1])])
    assert "Operator time (us)" in render_comparison(result) and "Kernel time" not in render_comparison(result)
    assert any(warning.startswith("B: its rates, operators and stages are no surer") for warning in result.warnings)
    assert "Kernel time (us)" in render_comparison(compare([("a", builders.gpu_annotation()), ("b", builders.gpu_annotation())]))
