"""Sums over the profiled steps, on traces whose answers can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.model.profile import TimelineSummary
from kernelwright.readers.kineto import read_kineto
from kernelwright.timeline.summary import measured_ns, summarize, unprofiled
from trace_builder import TraceBuilder


def summary(builder: TraceBuilder, tmp_path: Path) -> TimelineSummary:
    trace = read_kineto(builder.write(tmp_path / "t.json"))
    return summarize(trace, attributed_ns=0, unattributed_ns=0)


def test_device_work_belongs_to_the_step_that_launched_it(tmp_path: Path) -> None:
    builder = (TraceBuilder().launch(1, -90, -80).step(0, 100).launch(2, 10, 20).launch(3, 30, 40).launch(4, 150, 160)
               .kernel("warm-up, runs late", 5, 25, 1).kernel("a", 40, 60, 2).kernel("b", 200, 240, 3).kernel("after", 260, 300, 4))
    found = summary(builder, tmp_path)
    assert (found.measured_ns, found.kernels_total, found.launches) == (60, 2, 2)
    assert found.span_ns == 240, "from the step's start to the end of its device work, not of the step"
    assert found.busy_ns == 60 and found.gap_total_ns == 180 and found.gap_count == 2 and found.gap_median_ns == 90
    assert found.idle_share_pct == 75.0


def test_overlapping_streams_are_busy_once_but_measured_twice(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 50).launch(1, 0, 5).launch(2, 6, 8).kernel("a", 10, 110, 1).kernel("b", 60, 160, 2, stream=20))
    found = summary(builder, tmp_path)
    assert (found.measured_ns, found.busy_ns, found.span_ns) == (200, 150, 160)


def test_the_host_is_blamed_for_its_part_of_a_gap_only(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 1000)
               .launch(1, 50, 100).kernel("late launch", 110, 200, 1)  # idle 0..110, call returned at 100: 100 are the host's
               .launch(2, 120, 130).kernel("queued", 220, 300, 2)  # launched while the device was busy: latency, not the host
               .launch(3, 390, 410).kernel("runs before its call returns", 400, 500, 3))  # idle 300..400: all the host's
    found = summary(builder, tmp_path)
    assert found.span_ns == 500 and found.gap_total_ns == 110 + 20 + 100
    assert found.cpu_bound_share_pct == 100 * (100 + 0 + 100) / 500


def test_gaps_inside_one_graph_launch_are_not_the_hosts(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 1000).launch(1, 0, 900, name="cudaGraphLaunch")
               .kernel("node 1", 100, 200, 1).kernel("node 2", 300, 400, 1))
    assert summary(builder, tmp_path).cpu_bound_share_pct == 100 * 100 / 400


def test_cpu_steps_are_operators_plus_what_is_outside(tmp_path: Path) -> None:
    builder = (TraceBuilder(device="").step(0, 100).op("aten::a", 10, 60).op("aten::b", 20, 30).op("between the steps", 105, 115)
               .step(120, 220).op("aten::a", 120, 220))
    found = summary(builder, tmp_path)
    assert found.step_wall_ns == (100, 100) and found.measured_ns == 200 == sum(found.step_wall_ns)
    assert found.busy_ns == 150 and found.idle_share_pct == 25.0 and found.gap_count == 2
    assert found.cpu_bound_share_pct is None and found.launches == 0


def test_operators_on_two_threads_both_count_as_measured(tmp_path: Path) -> None:
    builder = TraceBuilder(device="").step(0, 100).op("aten::a", 0, 50).op("aten::b", 40, 90, tid=200)
    trace = read_kineto(builder.write(tmp_path / "t.json"))
    assert measured_ns(trace) == 50 + 50 + 10


def test_an_operator_that_outlives_its_step_is_cut_there(tmp_path: Path) -> None:
    builder = TraceBuilder(device="").step(0, 100).op("aten::a", 90, 150)
    found = summary(builder, tmp_path)
    assert found.busy_ns == 10 and found.measured_ns == 100


def test_a_correlation_id_of_two_processes_decides_nothing(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 100).launch(1, 10, 20).launch(1, -50, -40, pid=300).launch(2, 30, 35)
               .kernel("whose?", 40, 50, 1).kernel("ours", 60, 70, 2))
    found = summary(builder, tmp_path)
    assert found.kernels_total == 2 and found.launches == 1, "kept, but without a launch call"


def test_the_profilers_own_time_is_taken_out_of_the_idle_shares() -> None:
    shown = TimelineSummary(
        steps=2, step_wall_ns=(400, 400), measured_ns=500, attributed_ns=500, unattributed_ns=0, busy_ns=500, span_ns=1000,
        idle_share_pct=50.0, launches=4, gap_count=3, gap_median_ns=10.0, gap_total_ns=500, cpu_bound_share_pct=40.0, kernels_total=4)
    told = unprofiled(shown, 312.5)  # 250 ns of device work a call: 20% idle at most
    assert told.idle_share_pct == pytest.approx(20) and told.cpu_bound_share_pct == pytest.approx(16)
    assert told.profiled_idle_share_pct == 50.0 and told.profiler_slowdown == pytest.approx(1.6)
    assert unprofiled(shown, 200.0).idle_share_pct == 0.0, "work on several streams can exceed the call"
    assert unprofiled(shown, 5000.0).idle_share_pct == 50.0, "never more than was seen"
