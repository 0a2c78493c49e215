"""The tables over optimisations: what they read, how they add up, what they refuse. Nothing is timed."""

from __future__ import annotations

import contextlib
import json
import math
import runpy
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import builders
from bench_scripts import load
from kernelwright.model.errors import BadInput
from kernelwright.model.trial import Hypothesis, PassPrediction, Screen
from kernelwright.model.verdict import ConditionTiming, Experiment
from kernelwright.optimize import state as states
from kernelwright.optimize.ending import Kept
from kernelwright.optimize.ledger import Ledger
from kernelwright.optimize.plan import candidate
from kernelwright.probe import screen_look
from optimizing import Context, environment, facts, verdict

ROOT = Path(__file__).resolve().parents[2]

pages = load("optimize_page")
rows = load("optimize_rows")
predictions = load("predictions")


def result(workload: str, speedup: float, rung: float, **changes: object) -> dict:
    return {"workload": workload, "asked": "equal", "precision": "equal", "budget_s": 120.0, "kept": "a|b", "before_us": 100.0,
            "after_us": 100.0 / speedup, "speedup": speedup, "interval": (speedup - 0.1, speedup + 0.1), "rung": "compile_default",
            "rung_speedup": rung, "over": speedup / rung, "over_interval": None, "ladder_missing": [], "bound": "10.0%",
            "bound_after": "20.0%", "most": "5.00x", **changes}


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20), st.floats(0.1, 10))
def test_the_geometric_mean_scales_with_its_values_and_lies_between_them(values, factor):
    mean = pages.geometric_mean(values)
    assert min(values) * (1 - 1e-9) <= mean <= max(values) * (1 + 1e-9)
    assert pages.geometric_mean(value * factor for value in values) == pytest.approx(mean * factor)


def test_what_was_judged_once_is_marked():
    page = pages.table([result("one", 2.0, 1.0, confirmed=False), result("two", 2.0, 1.0, confirmed=True), result("three", 2.0, 1.0)])
    assert page.count("a/b (judged once) |") == 1 and page.count("| a/b |") == 2


def test_the_table_has_a_row_each_means_at_its_foot_and_failures_in_sight():
    page = pages.table([result("one", 2.0, 1.0), result("two", 8.0, 2.0, ladder_missing=["x"]),
                        {"workload": "three", "asked": "equal", "precision": "equal", "budget_s": 120.0, "error": "no | torch"},
                        result("one", 4.0, 2.0, precision="bf16")])
    assert "| geometric mean of 2 | | | 4.00x | | 1.41x | 2.83x |" in page and "three | failed: no / torch" in page
    assert "compile_default (ladder incomplete)" in page and "a/b" in page
    assert page.index("### equal, budget 120 s") < page.index("### bf16, budget 120 s")
    columns = [line.count("|") for line in page.splitlines() if line.startswith("|")]
    assert len(set(columns)) == 1


def test_a_ladder_is_incomplete_where_modes_with_the_cast_of_its_best_row_or_of_what_was_kept_were_not_seen():
    own = {f"bf16+{mode}": "0.90x" for mode in pages.COMPILE_MODES}
    plain = dict.fromkeys(pages.COMPILE_MODES, "1.20x")
    shown = {"short": {"rung": "compile_default", "ladder": {**own, **plain, "compile_max_autotune": "n/a"}},
             "whole": {"rung": "compile_default (1 undecided)", "ladder": {**own, **plain}},
             "eager": {"rung": "eager (the original)", "ladder": own}, "own": {"rung": "bf16+compile_default", "ladder": own}}
    autocast = {f"{mode}+bf16_autocast": "1.00x" for mode in pages.COMPILE_MODES}
    shown |= {"kept": {"rung": "bf16+compile_default", "kept": "compile_default+bf16_autocast+cuda_graph", "ladder": own},
              "both": {"rung": "bf16+compile_default", "kept": "bf16_autocast", "ladder": own | autocast},
              "higher": {"rung": "bf16+compile_default", "kept": "split_products", "ladder": own}}
    page = pages.table([{**result(name, 2.0, 1.0, asked="bf16", precision="bf16"), **row} for name, row in shown.items()])
    marked = {line.split(" | ")[0].strip("| ") for line in page.splitlines() if "(ladder incomplete)" in line}
    assert marked == {"short", "eager", "kept"}


def test_each_row_names_the_ceiling_that_its_bound_is_at():
    page = pages.table([result("new", 2.0, 1.0, bound_after="at most 60.0%", bound_ceiling="tensor pipe, bfloat16"),
                        result("nameless", 4.0, 1.0, bound_after="18.2%"),
                        result("none", 1.0, 1.0, bound_after="n/a", bound_ceiling="n/a")])
    assert "| at most 60.0% (tensor pipe, bfloat16) |" in page and "| 18.2% |" in page and "| n/a | 5.00x |" in page


def run(folder: Path, experiments: list[Experiment], **changes: object) -> Path:
    folder.mkdir(parents=True)
    state = states.State.model_validate({
        "workload": "/somewhere/private/net.py", "workload_sha256": "0" * 64, "version": None, "params": {}, "precision": "equal",
        "device": "cpu", "device_name": "Some | CPU", "torch_version": "2.11.0", "seed": 0, "budget_s": 60.0,
        "started_utc": "2026-01-02T03:04:05+00:00", **changes})
    states.save(folder, state)
    ledger = Ledger(folder / "ledger.jsonl")
    for one in experiments:
        ledger.append(one)
    return folder


def screened(name: str, speedup: float, seconds: int, **changes: object) -> Experiment:
    return Experiment.model_validate({
        "index": 1, "name": name, "passes": (*name.split("+"), "no_grad"), "precision": "equal", "candidate_file": "c.py",
        "status": "screened",
        "screen": Screen(status="timed", speedup=speedup, interval=(speedup, speedup), pairs=9), "elapsed_s": 2.0,
        "started_utc": f"2026-01-02T03:04:{5 + seconds:02d}+00:00", **changes})


