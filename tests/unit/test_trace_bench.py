"""The benchmark of trace readers: what it makes is read, and what it says of growth and room is right."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trace_readers", ROOT / "bench" / "trace_readers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ours_alone_reads_what_the_benchmark_makes(bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--sizes", "--alone", "600", "6000", "--out", str(tmp_path / "b.json")]) == 0
    rows = json.loads((tmp_path / "b.json").read_text())["rows"]
    assert [(row["reader"], len(row["runs"])) for row in rows] == [("kernelwright", bench.TURNS)] * 2
    assert all(row["events"] > 0.6 * row["trace_events"] and row["peak_bytes"] > 10**6 for row in rows)
    assert "602 to 6002 events: 10.0 times the events" in capsys.readouterr().out
    assert "n log n" in (tmp_path / "b.md").read_text()


def test_growth_is_held_against_n_log_n(bench: ModuleType) -> None:
    row = {"reader": "kernelwright", "error": None}
    rows = [{**row, "trace_events": 1000, "wall_s": 1.0, "cpu_s": 2.0, "peak_bytes": 100},
            {"reader": "hta", "error": None}, {**row, "error": "failed"},
            {**row, "trace_events": 1_000_000, "wall_s": 2000.0, "cpu_s": 3000.0, "peak_bytes": 150}]
    assert bench.growth(rows) == ["1000 to 1000000 events: 1000.0 times the events, 2000.0 times the wall time, 1500.0 times the CPU time "
                                  "(n log n: 2000.0), 1.5 times the memory"]


@pytest.mark.parametrize(("change", "words"), [
    ({}, []), ({"cpu_s_ratio": 11.9}, ["11.9 times our CPU time"]), ({"peak_bytes_ratio": 5.9}, ["5.9 times our memory"]),
    ({"trace_events": 1_000_002}, ["nothing to compare"]), ({"error": "exit 1", "cpu_s_ratio": None}, ["nothing to compare"]),
    ({"reader": "json"}, ["nothing to compare"])])
def test_what_is_missed_beside_hta_is_said(bench: ModuleType, change: dict[str, object], words: list[str]) -> None:
    row = {"reader": "hta", "error": None, "trace_events": 3_000_002, "cpu_s_ratio": 12.1, "peak_bytes_ratio": 6.1, **change}
    found = bench.misses([{"reader": "kernelwright", "error": None, "trace_events": 3_000_002}, row])
    assert len(found) == len(words) and all(word in line for word, line in zip(words, found, strict=True))


def test_a_check_without_hta_fails(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--sizes", "--alone", "600", "--check"]) == 1
    assert "missed: nothing to compare with HTA" in capsys.readouterr().err


def test_a_full_disk_leaves_the_largest_out(bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.has_room(tmp_path, 1) and not bench.has_room(tmp_path, 10**15)
    assert "without 1000000000000000 events" in capsys.readouterr().err


def test_a_benchmark_that_misses_its_figures_fails_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("bench_run", ROOT / "bench" / "run.py")
    assert spec is not None and spec.loader is not None
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    asked: dict[str, bool] = {}

    def load(name: str) -> SimpleNamespace:
        asked[name] = False
        return SimpleNamespace(main=lambda argv: asked.update({name: "--check" in argv}) or int(asked[name]))

    monkeypatch.setattr(run, "load", load)
    assert run.main(["--out", str(tmp_path)]) == 1
    assert {name for name, checked in asked.items() if checked} == {"trace_readers", "timeline_engine"}
    assert set(asked) == set(run.BENCHMARKS)
    assert all('"--check"' in (ROOT / "bench" / f"{name}.py").read_text() for name in run.CHECKED)
