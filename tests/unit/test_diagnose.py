"""Rules: each can find, stay silent and abstain; nothing is guessed."""

from __future__ import annotations

import re

import pytest

import builders
from contract_format import check_contract
from kernelwright.attribute.owned import aggregate
from kernelwright.diagnose import diagnose
from kernelwright.diagnose.bottleneck import bottleneck, classify
from kernelwright.diagnose.rules import RULES
from kernelwright.model.base import Figure
from kernelwright.model.measurement import Measurement
from kernelwright.model.profile import (
    Attribution,
    Bottleneck,
    Finding,
    Kernel,
    Metrics,
    Operator,
    Profile,
    Roof,
    TimelineSummary,
    WorkSummary,
)
from kernelwright.report.contract import render_contract
from kernelwright.roofline import stages
from kernelwright.roofline.knowledge import bottlenecks

NO_ROOF = Roof(dtype="float32", peak_compute=None, peak_bandwidth=None, datasheet_compute=None, datasheet_bandwidth=None, ridge_point=None)
STEPS = 2


def kernel(name: str, duration_ns: int, category: str = "kernel", **raw: float) -> Kernel:
    return Kernel.model_validate({
        "kernel_id": name, "kernel_name": name, "stream_id": 7, "device_id": 0, "start_ns": 0, "end_ns": duration_ns,
        "duration_ns": duration_ns, "category": category, "metrics": Metrics(raw=raw),
        "attribution": Attribution(method="correlation", confidence="high")})


def operator(name: str, *kernels: Kernel, **changes: object) -> Operator:
    return Operator.model_validate({"operator_id": f"{name}_0", "operator_name": name, "call_index": 0, "step": 0, "kernels": kernels,
                                    "aggregated": aggregate(kernels), **changes})


