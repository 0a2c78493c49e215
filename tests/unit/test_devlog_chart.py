"""The chart of a development log."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import builders
from kernelwright.devlog import add_entry, log, read_log, show
from kernelwright.devlog.chart import lines_of
from kernelwright.model.profile import Profile


def at(version: str | None, median_us: float, hour: int = 0, **changes: object) -> Profile:
    return builders.event(
        capture_metadata=builders.metadata(mode="event", version=version, capture_timestamp_utc=f"2026-01-03T{hour:02}:00:00+00:00"),
        timing=builders.timing(median_us), **changes)


def test_the_chart_has_the_newest_entry_of_each_version_at_the_same_conditions(tmp_path: Path) -> None:
    file = tmp_path / "mla log.devlog.md"
    chart = tmp_path / "mla log.devlog.versions.svg"
    add_entry(at("v1", 900.0, 1, parameters={"t": 16}), file)
    assert not chart.exists() and "![" not in file.read_text()
    add_entry(at("v2", 400.0, 2, parameters={"t": 64}), file)
    add_entry(at(None, 400.0, 3, parameters={"t": 16}), file)
    assert not chart.exists()  # another parameter, and no version: nothing that could be set against v1
    add_entry(at("v10", 300.0, 4, parameters={"t": 16}), file)
    first = chart.read_bytes()
    add_entry(at("v1", 800.0, 5, parameters={"t": 16}), file)
    add_entry(at("$\\frac{<b>}", 100.0, 6, parameters={"t": 64}), file)
    entries, _ = read_log(file.with_suffix(".jsonl"))
    lines = lines_of(entries)
    assert [(line.name, [(entry.version, (entry.figures.duration_ns or 0) / 1000) for entry in line.entries]) for line in lines] == \
        [("t=64", [("v2", 400.0), ("$\\frac{<b>}", 100.0)]), ("t=16", [("v1", 800.0), ("v10", 300.0)])]
    ElementTree.fromstring(chart.read_bytes())
    assert b"in doubt" not in chart.read_bytes()
    drawn = chart.read_bytes()
    assert drawn != first and b"v10" in drawn and b"t=64" in drawn and b"<b>" not in drawn
    line = "![Time of a call over the versions](mla%20log.devlog.versions.svg)"
    assert line in file.read_text() and line in show(file)
    noisy = at("v11", 200.0, 7, parameters={"t": 16})
    add_entry(noisy.model_copy(update={"timing": builders.timing(200.0, 0.25)}), file)
    assert b"in doubt" in chart.read_bytes()


def test_a_foreign_picture_and_a_broken_matplotlib_cost_the_chart_alone(tmp_path: Path, monkeypatch: object) -> None:
    file, chart = tmp_path / "a.md", tmp_path / "a.versions.svg"
    chart.write_text("<svg>mine</svg>")
    add_entry(at("v1", 900.0, 1), file)
    add_entry(at("v2", 800.0, 2), file)
    assert chart.read_text() == "<svg>mine</svg>" and "![" not in file.read_text() + show(file)
    chart.unlink()

    def broken(entries: object) -> bytes:
        raise RuntimeError("no fonts")

    monkeypatch.setattr(log, "versions_svg", broken)  # type: ignore[attr-defined]
    add_entry(at("v3", 700.0, 3), file)
    assert not chart.exists() and file.read_text().count("## mla") == 3