def said_by_the_judge(name: str, speedup: float, seconds: int, said: str = "FASTER", **changes: object) -> Experiment:
    row = screened(name, speedup, seconds, **changes)
    return row.model_copy(update={"status": "judged", "verdict": verdict(said, speedup)})


def test_a_result_is_reached_when_the_first_candidate_is_judged_to_have_that_speed(tmp_path):
    folder = run(tmp_path / "a", [said_by_the_judge("cuda_graph", 1.2, 1), screened("bf16", 9.0, 2),
                                  said_by_the_judge("channels_last", 2.0, 10),
                                  said_by_the_judge("tf32", 3.0, 30), said_by_the_judge("no_grad", 8.0, 5, "WRONG"),
                                  said_by_the_judge("ablation", 9.0, 0, tags={"role": "ablation"})])
    assert rows.reached_s(folder, 1.9, ["fold_conv_bn"]) == 12.0 and rows.reached_s(folder, 4.0, ["tf32"]) is None
    assert rows.reached_s(folder, 2.06, ["tf32"]) == 32.0, "2.0 is below 98% of it"
    assert rows.reached_s(folder, 2.06, ["no_grad", "channels_last"]) == 12.0, "the same passes, judged anew"


def test_the_predictions_page_is_made_of_ledgers_alone_and_names_no_place(tmp_path, capsys):
    said = (PassPrediction(name="cuda_graph", words="w", gain=(1.0, 2.25)),)
    run(tmp_path / "a", [screened("cuda_graph", 2.0, 1, prediction=said)])
    odd = [Hypothesis(name="cuda_graph", result="unexplained", realised_gain=gain, words=f"gains {gain:.2f}x, {how}")
           for gain, how in ((1.2, "not how it was predicted"), (1.4, "more than predicted"))]
    of_it = [screened("predictions", 1.0, 2, hypotheses=(one,), tags={"role": "hypothesis", "of": "cuda_graph"}) for one in odd]
    audit = said_by_the_judge("cuda_graph", 1.4, 3, tags={"role": "audit", "of": "cuda_graph"})
    run(tmp_path / "b", [screened("cuda_graph", 0.5, 1, prediction=said), of_it[0]])
    run(tmp_path / "c", [of_it[1], audit])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "ledger.jsonl").write_text("{")
    assert predictions.main([str(tmp_path), "--out", str(tmp_path / "page.md")]) == 0
    page = (tmp_path / "page.md").read_text()
    # (1, 2.25) has its middle at 1.5: 2.0 is a factor of 1.33 from it, 0.5 one of 3.
    assert "| alone | 2 | 1 (50%) | 117% |" in page and "| cuda_graph | 2 | 1.00 to 2.25 | 1.25 | 1 (50%) | 117% |" in page
    assert "| 0 | 0 | 2 | 0 |" in page and "| cuda_graph | 2 | 1.20x to 1.40x | 1 | 1 |" in page
    assert "2 winners had such a pass: 1 were judged once more with every audit (1 FASTER), of 0 the confirmation was made so" in page
    assert "| net | equal | Some \\| CPU | 2.11.0 | 1 |" in page
    assert "/somewhere" not in page and str(tmp_path) not in page and "left out" in capsys.readouterr().err


def test_the_predictions_page_counts_winners_that_were_taken_apart_whole_and_in_part(tmp_path):
    said = (PassPrediction(name="tf32", words="w", gain=(1.0, 2.25)),)
    winner, single = "tf32+cuda_graph", "cuda_graph"

    def without(name: str) -> Experiment:
        return screened(f"{winner} without {name}", 1.1, 5, tags={"role": "ablation", "of": winner, "without": name})

    for folder, name, gone in (("whole", winner, ("tf32", "cuda_graph")), ("part", winner, ("tf32",)), ("not", winner, ()),
                               ("single", single, ())):
        rows_of = [screened("tf32", 2.0, 1, prediction=said), said_by_the_judge(name, 3.0, 2), *map(without, gone)]
        run(tmp_path / folder, [*rows_of, said_by_the_judge(f"optimized.py ({name})", 3.0, 9, kept=True,
                                                            tags={"role": "confirmation", "of": name})])
    run(tmp_path / "lost", [screened("tf32", 2.0, 1, prediction=said), said_by_the_judge(winner, 1.0, 2, "AMBIGUOUS")])
    assert predictions.main([str(tmp_path), "--out", str(tmp_path / "page.md")]) == 0
    page = (tmp_path / "page.md").read_text()
    assert "Of 3 winners of several passes 1 were taken apart whole (each pass dropped in turn), 1 in part" in page


def test_the_predictions_page_says_how_far_screens_at_two_moments_are_off(tmp_path):
    """In turns the whole is 1.10x what is left. By their ratios 3.0 / 2.5, by their own times 220 / 200; the other two searches are
    steady."""
    said = (PassPrediction(name="tf32", words="w", gain=(1.0, 2.25)),)
    whole, rest = "tf32+cuda_graph", "cuda_graph"

    def seen(name: str, seconds: int, original_us: float, own_us: float) -> Experiment:
        screen = Screen(status="timed", speedup=original_us / own_us, interval=(1.0, 9.0), pairs=50, reference_ns=1e3 * original_us,
                        candidate_ns=1e3 * own_us)
        return screened(name, 1.0, seconds, screen=screen, prediction=said)

    turns = Screen(status="timed", speedup=1.1, interval=(1.09, 1.11), pairs=50, against=rest)
    ablation = screened(f"{whole} without tf32", 1.1, 20, tags={"role": "ablation", "of": whole, "without": "tf32"}, screen=turns)
    for folder in ("a", "b"):
        run(tmp_path / folder, [seen(whole, 1, 600, 200), seen(rest, 2, 550, 220), seen("no_grad", 3, 550, 550),
                                seen("channels_last", 4, 650, 650), seen("fold_conv_bn", 5, 600, 600), ablation])
    for folder in ("c", "d"):
        run(tmp_path / folder, [seen(whole, 1, 600, 200), seen(rest, 2, 600, 240), seen("no_grad", 3, 600, 600),
                                seen("channels_last", 4, 600, 600), seen("fold_conv_bn", 5, 600, 600), ablation])
    assert predictions.main([str(tmp_path), "--out", str(tmp_path / "page.md")]) == 0
    page = (tmp_path / "page.md").read_text()
    assert "| scatter | 2 | 9.1%, 9% | 0.0%, 0% |" in page and "| do not | 2 | 9.1%, 9% | 9.1%, 9% |" in page


