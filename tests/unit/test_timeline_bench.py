"""bench/timeline_engine.py measures what it says: its plain Python loops and the engine give the same answers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("timeline_engine", Path(__file__).parents[2] / "bench" / "timeline_engine.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_parts_agree_with_plain_python(bench: ModuleType) -> None:
    assert bench.measure_nesting(3_000)["equal"] and bench.measure_overlap(3_000)["equal"]
    assert bench.plain_innermost([0, 2, 10], [5, 4, 12], [1, 3, 4, 6, 11]) == [0, 1, 0, -1, 2]
    assert bench.plain_histogram([(0, 5, 1), (2, 4, 2), (3, 6, 1)], 8) == (2, 4, 2)


def test_flow_is_measured_on_as_many_events_as_asked_for(bench: ModuleType) -> None:
    found = bench.measure_flow(20_000)
    assert 20_000 <= found["events"] < 21_000 and found["device_rows"] == 5_000 and found["gaps"] > 1_000 and found["wall_s"] > 0


def test_growth_is_held_against_n_log_n(bench: ModuleType) -> None:
    def row(events: int, cpu_s: float) -> dict[str, float]:
        return {"events": events, "device_rows": 1, "wall_s": cpu_s, "cpu_s": cpu_s, "peak_bytes": 1, "trace_bytes": 1}

    ((_, _, exponent, excess),) = bench.growth([row(100_000, 9), row(1_000_000, 1), row(10_000_000, 100)])
    assert exponent == pytest.approx(2) and excess == pytest.approx(100 / (10 * 7 / 6))
    part = {"part": "nesting", "count": 1, "wall_s": 1, "cpu_s": 2, "plain_cpu_s": 3, "equal": False}
    text = bench.markdown([part], [row(1_000_000, 1), row(10_000_000, 100)])
    assert "| nesting | 1 | 1.00 | 2.00 | 3.00 | 1.5 | NO |" in text and "n^2.00" in text
