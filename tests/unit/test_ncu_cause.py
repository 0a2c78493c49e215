"""The key issue of a kernel is what its hottest line waits for, where one of ncu's rules says so too."""

from __future__ import annotations

import dataclasses

import pytest

import ncu_captures
from kernelwright.model.profile import Profile
from kernelwright.pipeline.ncu_cause import hot_action, opcode_of
from kernelwright.pipeline.ncu_profile import Setting, build_profile
from kernelwright.report.contract import render_contract
from kernelwright.report.ncu_documents import render_ncu_report
from kernelwright.report.ncu_views import kernel_rows
from kernelwright.roofline.ncu_knowledge import ncu_knowledge


@pytest.fixture(scope="module")
def profile() -> Profile:
    return build_profile(ncu_captures.known_details(), Setting(name="known_full"))


def test_a_kernel_whose_hot_line_works_on_local_memory_is_said_to_spill(profile: Profile) -> None:
    """ncu's largest estimate for it is another rule's: uncoalesced access, 86% against 63%."""
    issues = {stage.name: stage.key_issue for stage in profile.stages}
    assert issues["spills"] == "Stop register spilling"
    assert issues["copy_strided"] == "Make global accesses coalesced" and issues["bank_conflicts"] == "Avoid shared memory bank conflicts"
    assert issues["one_block_chase"] == "Cut the dominant warp stall"


def test_global_loads_or_too_few_samples_name_no_cause() -> None:
    (launch,) = ncu_captures.only("spills")[0].kernels
    assert hot_action([launch]) == "Stop register spilling"
    as_global = tuple(dataclasses.replace(one, sass=one.sass.replace("LDL", "LDG").replace("STL", "STG")) for one in launch.instructions)
    assert hot_action([dataclasses.replace(launch, instructions=as_global)]) is None
    assert hot_action([dataclasses.replace(launch, instructions=())]) is None
    no_lines = tuple(dataclasses.replace(one, file="", line=0) for one in launch.instructions)
    assert hot_action([dataclasses.replace(launch, instructions=no_lines)]) == "Stop register spilling"


@pytest.mark.parametrize(("sass", "opcode"), [("@!P0 LDL.64 R4, [R1+0x8]", "LDL.64"), ("STG.E [R2.64], R5", "STG.E"), ("", "")])
def test_opcode_of_predicated_instructions(sass: str, opcode: str) -> None:
    assert opcode_of(sass) == opcode


def test_actions_of_spaces_are_actions_of_rules() -> None:
    table = ncu_knowledge()
    actions = {case.action for rule in table.rules.values() for case in (rule, *rule.cases.values())}
    assert table.spaces and {space.action for space in table.spaces.values()} <= actions


def test_opportunities_name_their_kernel_and_the_launches_are_no_call(profile: Profile) -> None:
    contract = render_contract(profile)
    opportunities = contract.partition("### Top 3")[2].splitlines()[1:4]
    assert all("(" in line.partition(" — ")[0] for line in opportunities) and "(copy_strided and 3 more)" in opportunities[0]
    assert "over these launches" in contract and "over the call" not in contract
    assert "9 launches replayed alone by ncu 2025.3.1 on NVIDIA H200" in contract
    assert "| NVIDIA H200 | ncu 2025.3.1 | 9 |" in contract


def test_metric_names_stand_whole_in_the_report(profile: Profile) -> None:
    report = render_ncu_report(profile, ncu_captures.known_details(), {})
    assert "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum" in report
    signs = report.partition("## ncu's rules")[2].partition("## Hottest")[0]
    assert not any("…" in row.split("|")[5] for row in signs.splitlines() if row.startswith("| ") and row.count("|") > 5)


def test_nothing_limits_full_occupancy() -> None:
    rows = {row.name: row for row in kernel_rows(ncu_captures.known_details()[0].kernels)}
    assert rows["spills"].limiter == "nothing"
    limited = rows["nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"]
    assert limited.theoretical_pct is not None and limited.theoretical_pct < 99 and limited.limiter not in ("nothing", "n/a")