def test_the_calls_of_older_screens_follow_the_probes_rule():
    assert predictions.RINGS == screen_look.RINGS and 1e9 * screen_look.SAMPLE_S["cuda"] == predictions.SAMPLE_NS


def test_without_an_outcome_there_is_no_page(tmp_path, capsys):
    run(tmp_path / "a", [screened("cuda_graph", 2.0, 1)])
    assert predictions.main([str(tmp_path)]) == 2 and "fix:" in capsys.readouterr().err


def test_kernelbench_problems_are_found_by_number_and_a_missing_one_is_named(tmp_path, capsys):
    bench = load("kernelbench_table")
    (tmp_path / "level1").mkdir()
    for name in ("1_Square.py", "19_ReLU.py", "12_Other.py"):
        (tmp_path / "level1" / name).write_text("")
    assert bench.problem(tmp_path, "level1/1").name == "1_Square.py" and bench.problem(tmp_path, "level1/19").name == "19_ReLU.py"
    with pytest.raises(SystemExit, match="2"):
        bench.main([str(tmp_path), "--problems", "level1/2", "--out", str(tmp_path / "x.json")])
    assert "has no file 2_" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="form"):
        bench.problem(tmp_path, "../level1/1")
    assert [len(found) for found in bench.PROBLEMS.values()] == [10, 5, 5]


def test_each_workload_beside_the_examples_runs_and_gives_the_same_twice():
    known = load("optimize_table").WORKLOADS
    beside = {name: path for name, path in known.items() if path.parent.name == "workloads"}
    assert len(beside) >= 6 and "train_mlp_step" in known
    for name, path in beside.items():
        model, inputs = runpy.run_path(str(path))["get_model_and_input"](device="cpu")
        with torch.no_grad():
            one, two = model(inputs), model(inputs)
        assert torch.equal(one, two) and one.isfinite().all() and one.std() > 0, name


def test_an_unknown_example_or_precision_is_refused(capsys, tmp_path):
    table = load("optimize_table")
    for argv in (["--workloads", "nothing"], ["--precisions", "fp4"]):
        with pytest.raises(SystemExit, match="2"):
            table.main([*argv, "--out", str(tmp_path / "x.json")])
    assert "no precision 'fp4'" in capsys.readouterr().err
    assert all((rows.ROOT / "examples" / f"{name}.py").is_file() for name in table.EXAMPLES)


def test_what_is_in_the_file_is_not_measured_again(tmp_path, monkeypatch):
    table = load("optimize_table")
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"rows": [result("gpt2", 2.0, 1.0)]}))
    monkeypatch.setattr(rows.Bench, "_measured", lambda *_: pytest.fail("it was measured"))
    assert table.main(["--workloads", "gpt2", "--append", "--out", str(file), "--check"]) == 0
    assert table.main(["--workloads", "gpt2", "--append", "--out", str(file), "--check", "--least", "3"]) == 1
    file.write_text(json.dumps({"rows": [result("gpt2", 2.0, 1.0), result("gpt2", 8.0, 1.0, asked="bf16", precision="bf16")]}))
    both = ["--workloads", "gpt2", "--append", "--out", str(file), "--check", "--precisions", "equal,bf16"]
    assert table.main([*both, "--least", "2"]) == 0
    assert table.main([*both, "--least", "3"]) == 1, "the mean of one precision is not lifted by another's"
    assert table.main(["--workloads", "conv_block", "--append", "--limit-s", "1", "--out", str(file)]) == 0, "no time for it"


def bench_of(tmp_path, monkeypatch, *options: str, taken: list | None = None):
    """optimize_table's run with nothing measured; taken: gets (workload, precision, budget) of what would be."""
    table = load("optimize_table")
    table.rows = rows  # one module, so that a patch reaches it

    def measured(bench, workload, precision, budget_s):
        taken.append((workload.name, precision, budget_s))
        levels = bench.args.precisions if bench.args.shared else [precision]
        return [result(workload.name, 2.0, 1.0, asked=precision, precision=level, budget_s=budget_s) for level in levels]

    monkeypatch.setattr(rows.Bench, "_measured", measured)
    return table.main(["--out", str(tmp_path / "t.json"), "--append", *options])


def test_an_example_compiled_beforehand_is_a_workload_of_its_own(tmp_path, monkeypatch):
    import runpy

    import torch

    taken: list = []
    bench_of(tmp_path, monkeypatch, "--workloads", "mlp_activations", "--compiled", "max-autotune", "--device", "cpu", taken=taken)
    assert taken == [("mlp_activations_max_autotune", "equal", 120.0)]
    model, _inputs = runpy.run_path(str(tmp_path / "compiled" / "mlp_activations_max_autotune.py"))["get_model_and_input"]()
    assert isinstance(model, torch._dynamo.OptimizedModule) and type(model._orig_mod).__name__ == "MLPActivations"