def timeline(span_ns: int = 1_000_000, *, cpu: bool = False, measured_ns: int | None = None, **changes: object) -> TimelineSummary:
    measured = span_ns if measured_ns is None else measured_ns
    values: dict[str, object] = {
        "steps": STEPS, "step_wall_ns": (span_ns // 2,) * STEPS, "measured_ns": measured, "attributed_ns": measured, "unattributed_ns": 0,
        "busy_ns": measured, "span_ns": span_ns, "idle_share_pct": 0.0, "launches": 10, "gap_count": 0, "gap_median_ns": None,
        "gap_total_ns": 0,
        "cpu_bound_share_pct": None if cpu else 0.0, "kernels_total": 10}
    return TimelineSummary.model_validate({**values, **changes})


def work(compute_pct: float | None, bandwidth_pct: float | None) -> WorkSummary:
    known = Figure(value=1e9, unit="FLOP", evidence="analytic")
    return WorkSummary(flops=known if compute_pct is not None else None, min_bytes=known if bandwidth_pct is not None else None,
                       achieved_compute=None, achieved_bandwidth=None, arithmetic_intensity=None, compute_pct=compute_pct,
                       bandwidth_pct=bandwidth_pct)


def draft(*operators: Operator, summary: TimelineSummary | None = None, work_pct: tuple[float | None, float | None] | None = (30.0, 20.0),
          roof: Roof | None = None, device: str = "cuda", **changes: object) -> Profile:
    ceiling = builders.roofline("float32") if roof is None else roof
    values: dict[str, object] = {
        "capture_metadata": builders.metadata(dtype="float32", device=device), "timing": builders.timing(500.0), "roofline": ceiling,
        "work": work(*work_pct) if work_pct else None, "timeline": summary, "operators": operators,
        "stages": stages(operators, (), ceiling, STEPS) if operators else (), "bottleneck": Bottleneck(kind=None, root_cause="")}
    return Profile.model_validate({**values, **changes})


def found(profile: Profile, rule: str) -> Finding | None:
    return next((finding for finding in diagnose(profile).findings if finding.rule == rule), None)


def reason(profile: Profile, rule: str) -> str | None:
    return next((entry.reason for entry in diagnose(profile).abstained if entry.name == rule), None)


@pytest.mark.parametrize(("compute", "bandwidth", "kind"), [
    (10.0, 80.0, "Memory"), (80.0, 10.0, "Compute"), (10.0, 10.0, "Latency"), (75.0, 90.0, "Memory"), (95.0, 90.0, "Compute"),
    (60.0, 0.0, "Compute"), (59.9, 69.9, "Latency"), (0.0, 70.0, "Memory"), (None, 90.0, "Memory"), (90.0, None, "Compute"),
    (None, 10.0, None), (10.0, None, None), (None, None, None),
])
def test_bottleneck_table(compute: float | None, bandwidth: float | None, kind: str | None) -> None:
    assert classify(compute, bandwidth) == kind


def sentences(text: str) -> int:
    return len(re.findall(r"[.!?](?:\s|$)", text))


def test_root_cause_says_that_it_rests_on_peaks() -> None:
    verdict = diagnose(draft(summary=timeline(idle_share_pct=12.0), work_pct=(8.0, 83.0))).bottleneck
    assert verdict.kind == "Memory" and "no counters" in verdict.root_cause and "measured" in verdict.root_cause
    assert "12%" in verdict.root_cause and sentences(verdict.root_cause) <= 2


def test_with_neither_peaks_nor_counters_nothing_is_claimed() -> None:
    for work_pct in ((None, None), None):
        verdict = diagnose(draft(roof=NO_ROOF, work_pct=work_pct)).bottleneck
        assert verdict.kind is None and "no peaks" in verdict.root_cause and sentences(verdict.root_cause) <= 2


def test_idle_time_alone_can_prove_latency() -> None:
    assert diagnose(draft(summary=timeline(idle_share_pct=55.0), work_pct=(None, 3.0))).bottleneck.kind == "Latency"
    assert diagnose(draft(summary=timeline(idle_share_pct=20.0), work_pct=(None, 3.0))).bottleneck.kind is None


def test_counters_come_before_the_position() -> None:
    raw = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 80.0,
           "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed": 5.0,
           "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed": 5.0,
           "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed": 0.0,
           "dram__throughput.avg.pct_of_peak_sustained_elapsed": 30.0}
    whole = draft(operator("aten::mm", kernel("gemm", 100, **raw)), summary=timeline(), work_pct=(1.0, 1.0))
    assert diagnose(whole).bottleneck.kind == "Compute" and "counters" in diagnose(whole).bottleneck.root_cause
    part = draft(operator("aten::mm", kernel("gemm", 100, **raw), kernel("blind", 20)), summary=timeline(), work_pct=(1.0, 1.0))
    assert diagnose(part).bottleneck.kind == "Latency", "counters of some kernels say nothing about the whole"


@pytest.mark.parametrize(("work_pct", "says"), [
    ((None, 30.0), "30.0% of peak bandwidth, too little to say that it binds, and FLOPs of a call are not known"),
    ((12.0, None), "12.0% of peak compute, too little to say that it binds, and bytes of a call are not known"),
    ((None, None), "neither FLOPs nor bytes of a call are known")])
def test_an_undecided_bottleneck_says_what_is_not_known(work_pct: tuple[float | None, float | None], says: str) -> None:
    found = diagnose(draft(work_pct=work_pct)).bottleneck
    assert found.kind is None and says in found.root_cause


def test_the_distance_to_the_roof_is_there_where_it_is_known() -> None:
    finding = found(draft(work_pct=(30.0, 55.0)), "roof_distance")
    assert finding is not None and finding.estimated_gain_pct == pytest.approx(45.0) and finding.trigger == "memory_roof_share=55%"
    beyond = found(draft(work_pct=(130.0, 5.0)), "roof_distance")
    assert beyond is not None and beyond.estimated_gain_pct == 0.0 and beyond.trigger == "compute_roof_share=100%"
    unknown = diagnose(draft(roof=NO_ROOF, work_pct=(None, None)))
    reason = next(row.reason for row in unknown.abstained if row.name == "roof_distance")
    assert unknown.findings == () and "neither FLOPs nor bytes" in reason
    assert render_contract(unknown).rstrip().endswith("binding roof — est. n/a gain — trigger: roof_share=n/a")
    other = diagnose(draft(summary=timeline(cpu_bound_share_pct=62.0), work_pct=(None, None)))
    assert "binding roof" not in render_contract(other) and "62.0% gain" in render_contract(other)


