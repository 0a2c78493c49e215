"""Rules on counters: each fires on the recorded kernel that was made for it, is silent on a healthy one, and abstains without counters."""

from __future__ import annotations

import pytest

import builders
from kernelwright.attribute.owned import aggregate
from kernelwright.diagnose import diagnose
from kernelwright.diagnose.rules.warp_stalls import REASONS
from kernelwright.model.base import Abstained
from kernelwright.model.counters import NoCounters
from kernelwright.model.profile import Bottleneck, Finding, Operator, Profile
from kernelwright.roofline import counters as role_counters
from kernelwright.roofline import stages
from kernelwright.roofline.counters import Raw, roles
from kernelwright.roofline.knowledge import Way, bottlenecks, counter_knowledge
from known_counters import ARRAY, counted_kernel, launches, raw

CALL_NS = 1_000_000
STEPS = 2
MIN_BYTES = {"copy_float4": 2.0 * ARRAY, "copy_strided": 2.0 * ARRAY, "softmax_triton": 2.0 * ARRAY, "sum_blocks": float(ARRAY),
             "gemm_bf16_4096": 3 * 2 * 4096.0**2}
COUNTER_RULES = ("occupancy", "l2_hit", "spilling", "waves", "uncoalesced_access", "bank_conflicts", "warp_stalls", "issue_rate",
                 "fp64_promotion")
QUIET = "gemm_f32_4096"
"""At 77% of the FP32 pipe: nothing to say, low occupancy or not."""


def case_operator(case: str, duration_ns: int = CALL_NS, metrics: dict[str, float] | None = None, **changes: object) -> Operator:
    """The launches of a recorded case as one operator call that takes duration_ns; metrics: instead of the recorded ones."""
    rows = launches(case)[:1] if metrics is None else [metrics]
    kernels = tuple(counted_kernel(f"{case}_kernel", duration_ns, row) for row in rows)
    values: dict[str, object] = {
        "operator_id": f"aten::{case}_0", "operator_name": f"aten::{case}", "call_index": 0, "step": 0, "kernels": kernels,
        "dtype": "float32", "aggregated": aggregate(kernels), "min_bytes": MIN_BYTES.get(case), "source": f"model.py:{len(case)}"}
    return Operator.model_validate({**values, **changes})


def profile_of(*operators: Operator, **changes: object) -> Profile:
    """Two steps of 1 ms in all, all of it kernels unless their durations say otherwise."""
    roof = builders.roofline("float32")
    values: dict[str, object] = {
        "capture_metadata": builders.metadata(dtype="float32"), "timing": builders.timing(CALL_NS / STEPS / 1000), "roofline": roof,
        "timeline": builders.timeline(CALL_NS, CALL_NS).model_copy(update={"idle_share_pct": 0.0}), "operators": operators,
        "stages": stages(operators, (), roof, STEPS), "bottleneck": Bottleneck(kind=None, root_cause="")}
    return Profile.model_validate({**values, **changes})


def outcome(profile: Profile, rule: str) -> Finding | Abstained | None:
    done = diagnose(profile)
    return next((each for each in done.findings if each.rule == rule), None) or next(
        (each for each in done.abstained if each.name == rule), None)


def on(case: str, rule: str, **changes: object) -> Finding | Abstained | None:
    return outcome(profile_of(case_operator(case, **changes)), rule)


FIRES = {
    ("one_block_chase", "occupancy"): ("achieved_occupancy=3.11%", 80, 100),
    ("gemm_bf16_4096", "l2_hit"): ("l2_hit=71%", 5, 15),
    ("spills", "spilling"): ("local_spilling=1.73e+09 B", 50, 70),
    ("one_block_chase", "waves"): ("waves_per_sm=0.000237", 95, 100),
    ("copy_strided", "uncoalesced_access"): ("sector_use=50%", 30, 40),
    ("spills", "uncoalesced_access"): ("sector_use=50%", 45, 51),
    ("bank_conflicts", "bank_conflicts"): ("bank_conflicts=97%", 90, 97),
    ("one_block_chase", "warp_stalls"): ("top_stall=100%", 95, 100),
    ("bank_conflicts", "warp_stalls"): ("top_stall=88%", 80, 90),
    ("gemm_f32_k768", "issue_rate"): ("issue_slots_busy=86%", 25, 40),
}
"""(case, rule) -> trigger, and between what the estimated gain lies, %."""


