"""The loop with fakes in place of profiler and judge: what is tried, kept and cut off. No torch, no waiting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.judge.clocks import NOT_CONFIRMED
from kernelwright.judge.options import OutOfTime
from kernelwright.model.errors import BadInput, WorkloadFailed
from kernelwright.model.trial import Screen
from kernelwright.optimize.budget import ENDING_S, RESERVE_MARGIN, SCREENED_MARGIN, START_S, confirmation_reserve_s, reference_start_s
from kernelwright.optimize.confirm import USUAL, Effort, last_hope, longer_timing_s
from kernelwright.optimize.ledger import Ledger
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.optimize.plan import LADDER
from kernelwright.pipeline.profile import ProfileRun
from optimizing import (
    NOISY,
    FakeStages,
    a_workload,  # noqa: F401 a fixture
    few_passes,  # noqa: F401 a fixture
    judged_candidates,
    judged_row,
    rows,
    run,
    verdict,
)

# The loop


def test_the_best_is_kept_confirmed_profiled_and_written(workload):
    stages = FakeStages({"compile_max_autotune": 2.0, "channels_last": 1.2, "channels_last+compile_max_autotune": 2.42, "cuda_graph": 1.4,
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


def test_what_the_judges_own_clock_did_not_confirm_is_not_called_noise(workload):
    reason = f"{NOT_CONFIRMED}: it reports a speed-up of 1.07x, and by the judge's own clock it is at most 0.88x [0.81, 0.959]"
    doubted = {name: verdict("AMBIGUOUS", 0.99, spread=0.5, reason=reason) for name in CATALOGUE}
    outcome = run(workload, FakeStages(doubted))
    assert outcome.line.startswith("Nothing could be decided: ") and f"judged {NOT_CONFIRMED} (" in outcome.line
    assert f"judgements were {NOT_CONFIRMED} (AMBIGUOUS)" in outcome.report.read_text()
    both = run(workload, FakeStages({**doubted, "cuda_graph": verdict("AMBIGUOUS", 0.99, spread=0.5)})).line
    assert f"judged too noisy to tell or {NOT_CONFIRMED} (" in both


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
    assert outcome.kept == ("cuda_graph", "no_grad") and [effort.timing_s for effort in stages.efforts][:2] == [6.0, 6.0]
    assert stages.audited == [False, False, True], "the third is the audit of a gain that nobody predicted"
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


def test_when_nothing_is_confirmed_the_search_goes_on_with_the_budget_that_is_left(workload):
    """The time held back for the confirmation is free again: what it had kept from being begun is tried, and confirmed."""
    said: list[str] = []
    stages = FakeStages({"compile_default": 1.5, "optimized:compile_default, no_grad": 1.0, "compile_max_autotune_no_cudagraphs": 2.0},
                        seconds={"autotune": 22.0})
    outcome = run(workload, stages, said, budget_s=95.0)
    assert "no candidate was confirmed and 27 s are left: the search goes on" in said
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
    over = [row for row in rows(outcome).values() if row.status == "out_of_budget" and "role" not in row.tags]
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


def test_what_the_baseline_took_of_a_short_budget_is_said(workload):
    """A model under max-autotune takes minutes to its first call where nothing of it was compiled before."""
    stages = FakeStages({}, profile_s=60.0)
    first = stages.profile

    def profile(*given):
        made = first(*given)
        phases_s = {"load": 2.0, "warmup": 49.4, "time": 3.0}
        return ProfileRun(made.profile, made.out_dir, made.result.model_copy(update={"phases_s": phases_s}))

    stages.profile = profile
    said = "The baseline's profile took 60 s of the budget of 100 s; 51 s of it went by before the workload was warm"
    assert said in run(workload, stages, budget_s=100.0).report.read_text()
    assert "The baseline's profile took" not in run(workload, stages, budget_s=1000.0).report.read_text()


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


@pytest.mark.parametrize("code", ["ill_conditioned", "not_repeatable", "not_dense"])
def test_where_no_candidate_can_ever_be_judged_one_judgement_ends_the_search_and_the_mend_is_named(workload, code):
    unsure = WorkloadFailed(code, "its own error is above 1%", fix="use others")
    stages = FakeStages(dict.fromkeys(CATALOGUE, unsure))
    with pytest.raises(WorkloadFailed):
        run(workload, stages)
    folder = next((workload.path.parent / "out" / "optimize" / "net").iterdir())
    assert len(stages.judged) == 1 and json.loads((folder / "error.json").read_text())["code"] == code
    assert "could not be judged: its own error is above 1% (fix: use others)" in (folder / "ledger.jsonl").read_text()


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


@pytest.mark.parametrize(("took_s", "needed_s"), [(6.0, 6.0 + START_S), (20.0, SCREENED_MARGIN * 20.0)])
def test_the_reserve_of_what_was_screened_has_the_start_of_the_originals_process_at_least(took_s, needed_s):
    """H200 in 120 s: a judgement of 6 s had 6 to 8 s for its confirmation, which takes 10."""
    row = judged_row(1, "cuda_graph").model_copy(update={"elapsed_s": took_s, "screen": Screen(status="timed", speedup=1.5)})
    assert confirmation_reserve_s(row, [row], 600.0) == pytest.approx(needed_s + 2 * ENDING_S)


def test_a_longer_confirmation_has_the_time_that_its_end_leaves():
    assert longer_timing_s(8.0, 40.0) == 30.0 and longer_timing_s(8.0, 9.0) is None
    assert longer_timing_s(8.0, 30.0) == 30.0 - 2 * ENDING_S - 1.25 * 8.0 + 6.0


def test_the_first_judgement_of_a_run_has_the_start_of_the_original_in_its_seconds():
    """An LSTM on two CPU cores: `no_grad` was AMBIGUOUS after 10 s, and 26 s passed unused, since the start was counted twice."""
    noisy = judged_row(1, "no_grad").model_copy(update={"elapsed_s": 10.4, "verdict": verdict("AMBIGUOUS", 1.03)})
    hope = last_hope([noisy], [noisy], 26.0)
    assert hope is not None and hope.longer and hope.effort.timing_s == longer_timing_s(10.4, 26.0) > 12.0
    later = judged_row(2, "cudnn_benchmark").model_copy(update={"elapsed_s": 8.0, "verdict": verdict("AMBIGUOUS", 1.04)})
    first = noisy.model_copy(update={"elapsed_s": 20.0, "verdict": verdict("SAME", 1.0)})
    assert last_hope([first, later], [first, later], 26.0) is None, "that of a later one has not"
    failed = first.model_copy(update={"status": "failed", "verdict": None, "elapsed_s": 20.0})
    cut = first.model_copy(update={"status": "screened", "verdict": None, "reason": "not judged: the time was up"})
    assert all(last_hope([sent, first, later], [sent, first, later], 26.0) is None for sent in (failed, cut)), "whatever came of the first"


def test_the_reserve_covers_a_fresh_process_of_the_original(workload):
    done = [judged_row(1, "no_grad").model_copy(update={"elapsed_s": 20.0}),
            judged_row(2, "cudnn_benchmark").model_copy(update={"elapsed_s": 8.0}),
            judged_row(3, "cuda_graph").model_copy(update={"elapsed_s": 9.0})]
    assert reference_start_s(done) == 12.0
    assert confirmation_reserve_s(done[2], done, 600.0) == pytest.approx(RESERVE_MARGIN * (9.0 + 12.0) + 2 * ENDING_S)
    alone = confirmation_reserve_s(done[0], done[:1], 600.0)
    assert alone == pytest.approx(RESERVE_MARGIN * 20.0 + 2 * ENDING_S), "the first one's time holds the start"
    assert confirmation_reserve_s(done[2], done, 30.0) == 12.0 and confirmation_reserve_s(None, [], 600.0) == 0.0
