"""Roles and metric names: every name exists on the chips it claims, and what a chip lacks is n/a with the reason."""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

import pytest
from pydantic import ValidationError

from kernelwright.attribute.counters import _MEANS, _SUMS
from kernelwright.model.base import Abstained
from kernelwright.roofline.counters import (
    chip_of,
    chips,
    covered_pct,
    known,
    mean,
    metric_names,
    names_of,
    roles,
    total,
    unavailable,
    value,
)
from kernelwright.roofline.formulas import FORMULAS
from kernelwright.roofline.knowledge import Way, counter_knowledge
from known_counters import counted_kernel, raw

LISTS = Path(__file__).resolve().parents[1] / "data" / "metric_names.txt.xz"
CHIPS = ("ga100", "ga102", "ad102", "gh100", "gb100", "gb202")
WANTED = {
    "tensor-core and DRAM utilisation": ("tensor_pct", "dram_pct"), "occupancy": ("occupancy_pct", "theoretical_occupancy_pct"),
    "limiter": ("limit_registers", "limit_shared_mem", "limit_warps", "limit_blocks", "limit_barriers"),
    "hits": ("l1_hit_pct", "l2_hit_pct"), "bytes": ("dram_read_bytes", "dram_write_bytes", "l2_bytes", "l1_bytes"),
    "FLOPs": ("flops_ffma", "flops_fadd", "flops_fmul", "flops_fp32", "flops_fp16", "flops_fp64"),
    "tensor operations": ("tensor_flops_bf16", "tensor_flops_fp16", "tensor_flops_tf32", "tensor_flops_fp64", "tensor_ops_int8"),
    "spilling": ("local_bytes",), "launch": ("waves_per_sm", "registers", "shared_bytes"),
    "bank conflicts": ("bank_conflict_pct", "shared_pipe_pct"), "stalls": ("stall_long_scoreboard_pct", "stall_barrier_pct"),
    "uncoalesced access": ("load_bytes_per_sector", "store_bytes_per_sector"), "issue rate": ("issue_pct",),
}
"""What a profile with counters tells on every chip."""


@cache
def listed() -> dict[str, set[str]]:
    """Chip -> the metrics that ncu 2025.3.1 lists for it."""
    header, *lines = lzma.decompress(LISTS.read_bytes()).decode().splitlines()
    order = header.split()
    found: dict[str, set[str]] = {chip: set() for chip in order}
    for line in lines:
        name, there = line.split()
        for chip, flag in zip(order, there, strict=True):
            if flag == "1":
                found[chip].add(name)
    return found


@pytest.mark.parametrize("chip", CHIPS)
def test_every_collected_name_exists_on_its_chip(chip: str) -> None:
    for name in metric_names(chip, "full"):
        assert name.split(".")[0] in listed()[chip], name


def test_every_way_exists_on_every_chip_it_claims() -> None:
    for name, role in counter_knowledge().roles.items():
        for way in role.ways:
            for chip in CHIPS if not way.only_read else ():
                if way.is_for(chip) and all(earlier.only_read or not earlier.is_for(chip) for earlier in role.ways[:role.ways.index(way)]):
                    assert all(metric.split(".")[0] in listed()[chip] for metric in way.names), (name, chip)


def test_a_chip_is_left_out_only_where_it_lacks_the_counter() -> None:
    """A role that one chip is said to lack would name a metric that is not in that chip's list."""
    for name, role in counter_knowledge().roles.items():
        for chip in CHIPS:
            if not any(way.is_for(chip) for way in role.ways if not way.only_read):
                assert all(any(metric.split(".")[0] not in listed()[chip] for metric in way.names) for way in role.ways), (name, chip)


@pytest.mark.parametrize("chip", CHIPS)
def test_every_chip_has_what_is_wanted_in_the_default_set(chip: str) -> None:
    lacking = unavailable(chip)
    for figures in WANTED.values():
        assert set(figures) <= set(roles("default"))
        assert not set(figures) & set(lacking)


def test_the_default_set_is_part_of_the_full_one() -> None:
    for chip in CHIPS:
        default, full = metric_names(chip), metric_names(chip, "full")
        assert set(default) < set(full) and len(set(full)) == len(full)
        assert not [name for name in default if name.startswith(("sass__", "group:")) or "pcsamp" in name], "these embed the code"


@pytest.mark.parametrize(("which", "chip"), [
    ("8.0", "ga100"), ("8.6", "ga102"), ("8.7", "ga102"), ("8.9", "ad102"), ("9.0", "gh100"), ("10.0", "gb100"), ("12.0", "gb202"),
    ("12.1", "gb202"), ("sm_90", "gh100"), ("sm_90a", "gh100"), (90, "gh100"), (120, "gb202"), ((8, 9), "ad102"), ("gh100", "gh100"),
    ("10.1", "gb100"), ("7.5", None), ("11.0", None), ("", None), (None, None), ("x.y", None),
])
def test_chip_of_a_capability(which: str | int | tuple[int, int] | None, chip: str | None) -> None:
    assert chip_of(which) == chip


def test_an_unknown_chip_has_no_names_and_says_why() -> None:
    assert metric_names("7.5") == () and names_of(["dram_pct"], "7.5") == ()
    assert all("sm_80" in reason for reason in unavailable("7.5").values())


