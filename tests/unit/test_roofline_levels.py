"""The hierarchical roofline on counters of known kernels (H200): points, shares and audits against hand-computed values."""

from __future__ import annotations

import pytest

from builders import metadata
from kernelwright.attribute.owned import aggregate
from kernelwright.diagnose.rules import bytes_audit, flops_audit, roof_distance, stage_far_from_roof
from kernelwright.model.base import Abstained
from kernelwright.model.capture import ProbeEnvironment, ProbePeak
from kernelwright.model.profile import (
    Attribution,
    Bottleneck,
    Finding,
    Kernel,
    Metrics,
    Operator,
    Profile,
    TimelineSummary,
)
from kernelwright.model.roofline import RooflinePoint
from kernelwright.model.workload import WorkloadFacts
from kernelwright.roofline import roof, stages, with_product_work, with_roofline
from kernelwright.roofline.ceilings import ceilings, other_pipes
from kernelwright.roofline.knowledge import bottlenecks, datasheet
from kernelwright.roofline.shapes import product_work
from known_counters import launches as recorded_launches

KNOWN = {case: recorded_launches(case) for case in (
    "copy_strided", "copy_float4", "spills", "softmax_torch", "sum_torch", "gemm_f32_k3072", "gemm_f32_4096", "gemm_tf32_4096",
    "gemm_bf16_4096")}
N = 1 << 26
"""Elements of the large float32 arrays of the recording."""
PEAKS = (
    ProbePeak(name="bandwidth", value=4200.0, unit="GB/s", method="copy of 512 MiB"),
    ProbePeak(name="bandwidth:l2", value=6000.0, unit="GB/s", method="copies of 7 MiB"),
    ProbePeak(name="matmul:float32", value=51.0, unit="TFLOP/s", method="matmul"),
    ProbePeak(name="matmul:tf32", value=410.0, unit="TFLOP/s", method="matmul"),
    ProbePeak(name="matmul:bfloat16", value=780.0, unit="TFLOP/s", method="matmul"))


def environment(**changes: object) -> ProbeEnvironment:
    values: dict[str, object] = {
        "device": "cuda", "device_name": "NVIDIA H200", "torch_version": "2.11.0", "cuda_version": "13.0", "python_version": "3.12.3",
        "triton_version": None, "compute_capability": "9.0", "sm_count": 132, "l2_bytes": 62914560, "device_memory_bytes": 1,
        "cpu_threads": 8, "matmul_tf32": False, "cudnn_tf32": False, "cudnn_benchmark": False}
    return ProbeEnvironment.model_validate({**values, **changes})


def facts(dtype: str = "float32") -> WorkloadFacts:
    return WorkloadFacts(form="model", version=None, params={}, inputs=(), outputs=(), training=False, dtype=dtype, parameter_count=0,
                         parameter_bytes=0, already_compiled=False)


def launches(case: str, *, keep: bool = True) -> tuple[Kernel, ...]:
    """The launches of one recorded case, with their counters unless told otherwise."""
    made = []
    for place, raw in enumerate(KNOWN[case]):
        time = int(raw["gpu__time_duration.sum"])
        made.append(Kernel(
            kernel_id=f"{case}{place}", kernel_name=f"{case}_kernel{place}", stream_id=7, device_id=0, start_ns=0, end_ns=time,
            duration_ns=time, metrics=Metrics(raw=raw, origin="measured") if keep else Metrics(),
            attribution=Attribution(method="nvtx", confidence="high")))
    return tuple(made)


def operator(name: str, case: str, *, keep: bool = True, **changes: object) -> Operator:
    kernels = launches(case, keep=keep)
    return Operator.model_validate({"operator_id": f"{name}_0", "operator_name": name, "call_index": 0, "step": 0, "kernels": kernels,
                                    "aggregated": aggregate(kernels), **changes})


def profile(*operators: Operator, dtype: str = "float32", peaks: tuple[ProbePeak, ...] = PEAKS, **changes: object) -> Profile:
    """One step of these operators back to back."""
    where = environment(**changes)
    ceiling = roof(peaks, where, facts(dtype))
    total = sum(each.aggregated.total_duration_ns for each in operators)
    line = TimelineSummary(
        steps=1, step_wall_ns=(total,), measured_ns=total, attributed_ns=total, unattributed_ns=0, busy_ns=total, span_ns=total,
        idle_share_pct=0.0, launches=len(operators), gap_count=0, gap_median_ns=None, gap_total_ns=0, cpu_bound_share_pct=0.0,
        kernels_total=len(operators))
    return with_roofline(Profile(
        capture_metadata=metadata(compute_capability="9.0", l2_bytes=62914560, dtype=dtype), roofline=ceiling, timeline=line,
        operators=operators, stages=stages(operators, (), ceiling, 1), bottleneck=Bottleneck(kind=None, root_cause="")))


