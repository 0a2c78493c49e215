"""The search on a workload that is compiled or graphed already: what it begins with, proposes, and keeps for later. No torch."""

from __future__ import annotations

from dataclasses import replace

import pytest

import builders
from kernelwright.model.activity import Activity
from kernelwright.model.profile import Profile
from kernelwright.model.trial import Screen
from kernelwright.model.verdict import Experiment
from kernelwright.optimize import memory, strategy
from kernelwright.optimize.expected import modelled
from kernelwright.optimize.passes import CATALOGUE, Context, piecewise_graphs
from kernelwright.optimize.plan import candidate, refusal
from kernelwright.optimize.recognised import recognised
from kernelwright.optimize.view import View, always
from optimizing import (
    CONVOLUTIONAL,
    FakeStages,
    a_workload,  # noqa: F401 a fixture
    context,
    few_passes,  # noqa: F401 a fixture
    profile_of,
    rows,
    run,
)

REGION = ("Torch-Compiled Region: 0/0",)
PRODUCTS = ("aten::addmm", "aten::relu", "aten::addmm")


def compiled(device: str = "cuda", plain_us: float = 1000.0, shown: tuple[str, ...] = PRODUCTS, **changes: object) -> Context:
    """A call of 1000 us, one operator to the profiler; uncompiled it takes plain_us and runs `shown`."""
    uncompiled = profile_of(device, shown, timing=builders.timing(plain_us))
    return context(device, REGION, uncompiled, already_compiled=True, **changes)


def test_a_recording_without_it_tells_what_the_model_runs(workload):
    hidden = run(workload, FakeStages({}, operators=REGION, already_compiled=True))
    assert "shows no convolution" in rows(hidden)["channels_last+compile_default"].reason
    stages = FakeStages({"channels_last+compile_default": 1.5}, operators=REGION, uncompiled=CONVOLUTIONAL, already_compiled=True)
    outcome = run(workload, stages)
    assert rows(outcome)["fold_conv_bn+compile_default"].status == "judged"
    assert outcome.kept == ("unwrap_compiled", "channels_last", "compile_default", "no_grad")


def test_a_resumed_run_knows_it_too(workload):
    stages = FakeStages({"channels_last+compile_default": KeyboardInterrupt()}, operators=REGION, uncompiled=CONVOLUTIONAL,
                        already_compiled=True)
    assert run(workload, stages).interrupted
    stages.speedups["channels_last+compile_default"] = 1.5
    assert run(workload, stages, resume=True).kept == ("unwrap_compiled", "channels_last", "compile_default", "no_grad")


def test_what_is_alike_is_told_by_the_models_operators():
    """Two compiled workloads show one region each: that does not make them alike."""
    one, two = compiled(shown=("aten::addmm",)), compiled(shown=("aten::cudnn_convolution",))
    assert memory.similarity(memory.shares_of(one.profile), memory.shares_of(two.profile)) == pytest.approx(1.0)
    assert memory.similarity(memory.shares_of(one.seen), memory.shares_of(two.seen)) == 0.0
    plain = context()
    assert plain.seen is plain.profile


def test_waits_are_the_models_own():
    """CUDA graphs that torch.compile records anew make the host wait; what comes in their place does not."""
    def waits(count: int) -> Profile:
        timed = builders.timeline(1_000_000, 900_000)
        return profile_of("cuda", PRODUCTS).model_copy(update={"timeline": timed.model_copy(update={
            "activity": Activity(synchronization_count=count)})})

    hidden = replace(context("cuda", REGION, waits(0), already_compiled=True), profile=waits(3))
    assert "can be captured whole" in piecewise_graphs.PASS.refusal(hidden)
    waiting = replace(context("cuda", REGION, waits(3), already_compiled=True), profile=waits(0))
    assert piecewise_graphs.PASS.refusal(waiting) is None


def test_a_call_without_gradients_is_no_cheap_try_where_it_compiles_anew():
    """The workload's own max-autotune tunes for inference what it has tuned for training (the MLP on an H200: not done in 28 s)."""
    for facts, first in (({}, "no_grad"), ({"already_compiled": True}, "compile_default")):
        for device in ("cuda", "cpu"):
            view = View(context(device, ("aten::addmm",), **facts), "equal", ())
            assert strategy.untried_ladder(view)[0].name == first
            assert strategy.next_candidate(view, lambda item: item.name in ("no_grad", "compile_default")).name == first


def test_without_a_compiler_in_its_place_a_candidate_begins_at_the_uncompiled_call():
    here = compiled(plain_us=3000.0)

    def expected(*names: str) -> float:
        return modelled(here, candidate(names, here).passes, lambda _name: None)

    assert expected("unwrap_compiled") == pytest.approx(expected("no_grad") / 3)
    assert expected("no_grad") < expected("compile_default") < 1.01 * expected("no_grad") + 1e-9
    assert modelled(compiled(plain_us=500.0), ("unwrap_compiled", "no_grad"), lambda _name: None) > 1.5
    assert CATALOGUE["unwrap_compiled"].prediction(here).words.endswith("alone a call takes 3 times as long")


