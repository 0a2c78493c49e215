"""What is compiled ahead beside the screens, and what is expected of a mode that measures kernels. Fakes in place of processes."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernelwright.model.trial import Screen
from kernelwright.model.verdict import Experiment
from kernelwright.model.workload import TensorSpec
from kernelwright.optimize import ahead, budget, expected, strategy
from kernelwright.optimize.budget import (
    COMPILED,
    INPUTS_MADE,
    JUDGEMENT,
    LEAST_JUDGEMENT_S,
    SETUP_S,
    costs_of,
    judge_estimate_s,
    judgements_s,
    kind,
    screen_estimate_s,
    screens_s,
    workload_s,
)
from kernelwright.optimize.passes.conditions import has_products
from kernelwright.optimize.plan import LADDER
from optimizing import (
    a_workload,  # noqa: F401 a fixture
    context,
    few_passes,  # noqa: F401 a fixture
    profile_of,
    rows,
    run,
    verdict,
)
from screened_stages import GAINS, Stages


def test_compile_candidates_are_compiled_ahead_and_hopeless_ones_cut_short(workload):
    stages = Stages()
    run(workload, stages)
    assert stages.screener.ahead and all("compile_" in name for name in stages.screener.ahead)
    assert {name for name in stages.screener.ahead if "max_autotune" in name} <= set(LADDER), "of what is tuned the ladder's rows alone"
    assert any(hint for hint in stages.screener.hints), "a floor is given once something is known"


def compiling_ahead(monkeypatch, tuning_s: float | None, **changes: object) -> Stages:
    """Stages whose screen compiles ahead; waiting takes the fake clock's time."""
    stages = Stages(**changes)
    stages.screener.compile_s = {} if tuning_s is None else {"compile": 5.0, "autotune": tuning_s}
    monkeypatch.setattr(ahead, "time", SimpleNamespace(
        sleep=lambda seconds: setattr(stages.clock, "now", stages.clock.now + seconds)))
    return stages


def of_tuned(outcome) -> dict[str, Experiment]:
    """The ladder's rows whose kernels the compiler measures."""
    return {name: row for name, row in rows(outcome).items() if name in LADDER and "autotune" in name}


@pytest.mark.parametrize("tuning_s", [None, 25.0])
def test_a_short_budget_has_a_tuned_row_of_the_ladder_where_it_was_compiled_ahead(workload, monkeypatch, tuning_s):
    stages = compiling_ahead(monkeypatch, tuning_s)
    outcome = run(workload, stages, budget_s=85.0)
    seen = [row.screen.elapsed_s for row in of_tuned(outcome).values() if row.screen is not None]
    assert seen == ([] if tuning_s is None else [3.0]), "its screen finds it in the compilers' caches"
    assert outcome.confirmed and stages.clock.now <= 85.0 + stages.profile_s + 10.0


@pytest.mark.parametrize("operator", ["aten::native_layer_norm", "aten::addmm"])
def test_a_mode_that_measures_kernels_is_not_expected_to_take_long_where_there_is_no_product(workload, operator):
    """A cross entropy on an H200: 13 s. Expected were 100 s, and a minute ended with nothing, where this row gains 1.5x."""
    name = "compile_max_autotune_no_cudagraphs"
    stages = Stages(dict.fromkeys(GAINS, 1.0) | {name: 1.5}, operators=(operator,), profile_s=6.0, seconds={"autotune": 12.0})
    stages.screener.tuning_s = 13.0
    outcome = run(workload, stages, budget_s=90.0)
    assert (name in outcome.kept) == (operator == "aten::native_layer_norm"), rows(outcome)[name].reason
    lesson = costs_of(rows(outcome).values(), has_products=has_products(context(operators=(operator,))))
    assert "autotune" not in lesson and ("light autotune" in lesson) == (name in outcome.kept), "it says nothing of products"