@pytest.mark.parametrize(("work_pct", "why"), [
    ((None, 0.2), "reaches 0.20% of the memory roof, which is too little"), ((12.0, None), "12% of the compute roof, which is too little"),
    ((None, 130.0), "more bytes a second than memory can give"), ((12.0, 130.0), "12% of the compute roof, which is too little")])
def test_where_the_binding_roof_is_not_known_its_distance_is_not_either(work_pct: tuple[float | None, float | None], why: str) -> None:
    profile = diagnose(draft(work_pct=work_pct))
    assert profile.bottleneck.kind is None and profile.findings == () and why in (reason(profile, "roof_distance") or "")
    contract = render_contract(profile)
    assert contract.rstrip().endswith("1. Close the distance to the binding roof — est. n/a gain — trigger: roof_share=n/a")
    assert check_contract(contract) == []


def test_one_share_that_is_high_decides_which_roof_binds() -> None:
    for work_pct, gain in (((None, 83.0), 17.0), ((75.0, None), 25.0), ((75.0, 130.0), 25.0)):
        finding = found(draft(work_pct=work_pct), "roof_distance")
        assert finding is not None and finding.estimated_gain_pct == pytest.approx(gain)


def test_a_small_share_never_reads_as_none() -> None:
    profile = diagnose(draft(work_pct=(0.04, 0.3)))
    assert "trigger: memory_roof_share=0.30%" in render_contract(profile) and "reaches 0.30% of" in profile.findings[0].detail
    bare = draft(work_pct=(0.04, 0.3))
    assert "trigger: bandwidth_pct=0.30%" in render_contract(bare) and check_contract(render_contract(bare)) == []


def test_launch_gaps() -> None:
    finding = found(draft(summary=timeline(cpu_bound_share_pct=62.0)), "launch_gaps")
    assert finding is not None and finding.trigger == "cpu_bound_share=62%" and finding.estimated_gain_pct == 62.0
    assert found(draft(summary=timeline(cpu_bound_share_pct=9.0)), "launch_gaps") is None
    assert found(draft(summary=timeline(cpu=True)), "launch_gaps") is None
    assert reason(draft(), "launch_gaps") == "no timeline in this capture"


def test_host_bound_in_event_mode() -> None:
    host = Measurement.of([490e3] * 9, timer="perf_counter")
    finding = found(draft(host_timing=host), "host_bound")
    assert finding is not None and finding.trigger == "host_share=98%" and finding.evidence == "events"
    assert found(draft(host_timing=Measurement.of([50e3] * 9, timer="perf_counter")), "host_bound") is None
    assert reason(draft(), "host_bound") == "no host times in this capture"
    assert found(draft(summary=timeline(), host_timing=host), "host_bound") is None


def test_many_small_kernels() -> None:
    small = [kernel(f"k{number}", 4_000) for number in range(40)]
    finding = found(draft(operator("aten::x", *small, kernel("big", 500_000)), summary=timeline()), "small_kernels")
    assert finding is not None and finding.trigger == "kernels_below_5us=20" and finding.estimated_gain_pct == pytest.approx(16 * 19 / 20)
    assert found(draft(operator("aten::x", *small[:10]), summary=timeline()), "small_kernels") is None


def test_elementwise_fusion_counts_unfused_operators_only() -> None:
    relu = [operator("aten::relu", kernel("vec", 50_000), source="m.py:4", call_index=index) for index in range(4)]
    finding = found(draft(*relu, operator("aten::mm", kernel("gemm", 100_000)), summary=timeline()), "elementwise_fusion")
    assert finding is not None and finding.trigger == "elementwise_share=20%" and finding.where == "m.py:4"
    assert finding.estimated_gain_pct == pytest.approx(20 * (1 - 1 / 2)) and finding.stage == "aten::relu"
    fused = [item.model_copy(update={"is_fused": True}) for item in relu]
    assert found(draft(*fused, summary=timeline()), "elementwise_fusion") is None