@pytest.mark.parametrize(("case", "rule"), FIRES)
def test_fires_on_the_kernel_made_for_it(case: str, rule: str) -> None:
    trigger, least, most = FIRES[case, rule]
    found = on(case, rule)
    if (case, rule) == ("bank_conflicts", "warp_stalls"):
        assert found is None, "yields to bank_conflicts, which says why"
        return
    assert isinstance(found, Finding)
    assert found.trigger == trigger and least <= found.estimated_gain_pct <= most
    assert found.evidence == "counters" and found.hint and found.playbook.startswith("knowledge/playbooks/")
    assert found.stage == f"aten::{case}" and f"{case}_kernel" in found.detail and found.where == f"model.py:{len(case)}"


@pytest.mark.parametrize("rule", COUNTER_RULES)
def test_silent_on_a_healthy_kernel(rule: str) -> None:
    assert on(QUIET, rule) is None


@pytest.mark.parametrize("case", ["copy_float4", "sum_blocks", "softmax_triton"])
def test_a_kernel_at_its_memory_roof_has_nothing_to_mend(case: str) -> None:
    """Hit rates of 53%, 1% and 51%, and warps that only wait for memory: each byte is read once, at 82 to 85% of DRAM."""
    for rule in COUNTER_RULES:
        assert on(case, rule) is None, rule


@pytest.mark.parametrize("rule", COUNTER_RULES)
def test_abstains_without_counters(rule: str) -> None:
    blind = profile_of(case_operator("copy_float4", metrics={}))
    found = outcome(blind, rule)
    assert isinstance(found, Abstained) and found.reason == "no hardware counters in this capture"
    denied = blind.model_copy(update={"no_counters": NoCounters(code="counters_denied", reason="the driver allows them to administrators")})
    found = outcome(denied, rule)
    assert isinstance(found, Abstained) and found.reason.endswith(": the driver allows them to administrators")


@pytest.mark.parametrize("rule", COUNTER_RULES)
def test_abstains_with_the_name_of_the_counter_that_lacks(rule: str) -> None:
    found = on("copy_float4", rule, metrics={"gpu__time_duration.sum": 1.0})
    assert isinstance(found, Abstained) and ("not collected" in found.reason) and found.reason.split(":")[0] in roles()


def test_a_little_local_memory_in_a_tensor_core_product_is_no_matter() -> None:
    """Its data goes past L1 by asynchronous copies, so nearly all that L1 sees is local."""
    assert raw("gemm_tf32_4096")["l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"] > 0 and on("gemm_tf32_4096", "spilling") is None


def test_fp64_in_a_float32_operator() -> None:
    metrics = {**raw("fma_chain"), "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed": 42.0}
    found = on("promoted", "fp64_promotion", metrics=metrics)
    assert isinstance(found, Finding) and found.trigger == "fp64_pipe=42%" and found.estimated_gain_pct == pytest.approx(42.0)
    assert "float32" in found.detail
    for dtype in ("float64", ""):
        assert on("promoted", "fp64_promotion", metrics=metrics, dtype=dtype) is None, "float64 is what it should compute in"


def test_bytes_used_of_a_sector_come_before_requests() -> None:
    loads = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"
    metrics = {**raw("copy_strided"), loads: 4.0, "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": 32.0}
    found = on("copy_strided", "uncoalesced_access", metrics=metrics)
    assert isinstance(found, Finding) and found.trigger == "sector_use=12%" and "Global loads" in found.detail
    found = on("copy_strided", "uncoalesced_access", metrics={**metrics, loads: 0.0})
    assert found is None, "no loads, and whole sectors stored"


