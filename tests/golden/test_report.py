"""report.md: readable, complete, and proof against hostile names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import builders
from contract_format import check_contract, split_row
from golden_files import assert_golden
from kernelwright.model.errors import BadInput, NotWritable
from kernelwright.model.profile import Profile
from kernelwright.report import numbers, render_report, write_profile
from kernelwright.report.text import bullet, first_sentences

CASES = {
    "gpu_annotation": builders.gpu_annotation(), "with_counters": builders.with_counters(), "cpu_annotation": builders.cpu_annotation(),
    "event": builders.event(), "no_peaks": builders.no_peaks(), "hostile": builders.hostile(), "with_places": builders.with_places(),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    text = render_report(CASES[name])
    _tables_hold(text)
    assert_golden(f"report_{name}.md", text)


def test_a_large_profile_stays_readable() -> None:
    many = builders.many_stages(500)
    profile = many.model_copy(update={
        "operators": builders.operators(tuple(f"aten::op{i}" for i in range(300)), 2, 1000), "findings": many.findings * 30,
        "warnings": tuple(f"warning {i}" for i in range(400)), "abstained": many.abstained * 100,
        "stacks": tuple((f"a.py:{i} f",) * 50 for i in range(300)), "memory": (builders.memory("many"), builders.memory(device="cpu"))})
    profile = profile.model_copy(update={"operators": tuple(operator.model_copy(update={"stack": place % 300})
                                                            for place, operator in enumerate(profile.operators))})
    text = render_report(profile)
    _tables_hold(text)
    assert len(text.splitlines()) <= 185
    assert "(481 other stages)" in text and "390 more in profile.json" in text and "286 more take" in text


def test_hostile_names_make_no_heading_no_tag_and_no_control_character() -> None:
    text = render_report(CASES["hostile"])
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings[1:] == ["## What was run", "## Bottleneck: Memory-bound", "## Timing", "## Roofline", "## Stages", "## Timeline",
                            "## Top kernels", "## Call stacks", "## Memory", "## Findings", "## Not decided", "## Warnings"]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)
    outside_code = re.sub(r"`[^`\n]*`", "", text)
    assert not re.search(r"(?<!\\)<[A-Za-z/!]", outside_code) and "](" not in outside_code


def test_every_figure_of_the_roofline_names_its_evidence() -> None:
    section = render_report(CASES["gpu_annotation"]).split("## Roofline")[1].split("## Stages")[0]
    rows = [split_row(line) for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 12
    assert all(row[2] != "n/a" for row in rows if row[1] != "n/a")


def test_an_unknown_figure_has_neither_value_nor_evidence() -> None:
    known = builders.roofline()
    text = render_report(builders.event(roofline=known.model_copy(update={"peak_compute": None, "ridge_point": None})))
    assert "| Peak compute, measured | n/a | n/a | n/a |" in text and "| Ridge point | n/a | n/a | n/a |" in text


def test_unattributed_time_is_shown() -> None:
    text = render_report(CASES["gpu_annotation"])
    assert "| Not attributed | 10.00 us |" in text and "`Memcpy DtoD` | 10.00 | 1.1 | 0.5 | not attributed |" in text


def test_noise_is_a_warning() -> None:
    assert "- timing: noisy: the interquartile range is" in render_report(builders.event(timing=builders.timing(100.0, 0.4)))


def test_the_memory_curve_is_a_csv(tmp_path: Path) -> None:
    write_profile(CASES["with_places"], tmp_path, params_doc={})
    rows = (tmp_path / "memory_timeline.csv").read_text(encoding="utf-8").splitlines()
    assert rows == ["device,time_ns,allocated_bytes", "cuda:0,0,550000000", "cuda:0,123456,1500000000", "cpu,0,550000000",
                    "cpu,123456,1500000000"]


def test_write_profile_leaves_four_whole_files(tmp_path: Path) -> None:
    profile = CASES["gpu_annotation"]
    paths = write_profile(profile, tmp_path / "new", params_doc={"kernel": "mla"})
    assert set(paths) == {"profile", "report", "contract", "params"} and all(path.is_absolute() for path in paths.values())
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["contract.md", "params.json", "profile.json", "report.md"]
    assert Profile.load(tmp_path / "new") == profile
    assert check_contract(paths["contract"].read_text(encoding="utf-8"), baseline=False) == []


@pytest.mark.parametrize(("change", "word"), [
    ({"capture_metadata": builders.metadata(device_name="NVIDIA A100")}, "A100"),
    ({"capture_metadata": builders.metadata(dtype="float32")}, "float32"), ({"parameters": {"b": 64}}, "b=64"),
    ({"capture_metadata": builders.metadata(mode="event")}, "mode"), ({"inputs": ()}, "shapes"),
])
def test_a_baseline_of_something_else_is_refused_and_the_profile_kept(tmp_path: Path, change: dict[str, object], word: str) -> None:
    with pytest.raises(BadInput) as caught:
        write_profile(CASES["gpu_annotation"], tmp_path, baseline=builders.gpu_annotation(**change), params_doc={})
    assert caught.value.code == "baseline_refused" and word in caught.value.message
    assert "vs Baseline" not in (tmp_path / "contract.md").read_text(encoding="utf-8")
    assert Profile.load(tmp_path) == CASES["gpu_annotation"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritable, match="can't write there"):
        write_profile(CASES["event"], tmp_path / "file", params_doc={})


def _tables_hold(text: str) -> None:
    """Every table row has as many cells as its head."""
    width = 0
    for line in text.splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = split_row(line)
        width = width or len(cells)
        assert len(cells) == width, line


@pytest.mark.parametrize(("written", "text"), [
    (numbers.two(0.0), "0.00"), (numbers.two(12.345), "12.35"), (numbers.two(0.00123), "0.0012"), (numbers.two(1e-12), "0.000000000"),
    (numbers.two(float("nan")), "n/a"), (numbers.two(None), "n/a"), (numbers.us(1500.0), "1.50"), (numbers.pct(-0.01), "0.0"),
    (numbers.whole_pct(61.6), "62%"), (numbers.amount(3.02), "3"), (numbers.amount(0.5), "0.5"), (numbers.si(1.2e9, "B"), "1.20 GB"),
    (numbers.si(12.0, "B"), "12 B"),
    (numbers.signed(3.14), "+3.1%"), (numbers.signed(-0.01), "+0.0%"), (numbers.signed(-2.0, " points"), "-2.0 points"),
    (numbers.faster_or_slower(-10.0), "10.0% faster"), (numbers.faster_or_slower(0.06), "0.1% slower"), (numbers.gain(-0.0), "0.0%"),
    (numbers.gain(float("inf")), "n/a"), (numbers.change_pct(0.0, 1.0), None), (numbers.change_pct(2.0, 1.0), -50.0),
])
def test_how_numbers_are_written(written: object, text: object) -> None:
    assert written == text


@pytest.mark.parametrize(("text", "kept"), [
    ("", ""), ("One.", "One."), ("It is 3.5 GB. Yes! No?", "It is 3.5 GB. Yes!"),
    ("e.g. this is one. 2 more. 3 too", "e.g. this is one. 2 more.")])
def test_at_most_two_sentences(text: str, kept: str) -> None:
    assert first_sentences(text, 2) == kept


@pytest.mark.parametrize(("text", "shown"), [
    ("59.9% of peak", "59.9% of peak"), ("", "n/a"), ("1. x", "1\\. x"),
    ("12) y", "12\\) y"), ("- x", "\\- x"), ("# h", "\\# h"), ("3.", "3\\."),
])
def test_a_bullet_escapes_what_would_open_a_block_and_nothing_else(text: str, shown: str) -> None:
    assert bullet(text) == shown