def test_heaviest_stage_far_from_its_roof_uses_amdahl() -> None:
    heavy = operator("aten::mm", kernel("gemm", 500_000), flops=78e9 * 1.5, min_bytes=1e6)  # 30% of 780 TFLOP/s
    others = timeline(measured_ns=1_100_000)  # no kernel holds half of the device's time
    finding = found(draft(heavy, operator("aten::add", kernel("add", 1_000)), summary=others), "stage_far_from_roof")
    assert finding is not None and finding.stage == "aten::mm" and finding.estimated_gain_pct == pytest.approx(50 * 0.7)
    assert finding.trigger == "stage_compute_roof_share=30%"
    moving = operator("aten::mm", kernel("gemm", 500_000), flops=1e6, min_bytes=4100e9 * 500e-6 * 0.3)
    memory = found(draft(moving, summary=others), "stage_far_from_roof")
    assert memory is not None and memory.trigger == "stage_memory_roof_share=30%"
    near = operator("aten::mm", kernel("gemm", 500_000), flops=780e12 * 500e-6 * 0.9, min_bytes=1e6)
    assert found(draft(near, summary=timeline()), "stage_far_from_roof") is None
    assert "aten::mm" in str(reason(draft(operator("aten::mm", kernel("gemm", 500_000)), summary=timeline()), "stage_far_from_roof"))


def test_copies_of_all_kinds_count() -> None:
    profile = draft(operator("aten::clone", kernel("elementwise", 30_000)), operator("aten::to", kernel("Memcpy DtoD", 20_000, "memcpy")),
                    operator("aten::cudnn_convolution", kernel("void cudnn::nchwToNhwcKernel", 50_000), kernel("gemm", 400_000)),
                    summary=timeline())
    finding = found(profile, "heavy_copies")
    assert finding is not None and finding.trigger == "copy_share=10%"
    to_host = draft(operator("aten::to", kernel("Memcpy HtoD (Pinned -> Device)", 90_000, "memcpy")), summary=timeline())
    assert found(to_host, "heavy_copies") is None, "copies from the host are another rule's"
    assert found(draft(operator("aten::mm", kernel("gemm", 400_000)), summary=timeline()), "heavy_copies") is None


def test_time_outside_operators_on_the_cpu() -> None:
    finding = found(draft(summary=timeline(cpu=True, idle_share_pct=40.0), device="cpu"), "host_outside_operators")
    assert finding is not None and finding.estimated_gain_pct == 40.0
    assert found(draft(summary=timeline(idle_share_pct=40.0)), "host_outside_operators") is None


def test_tensor_cores_unused() -> None:
    sgemm = operator("aten::addmm", kernel("sm80_xmma_gemm_f32f32_f32f32_f32_tn", 500_000), dtype="float32")
    finding = found(draft(sgemm, summary=timeline()), "tensor_cores_unused")
    assert finding is not None and "--precision tf32" in finding.hint and finding.estimated_gain_pct == pytest.approx(50 * (1 - 67 / 494.5))
    tf32 = operator("aten::addmm", kernel("sm80_xmma_gemm_tf32f32_tf32f32_f32_tn", 500_000), dtype="float32")
    assert found(draft(tf32, summary=timeline()), "tensor_cores_unused") is None
    bf16 = operator("aten::addmm", kernel("gemm", 500_000), dtype="bfloat16")
    assert found(draft(bf16, summary=timeline()), "tensor_cores_unused") is None
    elsewhere = draft(sgemm, summary=timeline(), capture_metadata=builders.metadata(device_name="Mystery 9000"))
    assert "Mystery 9000" in str(reason(elsewhere, "tensor_cores_unused"))
    assert found(draft(sgemm, summary=timeline(cpu=True), device="cpu"), "tensor_cores_unused") is None


def test_every_rule_has_wording_and_every_wording_a_rule() -> None:
    assert set(RULES) == set(bottlenecks().rules)


def test_findings_are_ranked_and_inside_bounds() -> None:
    profile = diagnose(draft(operator("aten::relu", *[kernel(f"k{n}", 4_000) for n in range(60)]),
                             summary=timeline(cpu_bound_share_pct=50.0)))
    gains = [finding.estimated_gain_pct for finding in profile.findings]
    assert gains == sorted(gains, reverse=True) and len(gains) >= 3 and all(0 <= gain <= 100 for gain in gains)
    assert all("=" in finding.trigger for finding in profile.findings)


