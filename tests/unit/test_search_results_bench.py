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
    for name, (_what, device) in results.SETS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"device": "cuda", "rows": [row(device_name=f"Some {device}")]}))
    (tmp_path / "results.md").write_text("Before.\n\n<!-- table: sets -->\n\n<!-- end -->\n\nAfter.\n")
    return tmp_path


def test_a_row_takes_the_place_of_its_own_search_alone():
    known = [row(), row("gpt2"), row(budget_s=60.0), row(asked="bf16", precision="bf16"), row(asked="bf16")]
    found = results.merged(known, [row(speedup=3.0), row("lstm")])
    assert found == [row(speedup=3.0), *known[1:], row("lstm")]


def test_a_row_without_its_ladder_takes_no_whole_ones_place():
    known = [row(), row("gpt2", over=None)]
    assert results.merged(known, [row(speedup=9.0, over=None), row("gpt2", 5.0, None)]) == [row(), row("gpt2", 5.0, None)]


def test_rows_are_taken_over_and_every_page_is_written(folder, tmp_path):
    new = tmp_path / "new.json"
    new.write_text(json.dumps({"rows": [row(speedup=4.0, over=2.0), row("gpt2", 1.0, 1.0, confirmed=False, used_s=130.0, day=None),
                                        {"workload": "lstm", "asked": "equal", "precision": "equal", "budget_s": 120.0, "error": "no"}]}))
    assert results.main([str(new), "--into", "h200"]) == 0
    document = json.loads((folder / "h200.json").read_text())
    assert document["device"] == "cuda" and [one["speedup"] for one in document["rows"]] == [4.0, 1.0]
    for name, (what, device) in results.SETS.items():
        head, _about, table, *_ = (folder / f"{name}.md").read_text().split("\n\n")
        assert (head, table) == (f"# Recorded searches: {what}, {device}", "### equal, budget 120 s")
    text = (folder / "results.md").read_text()
    assert text.startswith("Before.\n") and text.endswith("<!-- end -->\n\nAfter.\n")
    line, = (line for line in text.splitlines() if line.startswith("| ["))
    assert line == ("| [examples](search-runs/h200.md) | equal | 120 | H200 | 2 | 2.00x, 1.00x | 1.41x, 1.00x | 0 | 1 | 1 of 2 | "
                    "2026-01-02 (of 1) |"), "a set of one search is none"
    assert results.filled(text) == text


def test_a_set_counts_what_was_not_confirmed_not_whole_and_not_dated(folder):
    unseen = {"asked": "tf32", "precision": "tf32", "ladder": {"tf32+compile_default": "1.20x", "compile_max_autotune+tf32": "1.10x"}}
    rows = [row("a", 4.0, None, **unseen, day="2026-01-09"), row("b", 1.0, 1.5, **unseen, day="2026-01-02"),
            row("c", 2.0, 6.0, asked="tf32", precision="tf32", ladder_missing=["x"], day=None),
            row("d", 2.0, 3.0, asked="tf32", precision="tf32", confirmed=None)]
    del rows[0]["confirmed"]  # recorded before that was
    (folder / "h200.json").write_text(json.dumps({"device": "cuda", "rows": rows}))
    line, = (line for line in results.TABLES["sets"]() if "(search-runs/h200.md)" in line)
    assert line == ("| [examples](search-runs/h200.md) | tf32 | 120 | H200 | 4 | 2.00x, 1.00x | 3.00x, 1.50x (of 3) | 3 | 0 | 4 of 4 | "
                    "2026-01-02 to 2026-01-09 (of 3) |")


def test_files_and_their_place_belong_together(folder, capsys):
    for argv in (["new.json"], ["--into", "h200"], ["new.json", "--into", "elsewhere"]):
        with pytest.raises(SystemExit) as stopped:
            results.main(argv)
        assert stopped.value.code == 2
    assert "FILE and --into belong together" in capsys.readouterr().err and not (folder / "h200.md").exists()


@pytest.mark.parametrize("text", [None, "{", "[]", "{}"])
def test_a_file_without_rows_is_told_and_changes_nothing(folder, tmp_path, capsys, text):
    file, before = tmp_path / "new.rows", (folder / "h200.json").read_text()
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit):
        results.main([str(file), "--into", "h200"])
    assert "holds no rows" in capsys.readouterr().err and (folder / "h200.json").read_text() == before


def test_a_workload_is_a_line_with_what_is_missing_said():
    cells = [results._gain(one) for one in (row(), row(confirmed=False), row(over=None, confirmed=None),
                                            row(kept="nothing", speedup=1.0, over=0.9), row(ladder_missing=["compile_default: n/a"]), None)]
    assert cells == ["2.00x (1.50x)", "2.00x (1.50x) once", "2.00x (n/a)", "nothing (0.90x)", "2.00x (1.50x\\*)", "n/a"]


def test_problems_are_named_and_ordered_as_their_files_are_numbered():
    names = ["level2_1_Conv2D_ReLU_BiasAdd", "level1_12_Matmul_with_diagonal_matrices_", "level1_6_Matmul"]
    assert [results.readable(one) for one in sorted(names, key=results._order)] == [
        "level1/6 Matmul", "level1/12 Matmul with diagonal matrices", "level2/1 Conv2D ReLU BiasAdd"]
    assert results.readable("conv_block") == "conv_block"


def test_a_table_that_is_not_there_is_an_error_and_so_are_marks_that_do_not_pair():
    with pytest.raises(KeyError):
        results.filled("<!-- table: nowhere -->\n<!-- end -->\n")
    for text in ("<!-- table: cpu -->\n<!-- table: cpu -->\n<!-- end -->\n", "<!-- end -->\n", "<!-- table: cpu -->\nProse.\n",
                 "<!-- table: cpu -->\n<!-- end -->\n<!-- end -->\n"):
        with pytest.raises(ValueError, match="needs an <!-- end -->"):
            results.filled(text)