def test_low_occupancy_says_what_limits_it() -> None:
    few = on("one_block_chase", "occupancy")
    assert isinstance(few, Finding) and "too few blocks" in few.detail and "Launch more blocks" in few.hint
    registers = dict(raw("gemm_f32_4096"), **{"sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed": 20.0})
    found = on("gemm", "occupancy", metrics=registers)
    assert isinstance(found, Finding) and "registers allow at most 12.5%" in found.detail and found.hint.startswith("Registers limit")
    shared = dict(registers, launch__occupancy_limit_registers=9.0, launch__occupancy_limit_shared_mem=1.0)
    found = on("gemm", "occupancy", metrics=shared)
    assert isinstance(found, Finding) and "shared memory allow" in found.detail and "num_stages" in found.hint
    unknown = {name: figure for name, figure in registers.items() if not name.startswith("launch__")}
    found = on("gemm", "occupancy", metrics=unknown)
    assert isinstance(found, Finding) and "was not collected" in found.detail


def test_waves_lose_what_uneven_blocks_lose() -> None:
    """384 blocks on 132 SMs: 2.9 each, as long as 3; 288 blocks: 2.2 each, also as long as 3."""
    assert raw("gemm_f32_k768")["launch__grid_size"] == 384
    even = on("gemm_f32_k768", "waves")
    assert isinstance(even, Finding) and even.estimated_gain_pct == pytest.approx((1 - 384 / 132 / 3) * (100 - 58.03), abs=0.01)
    fewer = {**raw("gemm_f32_k768"), "launch__grid_size": 288.0, "launch__waves_per_multiprocessor": 0.545}
    uneven = on("gemm_f32_k768", "waves", metrics=fewer)
    assert isinstance(uneven, Finding) and uneven.estimated_gain_pct == pytest.approx((1 - 288 / 132 / 3) * (100 - 58.03), abs=0.01)


def test_l2_hit_rate_without_known_bytes_is_an_upper_bound() -> None:
    for case in ("gemm_bf16_4096", "sum_torch"):
        assert on(case, "l2_hit", min_bytes=None) is None, "at its roof: it may use each byte once"
    below = {**raw("sum_torch"), "dram__throughput.avg.pct_of_peak_sustained_elapsed": 50.0}
    found = on("sum_torch", "l2_hit", metrics=below)
    assert isinstance(found, Finding) and found.estimated_gain_pct == pytest.approx(50 * (1 - 0.956 / 80), rel=0.01)


def test_every_stall_has_words_and_a_hint_and_is_a_role() -> None:
    texts = bottlenecks().rules["warp_stalls"].texts
    assert set(texts) == {*REASONS, *(f"{reason}_words" for reason in REASONS)}
    stalls = {name for name in roles() if name.startswith("stall_")}
    assert stalls == {f"stall_{reason}_pct" for reason in (*REASONS, "selected", "not_selected")}