def test_each_budget_is_a_run_and_what_failed_is_tried_again_after_the_others(tmp_path, monkeypatch):
    failed = {key: result("mlp_activations", 2.0, 1.0, budget_s=60.0)[key] for key in ("workload", "asked", "precision", "budget_s")}
    (tmp_path / "t.json").write_text(json.dumps({"device": "cpu", "rows": [{**failed, "error": "a blip"}]}))
    taken: list = []
    options = ("--workloads", "mlp_activations", "--budget", "480,60,180", "--device", "cpu")
    bench_of(tmp_path, monkeypatch, *options, taken=taken)
    assert taken == [("mlp_activations", "equal", budget_s) for budget_s in (180.0, 480.0, 60.0)]
    found = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert sorted(row["budget_s"] for row in found) == [60.0, 180.0, 480.0] and not any("error" in row for row in found)
    bench_of(tmp_path, monkeypatch, *options, taken=taken)
    assert len(taken) == 3


def test_a_shared_run_is_not_done_before_each_of_its_precisions_is_there(tmp_path, monkeypatch):
    (tmp_path / "t.json").write_text(json.dumps({"device": "auto", "rows": [result("gpt2", 2.0, 1.0, asked="bf16", precision="bf16")]}))
    taken: list = []
    for _ in range(2):
        bench_of(tmp_path, monkeypatch, "--workloads", "gpt2", "--shared", "--precisions", "equal,bf16", taken=taken)
    assert taken == [("gpt2", "bf16", 120.0)]
    assert [row["precision"] for row in json.loads((tmp_path / "t.json").read_text())["rows"]] == ["equal", "bf16"]


def test_a_ladder_row_that_was_only_screened_is_judged_before_anything_is_held_against_it():
    context = Context(facts=facts(), environment=environment(), profile=builders.gpu_annotation())
    known = {name: Experiment(index=1, name=name, passes=candidate(name.split("+"), context).passes, precision="tf32", candidate_file="c",
                              status="screened", screen=Screen(status="timed", speedup=speedup, elapsed_s=1.0))
             for name, speedup in (("tf32", 6.4), ("compile_default+tf32", 6.5), ("freeze_weights+compile_default+tf32", 6.6))}
    bench = SimpleNamespace(args=SimpleNamespace(ladder=True))
    asked = [rows.Bench._only_screened(bench, known, level, context, missing) for level, missing in (
        ("bf16", []), ("equal", []), ("bf16", ["compile_default+tf32: it failed"]))]
    assert [[item.name for item in items] for items in asked] == [["compile_default+tf32"], [], []]
    judged = known["compile_default+tf32"].model_copy(update={"verdict": verdict("FASTER", 6.5)})
    assert rows.Bench._only_screened(bench, {**known, judged.name: judged}, "bf16", context, []) == []


@pytest.fixture
def ladder_of(tmp_path, monkeypatch):
    """`ladder_of(judge, write, screen)`: (a bench, its workload, its context) where these functions judge, write a candidate's file and
    screen it, and no process is started."""
    (tmp_path / "baseline" / "raw").mkdir(parents=True)
    (tmp_path / "baseline" / "raw" / "result.json").write_text("{}")
    context = Context(facts=facts(), environment=environment(), profile=builders.gpu_annotation())
    monkeypatch.setattr(rows.ProbeResult, "model_validate_json", lambda _text: SimpleNamespace(facts=context.facts,
                                                                                               environment=context.environment))
    monkeypatch.setattr(rows.Profile, "load", lambda _folder: context.profile)
    monkeypatch.setattr(rows, "ReferenceSession", lambda *_, **__: contextlib.nullcontext())

    def made(judge, write=lambda file, _source: file, screen=lambda _ask: Screen(status="failed")):
        monkeypatch.setattr(rows, "Screener", lambda *_: contextlib.nullcontext(SimpleNamespace(screen=screen)))
        monkeypatch.setattr(rows, "judge", judge)
        monkeypatch.setattr(rows, "write_source", write)
        bench = rows.Bench.__new__(rows.Bench)
        bench.args, bench.stop_at_s = SimpleNamespace(ladder=True, device="cuda", python=None), math.inf
        return bench, rows.WorkloadRef(path=tmp_path / "net.py", name="net"), context

    return made


def test_of_the_ladder_is_screened_what_nobody_saw_judged_what_can_not_be_and_the_best_of_what_was_screened(tmp_path, ladder_of):
    true = {"no_grad": 1.0, "compile_default": 1.3, "compile_reduce_overhead": 1.5, "compile_max_autotune": 1.7,
            "compile_max_autotune_no_cudagraphs": 1.4}
    asked, looked_at = [], []

    def judge(_workload, file, _options, session):
        asked.append(file.stem.removeprefix("ladder_"))
        return verdict("FASTER" if true[asked[-1]] > 1 else "SAME", true[asked[-1]])

    def screen(ask):
        looked_at.append(ask.file.stem.removeprefix("ladder_"))
        failed = looked_at[-1] == "compile_max_autotune_no_cudagraphs"
        return Screen(status="failed", reason="no room") if failed else Screen(status="timed", speedup=1.6)

    bench, workload, context = ladder_of(judge, screen=screen)
    screened = {name: Experiment(index=1, name=name, passes=candidate([name], context).passes, precision="equal", candidate_file="c",
                                 status="screened", screen=Screen(status="timed", speedup=speedup, elapsed_s=1.0))
                for name, speedup in (("no_grad", 1.01), ("compile_default", 1.31), ("compile_reduce_overhead", 1.9))}
    for_others = {}
    found, missing, lower = bench._ladder(workload, "equal", tmp_path, screened, for_others)
    assert looked_at == ["compile_max_autotune_no_cudagraphs", "compile_max_autotune"] and for_others.keys() == true.keys() - {
        "no_grad", "compile_default"}
    assert asked == ["compile_reduce_overhead", "compile_max_autotune", "compile_max_autotune_no_cudagraphs"] and not missing and not lower
    assert rows.best_ladder_row(found, "equal").name == "compile_max_autotune"
    assert rows.best_ladder_row(found, "equal").speedup == 1.7


