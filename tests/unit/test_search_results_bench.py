"""bench/search_results.py: rows taken over, pages and tables made of them. Nothing is timed."""

from __future__ import annotations

import json

import pytest

from bench_scripts import load

results = load("search_results")


def row(workload: str = "mlp", speedup: float = 2.0, over: float | None = 1.5, **changes: object) -> dict:
    return {"workload": workload, "asked": "equal", "precision": "equal", "budget_s": 120.0, "kept": "a", "speedup": speedup,
            "interval": [speedup, speedup], "over": over, "over_interval": None, "before_us": 9.0, "after_us": 9.0 / speedup,
            "rung": "compile_default", "rung_speedup": 1.0, "ladder_missing": [], "confirmed": True, "used_s": 100.0, "wall_s": 110.0,
            "candidates": 7, "per_minute": 4.0, "bought": [], "bound": None, "bound_after": None, "most": None,
            "device_name": "NVIDIA H200", "day": "2026-01-02", **changes}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """docs/ of its own, each file of rows with one row."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.md")
    for name in results.SETS:
        (tmp_path / f"{name}.json").write_text(json.dumps({"device": "cuda", "rows": [row()]}))
    (tmp_path / "results.md").write_text("Before.\n\n<!-- table: sets -->\n\n<!-- end -->\n\nAfter.\n")
    return tmp_path


def test_a_row_takes_the_place_of_its_own_search_alone():
    known = [row(), row("gpt2"), row(budget_s=60.0), row(asked="bf16", precision="bf16")]
    found = results.merged(known, [row(speedup=3.0), row("lstm")])
    assert found == [row(speedup=3.0), *known[1:], row("lstm")]


def test_neither_a_failure_nor_a_row_without_its_ladder_takes_the_place_of_a_whole_one():
    known = [row(), row("gpt2", over=None)]
    failed = {"workload": "mlp", "asked": "equal", "precision": "equal", "budget_s": 120.0, "error": "no torch"}
    assert results.merged(known, [failed, row(speedup=9.0, over=None), row("gpt2", 5.0, None)]) == [row(), row("gpt2", 5.0, None)]


def test_rows_are_taken_over_and_every_page_is_written(folder, tmp_path):
    new = tmp_path / "new.json"
    new.write_text(json.dumps({"rows": [row(speedup=4.0, over=2.0), row("gpt2", 1.0, 1.0, confirmed=False, used_s=130.0, day=None)]}))
    assert results.main([str(new), "--into", "h200"]) == 0
    document = json.loads((folder / "h200.json").read_text())
    assert document["device"] == "cuda" and [one["speedup"] for one in document["rows"]] == [4.0, 1.0]
    assert all((folder / f"{name}.md").read_text().startswith("### equal, budget 120 s") for name in results.SETS)
    text = (folder / "results.md").read_text()
    assert text.startswith("Before.\n") and text.endswith("<!-- end -->\n\nAfter.\n")
    line, = (line for line in text.splitlines() if line.startswith("| ["))
    assert line == ("| [examples](search-runs/h200.md) | equal | 120 | H200 | 2 | 2.00x, 1.00x | 1.41x, 1.00x | 0 | 1 | 1 of 2 | "
                    "2026-01-02 (1 n/a) |"), "a set of one search is none"
    assert results.filled(text) == text


def test_files_and_their_place_belong_together(folder, capsys):
    for argv in (["new.json"], ["--into", "h200"], ["new.json", "--into", "elsewhere"]):
        with pytest.raises(SystemExit) as stopped:
            results.main(argv)
        assert stopped.value.code == 2
    assert "FILE and --into belong together" in capsys.readouterr().err and not (folder / "h200.md").exists()


def test_a_workload_is_a_line_with_what_is_missing_said():
    cells = [results._gain(one) for one in (row(), row(confirmed=False), row(over=None), row(kept="nothing", speedup=1.0, over=0.9),
                                            row(ladder_missing=["compile_default: n/a"]), None)]
    assert cells == ["2.00x (1.50x)", "2.00x (1.50x) once", "2.00x (n/a)", "nothing (0.90x)", "2.00x (1.50x\\*)", "n/a"]


def test_problems_are_named_and_ordered_as_their_files_are_numbered():
    names = ["level2_1_Conv2D_ReLU_BiasAdd", "level1_12_Matmul_with_diagonal_matrices_", "level1_6_Matmul"]
    assert [results.readable(one) for one in sorted(names, key=results._order)] == [
        "level1/6 Matmul", "level1/12 Matmul with diagonal matrices", "level2/1 Conv2D ReLU BiasAdd"]
    assert results.readable("conv_block") == "conv_block"


def test_a_table_that_is_not_there_is_an_error():
    with pytest.raises(KeyError):
        results.filled("<!-- table: nowhere -->\n\n<!-- end -->")
