"""A CPU training step of tiny operators that the profiler slowed 1.8 times (torch 2.13, two cores): what is said must hold without it.

Recorded by the probe (action "annotation", 3 steps) from the workload beside the recording.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from contract_format import check_contract
from golden_files import assert_golden
from kernelwright.model.capture import ProbeResult
from kernelwright.model.profile import ClockReading, Finding, Profile
from kernelwright.model.workload import WorkloadRef
from kernelwright.pipeline.assemble import Run, assemble
from kernelwright.report import render_contract
from kernelwright.report.document import render_report
from kernelwright.timeline.call_clock import call_time_ns, call_whole_ns

FOLDER = Path(__file__).resolve().parents[1] / "data" / "captures" / "cpu" / "tiny_training"


def assembled(*, timing_factor: float = 1.0) -> Profile:
    """timing_factor: what the unprofiled call's times are multiplied by."""
    result = ProbeResult.model_validate_json((FOLDER / "result.json").read_bytes())
    assert result.timing is not None
    samples = tuple(value * timing_factor for value in result.timing.samples_ns)
    result = result.model_copy(update={"timing": result.timing.model_copy(update={"samples_ns": samples})})
    return assemble(Run(workload=WorkloadRef(path=FOLDER / "tiny_training.py", name="tiny_training"), mode="annotation", raw=FOLDER,
                        result=result, peaks=result.peaks, clocks=ClockReading(requested="none", locked=False), compile_mode="eager",
                        device_name=None, version="golden"))


@pytest.fixture(scope="module")
def profile() -> Profile:
    return assembled()


def found(profile: Profile, rule: str) -> Finding:
    return next(finding for finding in profile.findings if finding.rule == rule)


def test_contract_is_exact_and_unchanged(profile: Profile) -> None:
    contract = render_contract(profile)
    assert check_contract(contract) == []
    assert_golden("capture_cpu_tiny_training.md", contract)


def test_shares_are_those_of_the_unprofiled_call(profile: Profile) -> None:
    line = profile.timeline
    assert line is not None and profile.timing is not None and line.profiler_slowdown == pytest.approx(1.78, abs=0.01)
    calls, outside = call_time_ns(line, profile.operators), line.idle_share_pct or 0.0
    assert calls / call_whole_ns(line) + outside / 100 == pytest.approx(1.0)
    assert call_whole_ns(line) / line.steps == pytest.approx(profile.timing.median_ns, rel=0.2)  # mean of the steps against medians
    assert line.operator_overhead_ns is not None and 1_000 < line.operator_overhead_ns < 4_000


def test_fusion_saves_no_more_than_traffic_and_dispatch(profile: Profile) -> None:
    """By recorded times the elementwise operators outside the optimizer are 22% of the steps, and nearly all of that was promised."""
    line, fusion = profile.timeline, found(profile, "elementwise_fusion")
    assert line is not None and profile.timing is not None
    count = int(fusion.detail.split(" ")[0])
    most_us = 5 * count + 1e-3 * sum(operator.min_bytes or 0 for operator in profile.operators) / line.steps  # at 1 GB/s: far too much
    assert 1 < fusion.estimated_gain_pct < 10 and fusion.estimated_gain_pct <= 100e3 * most_us / profile.timing.median_ns


def test_the_optimizers_operators_are_no_chain_to_fuse(profile: Profile) -> None:
    optimizer = [operator for operator in profile.operators if operator.optimizer == "AdamW"]
    assert len(optimizer) > 100 and {"aten::addcdiv_", "aten::lerp_"} <= {operator.operator_name for operator in optimizer}
    assert not any(operator.operator_name == "aten::gelu" for operator in optimizer)
    finding = found(profile, "optimizer_step")
    assert "AdamW" in finding.detail and "56 operators a step" in finding.detail and "fused=True" in finding.hint
    assert finding.where == "tiny_training.py:21"
    model = sum(operator.optimizer is None and operator.operator_name in ("aten::gelu", "aten::tanh") for operator in profile.operators)
    assert model > 0 and "43 elementwise operators" in found(profile, "elementwise_fusion").detail


def test_the_row_outside_operators_and_the_idle_share_agree(profile: Profile) -> None:
    line = profile.timeline
    assert line is not None and line.idle_share_pct is not None
    row = next(stage for stage in profile.stages if stage.name == "(outside operators)")
    assert row.key_issue == f"{line.idle_share_pct:.1f}% of the unprofiled call, {line.profiled_idle_share_pct:.1f}% under the profiler"
    report = render_report(profile)
    shown = next(text for text in report.splitlines() if text.startswith("| Idle share: outside operators"))
    assert f"| {line.idle_share_pct:.1f}% |" in shown and "stage table" in shown
    assert f"leave out the profiler's overhead: {(line.operator_overhead_ns or 0) / 1000:.2f} us taken off each operator call" in report


def test_nothing_is_taken_off_where_the_profiler_slowed_little() -> None:
    profile = assembled(timing_factor=1.6)
    assert profile.timeline is not None and 1 < (profile.timeline.profiler_slowdown or 0) < 1.2
    assert profile.timeline.operator_overhead_ns is None and all(stage.call_ns is None for stage in profile.stages)
    assert "taken off" not in render_report(profile)


def test_a_stages_roof_share_and_its_gain_are_on_one_clock(profile: Profile) -> None:
    """bytes / (time without overhead): the stage cannot gain more than that time's share of the call."""
    line = profile.timeline
    assert line is not None and profile.timing is not None
    for stage in (stage for stage in profile.stages if stage.call_ns and stage.bandwidth_pct is not None and stage.min_bytes):
        peak = profile.roofline.peak_bandwidth if profile.roofline else None
        assert peak is not None and stage.call_ns is not None and stage.call_ns < stage.duration_ns
        assert stage.call_ns >= 0.5 * stage.duration_ns
        assert stage.bandwidth_pct == pytest.approx(100 * stage.min_bytes / stage.call_ns / peak.value)


def test_a_slowdown_that_no_profiler_causes_is_said_and_not_corrected() -> None:
    """The unprofiled call a hundred times faster: more than 20 us would have to go off each operator call."""
    profile = assembled(timing_factor=0.01)
    assert profile.timeline is not None and (profile.timeline.profiler_slowdown or 0) > 100
    assert profile.timeline.operator_overhead_ns is None
    assert any("other work slowed them" in warning and "profile again" in warning for warning in profile.warnings)