def test_where_the_best_row_of_a_lower_precision_has_another_cast_or_none_the_ladder_with_that_is_looked_at_too(tmp_path, ladder_of):
    """A cast that makes the call slower: what a user takes then is the compiler without it."""
    looked_at, true = [], {"compile_default": 1.2, "compile_max_autotune_no_cudagraphs": 1.3}

    def screen(ask):
        looked_at.append(ask.file.stem.removeprefix("ladder_"))
        return Screen(status="timed", speedup=true.get(looked_at[-1], 0.9), interval=(0.9, 1.3))

    def judge(_workload, file, _options, session):
        return verdict("FASTER", judged.get(file.stem.removeprefix("ladder_"), 0.9))

    bench, workload, _ = ladder_of(judge, screen=screen)
    judged = true
    found, missing, _ = bench._ladder(workload, "bf16", tmp_path, {}, {})
    modes = list(pages.COMPILE_MODES)
    with_it = ["bf16", *(f"bf16+{mode}" for mode in modes)]
    assert looked_at == [*with_it, "no_grad", *modes] and not missing
    assert rows.best_ladder_row(found, "bf16").name == "compile_max_autotune_no_cudagraphs"

    looked_at.clear()
    judged = true = dict.fromkeys(with_it, 2.0)
    found, missing, _ = bench._ladder(workload, "bf16", tmp_path, {}, {})
    assert looked_at == with_it and not missing, "the level's own cast is ahead: those without are not looked at"

    looked_at.clear()
    autocast = ["bf16_autocast", *(f"{mode}+bf16_autocast" for mode in modes)]
    found, missing, _ = bench._ladder(workload, "bf16", tmp_path, {}, {}, of_kept=("bf16_autocast",))
    assert looked_at == [*with_it, *autocast] and not missing, "what was kept has another cast"
    failing = {name: verdict("FAILED", reason="no such operator in bfloat16") for name in with_it}
    bench, workload, _ = ladder_of(lambda _, file, *__, **___: failing.get(file.stem.removeprefix("ladder_")) or verdict("FASTER", 1.2),
                                   screen=lambda ask: Screen(status="failed") if "bf16" in ask.file.stem else screen(ask))
    true = {"compile_default": 1.2}
    found, missing, _ = bench._ladder(workload, "bf16", tmp_path, {}, {})
    assert rows.best_ladder_row(found, "bf16").name == "compile_default" and {line.partition(":")[0] for line in missing} == set(with_it)

    bench, workload, _ = ladder_of(judge, screen=screen)
    judged, true = {}, dict.fromkeys(with_it, 2.0)
    known = {"compile_default": said_by_the_judge("compile_default", 1.5, 1)}
    looked_at.clear()
    found, missing, _ = bench._ladder(workload, "bf16", tmp_path, known, {})
    assert looked_at == [*with_it, "no_grad", *modes[1:]] and not missing, "the judge turned the screens' order round"
    assert rows.best_ladder_row(found, "bf16").name == "compile_default"


def test_where_the_command_ends_soon_the_best_row_that_was_seen_is_judged_and_the_others_are_missing(tmp_path, ladder_of):
    asked, looked_at = [], []

    def judge(_workload, file, _options, session):
        asked.append(file.stem.removeprefix("ladder_"))
        return verdict("FASTER", 1.3)

    def screen(ask):
        looked_at.append((ask.file.stem.removeprefix("ladder_"), ask.limit_s))
        bench.stop_at_s -= 20
        slow = len(looked_at) > 2
        return Screen(status="out_of_budget", reason="too slow") if slow else Screen(status="timed", speedup=1.0 + 0.1 * len(looked_at))

    bench, workload, _ = ladder_of(judge, screen=screen)
    bench.stop_at_s = time.monotonic() + rows.LADDER_JUDGED_S + 50
    found, missing, _ = bench._ladder(workload, "equal", tmp_path, {}, {})
    assert [name for name, _ in looked_at] == ["no_grad", "compile_default", "compile_reduce_overhead"]
    assert [limit_s for _, limit_s in looked_at] == pytest.approx([50, 30, 10], abs=5)
    assert asked == ["compile_default"] and rows.best_ladder_row(found, "equal").name == "compile_default"
    late = ["compile_reduce_overhead", "compile_max_autotune_no_cudagraphs", "compile_max_autotune"]
    assert missing == [f"{name}: no time for it in this command" for name in late]


def test_what_could_not_be_screened_is_judged_last_and_not_after_the_commands_time(tmp_path, ladder_of):
    asked = []

    def judge(_workload, file, _options, session):
        asked.append(file.stem.removeprefix("ladder_"))
        bench.stop_at_s -= 60
        return verdict("FASTER", 1.3)

    def screen(ask):
        return Screen(status="failed") if "autotune" in ask.file.stem else Screen(status="timed", speedup=1.2)

    bench, workload, _ = ladder_of(judge, screen=screen)
    for more_s, judged in ((50, 1), (100, 2), (160, 3)):
        asked.clear()
        bench.stop_at_s = time.monotonic() + rows.LADDER_JUDGED_S + more_s
        _, missing, _ = bench._ladder(workload, "equal", tmp_path, {}, {})
        assert asked == ["no_grad", "compile_max_autotune_no_cudagraphs", "compile_max_autotune"][:judged]
        late = ["compile_max_autotune_no_cudagraphs", "compile_max_autotune"][judged - 1 :]
        assert missing == [f"{name}: no time for it in this command" for name in late]


