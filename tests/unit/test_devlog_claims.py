"""What a note claims against what its entry measured."""

from __future__ import annotations

from pathlib import Path

import pytest

import builders
from kernelwright.devlog import add_entry, read_log
from kernelwright.model.errors import BadInput
from kernelwright.model.profile import Profile

LATER = {"version": "v5", "capture_timestamp_utc": "2026-01-03T00:00:00+00:00"}


def at(median_us: float, **meta: object) -> Profile:
    return builders.with_counters(capture_metadata=builders.metadata(**meta), timing=builders.timing(median_us),
                                  work=builders.work(median_us))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log whose last entry took 1000 us."""
    add_entry(at(1000.0), tmp_path / "mla.devlog.md")
    return tmp_path / "mla.devlog.md"


@pytest.mark.parametrize("note", [
    "30% faster: tiles of 64", "It is 1.43x faster than v4.", "faster by 31%", "could be 90% faster with TMA", "expected 2x faster",
    "5x faster than torch",
    "no claim at all", "the qk stage is compute-bound", "was 10% slower than v2 before",
])
def test_what_the_entry_bears_is_taken(log: Path, note: str) -> None:
    entry = add_entry(at(700.0, **LATER), log, insights=[note], check_notes=True)
    assert entry.change is not None and entry.insights == (note,)


@pytest.mark.parametrize(("note", "says"), [
    ("50% faster: tiles of 64", "30.0% faster than the entry before"), ("10% slower", "30.0% faster"), ("now 2x faster", "30.0% faster"),
    ("slower by 30%", "30.0% faster"), ("Good. The kernel is compute-bound now", "-bound"), ("v5 is latency-bound", "-bound"),
])
def test_what_it_does_not_bear_is_refused_and_nothing_written(log: Path, note: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        add_entry(at(700.0, **LATER), log, issues=["x"], insights=["fine", note], check_notes=True)
    assert caught.value.code == "contradicts_profile" and caught.value.where == "--insight" and says in caught.value.message
    assert len(read_log(log.with_suffix(".jsonl"))[0]) == 1
    assert add_entry(at(700.0, **LATER), log, insights=[note]).insights == (note,)  # what kernelwright writes itself is not asked


def test_noise_and_a_first_entry_bear_no_claim(log: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="within noise"):
        add_entry(at(1001.0, **LATER), log, insights=["0.1% faster"], check_notes=True)
    with pytest.raises(BadInput, match="no earlier entry"):
        add_entry(at(700.0), tmp_path / "other.devlog.md", issues=["3% slower"], check_notes=True)


def test_the_commit_is_named(log: Path) -> None:
    add_entry(at(700.0, **LATER), log, extra={"commit": "0123456789ab+changes"})
    assert ", commit 0123456789ab+changes\n" in log.read_text()