def point(found: Profile, name: str, level: str) -> RooflinePoint:
    return next(each for each in found.roofline_points if (each.scope, each.name, each.level) == ("stage", name, level))


def test_a_product_stands_where_its_shapes_put_it() -> None:
    found = profile(operator("aten::mm", "gemm_f32_4096"))
    time = KNOWN["gemm_f32_4096"][0]["gpu__time_duration.sum"]
    dram, l1 = point(found, "aten::mm", "dram"), point(found, "aten::mm", "l1")
    assert dram.flops == pytest.approx(2 * 4096**3, rel=0.01) and dram.pipe == "plain:float32" and dram.evidence == "counters"
    assert dram.tflops == pytest.approx(2 * 4096**3 / time * 1e-3, rel=0.01)
    assert dram.intensity == pytest.approx(dram.flops / 396.3e6, rel=0.01), "341.98 MB read + 54.33 MB written"
    assert dram.roof_pct == pytest.approx(100 * dram.tflops / 51.0), "right of the ridge the plain pipe is the roof"
    assert l1.bytes == pytest.approx(3288.3e6, rel=0.01) and l1.intensity < dram.intensity
    row = found.stages[0]
    assert row.roof_evidence == "counters" and row.binding_roof == "FMA pipe" and row.roof_pct is not None and 90 < row.roof_pct <= 100


@pytest.mark.parametrize(("case", "dtype", "pipe", "l1"), [
    ("gemm_tf32_4096", "float32", "tensor:tf32", False), ("gemm_bf16_4096", "bfloat16", "tensor:bfloat16", False)])
def test_tensor_products_count_on_their_pipe_and_tma_goes_past_l1(case: str, dtype: str, pipe: str, l1: bool) -> None:
    found = profile(operator("aten::mm", case), dtype=dtype)
    dram = point(found, "aten::mm", "dram")
    assert dram.pipe == pipe and dram.flops == pytest.approx(2 * 4096**3, rel=0.01)
    assert any(each.level == "l1" for each in found.roofline_points) is l1, "L1 counters do not see what TMA copies"
    assert found.stages[0].binding_roof == "tensor pipe"


def test_a_reduction_stands_on_the_memory_slope() -> None:
    found = profile(operator("aten::sum", "sum_torch", min_bytes=4.0 * N))
    dram, l1 = point(found, "aten::sum", "dram"), point(found, "aten::sum", "l1")
    assert dram.bytes == pytest.approx(4 * N, rel=0.05) and l1.bytes == pytest.approx(4 * N, rel=0.05)
    assert dram.flops == pytest.approx(N, rel=0.05) and dram.intensity == pytest.approx(0.25, rel=0.06)
    time = KNOWN["sum_torch"][0]["gpu__time_duration.sum"]
    assert dram.roof_pct == pytest.approx(100 * dram.bytes / time / 4200.0)
    assert found.stages[0].binding_roof in ("DRAM", "L2") and (found.stages[0].roof_pct or 0) > 90


def test_a_copy_has_no_flops_although_the_compiler_loads_constants_by_half_arithmetic() -> None:
    found = profile(operator("aten::copy_", "copy_strided"))
    assert [each for each in found.roofline_points if each.flops > 1e6] == []
    assert found.stages[0].binding_roof in ("L2", "DRAM", "L1", "ALU pipe") and found.stages[0].roof_evidence == "counters"


def test_without_counters_the_shapes_say_where_it_stands() -> None:
    found = profile(operator("aten::mm", "gemm_f32_4096", keep=False, flops=2.0 * 4096**3, min_bytes=3.0 * 4 * 4096**2))
    dram = point(found, "aten::mm", "dram")
    assert dram.evidence == "analytic" and dram.intensity == pytest.approx(4096 / 6) and dram.pipe == "plain:float32"
    assert {each.level for each in found.roofline_points} == {"dram"} and found.stages[0].roof_evidence == "analytic"


