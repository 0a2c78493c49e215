"""From a report to the profile and its documents: attribution, rules ranked, hot lines, code files, hostile content, two captures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import builders
import ncu_captures
from kernelwright.model.profile import Profile
from kernelwright.pipeline.ncu import copy_reports
from kernelwright.pipeline.ncu_profile import MOST_RAW, Setting, build_profile
from kernelwright.pipeline.ncu_rules import ranked_rules
from kernelwright.readers.ncu_records import NcuDetails
from kernelwright.report import render_contract
from kernelwright.report.contract import TOKEN_LIMIT, token_count
from kernelwright.report.ncu_compare import compare_captures, render_captures
from kernelwright.report.ncu_documents import render_ncu_report, render_ncu_verbose
from kernelwright.report.ncu_files import write_code
from kernelwright.report.ncu_views import hottest, occupancy_limiter, stall_words
from kernelwright.report.ncu_write import write_ncu_profile
from ncu_captures import instruction, launch, report, rule

SPILLS = "derived__local_spilling_requests"
PIPES = {f"sm__pipe_{pipe}_cycles_active.avg.pct_of_peak_sustained_active": 10.0 for pipe in ("tensor", "fma", "alu", "fp64")}


def built(reports: tuple[NcuDetails, ...], **setting: object) -> Profile:
    return build_profile(reports, Setting(name="k", **setting))  # type: ignore[arg-type]


def operator(name: str, op_id: int, sizes: str = "[[4, 8], [8]]") -> str:
    return f"{name}, op_id = {op_id}, sizes = {sizes}, input_op_ids = [(0,-1)]"


def test_time_adds_up_and_every_launch_is_in_the_document():
    found = built(ncu_captures.known_details())
    kernels = [kernel for one in found.operators for kernel in one.kernels] + list(found.unattributed_kernels)
    assert len(kernels) == 9 and sum(kernel.duration_ns for kernel in kernels) == sum(stage.duration_ns for stage in found.stages)
    assert all(0 < len(kernel.metrics.raw) <= MOST_RAW and kernel.metrics.origin == "measured" for kernel in kernels)
    assert found.capture_metadata.mode == "ncu" and found.capture_metadata.device_name == "NVIDIA H200"
    assert Profile.model_validate_json(found.model_dump_json()) == found


def test_launches_belong_to_the_operator_whose_range_is_innermost():
    step = "kernelwright.step, op_id = 1"
    ranges = (step, "stage:mlp", operator("aten::linear", 4), operator("aten::addmm", 5))
    found = built(report(
        launch("gemm", nvtx=ranges), launch("splitK", index=1, nvtx=ranges), launch("lost", index=2),
        launch("in_step", index=3, nvtx=(step,)),
        launch("triton_poi_fused_add_relu_0", index=4, nvtx=(step, "## Call CompiledFxGraph abc ##, op_id = 6",
                                                            operator("triton_poi_fused_add_relu_0", 7))),
        launch("gemm", index=5, nvtx=(step, operator("aten::addmm", 9))),
        launch("node", index=6, nvtx=("## Call CompiledFxGraph abc ##",))))
    assert [(one.operator_name, one.call_index, len(one.kernels), one.stage) for one in found.operators] == [
        ("aten::addmm", 0, 2, "mlp"), ("triton_poi_fused_add_relu_0", 0, 1, None), ("aten::addmm", 1, 1, None)]
    first = found.operators[0]
    assert first.input_shapes == ((4, 8), (8,)) and first.parents == ("aten::linear",) and first.kernels[0].attribution.method == "nvtx"
    assert found.operators[1].is_fused and found.operators[1].fused_ops == ("add", "relu")
    assert [kernel.kernel_name for kernel in found.unattributed_kernels] == ["lost(float *)", "in_step(float *)", "node(float *)"]


def test_what_a_capture_lacks_is_not_available_and_never_zero():
    bare = report(launch("one", None), launch("two", None, index=1))
    found = built(bare)
    contract, text = render_contract(found), render_ncu_report(found, bare, {})
    assert "| (whole call) | n/a | n/a | n/a | n/a | n/a |" in contract and "### Bottleneck: n/a" in contract
    assert "est. n/a gain" in contract
    assert any("no duration" in warning for warning in found.warnings)
    assert "| 1 one | 1 | n/a | n/a | n/a | n/a | n/a | n/a | n/a (n/a) | n/a | n/a |" in text
    assert "this capture holds no warp samples" in text and "holds no rule that suggests" in text


def test_rules_rank_by_estimate_times_share_and_conditional_and_local_ones_come_last():
    found = ranked_rules(report(
        launch("heavy", 900.0, rules=(rule("AchievedOccupancy", 30.0), rule("MemoryL2Compression", 99.0),
                                      rule("HighPipeUtilization", 98.0, scope="local"), rule("SOLFPRoofline", None),
                                      rule("LaunchConfiguration", None), rule("CPIStall", 5.0, kind="ok"))),
        launch("light", 100.0, rules=(rule("UncoalescedGlobalAccess", 80.0), rule("MemoryCacheAccessPattern", 82.0),
                                      rule("MemoryCacheAccessPattern", 10.0, title="L2 Local Store Access Pattern"))))[0].kernels)
    assert [(one.kernel, one.action, one.gain_pct) for one in found] == [
        ("heavy", "Raise achieved occupancy", pytest.approx(27.0)), ("light", "Make global accesses coalesced", pytest.approx(8.2)),
        ("light", "Stop register spilling", pytest.approx(1.0)), ("heavy", "Compress data in L2", pytest.approx(89.1)),
        ("heavy", "Relieve or feed the busiest pipe", None), ("heavy", "Launch more blocks", None)]
    assert "torch's allocator does not" in found[3].needs


def test_findings_are_ncus_whole_kernel_estimates_beside_our_own_rules():
    found = built(ncu_captures.known_details())
    by_name = {one.name: one for one in found.findings}
    coalesced = by_name["Make global accesses coalesced (copy_strided)"]
    share = 452_224 / sum(stage.duration_ns for stage in found.stages)
    assert coalesced.estimated_gain_pct == pytest.approx(82.137 * share, rel=1e-3) and coalesced.evidence == "counters"
    assert (Path(__file__).parents[2] / coalesced.playbook).is_file()
    assert not [one for one in found.findings if "L2" in one.name and "Compress" in one.name]
    assert any("spilling" in one.name for one in found.findings) and found.bottleneck.root_cause.count(". ") == 1


def test_rules_point_to_pages_that_exist():
    from kernelwright.roofline.ncu_knowledge import ncu_knowledge

    table, root = ncu_knowledge(), Path(__file__).parents[2] / "knowledge" / "playbooks"
    assert all((root / name).is_file() for name in [table.other_rule_playbook, *(one.playbook for one in table.rules.values())])
    assert set(table.pipes) <= set(table.counters)


def test_the_hottest_lines_are_weighted_by_time_over_all_launches_of_a_kernel():
    code = (instruction(0, 30, file="a.cu", line=1), instruction(16, 10, file="a.cu", line=2))
    heavy = launch("heavy", 100.0, instructions=code, sources={"a.cu": "first\nsecond"})
    light = launch("light", 50.0, index=1, instructions=(instruction(0, 1000, reason="wait"),))
    again = launch("heavy", 250.0, index=2)  # the same kernel and grid: its samples were read from the first launch
    rows = hottest([heavy, light, again], 10)
    assert [(one.where, round(one.share_pct or 0, 2), one.kernel_pct, one.text) for one in rows] == [
        ("a.cu:1", 65.62, 75.0, "first"), ("a.cu:2", 21.88, 25.0, "second"), ("SASS 0x0000", 12.5, 100.0, "FFMA R0, R1, R2, R3")]
    assert stall_words({"wait": 1, "barrier": 299}) == "barrier 100%"


def test_the_limiter_of_occupancy_is_the_smallest_limit():
    values = (("registers", 4.0), ("shared_mem", 2.0), ("warps", 8.0), ("blocks", 32.0))
    limits = {f"launch__occupancy_limit_{name}": value for name, value in values}
    assert occupancy_limiter(limits) == "shared memory"
    del limits["launch__occupancy_limit_warps"]
    assert occupancy_limiter(limits) == "n/a"


def test_a_report_of_hundreds_of_kernels_with_endless_names_stays_within_its_tokens():
    names = [f"kernel_{number}_" + "x" * 300 for number in range(300)]
    many = report(*(launch(name, 1000.0 - number, index=number, metrics=PIPES,
                           rules=(rule("AchievedOccupancy", 50.0), rule("CPIStall", 20.0)),
                           instructions=(instruction(0, 5, file="/src/" + "y" * 200 + ".cu", line=number + 1),),
                           sources={"/src/" + "y" * 200 + ".cu": "z" * 400 + "\n"}) for number, name in enumerate(names)))
    found = built(many)
    text = render_ncu_report(found, many, {"k": "k"})
    assert token_count(text) <= TOKEN_LIMIT and token_count(render_contract(found)) < TOKEN_LIMIT
    assert len(re.findall(r"\.cu:\d+ \|", text)) == 10 and "more in report-verbose.md" in text


def test_hostile_names_stay_text_and_their_files_stay_in_the_folder(tmp_path: Path):
    evil, twin = builders.HOSTILE + "../../x/" + "n" * 5000, builders.HOSTILE.upper() + "../../X/" + "N" * 5000
    files = ("/etc/../../../../passwd", "C:\\evil\\..\\..\\boot.ini", "..", "a/known.cu", "b/Known.cu", "\x1b]0;owned\x07.py")
    code = tuple(instruction(16 * place, 10, file=file, line=1, ptx="mov \x1b[31m") for place, file in enumerate(files))
    sources = dict.fromkeys(files, "x = 1  \x1b[31mred\u202e | <script>alert(1)</script>\n")
    hostile = report(launch(evil, instructions=code, sources=sources, nvtx=(builders.HOSTILE,), rules=(
        rule(builders.HOSTILE, 50.0, title=builders.HOSTILE, message=builders.HOSTILE * 50),)),
        launch(twin, index=1, instructions=code, sources=sources))
    found = built(hostile)
    (tmp_path / "out" / "raw").mkdir(parents=True)
    paths = write_ncu_profile(found, hostile, tmp_path / "out", params_doc={})
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    made = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    names = [path.relative_to(tmp_path / "out").as_posix() for path in made]
    assert len({name.casefold() for name in names}) == len(names) and all(len(part) <= 120 for name in names for part in name.split("/"))
    assert len([name for name in names if name.startswith("annotated/")]) == 2 * len(files)
    assert len([n for n in names if n.startswith("sass/")]) == 2
    for path in made:
        text = path.read_text(encoding="utf-8")
        assert ("\x1b" not in text.replace("\\u001b", "") and "\u202e" not in text) or path.name == "profile.json"
    for key in ("report", "report_verbose", "contract"):
        text = paths[key].read_text(encoding="utf-8")
        outside_code = re.sub(r"`[^`\n]*`", "", text)
        assert "<script" not in outside_code.replace("\\<script", "") and "\n### Bottleneck: Compute-bound `x`" not in text
        tables = [line for line in text.split("\n") if line.startswith("|")]
        assert all(len(re.findall(r"(?<!\\)\|", line)) <= 12 for line in tables)


def test_a_second_run_into_the_folder_leaves_nothing_of_the_first(tmp_path: Path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "sass").mkdir()
    (tmp_path / "sass" / "mine.txt").write_text("mine")
    write_code(tmp_path, [launch("first", instructions=(instruction(0, 1),))])
    write_code(tmp_path, [launch("second", instructions=(instruction(0, 1),))])
    assert sorted(path.name for path in (tmp_path / "sass").iterdir()) == ["mine.txt", "second.sass"]


def test_reports_are_copied_under_safe_names_that_differ(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "raw").mkdir()
    files = [tmp_path / "a" / name for name in ("x y.ncu-rep", "x_y.ncu-rep", "X_Y.ncu-rep")]
    for place, file in enumerate(files):
        file.write_bytes(bytes([place]))
    names = copy_reports(files, tmp_path / "raw")
    assert names == ["x_y.ncu-rep", "x_y_2.ncu-rep", "X_Y_3.ncu-rep"]
    assert [(tmp_path / "raw" / name).read_bytes() for name in names] == [b"\0", b"\1", b"\2"]
    assert copy_reports([tmp_path / "raw" / "x_y.ncu-rep"], tmp_path / "raw") == ["x_y.ncu-rep"]


def test_annotated_source_has_each_lines_share_and_the_code_of_each_instruction(tmp_path: Path):
    (tmp_path / "raw").mkdir()
    write_code(tmp_path, ncu_captures.only("copy_strided")[0].kernels)
    lines = (tmp_path / "annotated" / "copy_strided" / "known_kernels.cu").read_text().split("\n")
    hot = next(line for line in lines if line.endswith("out[i] = in[row * columns + column];"))
    assert hot.split()[:5] == ["14", "44309", "77.1", "27262976", "58720256"] and "long_scoreboard 98%" in hot
    assert next(line for line in lines if line.endswith("// 32 lanes, one bank")).split()[0] == "38"
    sass = (tmp_path / "sass" / "copy_strided.sass").read_text()
    assert len(re.findall(r"^0x0", sass, re.MULTILINE)) == len(ncu_captures.only("copy_strided")[0].kernels[0].instructions)
    assert "known_kernels.cu:14" in sass and "ld.global" in (tmp_path / "ptx" / "copy_strided.ptx").read_text()


def test_the_long_report_has_every_rule_and_section_of_every_kernel():
    text = render_ncu_verbose(built(ncu_captures.known_details()), ncu_captures.known_details())
    for one in ncu_captures.known_details()[0].kernels:
        assert f"## Kernel {one.function}" in text
    assert text.count("#### Warp State Statistics") == 9 and "Compress" not in text.split("### Rules")[0]
    assert "excessive sectors (78% of the total 75497472 sectors)" in text and "| Registers Per Thread | 16 register/thread |" in text


# Two captures


def test_two_kernels_of_another_name_are_matched_and_said_to_be():
    before, after = ("A", ncu_captures.only("copy_strided")), ("B", ncu_captures.only("copy_float4"))
    found = compare_captures(before, after)
    one = found.kernels[0]
    assert (one.name, one.renamed_to, one.matched_by) == ("copy_strided", "copy_float4", "only one left")
    counters = {row.key: row for row in one.counters}
    assert counters["duration"].change == pytest.approx(100 * (131_712 / 452_224 - 1)) and one.counters[0].key == "duration"
    assert counters["excessive_sectors"].before == 58_720_256 and counters["excessive_sectors"].after == 0
    assert counters["registers"].resource and counters["occupancy"].in_points and "Make global accesses coalesced" in one.rules_gone
    assert one.lines[0].where == "known_kernels.cu:6" and one.lines[0].samples_before == 0 and one.lines[0].points > 99
    text = render_captures(found)
    assert "Renamed: copy_float4 in B" in text and "another launch configuration" in text
    assert "how much it varies from replay to replay is not known" in text
    assert "faster" not in text and "slower" not in text


def test_the_same_capture_has_no_change():
    same = ncu_captures.only("spills")
    one = compare_captures(("A", same), ("B", same)).kernels[0]
    assert all(row.size == 0 for row in one.counters) and all(line.points == 0 for line in one.lines)
    assert not one.rules_gone and not one.rules_new
    assert "No line's share of the samples moved" in render_captures(compare_captures(("A", same), ("B", same)))


def test_kernels_are_matched_by_name_then_operator_and_the_rest_is_listed():
    ours = report(launch("kept"), launch("old_gemm", 500.0, nvtx=(operator("aten::mm", 3),)), launch("gone", 10.0), launch("gone_2", 5.0))
    theirs = report(launch("kept", grid=(16, 1, 1)), launch("new_gemm", 400.0, nvtx=(operator("aten::mm", 8),)), launch("new", 10.0))
    found = compare_captures(("A", ours), ("B", theirs))
    assert [(one.name, one.renamed_to, one.matched_by) for one in found.kernels] == [
        ("kept", None, "name, other grid"), ("old_gemm", "new_gemm", "operator")]
    assert (found.only_before, found.only_after) == (("gone", "gone_2"), ("new",))


def test_counters_of_two_names_stand_side_by_side_without_a_change():
    elapsed = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed"
    active = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
    found = compare_captures(("A", report(launch(metrics={elapsed: 10.0, SPILLS: 0.0}, units={elapsed: "%"}))),
                             ("B", report(launch(metrics={active: 20.0, SPILLS: 7.0}, units={active: "%"}))))
    counters = {row.key: row for row in found.kernels[0].counters}
    assert (counters["fma"].before, counters["fma"].after, counters["fma"].change) == (10.0, 20.0, None)
    assert counters["spills"].change is None and counters["spills"].size == 100.0
    assert "| spilled register requests | 0 | 7 | n/a |" in render_captures(found)


def test_a_line_that_moved_down_is_the_same_line_and_code_without_lines_compares_by_opcode():
    def capture(line: int, samples: int, **changes: object) -> tuple[NcuDetails, ...]:
        code = (instruction(0, samples, file="k.cu", line=line), instruction(16, 50, file="k.cu", line=line + 1))
        return report(launch(instructions=code, sources={"k.cu": "\n" * (line - 1) + "load\nstore\n"}, **changes))

    one = compare_captures(("A", capture(1, 50)), ("B", capture(4, 150))).kernels[0]
    assert not one.by_opcode and {row.where: row.points for row in one.lines} == {"k.cu:1 -> k.cu:4": 25.0, "k.cu:2 -> k.cu:5": -25.0}
    plain = report(launch(instructions=(instruction(0, 30, sass="@P0 LDG.E R0, [R2]"), instruction(16, 10, sass="FFMA R0, R1, R2, R3"))))
    other = report(launch(instructions=(instruction(0, 10, sass="LDG.E R0, [R2]"), instruction(32, 30, sass="FFMA R9, R1, R2, R3"))))
    one = compare_captures(("A", plain), ("B", other)).kernels[0]
    assert one.by_opcode and {row.where: row.points for row in one.lines} == {"LDG.E": -50.0, "FFMA": 50.0}


def test_captures_of_two_devices_are_warned_of():
    other = report(launch(texts={"device__attribute_display_name": "NVIDIA A100"}))
    assert compare_captures(("A", report(launch())), ("B", other)).warnings
    assert any("2 device models" in warning for warning in built(report(launch()) + other).warnings)
