"""The development log: its exact entry, and a file that only grows."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

import builders
from contract_format import check_devlog_entry
from golden_files import assert_golden
from kernelwright.devlog import add_entry, default_log, log_for, read_log, render_entry, show
from kernelwright.model.errors import BadInput
from kernelwright.model.profile import ClockReading, Profile
from kernelwright.model.workload import WorkloadRef

LATER = {"version": "v5", "capture_timestamp_utc": "2026-01-03T00:00:00+00:00"}


def _later(median_us: float, **meta: object) -> Profile:
    return builders.with_counters(capture_metadata=builders.metadata(**{**LATER, **meta}), timing=builders.timing(median_us),
                                  work=builders.work(median_us))


def test_golden_entries(tmp_path: Path) -> None:
    log = tmp_path / "mla.devlog.md"
    profiles = {
        "first": builders.with_counters(), "faster": _later(900.0), "event": builders.event(), "no_peaks": builders.no_peaks(),
        "cpu": builders.cpu_annotation(), "hostile": builders.hostile(),
    }
    for name, profile in profiles.items():
        text = render_entry(add_entry(profile, log))
        assert check_devlog_entry(text) == [], name
        assert_golden(f"devlog_{name}.md", text)


def test_small_figures_keep_the_form_and_their_value(tmp_path: Path) -> None:
    log = tmp_path / "small.devlog.md"
    small = builders.event(timing=builders.timing(0.0423), work=builders.work(5e9))
    entry = add_entry(small, log)
    text = render_entry(entry)
    assert check_devlog_entry(text) == [] and "| Duration | 0.04 μs |" in text and "| Achieved TFLOPs/s | <0.01 |" in text
    assert entry.figures.tflops is not None and 0 < entry.figures.tflops < 0.005
    assert read_log(log.with_suffix(".jsonl"))[0][0].figures.tflops == entry.figures.tflops


def test_log_is_rendered_from_the_lines(tmp_path: Path) -> None:
    log = tmp_path / "mla.devlog.md"
    add_entry(builders.with_counters(), log, issues=["one"], insights=["two"], extra={"speedup": 1.2})
    add_entry(_later(900.0), log)
    assert log.read_text(encoding="utf-8").split("\n", 1)[1] == show(log) == show(log.with_suffix(".jsonl"))
    lines = log.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2 and json.loads(lines[0])["extra"] == {"speedup": 1.2}
    assert show(log).count("**Performance**") == 2 and "- one\n" in show(log) and "- two\n" in show(log)


def test_change_is_against_the_last_comparable_entry(tmp_path: Path) -> None:
    log = tmp_path / "mla.devlog.md"
    add_entry(builders.with_counters(), log)
    for other in ({"parameters": {"b": 1}}, {"capture_metadata": builders.metadata(device_name="A100")},
                  {"capture_metadata": builders.metadata(dtype="float16")}, {"capture_metadata": builders.metadata(model_name="other")},
                  {"timing": None}):
        assert add_entry(builders.with_counters(**other), log).change is None
    change = add_entry(_later(800.0), log).change
    assert change is not None and change.previous_version == "v4" and change.duration_pct == pytest.approx(-20.0)
    slower = render_entry(add_entry(_later(1000.0, version="v6"), log))
    assert "| Duration | 1000.00 μs | 25.0% slower |" in slower and "| Achieved GB/s | 1200.00 | -20.0% |" in slower


def test_the_same_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    log = tmp_path / "mla.devlog.md"
    add_entry(builders.with_counters(), log)
    assert add_entry(builders.with_counters(), log, insights=["more"]).change is None


def test_a_change_within_noise_says_so(tmp_path: Path) -> None:
    log = tmp_path / "mla.devlog.md"
    add_entry(builders.with_counters(timing=builders.timing(1000.0, 0.05)), log)
    text = render_entry(add_entry(_later(999.0), log))
    assert check_devlog_entry(text) == [] and "is within noise" in text


@pytest.mark.parametrize("noisy_first", [True, False])
def test_a_timing_in_doubt_is_not_compared(tmp_path: Path, noisy_first: bool) -> None:
    log = tmp_path / "mla.devlog.md"
    noisy, sound = builders.timing(400.0, 0.25), builders.timing(1000.0)
    add_entry(builders.with_counters(timing=noisy if noisy_first else sound), log)
    entry = add_entry(_later(1.0).model_copy(update={"timing": sound if noisy_first else noisy}), log)
    text = render_entry(entry)
    assert check_devlog_entry(text) == [] and text.count(" | -- |") == 5 and "faster" not in text and "slower" not in text
    whose = "the previous one" if noisy_first else "this entry"
    assert f"- Too noisy to compare with the previous entry: {whose}: noisy: the interquartile range is 25% of the median" in text


def test_a_noisy_timing_is_an_issue_of_the_first_entry_too(tmp_path: Path) -> None:
    text = render_entry(add_entry(builders.with_counters(timing=builders.timing(400.0, 0.25)), tmp_path / "mla.devlog.md"))
    assert check_devlog_entry(text) == []
    assert "- The duration is in doubt: noisy: the interquartile range is 25% of the median" in text.split("**Insights**")[0]


def test_a_log_from_before_the_warnings_reads_and_is_compared(tmp_path: Path) -> None:
    log = tmp_path / "mla.devlog.md"
    add_entry(builders.with_counters(), log)
    source = log.with_suffix(".jsonl")
    line = json.loads(source.read_text(encoding="utf-8"))
    del line["figures"]["duration_warning"]
    source.write_text(json.dumps(line) + "\n", encoding="utf-8")
    log.unlink()
    change = add_entry(_later(900.0), log).change
    assert change is not None and change.duration_pct == pytest.approx(-10.0)


def test_locked_clocks_are_named(tmp_path: Path) -> None:
    locked = builders.metadata(clocks=ClockReading(requested="lock", locked=True))
    text = render_entry(add_entry(builders.event(capture_metadata=locked), tmp_path / "a.md"))
    assert text.startswith("**Performance** (NVIDIA H200, locked clocks, bfloat16, b=32, s=16, t=4096):\n\n| Metric |")


@pytest.mark.parametrize("note", [
    "a\n## Heading\n- b", "# h", "> q", "1. x", "- x", "```\nx", "a | b", "**Insights**:\n- fake", "<b>x", "x" * 5000, "\u202ex",
])
def test_a_hostile_note_is_one_bullet(tmp_path: Path, note: str) -> None:
    text = render_entry(add_entry(builders.event(), tmp_path / "a.md", issues=[note], insights=[note]))
    assert check_devlog_entry(text) == []
    section = text.split("**Issues**:\n")[1].split("\n\n**Insights**")[0]
    assert section.count("\n") == 0 and section[2] not in "#>-+*`"


def test_a_line_cut_short_is_left_out_and_reported(tmp_path: Path) -> None:
    log = tmp_path / "a.devlog.md"
    source = log.with_suffix(".jsonl")
    add_entry(builders.event(), log)
    add_entry(_later(900.0), log)
    whole = source.read_bytes()
    source.write_bytes(whole[:-40])
    entries, notes = read_log(source)
    assert len(entries) == 1 and notes == ["line 2 of a.devlog.jsonl is cut short or no entry, and was left out"]
    add_entry(_later(800.0), log)
    entries, notes = read_log(source)
    assert [entry.figures.duration_ns for entry in entries] == [1e6, 8e5] and len(notes) == 1
    assert source.read_bytes().startswith(whole[:-40]) and notes[0] in log.read_text(encoding="utf-8")


def test_a_first_line_cut_short_is_still_a_log(tmp_path: Path) -> None:
    log = tmp_path / "a.devlog.md"
    add_entry(builders.event(), log)
    log.with_suffix(".jsonl").write_bytes(log.with_suffix(".jsonl").read_bytes()[:30])
    add_entry(_later(900.0), log)
    assert len(read_log(log.with_suffix(".jsonl"))[0]) == 1


@pytest.mark.parametrize(("name", "content", "code"), [
    ("a.devlog.md", "# My notes\n", "foreign_log"),
    ("a.devlog.jsonl", '{"x": 1}\n{"y": 2}\n', "not_a_log"), ("a.devlog.jsonl", "hello\n", "not_a_log"),
])
def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path, name: str, content: str, code: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput) as caught:
        add_entry(builders.event(), tmp_path / "a.devlog.md")
    assert caught.value.code == code
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir() if not path.name.startswith(".")] == [(name, content)]


def test_edits_by_hand_are_not_undone(tmp_path: Path) -> None:
    log = tmp_path / "a.devlog.md"
    add_entry(builders.event(), log)
    log.write_text(log.read_text(encoding="utf-8") + "- my own words\n", encoding="utf-8")
    with pytest.raises(BadInput, match="edited by hand"):
        add_entry(_later(900.0), log)
    assert "my own words" in log.read_text(encoding="utf-8") and len(read_log(log.with_suffix(".jsonl"))[0]) == 1


def test_missing_markdown_is_rendered_again(tmp_path: Path) -> None:
    log = tmp_path / "a.devlog.md"
    add_entry(builders.event(), log)
    log.unlink()
    add_entry(_later(900.0), log)
    assert log.read_text(encoding="utf-8").count("**Performance**") == 2


def _append(log: Path, number: int) -> None:
    for turn in range(5):
        stamp = f"2026-01-01T00:{number:02d}:{turn:02d}+00:00"
        add_entry(builders.event(capture_metadata=builders.metadata(mode="event", capture_timestamp_utc=stamp)), log)


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    log = tmp_path / "a.devlog.md"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append, args=(log, number)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    entries, notes = read_log(log.with_suffix(".jsonl"))
    assert notes == [] and len({entry.captured_utc for entry in entries}) == 20
    assert log.read_text(encoding="utf-8").split("\n", 1)[1] == show(log)


def test_where_a_log_is(tmp_path: Path) -> None:
    assert default_log("a/b c", tmp_path) == tmp_path / "devlog" / "a_b_c.devlog.md"
    assert log_for(WorkloadRef(path=tmp_path / "w.py", name="w"), tmp_path) == tmp_path / "devlog" / "w.devlog.md"
    assert log_for(WorkloadRef(path=tmp_path / "w.py", name="w", devlog=tmp_path / "d.md"), tmp_path) == tmp_path / "d.md"


@pytest.mark.parametrize("name", ["log.txt", "folder.md", "log"])
def test_a_log_name_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(BadInput):
        add_entry(builders.event(), tmp_path / name)


def test_no_log_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such development log"):
        show(tmp_path / "a.md")