def test_rows_of_another_machine_are_not_taken(folder, tmp_path, capsys):
    before = (folder / "h200.json").read_text()
    (tmp_path / "new.json").write_text(json.dumps({"rows": [row(device_name="NVIDIA H100 80GB HBM3")]}))
    with pytest.raises(SystemExit) as stopped:
        results.main([str(tmp_path / "new.json"), "--into", "h200"])
    assert stopped.value.code == 2 and "mlp ran on NVIDIA H100 80GB HBM3, h200 is of H200" in capsys.readouterr().err
    assert (folder / "h200.json").read_text() == before


def test_the_tables_line_by_line(folder):
    """Each column has figures that no other has."""
    gains = {"equal": (2.0, 1.5), "tf32": (3.0, 1.25), "bf16": (8.0, 4.0)}
    both = [{"condition": condition, "speedup": speedup, "reference_ns": 1e3 * us, "candidate_ns": 1e3 * kept_us}
            for condition, speedup, us, kept_us in (("warm", 4.0, 60, 15), ("end to end", 1.5, 110, 55), ("graph", 2.25, 50, 20))]

    def searches(workload: str, budgets: dict[str, float], **changes: object) -> list[dict]:
        return [row(workload, *gains[level], asked=level, precision=level, budget_s=budget_s, timings=[], **changes)
                for level, budget_s in budgets.items()]

    ours, theirs = {"equal": 120.0, "tf32": 120.0, "bf16": 120.0}, {"equal": 120.0, "tf32": 60.0, "bf16": 60.0}
    examples = [*searches("mlp", ours), *searches("gpt2", ours, confirmed=False),
                row("conv_block", 5.0, None, kept="nothing", timings=both),
                row("conv_block", 2.5, budget_s=480.0, bought=[{"minutes": "1", "gain": "1.10x"}, {"minutes": "3", "gain": "3.30x"}]),
                row("mlp", 99.0, 99.0, asked="bf16")]
    problems = [*searches("level1_12_Two__words_", theirs, warm={"cold_s": 8.0, "share": 0.25, "whole_share": 0.5}),
                *searches("level1_6_One", theirs, warm={"cold_s": None, "share": None, "whole_share": None}),
                *searches("level1_7_Late", theirs, warm={"cold_s": 8.0, "share": None, "whole_share": None}),
                row("level1_6_One", 99.0, budget_s=60.0)]
    for name, rows in (("h200", examples), ("kernelbench-h200", problems), ("cpu", [row("mlp", 1.5, 1.25, budget_s=60.0)]),
                       ("cpu-xeon", [row("mlp", 1.125, 1.0, budget_s=60.0)])):
        (folder / f"{name}.json").write_text(json.dumps({"device": "x", "rows": rows}))
    assert results.TABLES["examples"]()[2:] == [
        "| conv_block | nothing (n/a) | n/a | n/a |", "| gpt2 | 2.00x (1.50x) once | 3.00x (1.25x) once | 8.00x (4.00x) once |",
        "| mlp | 2.00x (1.50x) | 3.00x (1.25x) | 8.00x (4.00x) |",
        "| geometric mean | 2.71x (1.50x (of 2)) | 3.00x (1.25x) | 8.00x (4.00x) |"]
    assert results.TABLES["kernelbench"]()[2:] == [
        "| level1/6 One | 2.00x (1.50x) | 3.00x (1.25x) | 8.00x (4.00x) | n/a |",
        "| level1/7 Late | 2.00x (1.50x) | 3.00x (1.25x) | 8.00x (4.00x) | not reached |",
        "| level1/12 Two words | 2.00x (1.50x) | 3.00x (1.25x) | 8.00x (4.00x) | 0.25, 0.50 |",
        "| geometric mean | 2.00x (1.50x) | 3.00x (1.25x) | 8.00x (4.00x) | 0.25, 0.50 (of 1) |"]
    assert results.TABLES["cpu"]() == ["| Small example | EPYC | Xeon |", "|---|---|---|", "| mlp | 1.50x (1.25x) | 1.12x (1.00x) |",
                                       "| geometric mean | 1.50x (1.25x) | 1.12x (1.00x) |"]
    assert results.TABLES["minutes"]()[2:] == [
        "| conv_block | equal | 120 | 100 | 5.00x [5.00, 5.00] | n/a | n/a | n/a | 7 | 4.0 |",
        "| conv_block | equal | 480 | 100 | 2.50x [2.50, 2.50] | 1.50x | 1.10x | 3.30x | 7 | 4.0 |"]
    assert results.TABLES["conditions"]()[2:4] == [
        "| examples | equal | 120 | 1 of 3 | 4.00x, 4.00x | 2.25x, 2.25x | 1 of 3 | 4.00x, 4.00x | 1.50x, 1.50x | 2.75x |",
        "| examples | tf32 | 120 | 0 of 2 | n/a | n/a | 0 of 2 | n/a | n/a | n/a |"]
    (folder / "beside-h200.json").write_text(json.dumps({"device": "x", "rows": [
        row("waits", 3.0, 1.5, budget_s=60.0, kept="remove_syncs"), row("towers", 2.0, 0.5, budget_s=60.0, confirmed=False)]}))
    assert results.TABLES["beside"]()[2:] == ["| towers | equal | 60 | 2.00x (0.50x) once | a |",
                                              "| waits | equal | 60 | 3.00x (1.50x) | remove_syncs |"]