def test_a_ladder_row_of_lower_precision_is_not_judged_again_after_the_commands_time(tmp_path, ladder_of):
    def judge(_workload, file, options, session):
        assert options.precision == "tf32"
        bench.stop_at_s -= 60
        return verdict("WRONG", reason="undeclared precision drop: as inaccurate as bf16, but declared tf32")

    bench, workload, _ = ladder_of(judge, screen=lambda _: Screen(status="timed", speedup=1.2))
    bench.stop_at_s = time.monotonic() + rows.LADDER_JUDGED_S + 50
    _, missing, lower = bench._ladder(workload, "tf32", tmp_path, {}, {})
    assert not lower and [line.partition(": ")[2] for line in missing[:1]] == ["errs as bf16; no time for it in this command"]


def test_a_ladder_row_that_errs_as_a_lower_precision_is_timed_as_one(tmp_path, ladder_of):
    """Inductor's products cut what TF32 drops where cuBLAS rounds it: they err five times as much."""
    written = {}

    def write(file, source):
        written[file.stem] = source
        return file

    def judge(_workload, file, options, session):
        if "max_autotune" not in file.stem:
            return verdict("FASTER", 1.2)
        if options.precision == "tf32":
            return verdict("WRONG", reason="undeclared precision drop: as inaccurate as bf16, but declared tf32")
        assert options.precision == "bf16" and written[file.stem].rstrip().endswith("PRECISION = 'bf16'")
        return verdict("FASTER", 1.6 if file.stem.endswith("max_autotune+tf32") else 1.5)

    def screen(_ask):
        raise rows.Unusable("this workload can't be screened")

    bench, workload, _ = ladder_of(judge, write, screen)
    found, missing, lower = bench._ladder(workload, "tf32", tmp_path, {}, {})
    assert missing == [] and lower == dict.fromkeys(("compile_max_autotune+tf32", "compile_max_autotune_no_cudagraphs+tf32"), "bf16")
    assert (rows.best_ladder_row(found, "tf32").name, rows.best_ladder_row(found, "tf32").speedup) == ("compile_max_autotune+tf32", 1.6)


def test_a_ladder_row_that_the_searchs_own_judge_refused_is_looked_at_for_the_table(tmp_path, ladder_of):
    """As one that the search did not judge: what it errs as is what torch gives for its flags."""
    def judge(_workload, file, options, session):
        if not file.stem.endswith("compile_reduce_overhead"):
            return verdict("FASTER", 1.2)
        if options.precision == "equal":
            return verdict("WRONG", reason="undeclared precision drop: as inaccurate as bf16, but declared equal")
        return verdict("FASTER", 3.4)

    bench, workload, context = ladder_of(judge, screen=lambda _: Screen(status="timed", speedup=1.3, interval=(1.2, 1.4)))
    known = {"compile_reduce_overhead": Experiment(
        index=1, name="compile_reduce_overhead", passes=candidate(["compile_reduce_overhead"], context).passes, precision="equal",
        candidate_file="c", status="judged", screen=Screen(status="timed", speedup=3.4, elapsed_s=1.0),
        verdict=verdict("WRONG", None, reason="undeclared precision drop: as inaccurate as bf16, but declared equal"))}
    found, missing, lower = bench._ladder(workload, "equal", tmp_path, known, {})
    assert lower == {"compile_reduce_overhead": "bf16"} and not missing
    assert (rows.best_ladder_row(found, "equal").name, rows.best_ladder_row(found, "equal").speedup) == ("compile_reduce_overhead", 3.4)


def test_of_a_higher_precision_than_was_asked_for_the_fastest_is_judged_anew_though_the_search_only_screened_it(tmp_path, ladder_of):
    asked: list[str] = []
    said = {"fast": verdict("WRONG", None)} | {name: verdict("FASTER", found) for name, found in (
        ("second", 4.4), ("judged", 2.1), ("lucky", 1.2))}

    def judge(_workload, file, *_, **__):
        asked.append(file.stem)
        return said[file.stem]

    def row(name, speedup, precision="tf32", make=screened):
        return make(name, speedup, 1, precision=precision, candidate_file=f"candidates/{name}.py")

    bench, workload, _ = ladder_of(judge)
    low, judged, slow = row("low", 7.9, "bf16", said_by_the_judge), row("judged", 2.0, make=said_by_the_judge), row("slow", 0.9)
    outcome = SimpleNamespace(out_dir=tmp_path, kept=low.passes)

    def kept(*others):
        asked.clear()
        found, name = bench._kept(workload, "bf16", "tf32", outcome, [low, slow, *others])
        return name, found.row.verdict.speedup if found is not None else None, list(asked)

    fast, second, third = row("fast", 4.9), row("second", 4.5), row("third", 3.0)
    assert kept(judged, fast, second, third) == ("second", 4.4, ["judged", "fast", "second"])
    assert kept(judged, row("lucky", 4.9), row("lucky2", 4.8)
                .model_copy(update={"candidate_file": "candidates/lucky.py"}))[:2] == ("judged", 2.1), "no lucky screen takes its place"
    assert kept(judged) == ("judged", 2.1, ["judged"]) and kept() == ("nothing", None, [])
    bench.stop_at_s = time.monotonic() + 10
    assert kept(judged, second) == ("judged", 2.1, ["judged"]), "no time for another"


def test_what_the_search_had_no_time_to_time_from_the_hosts_memory_is_judged_once_more_for_it(tmp_path, ladder_of):
    warm, whole = (ConditionTiming(condition=name, speedup=2.0) for name in ("warm", "end to end"))
    asked: list = []
    said = verdict("FASTER", 2.1).model_copy(update={"timings": (warm, whole)})

    def judge(_workload, file, options, **_):
        asked.append((file.name, options.conditions))
        return said

    bench, workload, _ = ladder_of(judge)
    outcome = SimpleNamespace(out_dir=tmp_path)

    def timed(*timings, anew=True, exists=True):
        asked.clear()
        row = said_by_the_judge("tf32", 2.0, 1)
        row = row.model_copy(update={"verdict": row.verdict.model_copy(update={"timings": timings})})
        return *bench._timings(workload, "tf32", outcome, Kept(row, None) if exists else None, anew=anew), len(asked)

    assert timed(warm) == ((warm, whole), True, 1) and asked == [("c.py", ("cold L2", "end to end", "graph"))]
    assert timed(warm, whole) == ((warm, whole), False, 0), "the search had the time"
    assert timed(warm, anew=False) == ((warm,), False, 0) and timed(exists=False) == ((), False, 0)
    said = verdict("FAILED", reason="no room")
    assert timed(warm) == ((warm,), False, 1)
    said = verdict("SLOWER", 0.8).model_copy(update={"timings": (warm, whole)})
    assert timed(warm) == ((warm,), False, 1), "what another verdict says of the time is not of what was kept"
    bench.stop_at_s = time.monotonic() + 10
    assert timed(warm) == ((warm,), False, 0), "no time for another"


