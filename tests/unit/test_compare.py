"""Profiles side by side: changes, noise, stages that come and go, and the gate's rule."""

from __future__ import annotations

import json

import pytest

import builders
from kernelwright.report.compare import compare, letter, render_comparison


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
    (1020.0, 0.3, "within noise", 2.0)])
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
    assert "B is not comparable with A: it ran on NVIDIA A100" in warnings
    assert "C is not comparable with A: its dtype is float32" in warnings
    assert "D and A took their durations in different ways (timeline, events)" in warnings
    assert render_comparison(result).count("Warning: ") == len(result.warnings)


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