def test_products_of_uncounted_steps_get_their_work_from_shapes() -> None:
    assert product_work("aten::mm", ((2, 3), (3, 5))) == (60.0, 6 + 15 + 10)
    assert product_work("aten::addmm", ((5,), (2, 3), (3, 5))) == (60.0, 6 + 15 + 10 + 5)
    assert product_work("aten::bmm", ((7, 2, 3), (7, 3, 5))) == (420.0, 7 * (6 + 15 + 10))
    for shapes in (((2, 3), (4, 5)), ((2, 3),), ((), ()), ((2, 3), (3,)), ((0, 3), (3, 5)), ((1, 2, 3), (7, 3, 5))):
        assert product_work("aten::mm", shapes) is None
    bare = operator("aten::mm", "gemm_f32_4096", keep=False, input_shapes=((4096, 4096), (4096, 4096)), dtype="float32")
    known = with_product_work((bare,))[0]
    assert (known.flops, known.min_bytes) == (2.0 * 4096**3, 3.0 * 4 * 4096**2)
    counted = bare.model_copy(update={"operator_name": "aten::add", "min_bytes": 1.0})
    assert with_product_work((bare, counted)) == (bare, counted), "where anything was counted, the count stands"


def test_roofs_come_measured_beside_the_datasheet_and_unknown_ones_are_left_out() -> None:
    found = {each.name: each for each in ceilings(PEAKS, environment(), "bfloat16")}
    assert list(found) == ["dram", "l2", "l1", "tensor:bfloat16", "plain:float32"]
    assert found["l2"].measured is not None and found["l2"].datasheet is None, "NVIDIA prints no L2 bandwidth of an H200"
    assert found["l1"].measured is None and found["l1"].datasheet is not None
    assert found["l1"].datasheet.value == pytest.approx(132 * 128 * 1.98, rel=0.01), "132 SMs x 128 B x 1.98 GHz"
    a100 = datasheet("NVIDIA A100-SXM4-80GB")
    assert a100 is not None and a100.l1_gbs == pytest.approx(108 * 128 * 1.41, rel=0.01)
    without_l2 = [peak for peak in PEAKS if peak.name != "bandwidth:l2"]
    older = {each.name for each in ceilings(without_l2, environment(), "float32")}
    assert older == {"dram", "l1", "tensor:tf32", "plain:float32"}, "a calibration from before L2 was measured"
    on_cpu = ceilings(without_l2, environment(device="cpu", device_name="Some CPU", compute_capability=None), "float32")
    assert [each.name for each in on_cpu] == ["dram", "matmul:float32"]
    assert ceilings((), environment(device_name="Mystery 9000"), "float32") == ()


def test_pipes_of_narrower_arithmetic_stand_apart_from_those_in_use() -> None:
    found = {each.name: each for each in other_pipes(PEAKS, environment(), "float32")}
    assert list(found) == ["tensor:bfloat16", "tensor:float16"], "TF32's stands among the ceilings of float32 already"
    assert found["tensor:float16"].datasheet is not None and found["tensor:float16"].datasheet.value == 989.5
    assert [each.name for each in other_pipes(PEAKS, environment(), "bfloat16")] == ["tensor:tf32", "tensor:float16"]
    cpu = environment(device="cpu", device_name="Some CPU", compute_capability=None)
    assert [each.name for each in other_pipes(PEAKS, cpu, "float32")] == ["matmul:tf32", "matmul:bfloat16"]
    assert other_pipes((), environment(device_name="Mystery 9000"), "float32") == ()


def audit(name: str, *operators: Operator) -> Finding | Abstained | None:
    rule = {"bytes_audit": bytes_audit, "flops_audit": flops_audit}[name]
    return rule.check(profile(*operators), bottlenecks().rules[name])


@pytest.mark.parametrize(("name", "case", "minimum"), [
    ("aten::copy_", "copy_float4", 8.0 * N), ("aten::sum", "sum_torch", 4.0 * N), ("aten::softmax", "softmax_torch", 8.0 * N),
    ("aten::mm", "gemm_f32_4096", 3 * 4.0 * 4096**2),
    ("aten::mm", "gemm_f32_k3072", 4.0 * (512 * 3072 + 3072 * 768 + 512 * 768))])
def test_honest_kernels_pass_the_bytes_audit(name: str, case: str, minimum: float) -> None:
    assert audit("bytes_audit", operator(name, case, min_bytes=minimum)) is None


def test_dram_writes_that_stay_in_l2_are_no_missing_bytes() -> None:
    raw = KNOWN["gemm_f32_k3072"][0]
    assert raw["dram__bytes_write.sum"] < 0.5 * 4 * 512 * 768, "the output stayed in L2"
    assert audit("bytes_audit", operator("aten::mm", "gemm_f32_k3072", min_bytes=raw["dram__bytes_read.sum"] + 4.0 * 512 * 768)) is None


