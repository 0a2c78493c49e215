"""The profiler's overhead on operator calls, on times that can be checked by hand."""

from __future__ import annotations

import pytest

import builders
from kernelwright.model.profile import Operator, TimelineSummary
from kernelwright.timeline import on_call_clock
from kernelwright.timeline.call_clock import call_time_ns, call_whole_ns


def operators(*times_ns: int) -> tuple[Operator, ...]:
    return tuple(builders.operators(("aten::add",), 1, time, on_cpu=True)[0] for time in times_ns)


def summary(measured_ns: int, slowdown: float | None, gaps: int = 0, **changes: object) -> TimelineSummary:
    plain = builders.timeline(measured_ns, measured_ns, on_cpu=True)
    return plain.model_copy(update={"profiler_slowdown": slowdown, "gap_count": gaps, "steps": 1, "step_wall_ns": (measured_ns,),
                                    **changes})


def test_where_every_call_is_long_enough_it_is_the_difference_over_the_calls() -> None:
    calls = operators(10_000, 10_000, 20_000)
    line = on_call_clock(summary(40_000, 40 / 34), calls, {})
    assert line.operator_overhead_ns is None  # 1.18 times: within what is let pass
    line = on_call_clock(summary(40_000, 2.0), calls, {})
    assert line.operator_overhead_ns == pytest.approx(20_000 / 3)
    assert call_time_ns(line, calls) == pytest.approx(20_000) == pytest.approx(call_whole_ns(line))


def test_a_large_operator_keeps_its_time_and_tiny_ones_lose_theirs() -> None:
    calls = operators(1_000_000, *(2_000,) * 500)
    line = on_call_clock(summary(2_000_000, 1.9), calls, {})
    assert call_time_ns(line, calls[:1]) > 997_000
    assert call_time_ns(line, calls[1:]) == pytest.approx(2_000_000 / 1.9 - call_time_ns(line, calls[:1]))


def test_no_call_gets_shorter_than_nothing() -> None:
    calls = operators(100, 100, 100, 9_700)
    line = on_call_clock(summary(10_000, 2.0), calls, {})
    assert line.operator_overhead_ns == pytest.approx(4_700)
    assert call_time_ns(line, calls[:3]) == 0 and call_time_ns(line, calls) == pytest.approx(5_000)


def test_time_outside_is_charged_for_each_stretch_between_operators() -> None:
    line = on_call_clock(summary(20_000, 2.0, gaps=4), operators(*(2_500,) * 4), {0: 10_000})
    assert line.operator_overhead_ns == pytest.approx(1_250)
    assert line.idle_share_pct == pytest.approx(50)


@pytest.mark.parametrize("changes", [{"profiler_slowdown": None}, {"cpu_bound_share_pct": 5.0}, {"measured_ns": 0}])
def test_unknown_and_gpu_stay_as_they_are(changes: dict[str, object]) -> None:
    before = summary(20_000, 2.0).model_copy(update=changes)
    assert on_call_clock(before, operators(10_000), {}) == before


def test_a_step_that_other_work_slowed_does_not_tell_the_overhead() -> None:
    """Three steps of 20 calls; in the last one every call waited for a core."""
    steps = [[operator.model_copy(update={"step": step}) for operator in operators(*(time,) * 20)]
             for step, time in enumerate((5_000, 5_000, 500_000))]
    measured = sum(operator.aggregated.total_duration_ns for step in steps for operator in step)
    line = summary(measured, 2.0, steps=3, step_wall_ns=(100_000, 100_000, 10_000_000))
    line = on_call_clock(line, [operator for step in steps for operator in step], {})
    assert line.operator_overhead_ns == pytest.approx(2_500)
    assert call_whole_ns(line) == pytest.approx(call_time_ns(line, [operator for step in steps for operator in step]))


def test_more_than_a_profiler_adds_is_not_laid_at_its_door() -> None:
    before = summary(10_000_000, 10.0)
    assert on_call_clock(before, operators(*(2_500_000,) * 4), {}) == before
