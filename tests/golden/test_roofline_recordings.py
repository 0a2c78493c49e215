"""The roofline of recorded runs (H200): points against sums over the launches' own counters and against the shapes."""

from __future__ import annotations

import pytest

from kernelwright.model.profile import Profile
from kernelwright.report.roofline import draw, shown
from kernelwright.roofline.shapes import product_work
from recorded_profiles import recorded_profile

FP32 = {"ffma": 2, "fadd": 1, "fmul": 1}


@pytest.fixture(scope="module", params=["conv", "gpt2"])
def case(request, tmp_path_factory):
    return request.param, recorded_profile(request.param, tmp_path_factory.mktemp(request.param))


def flops_of(raw: dict[str, float]) -> float:
    """Plain float32 and TF32, by hand."""
    plain = sum(times * raw[f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum"] for op, times in FP32.items())
    return plain + raw["sm__ops_path_tensor_src_tf32_dst_fp32.sum"]


def kernels(profile: Profile, stage: str):
    return [kernel for operator in profile.operators if operator.operator_name == stage for kernel in operator.kernels
            if kernel.category == "kernel"]


def test_points_are_the_sums_of_the_launches(case):
    _name, profile = case
    steps = profile.timeline.steps
    dram = {point.name: point for point in profile.roofline_points if point.scope == "stage" and point.level == "dram"}
    assert dram
    for name, point in dram.items():
        rows = kernels(profile, name)
        flops = sum(flops_of(kernel.metrics.raw) for kernel in rows) / steps
        size = sum(kernel.metrics.raw["dram__bytes_read.sum"] + kernel.metrics.raw["dram__bytes_write.sum"] for kernel in rows) / steps
        time = sum(kernel.duration_ns for kernel in rows) / steps
        assert point.evidence == "counters"
        assert (point.flops, point.bytes, point.duration_ns) == (pytest.approx(flops), pytest.approx(size), pytest.approx(time))
        assert point.intensity == pytest.approx(flops / size) and point.tflops == pytest.approx(flops / time / 1e3)


def test_counted_flops_of_products_are_those_of_their_shapes(case):
    name, profile = case
    if name == "conv":
        found = next(point for point in profile.roofline_points if point.name == "aten::cudnn_convolution" and point.level == "dram")
        by_hand = 2 * 16 * 64 * 64 * 9 * (3 * 64 + 64 * 128 + 128 * 256)
        assert found.flops == pytest.approx(by_hand, rel=0.02) and found.pipe == "tensor:tf32"
        return
    for product in ("aten::mm", "aten::addmm"):
        found = next(point for point in profile.roofline_points if point.name == product and point.level == "dram")
        rows = [operator for operator in profile.operators if operator.operator_name == product]
        by_hand = sum(product_work(product, operator.input_shapes)[0] for operator in rows) / profile.timeline.steps
        assert found.flops == pytest.approx(by_hand, rel=0.01) and found.pipe == "plain:float32"


def test_stages_are_held_against_their_nearest_roof_by_counters(case):
    name, profile = case
    heavy = [stage for stage in profile.stages if stage.share_pct > 1]
    assert {stage.roof_evidence for stage in heavy} == {"counters"} and all(0 < stage.roof_pct <= 100 for stage in heavy)
    assert heavy[0].binding_roof == {"conv": "tensor pipe", "gpt2": "FMA pipe"}[name]
    distance = next(finding for finding in profile.findings if finding.rule == "roof_distance")
    assert distance.evidence == "counters"


def test_no_honest_operator_breaks_conservation(case):
    _name, profile = case
    assert [finding.trigger for finding in profile.findings if finding.rule.endswith("_audit")] == []
    assert not {entry.name for entry in profile.abstained} & {"flops_audit", "bytes_audit"}, "both could be decided"


def test_the_picture_shows_all_levels_that_were_counted(case):
    name, profile = case
    pictures = draw(profile)
    assert pictures == draw(profile) and len(pictures["roofline.svg"]) < 80_000
    levels = {point.level for stage in shown(profile) for point in stage.points}
    assert levels >= {"dram", "l1"}
    assert len(shown(profile)) == {"conv": 5, "gpt2": 8}[name]