def test_a_launch_that_does_not_read_its_input_is_found() -> None:
    found = audit("bytes_audit", operator("aten::sum", "sum_torch", min_bytes=16.0 * N, input_shapes=((N, 4),)))
    assert isinstance(found, Finding) and found.evidence == "counters" and found.estimated_gain_pct == 0
    moved = max(KNOWN["sum_torch"][0][name] for name in ("l1tex__t_bytes.sum", "dram__bytes_read.sum"))
    moved = max(moved, KNOWN["sum_torch"][0]["dram__bytes_read.sum"] + KNOWN["sum_torch"][0]["dram__bytes_write.sum"])
    assert found.trigger == f"bytes_over_minimum={moved / (16 * N):.2f}" and "1.07e+03 MB" in found.detail
    skipped = audit("flops_audit", operator("aten::mm", "gemm_f32_4096", flops=4.0 * 4096**3))
    assert isinstance(skipped, Finding) and skipped.trigger == "flops_over_minimum=0.50"


def test_far_more_than_the_minimum_is_a_finding_with_the_time_it_costs() -> None:
    spilling = operator("mine::spills", "spills", min_bytes=100e6)
    found = audit("bytes_audit", spilling)
    assert isinstance(found, Finding) and found.trigger == "bytes_over_minimum=10.36", "309.82 MB read + 726.03 MB written"
    doubled = audit("flops_audit", operator("aten::mm", "gemm_f32_4096", flops=1.0 * 4096**3), operator("aten::sum", "sum_torch"))
    assert isinstance(doubled, Finding) and doubled.trigger == "flops_over_minimum=2.00"
    share = 2680.7 / (2680.7 + 67.4)
    assert 0 < doubled.estimated_gain_pct <= 100 * share * 0.51, "at most the half of its share, less where the next roof binds"


def test_reads_that_l2_could_have_served_are_not_held_against_a_call_of_two_launches() -> None:
    first, second = KNOWN["gemm_f32_k3072"]
    own = first["dram__bytes_read.sum"] + first["dram__bytes_write.sum"] + second["dram__bytes_write.sum"]
    assert second["dram__bytes_read.sum"] > own, "the flush makes the second launch read its input from DRAM"
    assert audit("bytes_audit", operator("aten::mm", "gemm_f32_k3072", min_bytes=own / 1.9)) is None
    assert isinstance(audit("bytes_audit", operator("aten::mm", "gemm_f32_k3072", min_bytes=own / 2.1)), Finding)


def test_audits_abstain_without_counters_and_without_a_minimum() -> None:
    for name in ("bytes_audit", "flops_audit"):
        without = audit(name, operator("aten::mm", "gemm_f32_4096", keep=False, flops=1.0, min_bytes=1.0))
        assert isinstance(without, Abstained) and "no hardware counters" in without.reason
        unknown = audit(name, operator("aten::mm", "gemm_f32_4096"))
        assert isinstance(unknown, Abstained) and "known" in unknown.reason
    past_l1 = audit("bytes_audit", operator("aten::mm", "gemm_bf16_4096", min_bytes=3 * 2.0 * 4096**2))
    assert isinstance(past_l1, Abstained), "TMA goes past L1, this recording has no L2 bytes, and DRAM alone proves nothing"
    light = operator("aten::sum", "sum_torch", min_bytes=1.0).model_copy(update={"kernels": (launches("sum_torch")[0].model_copy(update={
        "duration_ns": 1}),)})
    light = light.model_copy(update={"aggregated": aggregate(light.kernels)})
    assert audit("bytes_audit", light, operator("aten::mm", "gemm_f32_4096", min_bytes=3 * 4.0 * 4096**2)) is None, "too light to matter"


def test_opportunities_follow_the_binding_roof_by_counters() -> None:
    found = profile(operator("aten::mm", "gemm_f32_k3072"))
    row = found.stages[0]
    distance = roof_distance.check(found, bottlenecks().rules["roof_distance"])
    assert isinstance(distance, Finding) and distance.evidence == "counters"
    assert distance.estimated_gain_pct == pytest.approx(100 - (row.roof_pct or 0), abs=0.5), "one stage: the call's roof is its own"
    noted = found.model_copy(update={"stages": (row.model_copy(update={"roof_pct": 40.0, "ncu_estimate_pct": 33.0}),)})
    far = stage_far_from_roof.check(noted, bottlenecks().rules["stage_far_from_roof"])
    assert isinstance(far, Finding) and far.evidence == "counters" and far.ncu_estimate_pct == 33.0
    assert far.estimated_gain_pct == pytest.approx(60.0) and "FMA pipe roof" in far.detail


def test_more_than_dram_can_give_means_that_l2_served_it() -> None:
    fast = launches("sum_torch")[0].model_copy(update={"duration_ns": 20_000})  # 268 MB in 20 us: 13 TB/s
    row = operator("aten::sum", "sum_torch").model_copy(update={"kernels": (fast,), "aggregated": aggregate((fast,))})
    assert profile(row).stages[0].binding_roof != "DRAM"
