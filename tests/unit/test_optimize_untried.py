"""What stands beside the search: rows for comparison, and the list of what was not begun. Fakes in place of processes."""

from __future__ import annotations

import json
import re

from kernelwright.model.trial import Screen
from kernelwright.model.verdict import Experiment
from kernelwright.optimize import memory, shown, strategy
from kernelwright.optimize.ledger import Ledger
from kernelwright.optimize.passes import Context
from kernelwright.optimize.plan import candidate
from optimizing import (
    CONVOLUTIONAL,
    FakeStages,
    a_workload,  # noqa: F401 a fixture
    context,
    environment,
    facts,
    few_passes,  # noqa: F401 a fixture
    profile_of,
    rows,
    run,
)
from screened_stages import BEST, Stages


def beside(outcome) -> dict[str, Experiment]:
    return shown.rows_of(Ledger(outcome.out_dir / "ledger.jsonl").rows)


def ladder_of(outcome) -> dict[str, list[str]]:
    table = outcome.report.read_text().partition("## The torch.compile ladder")[2].partition("\n## ")[0]
    return {cells[0]: cells for line in table.splitlines() if line.startswith("| ") and (cells := line.strip("| ").split(" | "))}


def test_tf32_and_strict_float32_stand_beside_the_ladder_at_equal_precision_and_are_never_kept(workload):
    """Both would win: 9 and 8 times as fast."""
    stages = Stages({"tf32": 9.0, "strict_float32": 8.0})
    outcome = run(workload, stages)
    assert set(outcome.kept) == BEST and outcome.speedup < 3
    found = beside(outcome)
    assert {name: row.screen.speedup for name, row in found.items()} == {"tf32": 9.0, "strict_float32": 8.0}
    assert [name for name in stages.screener.asked if "tf32" in name or "strict" in name] == ["tf32", "strict_float32"], "alone"
    assert not any("tf32" in name or "strict" in name for name in stages.judged) and not {"tf32", "strict_float32"} & set(rows(outcome))
    table = ladder_of(outcome)
    assert table["tf32"][1] == "tf32" and table["tf32"][4].startswith("screen 9.00x") and "never kept" in table["tf32"][5]
    assert table["strict_float32"][1] == "strict float32" and table["strict_float32"][4].startswith("screen 8.00x")
    best = outcome.report.read_text().partition("## Gain by precision")[2].partition("\n## ")[0]
    assert "compile_max_autotune 2.00x" in best and "tf32" not in best, "no row of theirs is the ladder's best"
    lessons = "".join(file.read_text() for file in workload.path.parent.rglob("lessons/*.jsonl"))
    assert "cuda_graph" in lessons and "strict_float32" not in lessons and '"tf32"' not in lessons
    again = len(stages.screener.asked)
    assert run(workload, stages, resume=True) == outcome and len(stages.screener.asked) == again


def test_rows_for_comparison_that_were_not_measured_say_why(workload):
    short = run(workload, Stages(seconds={"cheap": 12.0, "compile": 14.0, "autotune": 16.0}), budget_s=30.0)
    assert {name: row.reason for name, row in beside(short).items()} == dict.fromkeys(("tf32", "strict_float32"), "not measured: no time")
    assert ladder_of(short)["tf32"][2:] == ["n/a", "n/a", "n/a", "not measured: no time"]
    judged_only = run(workload, FakeStages({}), budget_s=60.0)
    assert ladder_of(judged_only)["strict_float32"][5] == "not measured: nothing was screened"
    assert not beside(run(workload, Stages(device="cpu"))), "without a GPU there is no TF32"
    assert not beside(run(workload, Stages(dtype="bfloat16")))
    lower = beside(run(workload, Stages(), precision="tf32"))
    assert set(lower) == {"strict_float32"}, "there TF32 is a candidate like any other"


def test_what_is_strict_float32_already_is_not_measured_as_such(workload):
    def refusal(operator: str, **flags: bool) -> str | None:
        return shown.STRICT_FLOAT32.refusal(
            Context(facts=facts(), environment=environment(**flags), profile=profile_of("cuda", (operator, "aten::relu"))))

    convolution, product = CONVOLUTIONAL[0], "aten::addmm"
    assert refusal(convolution) is None is refusal(product, matmul_tf32=True)
    for same in (refusal(convolution, cudnn_tf32=False), refusal(product), refusal(convolution, cudnn_tf32=False, matmul_tf32=True)):
        assert same == "nothing of the original may use TF32: it is strict float32 itself"
    assert shown.STRICT_FLOAT32.refusal(context(training=True)) == "not valid for a training step"