def test_few_kernels_to_measure_are_expected_to_take_longer_than_a_compilation():
    mode, seen = ["compile_max_autotune"], Experiment.model_validate({
        "index": 1, "name": "compile_default", "passes": ("compile_default",), "precision": "equal", "candidate_file": "1.py",
        "status": "screened", "screen": Screen(status="timed", speedup=1.0, elapsed_s=6.0)})
    expect = screen_estimate_s
    assert expect(mode, [], {"compile": 30.0}, has_products=False)[0] == 75.0, "no less than what compiling takes on this machine"
    assert expect(mode, [seen], has_products=False) == (15.0, False) and expect(mode, [], has_products=False) == (15.0, False)
    assert expect(mode, [seen], {"light autotune": 9.0}, has_products=False) == (9.0, True)
    assert expect(mode, [seen], has_products=True)[0] == 100.0
    first = seen.model_copy(update={"name": "compile_max_autotune", "passes": ("compile_max_autotune",)})
    assert costs_of([first], has_products=False) == {}, "the run's first compilation says nothing of later ones"
    assert costs_of([seen, first], has_products=False) == {"light autotune": 6.0}


def screened_for(seconds: float, name: str, status: str = "timed") -> Experiment:
    speedup = 1.0 if status == "timed" else None
    return Experiment.model_validate({
        "index": 1, "name": name, "passes": (name,), "precision": "equal", "candidate_file": "1.py", "status": "screened",
        "screen": Screen(status=status, speedup=speedup, elapsed_s=seconds + 3.0, load_s=3.0)})


def test_what_compiles_is_expected_to_take_what_was_not_enough_for_the_last_one():
    cut, with_it = screened_for(16.0, "compile_default", "out_of_budget"), ["fold_conv_bn", "compile_default"]
    assert screen_estimate_s(with_it, [cut], has_products=True) == (16.0, True)
    assert screen_estimate_s(with_it, [cut, screened_for(30.0, "compile_reduce_overhead", "out_of_budget")], has_products=True)[0] == 30.0
    assert screen_estimate_s(with_it, [cut], {"compile": 20.0}, has_products=True) == (20.0, True)
    assert screen_estimate_s(with_it, [screened_for(4.0, "compile_default", "out_of_budget")], has_products=True)[0] == 12.0, "the prior"
    assert screen_estimate_s(["channels_last"], [cut], has_products=True)[0] == 2.0, "nothing is compiled"
    assert screen_estimate_s(with_it, [cut, screened_for(7.0, "compile_reduce_overhead")], has_products=True) == (7.0, True)


def test_what_was_ended_once_is_not_begun_again_in_less_time(workload):
    """GPT-2 on two cores, 60 s: two compilations were ended, and no time was left for the judge."""
    class Slow(dict[str, object]):
        def get(self, name, default=None):
            return Screen(status="out_of_budget", reason="did not finish") if "compile" in name else default

    stages = Stages({"no_grad": 1.2}, Slow(x=1), device="cpu", profile_s=9.0, seconds={"cheap": 16.0, "compile": 30.0})
    outcome = run(workload, stages, budget_s=90.0)
    assert sum("compile" in name for name in stages.screener.asked) == 1 and outcome.kept, stages.screener.asked
    left = next(row.reason for row in rows(outcome).values() if row.name == "compile_default")
    assert left.startswith("about 12 s for its screen")


def test_a_judgement_is_expected_to_wait_for_large_inputs_until_one_was_seen():
    """1.1 GB of inputs, drawn in 1.7 s: 11 s were expected, and 21 not enough, so that a minute ended with nothing judged."""
    def expect(done, **known):
        return judge_estimate_s(None, done, on_gpu=True, **known)

    assert expect([], inputs_s=1.5) == expect([]) + 1.5 * INPUTS_MADE
    assert expect([], costs={JUDGEMENT: 4.0}, inputs_s=1.5) == 4.0 + 1.5 * INPUTS_MADE + SETUP_S
    assert expect([], costs={JUDGEMENT: 4.0}, inputs_s=1.5, work_s=9.0) == 13.0 + 1.5 * INPUTS_MADE + SETUP_S
    assert expect([], costs={JUDGEMENT: 4.0}, inputs_s=0.0) == expect([], costs={JUDGEMENT: 4.0}) == 4.0 + SETUP_S
    seen = Experiment.model_validate({"index": 1, "name": "no_grad", "passes": ("no_grad",), "precision": "equal",
                                      "candidate_file": "1.py", "status": "judged", "elapsed_s": 6.0, "verdict": verdict("FASTER", 1.2)})
    assert expect([seen], inputs_s=1.5, work_s=9.0) == expect([seen]), "what it waits for is in what others took"
    later = seen.model_copy(update={"index": 2, "elapsed_s": 8.0})
    lesson = costs_of([later, seen.model_copy(update={"elapsed_s": 10.0})], has_products=True, inputs_s=1.0)
    assert lesson[JUDGEMENT] == 5.0, "the first waits at its load and in the survey too"
    lesson = costs_of([later, seen.model_copy(update={"elapsed_s": 10.0})], has_products=True, inputs_s=1.0, work_s=2.5)
    assert lesson[JUDGEMENT] == 2.5
    assert costs_of([seen], has_products=True, inputs_s=9.0)[JUDGEMENT] == LEAST_JUDGEMENT_S