def test_the_gain_is_the_share_of_the_call() -> None:
    """Amdahl: the same kernel in a tenth of the call gains a tenth."""
    whole = on("spills", "spilling")
    tenth = outcome(profile_of(case_operator("spills", CALL_NS // 10), case_operator(QUIET, CALL_NS * 9 // 10)), "spilling")
    assert isinstance(whole, Finding) and isinstance(tenth, Finding)
    assert tenth.estimated_gain_pct == pytest.approx(whole.estimated_gain_pct / 10, rel=1e-3)
    trifle = profile_of(case_operator("spills", CALL_NS // 100), case_operator(QUIET, CALL_NS * 99 // 100))
    assert outcome(trifle, "spilling") is None, "less than 1% of the call is no finding"


def test_the_worst_kernel_gives_its_name_and_the_others_are_counted() -> None:
    both = profile_of(case_operator("one_block_chase", 700_000), case_operator("gemm_f32_k3072", 300_000, metrics={
        **raw("gemm_f32_k3072"), "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed": 10.0}))
    found = outcome(both, "occupancy")
    assert isinstance(found, Finding) and "one_block_chase_kernel" in found.detail and found.detail.endswith("Likewise another kernel.")


def test_stage_columns_and_key_issue_come_from_counters() -> None:
    done = diagnose(profile_of(case_operator("bank_conflicts", 400_000), case_operator("gemm_tf32_4096", 350_000),
                               case_operator("copy_float4", 250_000)))
    rows = {stage.name.removeprefix("aten::"): stage for stage in done.stages}
    assert rows["gemm_tf32_4096"].tc_pct == pytest.approx(87.78, abs=0.01) and rows["gemm_tf32_4096"].bottleneck == "Compute"
    assert rows["copy_float4"].dram_pct == pytest.approx(81.72, abs=0.01) and rows["copy_float4"].bottleneck == "Memory"
    assert rows["bank_conflicts"].occupancy_pct == pytest.approx(91.5, abs=0.1)
    assert (rows["bank_conflicts"].bottleneck, rows["bank_conflicts"].key_issue) == ("Latency", "bank conflicts")


def test_the_verdict_rests_on_counters_where_they_cover_the_time() -> None:
    fma = diagnose(profile_of(case_operator("fma_chain"))).bottleneck
    assert fma.kind == "Compute" and "65% of peak compute (busiest pipe) and 0%" in fma.root_cause and "counters on 100%" in fma.root_cause
    f64 = diagnose(profile_of(case_operator("gemm_f64_1024", dtype="float64"))).bottleneck
    assert f64.kind == "Compute", "DMMA is on the tensor pipe"
    assert diagnose(profile_of(case_operator("copy_float4"))).bottleneck.kind == "Memory"
    assert diagnose(profile_of(case_operator("one_block_chase"))).bottleneck.kind == "Latency"
    half = profile_of(case_operator("fma_chain", 500_000), case_operator("copy_float4", 500_000, metrics={}))
    assert "counters on" not in diagnose(half).bottleneck.root_cause, "counters of half of the time say nothing about the whole"
    mixed = diagnose(profile_of(case_operator("fma_chain", 500_000), case_operator("gemm_tf32_4096", 500_000))).bottleneck
    assert mixed.kind == "Compute" and "76%" in mixed.root_cause, "each kernel's own busiest pipe"


def test_an_idle_device_uses_nothing() -> None:
    busy = profile_of(case_operator("copy_float4"))
    assert busy.timeline is not None
    idle = busy.model_copy(update={"timeline": busy.timeline.model_copy(update={"idle_share_pct": 60.0})})
    assert diagnose(idle).bottleneck.kind == "Latency" and "33% of peak DRAM" in diagnose(idle).bottleneck.root_cause


def test_tensor_operations_tell_where_products_ran_whatever_the_kernel_is_called() -> None:
    plain = on("gemm_f32_4096", "tensor_cores_unused", operator_name="aten::mm")
    assert isinstance(plain, Finding) and plain.evidence == "counters"
    assert on("gemm_tf32_4096", "tensor_cores_unused", operator_name="aten::mm") is None
    named = case_operator("tf32_gemm", metrics={}, operator_name="aten::mm")
    assert outcome(profile_of(named), "tensor_cores_unused") is None, "without counters the name decides"


def test_healthy_ranges_are_those_of_the_guide() -> None:
    ranges = {name: (role.healthy.above, role.healthy.at_most) for name, role in counter_knowledge().roles.items() if role.healthy}
    assert ranges == {"tensor_pct": (60, None), "dram_pct": (70, None), "occupancy_pct": (25, None), "l2_hit_pct": (80, None),
                      "local_bytes": (None, 0), "waves_per_sm": (1, None)}


def test_an_operator_of_many_launches_is_read_once_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recurrent layer makes thousands of launches in one operator call; every rule stays linear in them."""
    read = 0

    def counting(way: Way, raw: Raw, warps_per_sm: int | None) -> float | None:
        nonlocal read
        read += 1
        return by(way, raw, warps_per_sm)

    by = role_counters._by
    monkeypatch.setattr(role_counters, "_by", counting)
    spent = []
    for count in (40, 160):
        one = case_operator("gemm_bf16_4096")
        many = one.model_copy(update={"kernels": one.kernels[:1] * count})
        read = 0
        diagnose(profile_of(many))
        spent.append(read)
    assert spent[1] < 4.5 * spent[0]