def test_what_a_chip_lacks_is_not_available_with_the_reason() -> None:
    for chip, role in (("ga100", "stall_gmma_pct"), ("gb202", "tensor_ops_int4"), ("ga102", "tensor_flops_fp8")):
        figure = value(role, {}, chip)
        assert isinstance(figure, Abstained) and chip in figure.reason and "no such counter" in figure.reason
        assert unavailable(chip, "full")[role] == figure.reason


def test_what_was_not_collected_is_not_zero() -> None:
    for role in roles():
        figure = value(role, {}, "9.0")
        assert isinstance(figure, Abstained) and figure.reason
    nothing = value("dram_read_bytes", {"dram__bytes_read.sum": float("nan")}, "9.0")
    assert isinstance(nothing, Abstained)
    with pytest.raises(KeyError):
        value("no_such_role", {}, "9.0")


def test_names_that_differ_by_chip_mean_the_same() -> None:
    read = value("dram_read_bytes", {"dram__bytes_read.sum": 5.0}, "8.0")
    assert read == value("dram_read_bytes", {"dram__bytes_op_read.sum": 5.0}, "12.0") == 5.0
    assert value("tensor_flops_fp16", {"sm__ops_path_tensor_src_fp16_dst_fp16.sum": 1.0, "sm__ops_path_tensor_src_fp16_dst_fp32.sum": 2.0},
                 "8.9") == 3.0
    assert value("tensor_flops_fp16", {"sm__ops_path_tensor_src_fp16.sum": 3.0}, "9.0") == 3.0


def test_flops_weigh_fma_twice() -> None:
    name = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    counts = {name.format(operation): figure for operation, figure in (("ffma", 10.0), ("fadd", 3.0), ("fmul", 4.0))}
    assert value("flops_fp32", counts) == 27.0 and value("flops_ffma", counts) == 20.0
    half = {name.format(operation): 1.0 for operation in ("hfma", "hadd", "hmul")}
    assert value("flops_fp16", half) == 8.0, "two at a time"


def test_hit_rates_stay_inside_their_range() -> None:
    assert known("l2_hit_pct", {"lts__t_sector_hit_rate.pct": 102.2}) == 100.0


def test_resident_warps_tell_the_size_of_an_sm() -> None:
    metrics = {key: figure for key, figure in raw("gemm_f32_4096", "known_default").items() if not key.startswith("device__")}
    assert isinstance(value("theoretical_occupancy_pct", {k: v for k, v in metrics.items() if k.startswith("launch__")}), Abstained)
    assert value("theoretical_occupancy_pct", metrics, "9.0") == 12.5
    metrics["sm__warps_active.avg.per_cycle_active"] = metrics["sm__warps_active.avg.pct_of_peak_sustained_active"] * 0.64
    assert value("theoretical_occupancy_pct", metrics) == 12.5


def test_the_data_file_is_whole() -> None:
    data = counter_knowledge()
    assert tuple(data.chips) == CHIPS == tuple(chips())
    for name, role in data.roles.items():
        assert role.source in data.sources and role.meaning.endswith("."), name
        for way in role.ways:
            assert set(way.chips) <= set(CHIPS) and way.names and (way.formula is None or way.formula in FORMULAS), name
        assert not role.ways[0].only_read, name
    assert {way.formula for role in data.roles.values() for way in role.ways if way.formula} == set(FORMULAS)


def test_a_way_is_of_one_kind() -> None:
    for wrong in ({}, {"metric": "a", "sum": {"b": 1}}, {"chips": ["gh100"]}):
        with pytest.raises(ValidationError):
            Way.model_validate(wrong)


def test_means_over_kernels_are_weighted_by_time_and_need_cover() -> None:
    occupancy = "sm__warps_active.avg.pct_of_peak_sustained_active"
    long, short = counted_kernel("a", 900, {occupancy: 50.0}), counted_kernel("b", 100, {occupancy: 100.0})
    blind, copy = counted_kernel("c", 100), counted_kernel("d", 5000, category="memcpy")
    assert mean("occupancy_pct", (long, short, copy)) == pytest.approx(55.0)
    assert mean("occupancy_pct", (long, blind)) == pytest.approx(50.0), "nine tenths have it"
    assert mean("occupancy_pct", (short, blind)) is None and mean("occupancy_pct", (copy,)) is None
    assert covered_pct((long, blind, copy)) == pytest.approx(90.0) and covered_pct((copy,)) is None


def test_launches_that_inherit_counters_weigh_like_measured_ones() -> None:
    occupancy = "sm__warps_active.avg.pct_of_peak_sustained_active"
    plain = [counted_kernel(name, time, {occupancy: share}) for name, time, share in (("a", 300, 50.0), ("b", 100, 90.0), ("c", 600, 50.0))]
    shared = [kernel.model_copy(update={"metrics": kernel.metrics.model_copy(update={"measured_kernel_id": source})})
              for kernel, source in zip(plain, ("a", "b", "a"), strict=True)]
    assert mean("occupancy_pct", shared) == mean("occupancy_pct", plain) == pytest.approx(54.0)


def test_sums_over_kernels_need_every_kernel() -> None:
    reads = "dram__bytes_read.sum"
    both = (counted_kernel("a", 10, {reads: 5.0}), counted_kernel("b", 10, {reads: 7.0}))
    assert total("dram_read_bytes", both) == 12.0 and total("dram_read_bytes", (*both, counted_kernel("c", 1))) is None
    assert total("dram_read_bytes", ()) is None


def test_the_roles_that_operators_are_summed_by_are_here() -> None:
    named = {*_SUMS.values(), *_MEANS.values()}
    assert named and named <= set(roles("default"))
