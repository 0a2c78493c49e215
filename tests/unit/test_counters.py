"""Choosing launches and bringing their counters back, on made-up and recorded timelines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.attribute import Attributed, attribute
from kernelwright.attribute.counters import MAX_DISAGREEMENTS, attach_counters
from kernelwright.attribute.signatures import CounterPlan, plan_counters
from kernelwright.model.counters import Counters
from kernelwright.model.profile import Kernel
from kernelwright.model.trace import Trace
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.ncu import NcuLaunch, NcuReport, NvtxRange
from ncu_reports import DATA, simulated
from trace_builder import TraceBuilder

TRACES = sorted([*DATA.glob("traces/h200_*/trace.json.gz"), *DATA.glob("captures/h200/*/trace.json.gz"), *DATA.glob("ncu/*.json.gz")])
SHAPES = {"Input_Dims": [[8, 16], [16, 4]], "Input_type": ["float", "float"]}


def read(builder: TraceBuilder, tmp_path: Path) -> Trace:
    return read_kineto(builder.write(tmp_path / "trace.json"))


def every_kernel(attributed: Attributed) -> list[Kernel]:
    return [*(kernel for operator in attributed.operators for kernel in operator.kernels), *attributed.unattributed]


def attached(trace: Trace, plan: CounterPlan, report: NcuReport, own: dict[str, str] | None = None) -> tuple[dict[str, Kernel], Counters]:
    """Kernels by id, after checking that no kernel and no time went missing."""
    before = attribute(trace, own=own)
    operators, rest, counters = attach_counters(before.operators, before.unattributed, plan, report)
    after = [*(kernel for operator in operators for kernel in operator.kernels), *rest]
    assert [kernel.kernel_id for kernel in after] == [kernel.kernel_id for kernel in every_kernel(before)]
    assert sum(kernel.duration_ns for kernel in after) == before.measured_ns
    assert sum(operator.aggregated.total_duration_ns for operator in operators) == before.attributed_ns
    return {kernel.kernel_id: kernel for kernel in after}, counters


def changed(report: NcuReport, change: Callable[[NcuLaunch], NcuLaunch | None]) -> NcuReport:
    launches = tuple(new for new in map(change, report.launches) if new is not None)
    return dataclasses.replace(report, launches=launches)


@pytest.mark.parametrize("file", TRACES, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}")
def test_recorded_programs_are_covered_by_few_launches(file: Path) -> None:
    """Eager, compiled, training (autograd's own thread), CUDA graphs, an LSTM: a counter run that is the same gives all that was
    planned."""
    trace = read_kineto(file)
    plan = plan_counters(trace)
    report = simulated(trace, plan)
    kernels, counters = attached(trace, plan, report)
    assert counters.disagreements == () and counters.notes == () and not plan.excluded
    assert counters.time_share_pct == pytest.approx(plan.expected_share_pct) and plan.expected_share_pct >= 95.0
    assert len(report.launches) == plan.launches <= 60
    own = [kernel for kernel in kernels.values() if kernel.metrics.origin == "measured"]
    assert len(own) == plan.launches
    assert all(kernel.metrics.measured_kernel_id == kernel.kernel_id for kernel in own)
    assert all(kernel.metrics.raw == {"which": plan.order[kernel.kernel_id]} for kernel in own)


def test_one_configuration_with_two_shapes_is_measured_twice() -> None:
    """Two products of mlp_activations share kernel, grid, block and shared memory; their K is 512 and 2048."""
    trace = read_kineto(DATA / "captures" / "h200" / "mlp_activations" / "trace.json.gz")
    plan = plan_counters(trace)
    pair = [one for one in plan.signatures if one.grid == (4, 32, 1) and "gemm" in one.kernel]
    assert {one.input_shapes for one in pair} == {((2048,), (256, 512), (512, 2048)), ((2048,), (256, 2048), (2048, 2048))}
    assert len({(one.kernel, one.grid, one.block, one.shared_bytes) for one in pair}) == 1
    kernels, _ = attached(trace, plan, simulated(trace, plan))
    products = [kernel for kernel in kernels.values() if kernel.grid == (4, 32, 1) and "gemm" in kernel.kernel_name]
    assert len(products) == 6 and len({kernel.metrics.measured_kernel_id for kernel in products}) == 2


def test_an_lstm_costs_a_handful_of_launches() -> None:
    trace = read_kineto(DATA / "captures" / "h200" / "lstm_sequence_encoder" / "trace.json.gz")
    plan = plan_counters(trace)
    assert (plan.launch_count, plan.launches) == (1, 5) and len(plan.order) == 1072
    every = dataclasses.replace(plan, launch_count=None)
    assert len(simulated(trace, every).launches) == 529
    # An ncu that groups by grid and block alone gives fewer, but no signature less.
    seen: set[object] = set()
    coarse = changed(simulated(trace, plan), lambda one: None if (one.grid, one.block) in seen or seen.add((one.grid, one.block)) else one)
    _, counters = attached(trace, plan, coarse)
    assert counters.time_share_pct == pytest.approx(plan.expected_share_pct) and counters.disagreements == ()


def gemms(steps: int = 2) -> TraceBuilder:
    """A step: an outer operator that launches a GEMM inside aten::mm and a bias kernel itself, then a ReLU. 100 us in all."""
    builder = TraceBuilder()
    for step in range(steps):
        at, link = step * 1_000_000, 10 * step
        builder.step(at, at + 900_000)
        builder.op("my::linear", at + 1_000, at + 100_000, **SHAPES)
        builder.op("aten::mm", at + 2_000, at + 50_000, **SHAPES)
        builder.launch(link + 1, at + 3_000, at + 4_000).kernel("gemm", at + 200_000, at + 270_000, link + 1)
        builder.launch(link + 2, at + 60_000, at + 61_000).kernel("bias", at + 300_000, at + 320_000, link + 2)
        builder.op("aten::relu", at + 110_000, at + 150_000, Input_Dims=[[8, 4]], Input_type=["float"])
        builder.launch(link + 3, at + 111_000, at + 112_000).kernel("relu", at + 400_000, at + 410_000, link + 3)
    return builder


def test_the_heaviest_first_until_the_share_is_reached(tmp_path: Path) -> None:
    trace = read(gemms(), tmp_path)
    assert plan_counters(trace, share=0.7).op_ids == (3,)
    plan = plan_counters(trace, share=0.9)
    # The bias is launched by my::linear itself: picking it takes the nested GEMM along, once.
    assert (plan.op_ids, plan.launches, plan.expected_share_pct) == ((2,), 2, 90.0)
    assert [one.kernel for one in plan.signatures] == ["gemm", "bias"]
    assert plan_counters(trace).op_ids == (2, 4)
    assert plan_counters(trace, share=0.7).expected_s is None


def test_nested_launches_count_against_the_budget(tmp_path: Path) -> None:
    trace = read(gemms(), tmp_path)
    assert plan_counters(trace, budget_s=0.9, per_launch_s=1.0).op_ids == ()
    one = plan_counters(trace, budget_s=1.0, per_launch_s=1.0)
    assert (one.op_ids, one.expected_share_pct, one.expected_s) == ((3,), 70.0, 1.0)
    two = plan_counters(trace, budget_s=2.0, per_launch_s=1.0)
    assert (two.op_ids, two.expected_share_pct, two.expected_s) == ((2,), 90.0, 2.0)
    with pytest.raises(ValueError, match="cost"):
        plan_counters(trace, budget_s=2.0)


def test_collectives_are_never_replayed(tmp_path: Path) -> None:
    builder = gemms()
    for step in range(2):
        at, link = step * 1_000_000, 10 * step + 5
        builder.op("c10d::allreduce_", at + 160_000, at + 200_000)
        builder.launch(link, at + 161_000, at + 162_000).kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 420_000, at + 520_000, link)
        builder.launch(link + 1, at + 163_000, at + 164_000).kernel("copy_out", at + 530_000, at + 540_000, link + 1)
    trace = read(builder, tmp_path)
    plan = plan_counters(trace)
    assert plan.op_ids == (2, 4) and plan.expected_share_pct == pytest.approx(100 * 100 / 210)
    assert "collective waits" in plan.excluded["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]
    assert "holds a collective" in plan.excluded["copy_out"]
    kernels, counters = attached(trace, plan, simulated(trace, plan))
    assert counters.excluded == plan.excluded and counters.disagreements == ()
    assert not any(kernel.metrics.origin for kernel in kernels.values() if "nccl" in kernel.kernel_name)


@pytest.mark.parametrize("own", [None, {"softmax_kernel": "softmax"}], ids=["unattributed", "the workload's own"])
def test_a_kernel_outside_any_operator(tmp_path: Path, own: dict[str, str] | None) -> None:
    """A Triton kernel that the workload launches itself: only the step's own range holds it."""
    builder = TraceBuilder()
    for step in range(2):
        at = step * 1_000_000
        builder.step(at, at + 900_000).launch(step + 1, at + 3_000, at + 4_000, name="cuLaunchKernelEx", category="cuda_driver")
        builder.kernel("softmax_kernel", at + 200_000, at + 300_000, step + 1)
    trace = read(builder, tmp_path)
    plan = plan_counters(trace)
    assert (plan.op_ids, plan.expected_share_pct, plan.signatures[0].operator) == ((1,), 100.0, "")
    kernels, counters = attached(trace, plan, simulated(trace, plan), own)
    assert [kernel.metrics.origin for kernel in kernels.values()] == ["measured", "propagated"] and counters.disagreements == ()
    assert {kernel.attribution.confidence for kernel in kernels.values()} == {"high" if own else "none"}


def test_a_small_kernel_outside_operators_is_not_worth_the_whole_step(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 100_000_000)
    for place in range(100):
        at = 1_000 + place * 10_000
        builder.op(f"aten::op{place}", at, at + 5_000).launch(place + 1, at + 100, at + 200)
        builder.kernel(f"k{place}", 2_000_000 + at, 2_008_000 + at, place + 1, grid=(place + 1, 1, 1))
    builder.launch(200, 1_500_000, 1_501_000).kernel("mine", 4_000_000, 4_100_000, 200)
    trace = read(builder, tmp_path)
    plan = plan_counters(trace, share=0.5)
    assert 1 not in plan.op_ids and list(plan.excluded) == ["mine"] and "101 launches would have to be replayed" in plan.excluded["mine"]
    assert plan.expected_share_pct >= 50.0
    assert plan_counters(trace, budget_s=101, per_launch_s=1).op_ids == (1,)


def test_several_streams_and_annotations(tmp_path: Path) -> None:
    """Launch order counts, not start order; annotations take numbers, and hold launches, without being operators."""
    builder = TraceBuilder()
    for step in range(2):
        at, link = step * 1_000_000, 10 * step
        builder.step(at, at + 900_000).range("stage:a", at + 500, at + 500_000)
        builder.op("my::both", at + 1_000, at + 100_000, **SHAPES).range("inner", at + 1_500, at + 90_000)
        builder.launch(link + 1, at + 2_000, at + 3_000).kernel("twin", at + 300_000, at + 340_000, link + 1, stream=20)
        builder.launch(link + 2, at + 4_000, at + 5_000).kernel("twin", at + 200_000, at + 230_000, link + 2, stream=7)
    trace = read(builder, tmp_path)
    plan = plan_counters(trace)
    assert [one.name for one in plan.ranges] == ["kernelwright.step", "stage:a", "my::both", "inner"] and plan.op_ids == (4,)
    assert [one.operator for one in plan.signatures] == ["my::both"]
    kernels, counters = attached(trace, plan, simulated(trace, plan))
    late_first = sorted(kernels.values(), key=lambda kernel: plan.order[kernel.kernel_id])
    assert [kernel.metrics.raw["which"] for kernel in late_first] == [0, 1, 0, 1]
    assert counters.disagreements == ()


def test_equal_times_are_told_apart_by_kinetos_own_number(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 900_000).op("outer", 1_000, 50_000).op("inner", 1_000, 50_000).launch(1, 2_000, 3_000)
    plan = plan_counters(read(builder.kernel("k", 100_000, 200_000, 1), tmp_path))
    assert [one.name for one in plan.ranges] == ["kernelwright.step", "outer", "inner"] and plan.op_ids == (3,)


def shifted(launch: NcuLaunch) -> NcuLaunch:
    return dataclasses.replace(launch, nvtx=tuple(dataclasses.replace(one, op_id=(one.op_id or 0) + 1) for one in launch.nvtx))


def test_shifted_numbers_are_found_out_and_signatures_still_serve(tmp_path: Path) -> None:
    """Another thread's operator came first in the counter run: every number is one too high."""
    trace = read(gemms(), tmp_path)
    plan = plan_counters(trace)
    kernels, counters = attached(trace, plan, changed(simulated(trace, plan), shifted))
    assert {one.what for one in counters.disagreements} == {"operator"} and len(counters.disagreements) == 3
    assert counters.disagreements[0].timeline.startswith("aten::relu") or counters.disagreements[0].counters.startswith("aten::mm")
    assert counters.time_share_pct == 100.0
    assert {kernel.metrics.origin for kernel in kernels.values()} == {"propagated"}
    assert {kernel.metrics.measured_kernel_id for kernel in kernels.values()} == {None}


def test_another_kernel_than_the_timelines_is_never_taken_for_it(tmp_path: Path) -> None:
    """The library chose another algorithm in the counter run."""
    trace = read(gemms(), tmp_path)
    plan = plan_counters(trace)

    def other(one: NcuLaunch) -> NcuLaunch:
        return dataclasses.replace(one, name="gemm_v2", symbol="gemm_v2", function="gemm_v2") if one.name == "gemm" else one

    kernels, counters = attached(trace, plan, changed(simulated(trace, plan), other))
    assert [(one.what, one.kernel_name) for one in counters.disagreements] == [("kernel", "gemm_v2"), ("not_seen", "gemm")]
    assert counters.time_share_pct == pytest.approx(30.0) and "100.0% was planned" in counters.notes[0]
    assert not any(kernel.metrics.origin for kernel in kernels.values() if kernel.kernel_name == "gemm")


@pytest.mark.parametrize("field", ["grid", "block", "shared_bytes"])
def test_another_configuration_is_another_launch(tmp_path: Path, field: str) -> None:
    builder = TraceBuilder().step(0, 900_000).op("aten::mm", 1_000, 50_000, **SHAPES).launch(1, 2_000, 3_000)
    builder.event("kernel", "gemm", 100_000, 200_000, pid=0, tid=7, device=0, stream=7, correlation=1, grid=[4, 32, 2], block=[128, 1, 1],
                  shared_memory=1024)
    trace = read(builder, tmp_path)
    plan = plan_counters(trace)
    other: object = 2048 if field == "shared_bytes" else (1, 2, 3)
    kernels, counters = attached(trace, plan, changed(simulated(trace, plan), lambda one: dataclasses.replace(one, **{field: other})))
    assert [one.what for one in counters.disagreements] == ["kernel", "not_seen"]
    assert not any(kernel.metrics.origin for kernel in kernels.values())


def test_other_shapes_are_reported(tmp_path: Path) -> None:
    trace = read(gemms(), tmp_path)
    plan = plan_counters(trace, share=0.7)

    def larger(one: NcuLaunch) -> NcuLaunch:
        return dataclasses.replace(one, nvtx=(*one.nvtx[:-1], NvtxRange("aten::mm", 3, ((8, 32), (32, 4)))))

    kernels, counters = attached(trace, plan, changed(simulated(trace, plan), larger))
    assert [one.what for one in counters.disagreements] == ["shapes", "not_seen"]
    assert "[8, 16]" in counters.disagreements[0].timeline and "[8, 32]" in counters.disagreements[0].counters
    assert not any(kernel.metrics.origin for kernel in kernels.values())


def test_launches_that_did_not_come(tmp_path: Path) -> None:
    trace = read(gemms(), tmp_path)
    plan = plan_counters(trace)
    _, counters = attached(trace, plan, changed(simulated(trace, plan), lambda one: None if one.name == "relu" else one))
    assert [(one.what, one.kernel_name, one.counters) for one in counters.disagreements] == [("not_seen", "relu", "")]
    assert counters.time_share_pct == pytest.approx(90.0)


def three(steps: int = 1) -> TraceBuilder:
    """One operator that launches a, b, a."""
    builder = TraceBuilder().step(0, 900_000).op("my::op", 1_000, 100_000, **SHAPES)
    for place, name in enumerate("aba"):
        builder.launch(place + 1, 2_000 + place * 1_000, 2_500 + place * 1_000)
        builder.kernel(name, 200_000 + place * 10_000, 209_000 + place * 10_000, place + 1)
    return builder


def test_another_order_leaves_certain_only_what_exists_once(tmp_path: Path) -> None:
    trace = read(three(), tmp_path)
    plan = plan_counters(trace)
    report = simulated(trace, plan)
    swapped = dataclasses.replace(report, launches=(report.launches[1], report.launches[0], report.launches[2]))
    kernels, counters = attached(trace, plan, swapped)
    assert [one.what for one in counters.disagreements] == ["order"]
    assert {kernel.kernel_name: kernel.metrics.origin for kernel in kernels.values()} == {"a": "propagated", "b": "measured"}


def test_one_launch_more_or_less_is_reported(tmp_path: Path) -> None:
    trace = read(three(), tmp_path)
    plan = plan_counters(trace)
    report = simulated(trace, plan)
    for launches in (report.launches[:2], (*report.launches, report.launches[-1])):
        kernels, counters = attached(trace, plan, dataclasses.replace(report, launches=launches))
        assert [one.what for one in counters.disagreements] == ["order"]
        assert counters.time_share_pct == 100.0
        assert {kernel.metrics.origin for kernel in kernels.values() if kernel.kernel_name == "a"} == {"propagated"}


def test_somebody_elses_ranges_and_none_at_all(tmp_path: Path) -> None:
    """A report made without emit_nvtx says nothing about operators: nothing is attached, and that is said."""
    trace = read(gemms(), tmp_path)
    plan = plan_counters(trace)
    foreign = changed(simulated(trace, plan), lambda one: dataclasses.replace(one, nvtx=(NvtxRange("epoch 1"),)))
    kernels, counters = attached(trace, plan, foreign)
    assert not any(kernel.metrics.origin for kernel in kernels.values()) and counters.time_share_pct == 0.0
    assert {one.what for one in counters.disagreements} == {"operator", "not_seen"}
    inside = changed(simulated(trace, plan), lambda one: dataclasses.replace(one, nvtx=(*one.nvtx, NvtxRange("mine"))))
    assert attached(trace, plan, inside)[1].disagreements == ()


def test_disagreements_are_bounded(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 100_000_000)
    for place in range(80):
        at = 1_000 + place * 10_000
        builder.op(f"aten::op{place}", at, at + 5_000).launch(place + 1, at + 100, at + 200)
        builder.kernel(f"k{place}", 2_000_000 + at, 2_008_000 + at, place + 1)
    trace = read(builder, tmp_path)
    plan = plan_counters(trace)
    _, counters = attached(trace, plan, changed(simulated(trace, plan), shifted))
    assert len(counters.disagreements) == MAX_DISAGREEMENTS and "disagreements" in counters.notes[0]


def test_sums_of_an_operator_need_all_of_its_launches(tmp_path: Path) -> None:
    builder = three()
    builder.op("aten::copy_", 110_000, 150_000).launch(9, 111_000, 112_000).kernel("copy_kernel", 300_000, 310_000, 9)
    builder.launch(10, 113_000, 114_000, name="cudaMemcpyAsync").copy("Memcpy DtoD (Device -> Device)", 320_000, 330_000, 10, size=4096)
    trace = read(builder, tmp_path)
    plan, before = plan_counters(trace), attribute(trace)

    def value(role: str, raw: object) -> float | None:
        return {"dram_read_bytes": 100.0, "occupancy_pct": 50.0}.get(role)

    operators, _, _ = attach_counters(before.operators, before.unattributed, plan, simulated(trace, plan), value=value)
    mine, copy = operators
    assert (mine.aggregated.total_dram_bytes_read, mine.aggregated.achieved_occupancy) == (300.0, 50.0)
    assert (mine.aggregated.total_dram_bytes_written, mine.aggregated.l2_hit_rate) == (None, None)
    # A copy's traffic is in no counter, so the operator's bytes are not known.
    assert (copy.aggregated.total_dram_bytes_read, copy.aggregated.achieved_occupancy) == (None, 50.0)


def test_nothing_to_measure(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 900_000).op("aten::copy_", 1_000, 50_000).launch(1, 2_000, 3_000)
    trace = read(builder.copy("Memcpy DtoD (Device -> Device)", 100_000, 200_000, 1), tmp_path)
    plan = plan_counters(trace)
    assert (plan.op_ids, plan.launches, plan.expected_share_pct, plan.signatures) == ((), 0, 0.0, ())
