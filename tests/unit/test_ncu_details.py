"""Reading a report in depth: rules, samples by line and instruction, source; and files that are no whole report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import ncu_captures
from kernelwright.model.errors import BadInput, MachineLacks
from kernelwright.pipeline.ncu import Selection, find_reports, read_reports
from kernelwright.readers.ncu_details import plain_message, read_details
from kernelwright.readers.ncu_instructions import relative
from kernelwright.readers.ncu_records import KernelDetails

ELEMENTS = 1 << 26


def kernel(name: str) -> KernelDetails:
    return ncu_captures.only(name)[0].kernels[0]


def test_a_launch_has_its_names_configuration_ranges_and_all_metrics():
    one = kernel("copy_strided")
    assert one.name == "copy_strided(const float *, float *, long, long)" and one.index == 1
    assert one.grid == (ELEMENTS // 256, 1, 1) and one.block == (256, 1, 1) and one.nvtx == ("case:copy_strided",)
    assert one.duration_ns == 452_224 and one.texts["device__attribute_display_name"] == "NVIDIA H200" and len(one.metrics) > 2000


def test_samples_of_lines_and_instructions_add_up_to_ncus_own_count():
    for one in ncu_captures.known_details()[0].kernels:
        assert one.samples == one.metrics["smsp__pcsamp_sample_count"]
        assert all(sum(part.stalls.values()) == part.samples for part in one.instructions), one.function
        in_lines, without = sum(line.samples for line in one.lines()), sum(part.samples for part in one.instructions if not part.file)
        assert in_lines + without == one.samples


def test_the_strided_load_has_the_excess_sectors_that_its_stride_makes():
    line = next(one for one in kernel("copy_strided").lines() if one.line == 14)
    assert line.file == "/tmp/rec/known_kernels.cu"
    # A warp's load touches 32 sectors where 4 would do; its store is coalesced.
    ideal, actual = line.counters["memory_l2_theoretical_sectors_global_ideal"], line.counters["memory_l2_theoretical_sectors_global"]
    assert actual - ideal == 28 * ELEMENTS / 32 == kernel("copy_strided").metrics["derived__memory_l2_theoretical_sectors_global_excessive"]
    assert max(line.stalls, key=lambda reason: line.stalls[reason]) == "long_scoreboard"
    assert line.samples > 0.7 * kernel("copy_strided").samples


def test_the_chain_of_fmas_is_in_one_line_and_executes_as_often_as_written():
    one = kernel("fma_chain")
    line = max(one.lines(), key=lambda line: line.samples)
    assert line.line == 59 and "a * b + c" in one.sources[line.file].split("\n")[line.line - 1]
    ffma = sum(part.counters.get("inst_executed", 0) for part in one.instructions if part.sass.startswith("FFMA"))
    assert ffma == 1056 * 1024 / 32 * 2048 * 4


def test_instructions_have_sass_ptx_and_offsets_and_branches_stay_in_the_function():
    one = kernel("copy_strided")
    assert [part.offset for part in one.instructions] == list(range(0, 16 * len(one.instructions), 16))
    assert one.instructions[0].sass == "LDC R1, c[0x0][0x28]" and one.instructions[-1].sass != "NOP"
    branches = [part.sass.split()[-1] for part in one.instructions if " BRA " in f" {part.sass} "]
    targets = [int(word, 16) for word in branches if word.startswith("0x")]
    assert targets and all(0 <= target < 16 * len(one.instructions) + 256 for target in targets)
    assert any(part.ptx.startswith("ld.global") for part in one.instructions)


def test_triton_kernels_have_lines_and_ptx_and_library_kernels_sass_alone():
    triton, library = kernel("softmax_rows"), kernel("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT")
    assert {line.file.rsplit("/", 1)[-1] for line in triton.lines()} == {"known_kernels.py", "standard.py"}
    assert any("ld.global" in part.ptx for part in triton.instructions)
    assert library.instructions and not library.lines() and not library.sources
    assert any("HGMMA" in part.sass for part in library.instructions)


def test_rules_have_their_estimate_its_scope_and_plain_text():
    rules = {(one.identifier, one.title): one for one in kernel("copy_strided").rules}
    coalesced = rules["UncoalescedGlobalAccess", ""]
    assert coalesced.speedup_pct == pytest.approx(77.82, abs=0.01) and coalesced.scope == "global" and coalesced.kind == "optimization"
    assert coalesced.focus[0][:2] == ("derived__memory_l2_theoretical_sectors_global_excessive", 58_720_256.0)
    assert rules["HighPipeUtilization", "Low Utilization"].scope == "local"
    assert not [one for one in rules.values() if "@" in one.message or not one.message]


def test_links_become_their_words():
    text = "See @section:Source:Stalls (All)@ and the @url:Guide:https://x.y/z#a@ now."
    assert plain_message(text) == "See Stalls (All) and the Guide now."
    assert plain_message("no link, a@b.c") == "no link, a@b.c"


def test_addresses_outside_the_function_stay():
    start = 0x7F21_0000_0000
    assert relative("BRA 0x7f2100000040", start, start + 256) == "BRA 0x40"
    assert relative("CALL 0x7f2200000000", start, start + 256) == "CALL 0x7f2200000000"
    assert relative("FFMA R1, R2, 0x3f800347, R3", start, start + 256) == "FFMA R1, R2, 0x3f800347, R3"


def test_launches_are_chosen_by_name_number_range_and_weight():
    assert [one.function for one in ncu_captures.selected(kernel="^copy_")[0].kernels] == ["copy_float4", "copy_strided"]
    assert [one.function for one in ncu_captures.selected(kernel="^copy_", launch=1)[0].kernels] == ["copy_strided"]
    assert [one.function for one in ncu_captures.selected(operator="softmax_triton")[0].kernels] == ["softmax_rows"]
    assert [one.function for one in ncu_captures.selected(kernel="copy|chase", heaviest=1)[0].kernels] == ["copy_strided"]


@pytest.mark.parametrize(("choice", "code"), [({"kernel": "nothing"}, "no_such_launch"), ({"launch": 9}, "no_such_launch"),
                                              ({"operator": "aten::mm"}, "no_such_launch"), ({"kernel": "("}, "bad_pattern"),
                                              ({"kernel": "a" * 2000}, "bad_pattern")])
def test_a_choice_that_leaves_nothing_is_told(choice: dict[str, object], code: str):
    with pytest.raises(BadInput) as caught:
        ncu_captures.selected(**choice)
    assert caught.value.code == code and caught.value.fix and caught.value.where


@pytest.mark.parametrize("size", [1, 4, 9, 100, 5_000_000, -2_000_000, -1])
def test_a_report_that_was_cut_off_is_refused(tmp_path: Path, size: int):
    file = tmp_path / "cut.ncu-rep"
    file.write_bytes(ncu_captures.known_full().read_bytes()[:size])
    with pytest.raises(BadInput) as caught:
        read_details(file)
    assert caught.value.code == ("not_a_report" if size == 1 else "truncated_report") and "\n" not in caught.value.line()


@pytest.mark.parametrize(("data", "code"), [
    (b"", "empty_report"), (b"kernel,duration\ncopy,3\n", "not_a_report"), (b"\x7fELF" + bytes(100), "not_a_report"),
    (b"NVR\0" + bytes(range(256)), "truncated_report"), (ncu_captures.frame(), "no_kernels_in_report"),
    (ncu_captures.frame(version=99, results=1, payload=b"\xff" * 64), "foreign_report"),
    (ncu_captures.frame(results=1, payload=b"\xff" * 64), "bad_report"),
])
def test_what_is_no_report_of_ours_is_refused(tmp_path: Path, data: bytes, code: str):
    file = tmp_path / "r.ncu-rep"
    file.write_bytes(data)
    with pytest.raises(BadInput) as caught:
        read_details(file)
    assert caught.value.code == code and caught.value.fix


def test_a_huge_file_is_not_read(tmp_path: Path):
    file = tmp_path / "huge.ncu-rep"
    with file.open("wb") as opened:
        opened.truncate(2 << 30)
    with pytest.raises(BadInput) as caught:
        read_details(file)
    assert caught.value.code == "report_too_large"


def test_flipped_bytes_are_read_or_refused_but_never_break(tmp_path: Path):
    whole = bytearray(ncu_captures.known_full().read_bytes())
    for place in range(200_000, len(whole), len(whole) // 6):
        data = bytearray(whole)
        data[place] ^= 0xFF
        file = tmp_path / "flipped.ncu-rep"
        file.write_bytes(data)
        try:
            read_reports([file], Selection(kernel="copy_strided"))
        except BadInput as error:
            assert error.fix, place


def test_no_reader_on_this_platform_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(MachineLacks) as caught:
        read_details(ncu_captures.known_full())
    assert caught.value.code == "no_ncu_report" and caught.value.fix


def test_a_folder_is_its_reports(tmp_path: Path):
    with pytest.raises(BadInput) as caught:
        find_reports(tmp_path)
    assert caught.value.code == "no_reports"
    for name in ("b.ncu-rep", "a.ncu-rep", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in find_reports(tmp_path)] == ["a.ncu-rep", "b.ncu-rep"]
    for number in range(120):
        (tmp_path / f"{number}.ncu-rep").write_bytes(b"")
    with pytest.raises(BadInput) as caught:
        find_reports(tmp_path)
    assert caught.value.code == "too_many_reports"