def test_stages_get_a_verdict_and_few_words() -> None:
    profile = diagnose(draft(operator("aten::mm", kernel("gemm", 500_000), flops=780e12 * 500e-6 * 0.9, min_bytes=1e6),
                             operator("aten::gelu", kernel("vec", 10_000), min_bytes=1e7), summary=timeline()))
    mm, gelu = profile.stages
    assert (mm.bottleneck, mm.key_issue) == ("Compute", "90% of compute roof")
    assert gelu.bottleneck is None and gelu.key_issue == "24% of memory roof"


def test_event_mode_works_without_timeline_and_operators() -> None:
    profile = diagnose(draft(work_pct=(5.0, 80.0)))
    assert profile.bottleneck.kind == "Memory" and profile.findings[0].rule == "roof_distance"
    assert {entry.name for entry in profile.abstained} >= {"launch_gaps", "small_kernels", "occupancy"}


def test_a_suspect_timing_is_said_in_the_root_cause() -> None:
    suspect = draft(work_pct=(5.0, 80.0))
    assert suspect.timing is not None
    noisy = suspect.model_copy(update={"timing": suspect.timing.model_copy(update={"warning": "only 3 samples"})})
    assert diagnose(noisy).bottleneck.root_cause.endswith(" The timing is suspect: only 3 samples.")
    assert "suspect" not in diagnose(suspect.model_copy(update={"timing": None})).bottleneck.root_cause


def test_a_suspect_timing_of_a_cpu_is_said_beside_the_shares_that_it_spoils() -> None:
    def cause(took_us: float) -> str:
        timing = builders.timing(took_us).model_copy(update={"warning": "noisy: x"})
        return bottleneck(builders.cpu_annotation(timing=timing, stages=(builders.stage("aten::mm", 24800.0, 100.0),))).root_cause

    assert cause(24000.0).endswith(" The timing is suspect (noisy: x): beside other work every share of a peak is too small.")
    assert cause(1770.0).endswith("in time and in share; the timing is suspect too (noisy: x).") and sentences(cause(1770.0)) <= 2


def test_cpu_stages_that_add_up_to_far_more_than_the_call_say_so() -> None:
    """Seen on a busy machine: 24.8 ms of stages in a call of 1.77 ms."""
    rows = (builders.stage("aten::mm", 24800.0, 100.0),)
    cause = bottleneck(builders.cpu_annotation(timing=builders.timing(1770.0), stages=rows)).root_cause
    assert "are 14.0 times the call: the small ones are too large" in cause and sentences(cause) <= 2
    alike = bottleneck(builders.cpu_annotation(timing=builders.timing(24000.0), stages=rows)).root_cause
    assert "times the call" not in alike


def test_a_corrected_share_says_so_beside_a_stage_row_that_is_not() -> None:
    profile = builders.cpu_annotation(timing=builders.timing(1e9))
    line = profile.timeline.model_copy(update={"idle_share_pct": 0.0, "profiled_idle_share_pct": 21.0})
    cause = bottleneck(profile.model_copy(update={"timeline": line})).root_cause
    assert "0% of the step passed outside operators, corrected for the profiler's overhead (21% under it)." in cause


def test_a_stage_that_is_faster_than_memory_is_not_memory_bound() -> None:
    """Its data lie in a cache: 100% of the memory roof would be no figure of its own."""
    profile = draft(operator("aten::add_", kernel("k", 1000)), summary=timeline())
    for share, kind, issue in ((250.0, None, "faster than memory (cached)"), (90.0, "Memory", "90% of memory roof")):
        stage = profile.stages[0].model_copy(update={"bandwidth_pct": share, "compute_pct": None, "roof_pct": min(share, 100.0),
                                                     "binding_roof": "memory", "roof_evidence": "analytic"})
        judged = diagnose(profile.model_copy(update={"stages": (stage,)})).stages[0]
        assert (judged.bottleneck, judged.key_issue) == (kind, issue)