@pytest.mark.parametrize(("shape", "call_ms", "device", "seconds"), [
    ((128, 64, 126, 126), 4.0, "cuda", 4.0 * 0.520224768 + 1.2), ((), 500.0, "cuda", 9.0 + 4e-9 * 4), ((1 << 28,), 4.0, "cpu", 0.0)])
def test_large_outputs_and_long_calls_are_judged_longer_on_a_gpu(monkeypatch, shape, call_ms, device, seconds):
    """H200, 120 s: a GPT block's judgement took 26 s where 16 were expected, and none were left for its confirmation."""
    now = context(device)
    outputs = (TensorSpec(path="", shape=shape, dtype="float32", device=device),)
    now = replace(now, facts=now.facts.model_copy(update={"outputs": outputs}))
    monkeypatch.setattr(budget, "call_ns", lambda _: 1e6 * call_ms)
    assert workload_s(now) == pytest.approx(seconds)


def test_what_another_workload_waits_for_inputs_is_not_expected_of_this_one(workload):
    """H200: judgements of a product took 26 s, for 1.1 GB of inputs. LeNet, next, kept those twice, and
    what gives 3x there, compiled, was never begun."""
    heavy, light = (Stages(inputs_s=inputs_s, seconds=dict.fromkeys(("cheap", "compile", "autotune"), took_s), profile_s=6.0)
                    for inputs_s, took_s in ((3.2, 26.0), (0.0, 8.0)))
    assert judgements_s(rows(run(workload, heavy, budget_s=200.0)).values())
    workload.path.write_text("# another one")
    outcome = run(workload, light, budget_s=60.0)
    own_s = json.loads((outcome.out_dir / "state.json").read_text())["costs"][JUDGEMENT]
    assert own_s == pytest.approx(26.0 - INPUTS_MADE * 3.2 - workload_s(context()), abs=0.02), "its profile's call is 5% longer"
    assert any("compile" in name for name in outcome.kept), light.screener.asked


@pytest.mark.parametrize(("operators", "found"), [
    (("aten::native_layer_norm", "aten::nll_loss_forward"), False), (("aten::softmax", "aten::bmm"), True), (("aten::conv2d",), True),
    (("aten::_scaled_mm",), True), ((), True)])
def test_what_a_compile_mode_measures_kernels_for_is_seen_in_the_profile(operators, found):
    assert has_products(context(operators=operators)) is found
    assert has_products(context(operators=operators, already_compiled=True)) is True, "its own torch.compile hides what it runs"
    if operators:
        given = context(operators=operators, already_compiled=True, uncompiled=profile_of("cuda", operators))
        assert has_products(given) is found, "a recording without it shows them"
    mode = ["compile_max_autotune", "no_grad"]
    assert kind(mode, has_products=True) == "autotune" and kind(mode, has_products=False) == "light autotune"


@pytest.mark.parametrize(("tuning_s", "is_measured"), [(60.0, True), (600.0, False)])
def test_what_is_tuned_ahead_is_waited_for_where_nothing_else_is_to_do_and_no_longer_than_there_is_time(
        workload, monkeypatch, tuning_s, is_measured):
    stages, said = compiling_ahead(monkeypatch, tuning_s, gains=dict.fromkeys(GAINS, 1.0) | {"no_grad": 1.4}), []
    outcome = run(workload, stages, said, budget_s=180.0)
    assert said.count("waiting for what is compiled ahead") >= 1
    assert any(row.screen is not None for row in of_tuned(outcome).values()) == is_measured
    assert outcome.confirmed and stages.clock.now <= 180.0 + stages.profile_s + 10.0


