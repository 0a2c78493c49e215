"""What fusing operators can save, on times and bytes that can be checked by hand."""

from __future__ import annotations

import pytest

import builders
from kernelwright.diagnose.fusible import fusion_gain_pct
from kernelwright.model.base import Figure
from kernelwright.model.profile import Operator, Profile


def profile_of(times_us: float, count: int, *, min_bytes: float, call_us: float, on_cpu: bool = True, rest_us: float = 0.0) -> Profile:
    """Two steps of `count` additions and one product that takes rest_us; memory gives 10 GB/s."""
    adds = builders.operators(("aten::add",) * count, 2, round(1000 * times_us), on_cpu=on_cpu)
    adds = tuple(operator.model_copy(update={"min_bytes": min_bytes}) for operator in adds)
    total = round(2000 * (times_us * count + rest_us))
    roof = builders.roofline().model_copy(update={"peak_bandwidth": Figure(value=10.0, unit="GB/s", evidence="calibration")})
    return builders.cpu_annotation(operators=adds, timing=builders.timing(call_us), roofline=roof,
                                   timeline=builders.timeline(total, total, on_cpu=on_cpu).model_copy(update={"span_ns": total}))


def gain(profile: Profile) -> float:
    found = fusion_gain_pct(profile, [operator for operator in profile.operators if isinstance(operator, Operator)], 5.0)
    assert found is not None
    return found


def test_a_slow_operator_saves_its_traffic_and_its_call_not_its_arithmetic() -> None:
    """Ten operators of 100 us that move 100 kB: 10 us of traffic and 5 us of call each, of 2000 us; one pass of ten remains."""
    assert gain(profile_of(100, 10, min_bytes=100_000, call_us=2000, rest_us=1000)) == pytest.approx(100 * 150 / 2000 * 0.9)


def test_an_operator_of_pure_traffic_saves_what_it_takes() -> None:
    assert gain(profile_of(100, 10, min_bytes=1_000_000, call_us=2000, rest_us=1000)) == pytest.approx(100 * 1000 / 2000 * 0.9)


def test_a_step_that_other_work_slowed_does_not_shrink_the_gain() -> None:
    """The recorded steps took ten times the call; traffic and calls are a share of the call. The recorded share is the other bound."""
    assert gain(profile_of(100, 10, min_bytes=100_000, call_us=2000, rest_us=19_000)) == pytest.approx(100 * 1000 / 20_000 * 0.9)
    assert gain(profile_of(100, 10, min_bytes=0, call_us=2000, rest_us=19_000)) == pytest.approx(100 * 50 / 2000 * 0.9)


def test_on_a_gpu_the_whole_kernel_goes() -> None:
    gpu = profile_of(100, 10, min_bytes=1000, call_us=2000, on_cpu=False)
    assert gain(gpu) == pytest.approx(100 * 1000 / 2000 * 0.9)