def test_a_row_for_comparison_that_finds_no_time_is_asked_for_once(workload):
    busy = Screen(status="out_of_budget", reason="another profile or timing ran")
    stages = Stages(screens={"tf32": busy, "strict_float32": busy})
    outcome = run(workload, stages, budget_s=600.0)
    assert [name for name in stages.screener.asked if name in ("tf32", "strict_float32")] == ["tf32", "strict_float32"]
    assert outcome.speedup > 2.0 and len(stages.screener.asked) > 15, "the search has its time"


def next_up(outcome) -> list[dict]:
    return json.loads((outcome.out_dir / "next.json").read_text())


def test_what_was_not_begun_is_left_as_data_with_what_is_expected_of_it(workload):
    outcome = run(workload, Stages(seconds={"cheap": 12.0, "compile": 14.0, "autotune": 16.0}), budget_s=60.0)
    entries, known = next_up(outcome), rows(outcome)
    assert entries and all(set(one) == {"candidate", "passes", "expected_speedup", "dimension", "why_not_begun"} for one in entries)
    hopes = [one["expected_speedup"] for one in entries]
    assert hopes == sorted(hopes, reverse=True) and hopes[0] > 1.0
    assert not [one for one in entries if one["candidate"] in known and known[one["candidate"]].status != "out_of_budget"]
    assert any("s for its screen and" in one["why_not_begun"] for one in entries)
    assert "next.json has what is expected of each" in outcome.report.read_text()
    assert all(candidate(one["passes"], context()).passes == tuple(one["passes"]) for one in entries)


def test_where_the_search_looks_no_further_what_it_could_still_try_is_left_with_its_expectation(workload, monkeypatch):
    monkeypatch.setattr(strategy, "PATIENCE", 2)
    monkeypatch.setattr(strategy, "PATIENCE_SHARE", 0.001)
    first = run(workload, Stages(), budget_s=2000.0)
    ended = [one for one in next_up(first) if re.fullmatch(r"the last \d trials, \d+ s, brought nothing", one["why_not_begun"])]
    assert ended, "it ended by its patience"
    listed = next(row for row in Ledger(first.out_dir / "ledger.jsonl").rows if row.name == "not begun")
    assert f"({ended[0]['why_not_begun']}): " in listed.reason
    assert f"{ended[0]['candidate']} (expected {ended[0]['expected_speedup']:.2f}x)" in listed.reason
    (known,) = (one for file in workload.path.parent.rglob("lessons/*.jsonl") for one in memory.recall(file))
    assert known.searched_s == 2000.0, "a longer one looks further"
    second = run(workload, Stages(), budget_s=2000.0)
    assert second.kept == first.kept
    assert "what won before did so again: nothing new was looked for" in {one["why_not_begun"] for one in next_up(second)}


def test_a_budget_is_looked_through_before_patience_ends(workload, monkeypatch):
    monkeypatch.setattr(strategy, "PATIENCE", 2)
    monkeypatch.setattr(strategy, "PATIENCE_SHARE", 1.0)
    assert not [one for one in next_up(run(workload, Stages(), budget_s=2000.0)) if "brought nothing" in one["why_not_begun"]]


def test_the_list_of_what_was_not_begun_is_bounded_and_there_after_an_interrupt(workload, monkeypatch):
    monkeypatch.setattr("kernelwright.optimize.waiting.MOST_WAITING", 3)
    outcome = run(workload, Stages(screens={"compile_max_autotune": KeyboardInterrupt()}))
    assert outcome.interrupted and len(next_up(outcome)) == 3
    assert {one["why_not_begun"] for one in next_up(outcome)} == {"the run was interrupted"}


def test_a_search_that_only_judges_leaves_the_list_too(workload):
    outcome = run(workload, FakeStages({"cuda_graph": 1.5, "compile_default": 1.6}), budget_s=60.0)
    entries = next_up(outcome)
    assert entries and not {one["candidate"] for one in entries} & {row.name for row in rows(outcome).values() if row.verdict is not None}
