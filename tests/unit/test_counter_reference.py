"""docs/counters-reference.md says what the data and the recordings say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelwright.report.counter_reference import END, main, page
from kernelwright.roofline.counters import known, roles
from known_counters import BY_HAND, recording

PAGE = Path(__file__).resolve().parents[2] / "docs" / "counters-reference.md"


def test_the_tables_are_those_of_the_data() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "run python -m kernelwright.report.counter_reference docs/counters-reference.md"
    assert set(re.findall(r"^\| `(\w+)` \| ", text.partition("| role |")[2], re.MULTILINE)) == set(roles())


def test_the_hand_computed_table_is_the_recording() -> None:
    rows = re.findall(r"^\| `(\w+)` (\w+): (.+) \| ([\d,]+) \| ([\d,]+) \(", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [(case, role, how) for case, role, how, _, _ in rows] == [(case, role, how) for case, role, _, how in BY_HAND]
    for (case, role, _, by_hand, counted), entry in zip(rows, BY_HAND, strict=True):
        assert float(by_hand.replace(",", "")) == entry[2]
        launches = [row["metrics"] for name in ("known_default", "known_full") for row in recording(name) if row["case"] == case]
        figures = [figure for metrics in launches if (figure := known(role, metrics, "9.0")) is not None]
        assert any(round(figure) == float(counted.replace(",", "")) for figure in figures), (case, role)


def test_a_page_without_marks_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"no begin {END}", encoding="utf-8")
    with pytest.raises(ValueError, match="lacks"):
        main([str(file)])
    assert file.read_text(encoding="utf-8") == f"no begin {END}"
    assert main([]) == 2 and "usage" in capsys.readouterr().err