@pytest.mark.parametrize("tuning_s", [-1.0, 10_000.0])
def test_a_tuning_ahead_that_fails_or_hangs_holds_nothing_up_for_long(workload, monkeypatch, tuning_s):
    stages = compiling_ahead(monkeypatch, tuning_s)
    outcome = run(workload, stages, budget_s=900.0)
    assert all(row.screen.elapsed_s == 30.0 for row in of_tuned(outcome).values()), "measured in their screens"
    given = [name for name in stages.screener.ready if "max_autotune" in name]
    assert len(given) == (2 if tuning_s < 0 else 1), "one that fails does not keep the other from its turn"


@pytest.mark.parametrize(("tuning_s", "gain", "seen_before"), [(14.0, 1.4, 2), (14.0, 1.0, 4), (10_000.0, 1.4, 2)])
def test_few_kernels_that_are_measured_ahead_are_waited_for_where_that_is_expected_to_gain(
        workload, monkeypatch, tuning_s, gain, seen_before):
    """A cross entropy on an H200: such a process, stopped while others are timed, took 41 s, and a minute ended with nothing."""
    name, wait, said = "compile_max_autotune_no_cudagraphs", "waiting for what is compiled ahead", []
    stages = compiling_ahead(monkeypatch, tuning_s, gains=dict.fromkeys(GAINS, 1.0) | {name: 1.5}, operators=("aten::native_layer_norm",))
    stages.screener.tuning_s = 13.0
    monkeypatch.setattr(strategy, "hope", lambda view, item: replace(
        expected.hope(view, item), ratio={"compile_default": 1.4, name: gain}.get(item.name, 1.0)))
    outcome = run(workload, stages, said, budget_s=120.0)
    order = [line.removeprefix("screening ") for line in said if line.startswith("screening ") or line == wait]
    assert order.index(name if gain == 1.0 else wait) >= seen_before
    assert order[0] == "compile_default" and stages.clock.now <= 120.0 + stages.profile_s + 10.0
    if gain > 1.0:
        assert order.index(wait) == seen_before, "before all that is not expected to gain"
        assert order.count(wait) == 1 or tuning_s == 14.0, "what hangs is waited for once"
    row = rows(outcome)[name]
    assert (name in outcome.kept and row.screen.compiled_ahead) == (tuning_s == 14.0), row.reason


def test_what_was_compiled_ahead_says_nothing_of_what_compiling_takes(workload, monkeypatch):
    """The second run is on a machine that compiles nothing ahead: a row that takes 30 s is not ended after what a compiled one took."""
    first = compiling_ahead(monkeypatch, 25.0)
    outcome = run(workload, first, budget_s=85.0)
    assert [row.screen.compiled_ahead for row in of_tuned(outcome).values() if row.screen is not None] == [True]
    candidates = [row for row in rows(outcome).values() if not row.tags.get("role")]
    lesson = costs_of(candidates, has_products=True)
    assert "autotune" not in lesson and screens_s(candidates, has_products=True)[COMPILED] and COMPILED not in lesson
    limits: list[float] = []
    again = Stages()
    plain = again.screener.screen
    again.screener.screen = lambda ask: (limits.append(ask.limit_s) if "max_autotune" in ask.file.name else None, plain(ask))[1]
    assert run(workload, again, budget_s=900.0).confirmed and limits and min(limits) > 100.0


def test_with_one_process_nothing_is_tuned_ahead(workload, monkeypatch):
    stages = compiling_ahead(monkeypatch, 25.0)
    stages.screener.most = 1
    run(workload, stages, budget_s=180.0)
    assert stages.screener.ready and not any("max_autotune" in name for name in stages.screener.ready)


def test_in_the_ladders_turn_a_row_that_is_still_to_be_tuned_does_not_come_first():
    view = strategy.View(context(), "equal", [])
    names = [item.name for item in strategy.untried_ladder(view)]
    dear, cheap = next(name for name in names if "autotune" in name), "compile_reduce_overhead"
    waiting = lambda item: item.name in (dear, cheap)  # noqa: E731
    assert strategy.next_candidate(view, waiting, due=[cheap]).name == cheap
    assert strategy.next_candidate(view, lambda item: item.name in (dear, "cudnn_benchmark"), due=[cheap]).name != dear