def test_what_was_kept_is_timed_beside_the_best_row_of_the_ladder(tmp_path, ladder_of):
    asked, answers = [], [Screen(status="timed", speedup=1.1, interval=(1.0, 1.2)), Screen(status="wrong", reason="other numbers")]

    def screen(ask):
        asked.append(ask)
        return answers.pop(0)

    bench, workload, _ = ladder_of(None, screen=screen)
    kept = Kept(screened("cuda_graph", 3.0, 1, candidate_file="candidates/02_cuda_graph.py"), None)
    rung = screened("compile_default", 2.0, 1, candidate_file=str(tmp_path / "elsewhere" / "ladder_compile_default.py"))
    outcome = SimpleNamespace(out_dir=tmp_path)
    assert bench._beside(workload, "equal", outcome, kept, rung) == (1.1, (1.0, 1.2))
    assert (asked[0].file, asked[0].against) == (tmp_path / "candidates" / "02_cuda_graph.py", Path(rung.candidate_file))
    assert bench._beside(workload, "equal", outcome, kept, rung) is None, "then the ratio of their gains stands"
    bench.stop_at_s = time.monotonic() + 10
    assert bench._beside(workload, "equal", outcome, kept, rung) is None and bench._beside(workload, "equal", outcome, kept, None) is None
    assert len(asked) == 2


def test_what_was_timed_beside_and_judgements_that_are_apart_are_marked():
    page = pages.table([result("one", 2.0, 1.0, over_beside=True), result("two", 2.0, 1.0, apart=[[2.0, 1.9, 2.1], [2.5, 2.4, 2.6]])])
    assert page.count("2.00x (beside it) |") == 1 and "| a/b (two judgements: 2.00x and 2.50x) |" in page
    assert '"Beside it": ' in page and '"Two judgements": ' in page
    plain = pages.table([result("one", 2.0, 1.0, apart=None, over_beside=False)])
    assert "eside it" not in plain and "wo judgements" not in plain


def test_a_file_of_another_device_is_not_continued(tmp_path, monkeypatch):
    (tmp_path / "t.json").write_text(json.dumps({"device": "cuda", "rows": []}))
    with pytest.raises(SystemExit, match="--device cuda"):
        bench_of(tmp_path, monkeypatch, "--device", "cpu", taken=[])


@pytest.mark.parametrize("budget", ["0", "-5", "nan", "60,inf", "", "a"])
def test_a_budget_that_is_none_is_refused(budget, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="2"):
        bench_of(tmp_path, monkeypatch, "--budget", budget, taken=[])


def test_what_the_budgets_bought_is_a_row_a_run_with_the_wall_time_that_held_them():
    run = {"candidates": 30, "used_s": 50.0, "wall_s": 58.0, "per_minute": 31.0}
    over = {"used_s": 180.6, "wall_s": 200.0}
    page = pages.table([result("one", 2.0, 1.0, budget_s=60.0, **run), result("one", 8.0, 1.0, budget_s=180.0, **run | over),
                        result("one", 3.0, 1.0, asked="bf16", budget_s=60.0, **run)])
    assert "| one | equal | 60 | 50.0 | yes | 58.0 | 2.00x [1.90, 2.10] | a/b | 30 | 31.0 |" in page
    assert "| one | equal | 180 | 180.6 | NO | 200.0 | 8.00x" in page
    assert "Within the budget: 1 of 2 searches, 1 of 2 in all." in page
    mixed = pages.table([result("one", 2.0, 1.0, budget_s=60.0, **run),
                         result("one", 8.0, 1.0, asked="bf16", precision="bf16", budget_s=60.0, **run)])
    assert "Geometric means: equal 60 s 2.00x (of 1), bf16 60 s 8.00x (of 1)." in mixed


def test_a_second_run_that_finds_less_has_not_reached_the_first_ones_result(tmp_path, monkeypatch):
    slow = run(tmp_path / "cold", [said_by_the_judge("cuda_graph", 3.0, 30)], baseline_s=8.0)
    bench = rows.Bench.__new__(rows.Bench)
    cold = SimpleNamespace(out_dir=slow, speedup=3.0, kept=("cuda_graph", "no_grad"))
    for best, reached in ((1.5, None), (3.0, 3.0)):
        fast = run(tmp_path / f"warm{best}", [said_by_the_judge("cuda_graph", best, 1)], baseline_s=4.0)
        out = SimpleNamespace(out_dir=fast, speedup=best)
        monkeypatch.setattr(rows.Bench, "_optimised", lambda *_, target, out=out: (out, 1.0) if target is cold else pytest.fail())
        warm = bench._warm(None, "equal", 60.0, slow, cold)
        assert warm["cold_s"] == 32.0 and warm["warm_s"] == reached
        assert warm["whole_share"] == (reached and pytest.approx((4.0 + reached) / (8.0 + 32.0)))