def test_on_a_cpu_shares_go_by_unprofiled_calls():
    """The profiler slows a call of many small operators down more than one of few."""
    whole = context("cpu", PRODUCTS).share_pct("aten::addmm")
    assert compiled("cpu", plain_us=500.0).share_pct("aten::addmm") == pytest.approx(whole / 2)
    assert compiled("cpu", plain_us=4000.0).share_pct("aten::addmm") == 100.0


def test_what_works_around_any_call_leaves_the_workloads_own_compiler_on():
    here = compiled()
    for name in ("tf32", "bf16_autocast", "no_grad", "cudnn_benchmark"):
        assert "unwrap_compiled" not in candidate([name], here).passes
    assert candidate(["bf16", "tf32"], here).passes[0] == "unwrap_compiled"
    given = candidate(["unwrap_compiled", "bf16"], here)
    assert given.passes == ("unwrap_compiled", "bf16", "no_grad"), "who asks for the plain model gets it"
    inside = context(operators=REGION, already_compiled=True, compiled_inside=True)
    assert candidate(["bf16"], inside).passes == ("bf16", "no_grad") and refusal(candidate(["bf16"], inside), inside) is None


def test_a_candidate_without_a_parent_is_held_against_the_original_less_what_always_comes_along():
    assert always(("unwrap_compiled", "compile_default", "no_grad")) == ("unwrap_compiled", "no_grad")
    assert always(("unwrap_compiled", "bf16", "no_grad")) == ("no_grad",), "what it lost with the compiler is no pass's gain"
    assert always(("no_grad",)) == () and always(("bf16", "no_grad")) == ("no_grad",)


def screened(here: Context, *names: str, speedup: float) -> Experiment:
    item = candidate(names, here)
    screen = Screen(status="timed", speedup=speedup, interval=(speedup, speedup), elapsed_s=1.0)
    return Experiment(index=0, name=item.name, passes=item.passes, precision=item.precision, candidate_file="c", status="screened",
                      screen=screen)


def test_a_pass_on_the_model_waits_for_the_compile_mode_that_it_brings_along():
    here = compiled(shown=CONVOLUTIONAL)
    single = "channels_last+compile_default"
    assert single not in {item.name for item in strategy.proposals(View(here, "equal", []))}
    done = [screened(here, "compile_default", speedup=0.99)]
    assert single in {item.name for item in strategy.proposals(View(here, "equal", done))}
    done = [screened(here, "compile_default", speedup=0.99), screened(here, "compile_max_autotune", speedup=1.2)]
    assert "channels_last+compile_max_autotune" in {item.name for item in strategy.proposals(View(here, "equal", [
        *done, screened(here, "channels_last", speedup=1.0)]))}


def test_the_report_says_that_it_was_recorded_without():
    assert recognised(compiled())[0].endswith("What the model runs was recorded once more without it.")
    unseen = context(operators=REGION, already_compiled=True)
    assert recognised(unseen)[0].endswith("The model could not be recorded without it, so what it runs is known in part.")


def test_where_a_pass_predicts_no_number_its_turn_comes_by_the_model_without():
    here = compiled(shown=CONVOLUTIONAL)
    fold, mode = CATALOGUE["fold_conv_bn"], CATALOGUE["compile_default"]
    assert fold.prediction(here).gain is None and mode.prediction(here).gain is None, "what the compiler took away of it is not known"
    alone, folded = (modelled(here, names, lambda _name: None) for names in (
        ("unwrap_compiled", "compile_default"), ("unwrap_compiled", "fold_conv_bn", "compile_default")))
    bare = fold.prediction(replace(here, facts=here.facts.model_copy(update={"already_compiled": False}))).gain
    assert bare is not None and 1.1 < folded / alone <= bare[1] ** 0.5, "the geometric middle of 1.00 to 1.49, of the device's work"
    blind = compiled(shown=CONVOLUTIONAL)
    blind = replace(blind, uncompiled=None)
    assert modelled(blind, ("fold_conv_bn",), lambda _name: None) == pytest.approx(1.01, rel=1e-3), "nothing shows what it would take"


def test_such_a_search_ends_at_once_and_says_why(workload):
    stages = FakeStages({}, operators=3 * ("cudaGraphLaunch",))
    outcome = run(workload, stages)
    assert outcome.kept == () and "can't be changed from outside" in rows(outcome)["compile_default"].reason
    assert set(stages.judged) <= {"no_grad"}
    assert "return the model uncaptured" in outcome.report.read_text()


def test_what_is_graphed_is_improved_from_there(workload):
    stages = FakeStages({"channels_last": 1.5, "channels_last+cuda_graph": 1.5}, operators=("Graphed",), already_graphed=True,
                        uncompiled=("aten::cudnn_convolution", "aten::batch_norm"))
    outcome = run(workload, stages)
    assert "unwrap_compiled" in outcome.kept and "channels_last" in outcome.kept
