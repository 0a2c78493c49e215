"""bench/judge_seconds.py: what it counts, and what it says of a workload that is not there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("judge_seconds", Path(__file__).resolve().parents[2] / "bench" / "judge_seconds.py")
judge_seconds = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(judge_seconds)


@pytest.fixture(autouse=True)
def whole(monkeypatch):
    """What it wraps is as it was after each test."""
    monkeypatch.setattr(judge_seconds.exchange.Exchange, "receive", judge_seconds.exchange.Exchange.receive)
    monkeypatch.setattr(judge_seconds.exchange, "read_leaves", judge_seconds.exchange.read_leaves)
    for name in ("check_round", "check_elsewhere", "same_values"):
        monkeypatch.setattr(judge_seconds.rounds, name, getattr(judge_seconds.rounds, name))


def test_calls_are_counted_by_name_also_those_that_fail():
    clock = judge_seconds.Clock()
    divide = clock.around(lambda a, b: a / b, lambda a, _b: f"of {a}")
    assert divide(6, 3) == 2
    with pytest.raises(ZeroDivisionError):
        divide(6, 0)
    assert dict(clock.counts) == {"of 6": 2} and clock.seconds["of 6"] > 0


def test_a_workload_that_is_not_there_is_one_line_with_the_mend(tmp_path, capsys):
    assert judge_seconds.main([str(tmp_path / "none.py")]) == 2
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 1 and "no such file" in err and "give the path" in err
