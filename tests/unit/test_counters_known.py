"""Bytes and FLOPs that an H200 counted against values computed by hand."""

from __future__ import annotations

import pytest

from kernelwright.roofline.counters import known, limiter, value
from known_counters import ARRAY, BY_HAND, L2_BYTES, TOLERANCE, raw, recording


def counted(case: str, role: str) -> float | None:
    """From the first recording whose launches of this case have the role; launches of one case add up where they are amounts."""
    for name in ("known_default", "known_full"):
        rows = [row["metrics"] for row in recording(name) if row["case"] == case]
        figures = [figure for metrics in rows if (figure := known(role, metrics, "9.0")) is not None]
        if figures:
            return figures[0] if "_per_" in role else sum(figures)
    return None


@pytest.mark.parametrize(("case", "role", "by_hand", "how"), BY_HAND, ids=lambda entry: str(entry)[:30])
def test_counters_are_within_five_percent(case: str, role: str, by_hand: float, how: str) -> None:
    figure = counted(case, role)
    assert figure is not None and figure == pytest.approx(by_hand, rel=TOLERANCE), how


@pytest.mark.parametrize("case", ["copy_float4", "copy_strided", "softmax_triton", "softmax_torch"])
def test_dram_writes_lack_at_most_what_l2_holds(case: str) -> None:
    """Why DRAM writes are not held to 5%: dirty lines stay in L2 when the kernel ends."""
    written = known("dram_write_bytes", raw(case), "9.0")
    assert written is not None and ARRAY - L2_BYTES <= written <= 1.01 * ARRAY


def test_each_product_counts_under_its_own_input_type_alone() -> None:
    kinds = ("bf16", "fp16", "tf32", "fp64", "fp8")
    for case, own in (("gemm_bf16_4096", "bf16"), ("gemm_f16_4096", "fp16"), ("gemm_tf32_4096", "tf32"), ("gemm_f64_1024", "fp64")):
        assert [kind for kind in kinds if known(f"tensor_flops_{kind}", raw(case), 90)] == [own]
    assert not any(known(f"tensor_flops_{kind}", raw("gemm_f32_4096"), 90) for kind in kinds)


@pytest.mark.parametrize("name", ["known_default", "known_full"])
def test_theoretical_occupancy_is_what_ncu_says(name: str) -> None:
    rows = recording(name)
    assert len(rows) >= 9
    for row in rows:
        mine = value("theoretical_occupancy_pct", row["metrics"], "9.0")
        assert mine == pytest.approx(row["metrics"]["sm__maximum_warps_per_active_cycle_pct"]), row["case"]


def test_what_limits_the_occupancy() -> None:
    expected = {"copy_float4": (), "softmax_triton": ("registers",), "gemm_f32_k3072": ("registers", "shared memory")}
    assert {case: limiter(raw(case), 90) for case in expected} == expected


def test_fma_pipe_is_the_rate_of_ffma() -> None:
    """132 SMs x 128 lanes: the pipe's busy share is the FFMA done of those that fit the cycles."""
    metrics = raw("gemm_f32_4096")
    fits = metrics["gpc__cycles_elapsed.max"] * 132 * 128
    assert known("fma_pct", metrics, 90) == pytest.approx(100 * (known("flops_ffma", metrics, 90) or 0) / 2 / fits, rel=0.03)


def test_stall_shares_agree_with_sampling() -> None:
    """Two independent counters of the same thing: averages of the schedulers, and samples of the warps."""
    for row in recording("known_default"):
        if row["case"] == "one_block_chase":  # a single block: 136 samples
            continue
        samples = {name: figure for name, figure in row["metrics"].items() if name.startswith("smsp__pcsamp_warps_issue_stalled_")}
        without = {name: figure for name, figure in row["metrics"].items() if name not in samples}
        for reason in ("long_scoreboard", "barrier", "mio_throttle", "wait"):
            if sum(samples.values()) > 5000:
                by_average, by_sample = known(f"stall_{reason}_pct", without, 90), known(f"stall_{reason}_pct", samples, 90)
                assert by_average is not None and by_sample is not None
                assert by_average == pytest.approx(by_sample, abs=6), (row["case"], reason)