def test_a_second_run_ends_where_it_has_reached_the_first_ones_result(tmp_path, monkeypatch):
    bench, told = rows.Bench.__new__(rows.Bench), []
    bench.args = SimpleNamespace(device="cpu", python=None)

    def optimize(_workload, options, folder, *, stages, say):
        told.append((options.budget_s, type(stages)))
        say("nothing is there yet")
        run(folder, [said_by_the_judge("no_grad", 1.2, 1)])
        say("1 no_grad: FASTER 1.2x")
        Ledger(folder / "ledger.jsonl").append(said_by_the_judge("cuda_graph", 2.95, 1))
        with pytest.raises(KeyboardInterrupt):
            say("2 cuda_graph: FASTER 2.95x")
        say("interrupted: writing the best so far")
        return SimpleNamespace(out_dir=folder)

    monkeypatch.setattr(rows, "optimize", optimize)
    bench._optimised(SimpleNamespace(name="w"), "equal", 30.0, tmp_path / "w", target=SimpleNamespace(speedup=3.0, kept=("bf16",)))
    assert told == [(30.0, rows._Unprofiled)]


def test_where_nothing_was_kept_there_is_no_second_run(tmp_path, monkeypatch):
    bench = rows.Bench.__new__(rows.Bench)
    bench.args = SimpleNamespace(out=tmp_path / "t.json", warm=True, precisions=["equal"], shared=False, ladder=False)
    ran = []
    monkeypatch.setattr(rows.Bench, "_optimised", lambda *_, **how: (ran.append(how), (SimpleNamespace(kept=(), out_dir=tmp_path), 1.0))[1])
    monkeypatch.setattr(rows.Bench, "_row", lambda *_: {})
    monkeypatch.setattr(rows, "_looked", lambda *_: {})
    found = bench._measured(SimpleNamespace(name="w"), "equal", 60.0)
    assert found[0]["warm"]["share"] is None and ran == [{}]


def test_a_command_that_ends_amid_the_ladder_has_the_run_and_the_next_measures_it_whole(tmp_path, monkeypatch):
    def row(_bench, workload, asked, level, _outcome, _looked_at, ladder=True):
        if ladder and cut_short is not None:
            raise cut_short
        return result(workload.name, 2.0, 1.0, asked=asked, precision=level, over=1.5 if ladder else None, used_s=59.0)

    table, cut_short = load("optimize_table"), KeyboardInterrupt()
    table.rows = rows
    monkeypatch.setattr(rows.Bench, "_optimised", lambda *_, **__: (SimpleNamespace(kept=(), out_dir=tmp_path), 70.0))
    monkeypatch.setattr(rows.Bench, "_row", row)
    monkeypatch.setattr(rows, "_looked", lambda *_: {"candidates": 3, "per_minute": 2.0})
    argv = ["--out", str(tmp_path / "t.json"), "--append", "--workloads", "gpt2"]
    with pytest.raises(KeyboardInterrupt):
        table.main(argv)
    [kept] = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert kept["over"] is None and kept["wall_s"] == 70.0
    cut_short = BadInput("failed", "no ladder", where="there", fix="none")
    (tmp_path / "t.json").unlink()
    assert table.main(argv) == 0
    [kept] = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert "error" not in kept and kept["over"] is None, "nor does a ladder that fails cost it"
    cut_short = None
    assert table.main(argv) == 0
    [whole] = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert whole["over"] == 1.5
    monkeypatch.setattr(rows.Bench, "_warm", lambda *_: pytest.fail())
    monkeypatch.setattr(rows.Bench, "_is_whole", lambda *_: False)
    cut_short = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        table.main(argv)
    assert json.loads((tmp_path / "t.json").read_text())["rows"] == [whole], "what is known whole stays until it is measured whole"
    cut_short = None
    monkeypatch.setattr(rows.Bench, "_optimised", lambda *_, **__: (_ for _ in ()).throw(BadInput("busy", "busy", where="it", fix="none")))
    assert table.main(argv) == 0
    assert json.loads((tmp_path / "t.json").read_text())["rows"] == [whole], "an error takes no row's place"


def test_a_run_again_without_the_ladder_adds_its_warm_run_to_a_row_that_has_it(tmp_path):
    bench, workload = rows.Bench.__new__(rows.Bench), SimpleNamespace(name="one")
    bench.args, bench.document = SimpleNamespace(out=tmp_path / "t.json"), {"rows": [result("one", 2.0, 1.0)]}
    warm = {"speedup": 2.0, "cold_s": 9.0, "warm_s": 3.0, "share": 1 / 3}
    bench._put([result("one", 1.9, 1.0, over=None, warm=warm)], workload, "equal", 120.0)
    assert bench.document["rows"] == [result("one", 2.0, 1.0, warm=warm)]
    bench._put([result("one", 1.8, 1.2)], workload, "equal", 120.0)
    assert bench.document["rows"] == [result("one", 1.8, 1.2)]


def test_a_row_without_its_ladder_is_over_nothing():
    page = pages.table([result("one", 2.0, 1.0), result("two", 8.0, 1.0, over=None)])
    assert "| geometric mean of 2 | | | 4.00x | | 1.00x | 2.00x of 1 |" in page


def test_only_what_the_first_run_found_can_be_reached_again():
    def warm(cold_s, warm_s):
        return {"warm": {"speedup": 2.0, "cold_s": cold_s, "warm_s": warm_s, "share": warm_s / cold_s if warm_s else None}}

    page = pages.table([result("one", 2.0, 1.0, **warm(40.0, 10.0)), result("two", 2.0, 1.0, **warm(40.0, None)),
                        result("three", 1.0, 1.0, **warm(None, None))])
    assert "in 0.25 of the time after the baseline's profile (geometric mean of 1 of 2)." in page
    one = warm(40.0, 10.0)
    one["warm"]["whole_share"] = 0.4
    assert "(geometric mean of 1 of 1), in 0.40 of it with that profile (1)." in pages.table([result("one", 2.0, 1.0, **one)])
    assert "Again" not in pages.table([result("three", 1.0, 1.0, **warm(None, None))])
