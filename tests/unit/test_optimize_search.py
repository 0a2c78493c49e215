"""The loop with fakes in place of profiler and judge: what is tried, kept, resumed, cut off and written. No torch, no waiting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.cli.optimize import _data
from kernelwright.devlog import read_log
from kernelwright.diagnose import diagnose
from kernelwright.judge.options import OutOfTime
from kernelwright.model.errors import BadInput, WorkloadFailed
from kernelwright.model.measurement import Measurement
from kernelwright.model.profile import ClockReading
from kernelwright.model.verdict import Comparison, Experiment, Verdict
from kernelwright.optimize import OptimizeOptions, optimize
from kernelwright.optimize.budget import confirmation_reserve_s, reference_start_s
from kernelwright.optimize.confirm import USUAL, Effort
from kernelwright.optimize.ledger import Ledger
from kernelwright.optimize.paired import paired, restated
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.plan import LADDER, candidate, compatible, first_round, next_round, refusal
from kernelwright.pipeline.profile import ProfileRun
from optimizing import (
    CONVOLUTIONAL,
    FakeStages,
    a_workload,  # noqa: F401 a fixture
    context,
    few_passes,  # noqa: F401 a fixture
    profile_of,
    rows,
    run,
    verdict,
)

# The plan


def test_every_ladder_row_is_in_the_first_round_and_marked():
    for device in ("cuda", "cpu"):
        marked = [item.name for item in first_round(context(device), "equal") if item.ladder_row]
        assert sorted(marked) == sorted(LADDER)


@pytest.mark.parametrize(("precision", "expected"), [("equal", set()), ("tf32", {"tf32"}), ("bf16", {"tf32", "bf16", "bf16_autocast"})])
def test_lower_precision_is_tried_only_where_allowed(precision, expected):
    assert {item.name for item in first_round(context(), precision) if item.precision != "equal"} == expected


def refused(context_: Context, precision: str = "bf16") -> set[str]:
    return {item.name for item in first_round(context_, precision) if refusal(item, context_)}


def test_passes_refuse_what_they_do_not_fit():
    assert refused(context()) == {"unwrap_compiled"}
    on_cpu = {"cuda_graph", "cudnn_benchmark", "compile_reduce_overhead", "compile_max_autotune", "tf32"}
    assert refused(context("cpu")) == {"unwrap_compiled", *on_cpu}
    assert refused(context(operators=("aten::mm",))) == {"unwrap_compiled", "cudnn_benchmark", "channels_last", "fold_conv_bn"}
    folding = context(operators=("aten::cudnn_convolution",))
    assert refused(folding) == {"unwrap_compiled", "fold_conv_bn"}
    compiled = {name for name in CATALOGUE if name.startswith("compile_")}
    assert refused(context(already_compiled=True, compiled_inside=True)) == {*compiled, "unwrap_compiled"}
    assert {"tf32", "bf16", "bf16_autocast"} <= refused(context(dtype="bfloat16"))
    assert {"channels_last", "fold_conv_bn", "bf16"} <= refused(context(form="versions"))


def test_a_training_step_gets_only_passes_that_are_valid_for_it():
    training = context(training=True)
    valid = {item.name for item in first_round(training, "bf16") if refusal(item, training) is None}
    assert valid == {"cudnn_benchmark", "channels_last", "tf32", "bf16_autocast", *LADDER} - {"no_grad"}
    assert all("no_grad" not in item.passes for item in first_round(training, "bf16"))


def test_a_workload_that_is_compiled_already_is_improved_from_there():
    """Its own torch.compile gives way to another mode; other passes are put around it."""
    here = context(already_compiled=True)
    assert refused(here) == set()
    taken_off = candidate(["compile_max_autotune"], here)
    assert taken_off.passes == ("unwrap_compiled", "compile_max_autotune", "no_grad") and taken_off.name == "compile_max_autotune"
    assert candidate(["cuda_graph"], here).passes == ("cuda_graph", "no_grad")


def test_inference_candidates_run_without_gradients():
    assert candidate(["channels_last"], context()).passes == ("channels_last", "no_grad")
    assert candidate(["no_grad"], context()).name == "no_grad"


def done_rows(**speedups: float) -> dict[str, Experiment]:
    made = {}
    for index, (name, speedup) in enumerate(speedups.items()):
        item = candidate(name.split("+"), context())
        outcome = verdict("FASTER" if speedup > 1.05 else "SLOWER", speedup)
        made[item.name] = Experiment(index=index, name=item.name, passes=item.passes, precision=item.precision, candidate_file="c",
                                     status="judged", verdict=outcome, elapsed_s=1.0)
    return made


def test_what_was_faster_is_combined_with_the_best_runtimes_and_nothing_conflicts():
    done = done_rows(fold_conv_bn=1.1, channels_last=1.2, cuda_graph=1.5, compile_max_autotune=2.0, compile_default=1.2)
    names = [item.name for item in next_round(context(), "equal", done)]
    assert names[0] == "fold_conv_bn+channels_last+compile_max_autotune"
    assert "fold_conv_bn+channels_last+compile_default+cuda_graph" in names and "compile_default+cuda_graph" in names
    assert not any("compile_max_autotune" in name and "cuda_graph" in name for name in names)
    assert not any(name.count("compile_") > 1 for name in names)


def test_nothing_faster_means_no_combination():
    assert next_round(context(), "equal", done_rows(channels_last=0.8, compile_default=0.9)) == []


def test_lower_precision_joins_the_best_equal_combination_unless_hopeless():
    done = done_rows(compile_max_autotune=2.0, bf16=0.9, bf16_autocast=0.1)
    names = {item.name for item in next_round(context(), "bf16", done)}
    assert "bf16+compile_max_autotune" in names and not any("autocast" in name for name in names)
    assert not any("bf16" in item.name for item in next_round(context(), "tf32", done))


# The loop


def test_the_best_is_kept_confirmed_profiled_and_written(workload):
    stages = FakeStages({"compile_max_autotune": 2.0, "channels_last": 1.2, "channels_last+compile_max_autotune": 2.5, "cuda_graph": 1.4,
                         "optimized:channels_last, compile_max_autotune, no_grad": 2.4})
    said: list[str] = []
    outcome = run(workload, stages, said)
    assert outcome.kept == ("channels_last", "compile_max_autotune", "no_grad")
    assert outcome.speedup == 2.4 and outcome.interval == (2.38, 2.42)
    assert outcome.optimized is not None and outcome.optimized.read_bytes() == stages.confirmed, "what was confirmed is what is shipped"
    assert stages.profiled == ["baseline", "after"] and outcome.contract == outcome.out_dir / "after" / "contract.md"
    assert set(LADDER) <= set(rows(outcome)) and all(rows(outcome)[name].ladder_row for name in LADDER)
    assert stages.open == 0 and len(stages.logged) == 2 and "2.40x" in stages.logged[1][0]
    report = outcome.report.read_text()
    assert "channels_last+compile_max_autotune (kept)" in report and "2.00x [1.98, 2.02]" in report
    assert json.loads((outcome.out_dir / "report.json").read_text())["kept"]["gain"] == "2.40x [2.38, 2.42]"
    assert sum(" channels_last: " in line for line in said) == 1
    best_row = max(row.verdict.speedup for row in rows(outcome).values() if row.ladder_row and row.verdict)
    assert outcome.speedup >= best_row


def test_the_answer_says_precision_confirmation_clocks_and_warnings(workload):
    outcome = run(workload, FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": 1.4}))
    assert (outcome.precision, outcome.confirmed, outcome.clocks) == ("equal", True, None)
    answer = _data(outcome)
    assert set(answer) >= {"kept", "speedup", "interval", "optimized", "report", "devlog", "contract", "out_dir"}
    assert (answer["precision"], answer["confirmed"], answer["clocks"], answer["warnings"]) == ("equal", True, None, list(outcome.warnings))
    nothing = _data(run(workload, FakeStages({})))
    assert nothing["precision"] is None and nothing["confirmed"] is None


def kept_section(outcome) -> str:
    return outcome.report.read_text().partition("## Kept")[2].partition("\n## ")[0]


def test_the_report_says_what_running_without_gradients_means(workload):
    """A speed-up over an original that records gradients is no praise of the other passes alone."""
    outcome = run(workload, FakeStages({"no_grad": 1.2, "cuda_graph": 1.5, "optimized:cuda_graph, no_grad": 1.4}))
    assert "no_grad alone: 1.20x [" in kept_section(outcome) and "; the original was timed with gradients on" in kept_section(outcome)
    assert "outputs of optimized.py carry no gradient" in kept_section(outcome)
    unjudged = run(workload, FakeStages({"no_grad": verdict("FAILED"), "cuda_graph": 1.5, "optimized:cuda_graph, no_grad": 1.4}))
    assert "no_grad was not judged alone; the original was timed with gradients on" in kept_section(unjudged)
    alone = run(workload, FakeStages({"no_grad": 1.5, "optimized:no_grad": 1.5}))
    assert "alone" not in kept_section(alone) and "The original was timed with gradients on" in kept_section(alone)


def test_the_lower_bound_decides_not_the_point_estimate(workload):
    wide = verdict("FASTER", 2.0, spread=0.9)
    outcome = run(workload, FakeStages({"compile_default": wide, "cuda_graph": 1.5, "compile_default+cuda_graph": 0.9}))
    assert outcome.kept == ("cuda_graph", "no_grad")


def test_nothing_better_leaves_no_optimized_py_but_report_and_devlog(workload):
    outcome = run(workload, FakeStages({}))
    assert (outcome.kept, outcome.speedup, outcome.interval, outcome.optimized) == ((), 1.0, None, None)
    assert not (outcome.out_dir / "optimized.py").exists() and outcome.devlog == Path("/log.md")
    report = outcome.report.read_text()
    assert "Nothing better than the original was found" in report
    assert "| equal | none faster | n/a | n/a | eager (the original) 1.00x | n/a | n/a |" in report
    assert "There is no after, since nothing was kept" in report and "python optimized.py" not in report
    assert outcome.contract == outcome.out_dir / "baseline" / "contract.md"


@pytest.mark.parametrize("bad", ["WRONG", "CHEAT", "FAILED", "AMBIGUOUS", "SAME"])
def test_only_faster_is_kept(workload, bad):
    speedup = 9.0 if bad in ("AMBIGUOUS", "SAME") else None
    outcome = run(workload, FakeStages({"compile_max_autotune": verdict(bad, speedup, reason="because"),
                                        "optimized:compile_max_autotune, no_grad": 1.0}))
    assert outcome.kept == ()
    assert ("because" in outcome.report.read_text()) == (speedup is None)


def test_an_unconfirmed_winner_gives_way_to_the_next(workload):
    stages = FakeStages({"compile_max_autotune": 2.0, "cuda_graph": 1.4, "optimized:compile_max_autotune, no_grad": 1.0})
    outcome = run(workload, stages)
    assert outcome.kept == ("cuda_graph", "no_grad") and "was not confirmed" in outcome.report.read_text()
    assert "| equal | compile_max_autotune (not confirmed: SAME) | 2.00x" in outcome.report.read_text()


# Failed confirmations: the rest of the budget is spent, and honestly


NOISY = verdict("AMBIGUOUS", 1.3, spread=0.5)


def judged_candidates(stages) -> list[str]:
    return [name for name in stages.judged if not name.startswith("optimized")]


def test_an_ambiguous_confirmation_is_made_once_more_longer_and_stricter(workload):
    said: list[str] = []
    stages = FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": [NOISY, 1.4]})
    outcome = run(workload, stages, said)
    assert outcome.kept == ("cuda_graph", "no_grad") and outcome.speedup == 1.4 and "confirmed by a longer judgement" in outcome.line
    assert stages.efforts == [Effort(0.05, 6.0), Effort(0.025, 30.0)] and stages.sessions == 3, "each in a new pair of processes"
    confirmations = [row for row in Ledger(outcome.out_dir / "ledger.jsonl").rows if row.tags.get("role") == "confirmation"]
    assert [(row.name, row.verdict.verdict, row.kept) for row in confirmations] == [
        ("optimized.py (cuda_graph)", "AMBIGUOUS", False), ("optimized.py (cuda_graph), longer", "FASTER", True)]
    report = outcome.report.read_text()
    assert "cuda_graph was confirmed by its judgement number 2: the earlier said AMBIGUOUS." in report
    assert "half the risk of the one before" in report and any("too noisy: once more, with up to 30 s" in line for line in said)
    assert run(workload, stages, resume=True) == outcome and len(stages.efforts) == 2


def test_it_is_never_asked_a_third_time_and_the_next_candidate_has_its_turn(workload):
    stages = FakeStages({"compile_max_autotune": 2.0, "cuda_graph": 1.4, "optimized:compile_max_autotune, no_grad": [NOISY, NOISY],
                         "optimized:cuda_graph, no_grad": 1.4})
    outcome = run(workload, stages)
    assert outcome.kept == ("cuda_graph", "no_grad") and [effort.alpha for effort in stages.efforts] == [0.05, 0.025, 0.0125]
    report = outcome.report.read_text()
    assert "compile_max_autotune was not confirmed: 2 more judgements of it said AMBIGUOUS, then AMBIGUOUS." in report
    assert "(not confirmed: AMBIGUOUS, then AMBIGUOUS)" in report


@pytest.mark.parametrize("answer", [1.0, 0.8, verdict("WRONG", reason="because"), verdict("FAILED", reason="because")])
def test_a_confirmation_that_decided_is_not_asked_again(workload, answer):
    stages = FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": answer})
    outcome = run(workload, stages)
    assert outcome.kept == () and len(stages.efforts) == 1
    assert "1 of them FASTER once, the confirmation was not" in outcome.line
    assert "cuda_graph was not confirmed: the second judgement said" in outcome.report.read_text()


def test_every_winner_has_its_turn_while_the_budget_lasts(workload):
    winners = ("compile_max_autotune", "compile_reduce_overhead", "compile_default", "cuda_graph", "cudnn_benchmark")
    speedups = {name: 2.0 - index / 10 for index, name in enumerate(winners)}
    stages = FakeStages({**speedups, **{f"optimized:{name}, no_grad": 1.0 for name in winners[:-1]}})
    outcome = run(workload, stages, budget_s=5000.0)
    assert outcome.kept == ("cudnn_benchmark", "no_grad") and len(stages.efforts) == 5
    assert sum(effort.alpha / 2 for effort in stages.efforts) < 0.05, "one side of each interval: 5% in all"


def test_what_is_left_of_the_budget_goes_into_the_most_promising_noisy_candidate_once(workload):
    said: list[str] = []
    stages = FakeStages({"no_grad": verdict("AMBIGUOUS", 2.9, spread=2.0), "cuda_graph": verdict("AMBIGUOUS", 1.5, spread=0.4),
                         "channels_last": verdict("AMBIGUOUS", 1.4, spread=0.3), "optimized:cuda_graph, no_grad": 1.4})
    outcome = run(workload, stages, said)
    assert outcome.kept == ("cuda_graph", "no_grad") and outcome.interval == pytest.approx((1.38, 1.42)), "its own data, not pooled"
    assert stages.efforts == [Effort(0.05, 30.0)] and any("cuda_graph was too noisy: once more" in line for line in said)
    assert "by a longer judgement, the first being AMBIGUOUS" in outcome.line
    report = outcome.report.read_text()
    assert "cuda_graph was AMBIGUOUS; what was left of the budget went into one longer judgement of it, which said FASTER." in report
    assert "| equal | cuda_graph (confirmed: 1.40x [1.38, 1.42]) | 1.40x" in report
    assert run(workload, stages, resume=True) == outcome and len(stages.efforts) == 1


@pytest.mark.parametrize("answer", [NOISY, 1.0, 0.8])
def test_a_noisy_candidate_is_asked_no_third_time_nor_is_another(workload, answer):
    stages = FakeStages({"cuda_graph": verdict("AMBIGUOUS", 1.5, spread=0.4), "channels_last": verdict("AMBIGUOUS", 1.4, spread=0.3),
                         "optimized:cuda_graph, no_grad": answer})
    outcome = run(workload, stages)
    assert outcome.kept == () and outcome.optimized is None and len(stages.efforts) == 1
    assert run(workload, stages, resume=True) == outcome and len(stages.efforts) == 1


def test_a_noisy_candidate_is_left_alone_without_time_or_promise(workload):
    slower = {"cuda_graph": verdict("AMBIGUOUS", 0.9, spread=0.5), "channels_last": verdict("AMBIGUOUS", 1.005, spread=0.5)}
    assert FakeStages(slower).efforts == [] and (stages := FakeStages(slower)) and run(workload, stages).kept == () and not stages.efforts
    stages = FakeStages({"cuda_graph": verdict("AMBIGUOUS", 1.5, spread=0.4)}, seconds={"compile": 80.0, "autotune": 80.0})
    run(workload, stages, budget_s=100.0)
    assert not stages.efforts and stages.clock.now <= 160


def test_all_too_noisy_reads_as_undecided_not_as_nothing_found(workload):
    every = {name: verdict("AMBIGUOUS", 0.99, spread=0.5) for name in CATALOGUE}
    outcome = run(workload, stages := FakeStages(every))
    assert outcome.line.startswith("Nothing could be decided: ") and "too noisy to tell" in outcome.line and "found" not in outcome.line
    insights = stages.logged[0]
    assert insights[0] == outcome.line and "no_grad AMBIGUOUS undecided [0.49, 1.49]" in insights[1]
    report = outcome.report.read_text()
    assert "0.99x" not in report and "can't be told from none" in report, "an estimate that decides nothing is not printed"
    assert "## Warnings" in report and "judgements were too noisy to tell (AMBIGUOUS)" in report and ", alone;" not in report


def test_progress_names_what_is_being_judged_now(workload):
    """The line that a quiet log repeats is the newest one: what runs, not the result before it."""
    said: list[str] = []
    run(workload, FakeStages({"cuda_graph": 1.5}), said)
    for start, end in (("judging cuda_graph", " cuda_graph: FASTER"),
                       ("judging optimized.py (cuda_graph)", "optimized.py (cuda_graph): FASTER")):
        place = said.index(start)
        assert end in said[place + 1]


def test_some_too_noisy_is_said_beside_what_was_decided(workload):
    line = run(workload, FakeStages({"cuda_graph": verdict("AMBIGUOUS", 0.99, spread=0.5)})).line
    assert line.startswith("Nothing better than the original was proved (") and "1 of them too noisy to tell" in line


def test_the_report_has_the_baselines_warnings_and_the_spread_of_the_originals_durations(workload):
    def slow(name: str, factor: float) -> Verdict:
        whole = verdict(name, 0.9)
        times = Measurement.of([factor * 1e6] * 9, timer="perf_counter")
        return whole.model_copy(update={"comparison": whole.comparison.model_copy(update={"reference": times})})

    stages = FakeStages({"no_grad": slow("SLOWER", 18.0)})
    noisy = Measurement.of([1e6, 2e6, 3e6, 4e6, 5e6], timer="perf_counter")
    real = stages.profile

    def profile(*args):
        made = real(*args)
        loud = made.profile.model_copy(update={"timing": noisy, "warnings": ("the machine was busy (load 4.1 on 2 CPUs)",)})
        return ProfileRun(loud, made.out_dir, made.result)

    stages.profile = profile
    report = run(workload, stages).report.read_text()
    warnings = report.split("## Warnings")[1].split("## Limits")[0]
    assert "the original's duration differed 18.0-fold within this run (1000.00 to 18000.00 us)" in warnings
    assert "the baseline's timing: noisy" in warnings and "load 4.1 on 2 CPUs" in warnings
    assert "1000.00 to 18000.00 us (" in report.split("## Kept")[0]


def test_with_too_little_time_for_a_longer_confirmation_the_next_candidate_is_confirmed(workload):
    stages = FakeStages({"compile_default": 2.0, "cuda_graph": 1.4, "optimized:compile_default, no_grad": NOISY,
                         "optimized:cuda_graph, no_grad": 1.4, "compile_default+cuda_graph": 0.9}, seconds={"autotune": 500.0})
    real, left = stages.judge, {}

    def judge(file, precision, seconds, effort=USUAL):
        if file.name == "optimized.py" and not left:
            left["s"] = stages.clock.now = 1000.0 - 12.0
        return real(file, precision, min(seconds, 1000.0 - stages.clock.now), effort)

    stages.judge = judge
    outcome = run(workload, stages)
    assert outcome.kept == ("cuda_graph", "no_grad") and [effort.timing_s for effort in stages.efforts] == [6.0, 6.0]
    assert "a longer one was not made" in outcome.report.read_text()


def test_a_longer_confirmation_cut_short_keeps_nothing_that_was_refuted(workload):
    stages = FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": [NOISY, OutOfTime("timing")]})
    outcome = run(workload, stages)
    assert outcome.kept == () and not (outcome.out_dir / "optimized.py").exists()
    stages.speedups["optimized:cuda_graph, no_grad"] = 1.4
    before = judged_candidates(stages)
    again = run(workload, stages, resume=True)
    assert again.kept == ("cuda_graph", "no_grad") and judged_candidates(stages) == before, "only the longer confirmation is made"
    assert [effort.timing_s for effort in stages.efforts] == [6.0, 30.0, 30.0] and stages.efforts[-1].alpha == 0.025


def test_a_crash_between_two_confirmations_loses_neither(workload):
    stages = FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": [NOISY, SystemError("killed")]})
    with pytest.raises(SystemError):
        run(workload, stages)
    stages.speedups["optimized:cuda_graph, no_grad"] = 1.4
    before = judged_candidates(stages)
    outcome = run(workload, stages, resume=True)
    assert outcome.kept == ("cuda_graph", "no_grad") and judged_candidates(stages) == before
    assert [effort.timing_s for effort in stages.efforts] == [6.0, 30.0, 30.0]


def test_when_nothing_is_confirmed_the_search_goes_on_with_the_budget_that_is_left(workload):
    """The time held back for the confirmation is free again: what it had kept from being begun is tried, and confirmed."""
    said: list[str] = []
    stages = FakeStages({"compile_default": 1.5, "optimized:compile_default, no_grad": 1.0, "compile_max_autotune_no_cudagraphs": 2.0},
                        seconds={"autotune": 22.0})
    outcome = run(workload, stages, said, budget_s=95.0)
    assert "no candidate was confirmed and 26 s are left: the search goes on" in said
    assert outcome.kept == ("compile_max_autotune_no_cudagraphs", "no_grad")
    judged = judged_candidates(stages)
    assert len(judged) == len(set(judged)), "nothing is judged twice"
    assert stages.clock.now - stages.profile_s <= 1.1 * 95.0


@pytest.mark.parametrize("budget", [45.0, 100.0, 200.0, 350.0, 2000.0])
def test_the_budget_is_kept_when_no_confirmation_succeeds(workload, budget):
    noisy = {f"optimized:{name}, no_grad": NOISY for name in ("cuda_graph", "compile_default", "compile_max_autotune", "channels_last")}
    stages = FakeStages({"cuda_graph": 1.5, "compile_default": 1.2, "compile_max_autotune": 2.0, "channels_last": 1.1, **noisy})
    outcome = run(workload, stages, budget_s=budget)
    assert stages.clock.now - (stages.profile_s if "after" in stages.profiled else 0.0) <= 1.1 * budget
    judged = judged_candidates(stages)
    stopped = [row.name for row in Ledger(outcome.out_dir / "ledger.jsonl").rows if row.status == "out_of_budget"]
    assert len([name for name in judged if name not in stopped]) == len({name for name in judged if name not in stopped})


def test_lower_precision_is_kept_only_where_it_is_clearly_faster(workload):
    outcome = run(workload, FakeStages({"cuda_graph": 1.5, "tf32": 1.51}), precision="tf32")
    assert outcome.kept == ("cuda_graph", "no_grad")


def test_the_best_combination_is_improved_step_by_step(workload):
    speedups = {"cuda_graph": 1.5, "cudnn_benchmark": 1.0, "fold_conv_bn": 1.2, "fold_conv_bn+cuda_graph": 1.8,
                "fold_conv_bn+cudnn_benchmark+cuda_graph": 2.0, "fold_conv_bn+channels_last+cudnn_benchmark+cuda_graph": 2.4}
    stages = FakeStages({**speedups, "optimized:fold_conv_bn, channels_last, cudnn_benchmark, cuda_graph, no_grad": 2.4})
    assert run(workload, stages).kept == ("fold_conv_bn", "channels_last", "cudnn_benchmark", "cuda_graph", "no_grad")


def test_precision_gains_are_kept_apart(workload):
    stages = FakeStages({"compile_max_autotune": 2.0, "bf16": 1.5, "bf16+compile_max_autotune": 4.0,
                         "optimized:bf16, compile_max_autotune, no_grad": 4.0})
    outcome = run(workload, stages, precision="bf16")
    report = outcome.report.read_text()
    assert outcome.kept == ("bf16", "compile_max_autotune", "no_grad")
    assert "| equal | compile_max_autotune (judged once) | 2.00x [1.98, 2.02] | n/a |" in report
    assert "The speed-up is the estimate over pairs of blocks, not the ratio of the two medians." in report
    assert "| bf16 | bf16+compile_max_autotune (confirmed: 4.00x [3.98, 4.02]) | 4.00x [3.98, 4.02] | 2.00x |" in report
    ladder = report[report.index("## The torch.compile ladder"):report.index("## Use")]
    assert "| compile_max_autotune | equal | 1000.00 | 500.00 |" in ladder
    assert "| bf16+compile_max_autotune | bf16 | 1000.00 | 250.00 |" in ladder
    assert "cuda_graph" not in ladder
    assert 'PRECISION = \'bf16\'' in outcome.optimized.read_text()


def test_a_rewrite_that_abstains_is_not_a_failure(workload):
    reason = "NotImplementedError: not applicable: torch.fx can't trace the model"
    outcome = run(workload, FakeStages({"fold_conv_bn": verdict("FAILED", reason=reason)}))
    assert rows(outcome)["fold_conv_bn"].status == "not_applicable"
    assert "- fold_conv_bn: torch.fx can't trace the model" in outcome.report.read_text()


def test_without_a_compiler_one_compile_candidate_fails_and_the_others_are_not_run(workload):
    reason = "needs a C++ compiler (torch.compile generates C++ for the CPU), and none is found"
    stages = FakeStages({"compile_default": verdict("FAILED", reason=reason)}, device="cpu")
    outcome = run(workload, stages)
    assert [name for name in stages.judged if "compile" in name] == ["compile_default"]
    failed = {name for name, row in rows(outcome).items() if row.status == "failed" and row.reason == reason}
    assert failed == {"compile_default", "compile_max_autotune_no_cudagraphs"}
    assert outcome.report.read_text().count(reason) >= 2


# The budget


@pytest.mark.parametrize("budget", [20.0, 45.0, 100.0, 350.0])
@pytest.mark.parametrize("autotune", [30.0, 500.0])
def test_the_budget_is_kept_whatever_candidates_take(workload, budget, autotune):
    stages = FakeStages({"cuda_graph": 1.5, "compile_default": 1.2, "compile_max_autotune": 2.0}, seconds={"autotune": autotune})
    outcome = run(workload, stages, budget_s=budget)
    closing = stages.profile_s if "after" in stages.profiled else 0.0
    assert stages.clock.now - closing <= 1.1 * budget
    over = [row for row in rows(outcome).values() if row.status == "out_of_budget"]
    assert bool(over) == (budget < 350 or autotune == 500.0)


def test_cheap_candidates_go_first_when_time_is_short(workload):
    stages = FakeStages({"cuda_graph": 1.5}, seconds={"autotune": 500.0})
    outcome = run(workload, stages, budget_s=60.0)
    assert outcome.kept == ("cuda_graph", "no_grad")
    costs = [CATALOGUE[name].cost for name in stages.judged if name in CATALOGUE]
    assert costs == sorted(costs, key=["cheap", "compile", "autotune"].index) and costs.count("cheap") >= 4


def test_the_ladder_comes_before_combinations_when_time_is_short(workload):
    speedups = {"cuda_graph": 1.5, "fold_conv_bn": 1.3, "cudnn_benchmark": 1.3, "channels_last": 1.3}
    stages = FakeStages(speedups)
    run(workload, stages, budget_s=75.0)
    assert "compile_default" in stages.judged
    first_combination = next((place for place, name in enumerate(stages.judged) if "+" in name), 99)
    assert stages.judged.index("compile_default") < first_combination


def test_time_that_would_pass_unused_goes_into_one_more_try(workload):
    stages = FakeStages({}, seconds={"compile": 10.0, "autotune": 25.0}, operators=("aten::mm",))
    outcome = run(workload, stages, budget_s=5.0 + 2 * 4.0 + 2 * 10.0 + 13.5)
    assert rows(outcome)["compile_max_autotune_no_cudagraphs"].status == "out_of_budget"
    assert "compile_max_autotune_no_cudagraphs" in stages.judged, "less was left than expected, so it was tried all the same"


def test_a_budget_below_one_profile_is_said_to_be_too_short(workload):
    with pytest.raises(BadInput, match="alone takes more than 3 s"):
        run(workload, FakeStages({}, profile_s=60.0), budget_s=3.0)


def test_a_closing_profile_that_takes_too_long_is_left_out_and_said(workload):
    stages = FakeStages({"cuda_graph": 1.5})
    first = stages.profile

    def profile(workload, folder, baseline, timeout_s, timing=None):
        stages.profile_s = 5.0 if baseline is None else 200.0
        return first(workload, folder, baseline, timeout_s, timing)

    stages.profile = profile
    before = stages.clock
    outcome = run(workload, stages)
    assert outcome.kept == ("cuda_graph", "no_grad") and "optimized.py was not profiled" in outcome.report.read_text()
    assert before.now < 1000


# Interrupts and resuming


def test_ctrl_c_leaves_the_best_so_far(workload):
    stages = FakeStages({"cuda_graph": 1.5, "compile_default": KeyboardInterrupt()})
    outcome = run(workload, stages)
    assert outcome.interrupted and outcome.kept == ("cuda_graph", "no_grad") and outcome.speedup == 1.5
    assert outcome.optimized.is_file() and stages.open == 0 and stages.profiled == ["baseline"]
    assert "Interrupted" in outcome.report.read_text() and "compile_default" not in rows(outcome)


def test_ctrl_c_before_anything_was_judged_keeps_nothing(workload):
    outcome = run(workload, FakeStages({"no_grad": KeyboardInterrupt()}))
    assert outcome.interrupted and outcome.kept == () and outcome.report.is_file()


def test_resume_runs_only_what_was_not_finished(workload):
    stages = FakeStages({"cuda_graph": 1.5, "compile_default": KeyboardInterrupt()})
    first = run(workload, stages)
    before = list(stages.judged)
    stages.speedups["compile_default"] = 1.7
    stages.judged.clear()
    second = run(workload, stages, resume=True)
    assert second.out_dir == first.out_dir and stages.profiled.count("baseline") == 1
    assert set(before) & set(stages.judged) == {"compile_default"}, "only the interrupted one runs again"
    assert "compile_default" in rows(second)["compile_default+cuda_graph"].passes
    indices = [row.index for row in Ledger(second.out_dir / "ledger.jsonl").rows]
    assert len(indices) == len(set(indices))


def test_resume_tries_again_what_only_the_budget_stopped(workload):
    stages = FakeStages({"compile_max_autotune": 2.0})
    first = run(workload, stages, budget_s=45.0)
    assert first.kept == () and rows(first)["compile_max_autotune"].status == "out_of_budget"
    second = run(workload, stages, resume=True)
    assert second.kept == ("compile_max_autotune", "no_grad")


@pytest.mark.parametrize(("change", "word"), [
    ("file", "workload"), ("precision", "precision was equal, is bf16"), ("device", "device was cuda, is cpu"),
    ("torch", "torch was 2.11.0, is 2.12.0"), ("params", "parameters was none, is b=4")])
def test_resume_refuses_when_what_decides_the_figures_changed(workload, change, word):
    stages = FakeStages({})
    run(workload, stages)
    options: dict[str, object] = {"resume": True}
    if change == "file":
        workload.path.write_text("# another workload")
    elif change == "params":
        workload = workload.model_copy(update={"params": {"b": "4"}})
    elif change == "precision":
        options["precision"] = "bf16"
    else:
        setattr(stages, change, {"device": "cpu", "torch": "2.12.0"}[change])
    stages.judged.clear()
    with pytest.raises(BadInput, match=word) as caught:
        run(workload, stages, **options)
    assert caught.value.exit_code == 2 and "\n" not in caught.value.line() and stages.judged == []


def test_resume_without_an_earlier_run_says_so(workload):
    with pytest.raises(BadInput, match="no optimisation to resume"):
        run(workload, FakeStages({}), resume=True)


def test_a_finished_run_is_answered_again_without_judging_profiling_or_logging(workload):
    stages = FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": 1.4})
    first = run(workload, stages)
    counts = len(stages.judged), list(stages.profiled), len(stages.logged), stages.sessions
    report = first.report.read_bytes()
    assert run(workload, stages, resume=True) == first
    assert (len(stages.judged), stages.profiled, len(stages.logged), stages.sessions) == counts and first.report.read_bytes() == report
    first.optimized.unlink()
    again = run(workload, stages, resume=True)
    assert again.optimized.read_bytes() == stages.confirmed and len(stages.judged) == counts[0], "written again, still the confirmed bytes"
    assert len(stages.logged) == counts[2], "nothing new to log"


def test_a_finished_run_that_kept_nothing_is_answered_again_too(workload):
    stages = FakeStages({})
    first = run(workload, stages)
    counts = len(stages.judged), len(stages.logged)
    assert run(workload, stages, resume=True) == first and (len(stages.judged), len(stages.logged)) == counts


def test_an_interrupted_run_is_logged_as_such_and_its_resume_corrects_it(workload):
    stages = FakeStages({"channels_last": KeyboardInterrupt()})
    run(workload, stages)
    assert len(stages.logged) == 1 and stages.logged[0][0].startswith("Interrupted: nothing better"), stages.logged
    stages.speedups = {"compile_max_autotune": 1.5}
    run(workload, stages, resume=True)
    assert len(stages.logged) == 3 and "Interrupted" not in stages.logged[2][0] and "is 1.30x" in stages.logged[2][0]


def test_ctrl_c_in_the_closing_profile_logs_the_baseline_once(workload):
    stages = FakeStages({"cuda_graph": 1.5})
    profile = stages.profile

    def interrupted(workload, folder, baseline, *more):
        if baseline is not None:
            raise KeyboardInterrupt
        return profile(workload, folder, baseline, *more)

    stages.profile = interrupted
    assert run(workload, stages).interrupted and len(stages.logged) == 1
    stages.profile = profile
    assert not run(workload, stages, resume=True).interrupted
    roles = [entry.extra["role"] for entry in read_log(workload.path.parent / "net.devlog.jsonl")[0]]
    assert roles == ["baseline", "optimized"], "the baseline's figures are those of the same judgement"


def test_a_baseline_that_is_logged_again_with_other_figures_says_why(workload):
    stages = FakeStages({"channels_last": KeyboardInterrupt()})
    run(workload, stages)
    stages.speedups = {"compile_max_autotune": 1.5}
    run(workload, stages, resume=True)
    first, again, _optimized = read_log(workload.path.parent / "net.devlog.jsonl")[0]
    assert again.extra["role"] == "baseline" and "baseline of the entry above" in again.insights[0]
    assert first.figures.duration_ns != again.figures.duration_ns


def test_one_candidate_is_not_called_candidates(workload):
    names = iter(["no_grad"])
    stages = FakeStages({})
    real = stages.judge

    def judge(file, precision, seconds, effort):
        if next(names, None) is None:
            raise KeyboardInterrupt
        return real(file, precision, seconds, effort)

    stages.judge = judge
    assert "(1 candidate judged;" in run(workload, stages).line


# What the documents say agrees with the verdict


def test_log_and_contract_show_the_judged_durations_not_two_unpaired_profiles(workload):
    stages = FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": 1.14})
    outcome = run(workload, stages)
    log = (workload.path.parent / "net.devlog.md").read_text()
    contract = outcome.contract.read_text()
    for text in (log, contract):
        assert "12.3% faster" in text and "% slower" not in text and "within noise" not in text, text
    assert "| Duration (us) | 1000.00 | 877.19 | 12.3% faster |" in contract
    assert "durations of this entry and of the baseline's before it are the judge's" in log
    assert stages.stood_beside.timing.timer == "cuda_events, paired, by the judge"
    assert "| Duration (us) | 1000.00 | 877.19 |" in outcome.report.read_text()


def test_a_clear_pair_is_never_within_noise_and_its_sign_is_the_verdicts():
    old, new = (Measurement.of([0.8 * ns, 0.9 * ns, *[ns] * 3, 1.1 * ns, 1.2 * ns], timer="perf_counter") for ns in (1e6, 1.001e6))
    comparison = Comparison(reference=old, candidate=new, speedup=1.02, interval=(1.01, 1.03), pairs=7, blocks=7,
                            smallest_detectable_effect_pct=1.0, method="fake")
    before, after = paired(comparison)
    assert before.ci95_low_ns > after.ci95_high_ns and after.median_ns < before.median_ns
    assert after.ci95_low_ns == pytest.approx(1e6 / 1.03) and after.ci95_high_ns == pytest.approx(1e6 / 1.01)


def test_restated_rates_are_over_the_new_time():
    document = profile_of("cuda", CONVOLUTIONAL)
    half = Measurement.of([document.timing.median_ns / 2] * 9, timer="cuda_events")
    new = restated(document, half)
    assert new.work.achieved_compute.value == pytest.approx(2 * document.work.achieved_compute.value)
    assert new.work.compute_pct == pytest.approx(2 * document.work.compute_pct) and new.timing == half and new.warnings
    assert restated(document, None) == document
    # What rests on the time goes with it: the roof's distance of the call, and nothing is told twice.
    gain = {name: next(f.estimated_gain_pct for f in one.findings if f.rule == "roof_distance")
            for name, one in (("old", diagnose(document.model_copy(update={"abstained": ()}))), ("new", new))}
    assert gain["new"] < gain["old"] and len({one.name for one in new.abstained}) == len(new.abstained)


def test_where_nothing_is_kept_the_duration_before_is_the_judges_where_it_timed(workload):
    report = run(workload, FakeStages({})).report.read_text()
    assert "| Duration (us) | 1000.00 | n/a |" in report and "is the median of these" in report
    assert "(10 timings: the baseline profile's, 9 of the judge's)" in report
    stages = FakeStages({"no_grad": KeyboardInterrupt()})
    report = run(workload, stages, budget_s=999.0).report.read_text()
    assert "the baseline profile's, since the judge timed nothing" in report and "| Duration (us) | 1050.00 |" in report


def judged_at(name: str, before_ns: float, after_ns: float, speedup: float) -> Verdict:
    """A verdict whose two medians are these."""
    one = verdict(name, speedup)
    before, after = (Measurement.of([ns] * 9, timer="perf_counter") for ns in (before_ns, after_ns))
    return one.model_copy(update={"comparison": one.comparison.model_copy(update={"reference": before, "candidate": after})})


def test_durations_too_far_apart_for_one_figure_are_a_range(workload):
    every = {name: judged_at("SAME", 4e6, 4e6, 1.0) for name in CATALOGUE}
    report = run(workload, FakeStages(every)).report.read_text()
    assert "| Duration (us) | 1050.00 to 4000.00 | n/a |" in report and "is the range of these, too far apart for one figure" in report
    low, high = next(line for line in report.splitlines() if line.startswith("| Achieved GB/s")).split("|")[2].split(" to ")
    assert float(high) / float(low) == pytest.approx(4000 / 1050, rel=0.01)


def test_a_ladder_row_says_when_its_medians_are_not_its_speed_up(workload):
    report = run(workload, FakeStages({"compile_default": judged_at("FASTER", 1e6, 0.2e6, 1.6), "no_grad": 1.1})).report.read_text()
    rows = [line for line in report.partition("compile ladder")[2].splitlines() if line.startswith(("| compile_default", "| no_grad"))]
    assert [("medians' ratio is 5.00" in row) for row in sorted(rows)] == [True, False]


def test_the_noise_of_the_judgement_that_counts_and_a_baseline_timing_of_its_own_are_told(workload):
    noisy = judged_at("FASTER", 2e6, 1e6, 2.0)
    comparison = noisy.comparison.model_copy(update={"reference": noisy.comparison.reference.model_copy(update={"warning": "noisy: x"})})
    said = noisy.model_copy(update={"comparison": comparison})
    report = run(workload, FakeStages({"cuda_graph": said, "optimized:cuda_graph, no_grad": said})).report.read_text()
    assert "- the judgement that counts: original noisy: x; the interval of the speed-up has that in it" in report
    assert "timed the original with 1050.00 us, by itself" in report, "2000 us in pairs"
    assert "by itself" not in run(workload, FakeStages({"cuda_graph": 1.5})).report.read_text()


def test_the_report_states_the_judges_limit_and_the_mode_at_optimisation(workload):
    report = run(workload, FakeStages({"cuda_graph": 1.5})).report.read_text()
    assert "at most twice that of the original" in report and "no less accurate" not in report
    assert "the train or eval mode it had when `optimize` was called" in report and "a gradient, train mode" not in report


@pytest.mark.parametrize("name", ["aten::addmm", "aten::matmul", "aten::expand", "aten::linalg_vector_norm", "aten::cat"])
def test_products_and_views_are_not_predicted_to_fuse(name):
    assert "hold 0%" in CATALOGUE["compile_default"].predict(context(operators=(name,))).words


@pytest.mark.parametrize("name", ["aten::add", "aten::mul_", "aten::gelu", "aten::native_layer_norm", "aten::_softmax",
                                  "aten::cudnn_batch_norm", "aten::native_layer_norm_backward", "aten::_fused_rms_norm"])
def test_elementwise_operators_and_norms_are_predicted_to_fuse(name):
    assert "hold 0%" not in CATALOGUE["compile_default"].predict(context(operators=(name,))).words


# The original itself fails


DEAD = WorkloadFailed("workload_died", "the workload's process died")


def test_one_failure_of_the_original_costs_one_row(workload):
    outcome = run(workload, FakeStages({"cuda_graph": 1.5, "channels_last": WorkloadFailed("out_of_memory", "out of memory beside it")}))
    failed = rows(outcome)["channels_last"]
    assert failed.status == "failed" and "out of memory beside it" in failed.reason
    assert outcome.kept == ("cuda_graph", "no_grad") and "compile_max_autotune" in rows(outcome)
    assert "out of memory beside it" in outcome.report.read_text()


def test_an_original_that_failed_twice_in_a_row_ends_the_search_with_the_best_so_far(workload):
    stages = FakeStages({"cuda_graph": 1.5, **{name: DEAD for name in CATALOGUE if name.startswith("compile_")}})
    outcome = run(workload, stages)
    assert len([name for name in stages.judged if name.startswith("compile_")]) == 2
    assert outcome.kept == ("cuda_graph", "no_grad") and stages.sessions == 1
    report = outcome.report.read_text()
    assert "The search ended early" in report and "the workload's process died" in report and len(stages.logged) == 2
    stages.speedups |= {name: 2.0 for name in CATALOGUE if name.startswith("compile_")}
    again = run(workload, stages, resume=True)
    assert "compile_default" in stages.judged and rows(again)["compile_max_autotune"].status == "judged", "resume tries them again"


def test_an_original_that_never_runs_beside_a_candidate_is_an_error_with_its_documents(workload):
    stages = FakeStages(dict.fromkeys(CATALOGUE, DEAD))
    with pytest.raises(WorkloadFailed):
        run(workload, stages)
    folder = next((workload.path.parent / "out" / "optimize" / "net").iterdir())
    assert json.loads((folder / "error.json").read_text())["code"] == "workload_died" and stages.open == 0
    assert len(stages.judged) == 2 and len(stages.logged) == 1 and "process died" in (folder / "report.md").read_text()
    assert "no candidate could be judged" in (folder / "report.md").read_text()


def test_a_confirmation_that_can_not_be_made_leaves_the_winner_unconfirmed(workload):
    outcome = run(workload, FakeStages({"cuda_graph": 1.5, "optimized:cuda_graph, no_grad": DEAD}))
    assert outcome.kept == ("cuda_graph", "no_grad") and outcome.speedup == 1.5
    assert "not confirmed by a second judgement: could not be judged" in outcome.report.read_text()


@pytest.mark.parametrize("cut", [KeyboardInterrupt(), OutOfTime("calling")])
def test_what_was_refuted_is_not_kept_when_the_next_confirmation_is_cut_short(workload, cut):
    stages = FakeStages({"compile_max_autotune": 2.0, "cuda_graph": 1.4, "optimized:compile_max_autotune, no_grad": 1.0,
                         "optimized:cuda_graph, no_grad": cut})
    outcome = run(workload, stages)
    assert outcome.kept == ("cuda_graph", "no_grad") and "cuda_graph was judged once" in outcome.report.read_text()
    stages.speedups["optimized:cuda_graph, no_grad"] = 1.4
    stages.judged.clear()
    assert run(workload, stages, resume=True).kept == ("cuda_graph", "no_grad")
    assert not any(name.startswith("optimized:compile_max_autotune") for name in stages.judged), "a resume does not ask until it is luck"


def test_the_only_winner_refuted_is_not_kept_by_a_resume_either(workload):
    stages = FakeStages({"cuda_graph": 1.4, "optimized:cuda_graph, no_grad": 1.0})
    outcome = run(workload, stages)
    assert outcome.kept == () and not (outcome.out_dir / "optimized.py").exists()
    sessions = stages.sessions
    assert run(workload, stages, resume=True).kept == () and stages.sessions == sessions, "nothing to confirm"


def test_the_reserve_covers_a_fresh_process_of_the_original(workload):
    done = [row(1, "no_grad").model_copy(update={"elapsed_s": 20.0}), row(2, "cudnn_benchmark").model_copy(update={"elapsed_s": 8.0}),
            row(3, "cuda_graph").model_copy(update={"elapsed_s": 9.0})]
    assert reference_start_s(done) == 12.0
    assert confirmation_reserve_s(done[2], done, 600.0) >= 9.0 + 12.0
    assert confirmation_reserve_s(done[0], done[:1], 600.0) >= 20.0, "the first one's time holds the start"
    assert confirmation_reserve_s(done[2], done, 30.0) == 12.0 and confirmation_reserve_s(None, [], 600.0) == 0.0


def test_resume_of_a_folder_that_is_not_there_creates_nothing(workload, tmp_path):
    with pytest.raises(BadInput, match="no optimisation to resume") as caught:
        optimize(workload, OptimizeOptions(resume=True), tmp_path / "typo", stages=FakeStages({}))
    assert caught.value.exit_code == 2 and "typo" in caught.value.line() and not (tmp_path / "typo").exists()


# The ledger


def row(index: int, name: str) -> Experiment:
    return Experiment(index=index, name=name, passes=(name,), precision="equal", candidate_file="c", status="judged")


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_ledger_cut_short_by_a_crash_is_repaired(tmp_path, cut):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append(row(1, "no_grad"))
    ledger.append(row(2, "cuda_graph"))
    path.write_bytes(path.read_bytes()[:-cut])
    again = Ledger(path)
    assert [item.name for item in again.rows] == ["no_grad"]
    again.append(row(2, "tf32"))
    assert [item.name for item in Ledger(path).rows] == ["no_grad", "tf32"]


def test_an_interrupt_while_a_row_is_synced_loses_it_neither_on_disk_nor_here(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger.jsonl")

    def interrupted(_fd):
        raise KeyboardInterrupt

    monkeypatch.setattr("kernelwright.optimize.ledger.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ledger.append(row(1, "no_grad"))
    assert ledger.rows == Ledger(ledger.path).rows and len(ledger.rows) == 1


def test_a_ledger_broken_in_the_middle_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text("{broken}\n" + row(1, "no_grad").model_dump_json() + "\n")
    with pytest.raises(BadInput, match="not a row") as caught:
        Ledger(path)
    assert caught.value.where.endswith("ledger.jsonl:1")


def test_two_optimisations_do_not_share_a_folder(workload):
    stages = FakeStages({})
    problems = []

    def judge(file, precision, seconds, effort):
        with pytest.raises(BadInput, match="another optimisation works") as caught:
            run(workload, FakeStages({}), resume=True)
        problems.append(caught.value.code)
        raise KeyboardInterrupt

    stages.judge = judge
    outcome = run(workload, stages)
    assert problems == ["already_running"]
    assert (outcome.out_dir / ".lock").is_file(), "a removed lock file lets a third one in"


@pytest.mark.parametrize(("names", "fits"), [
    (("cuda_graph", "compile_max_autotune"), False), (("cuda_graph", "compile_default"), True),
    (("compile_default", "compile_max_autotune"), False),
    (("bf16", "bf16_autocast"), False), (("bf16", "channels_last", "cuda_graph"), True)])
def test_passes_that_exclude_each_other_are_never_combined(names, fits):
    assert compatible(names) == fits


def test_the_report_has_the_clocks_of_the_whole_run(workload):
    stages = FakeStages(speedups={})
    clocks = ClockReading(requested="lock", locked=True, locked_mhz=1500, sm_mhz_min=1500, sm_mhz_max=1500, samples=9, sm_mhz_median=1500,
                          warnings=("other processes use this GPU: train (process 7, 3 MiB)",))
    outcome = optimize(workload, OptimizeOptions(budget_s=1000.0), stages=stages, clock=stages.clock, clocks=lambda: clocks)
    report = outcome.report.read_text()
    assert "Clocks: locked at 1500 MHz (asked for: lock); SM 1500 to 1500 MHz seen in 9 samples under load, median 1500." in report
    assert "train (process 7, 3 MiB)" in report.partition("## Warnings")[2].partition("## Limits")[0]
    assert json.loads((outcome.out_dir / "report.json").read_text())["clocks"]["locked_mhz"] == 1500
