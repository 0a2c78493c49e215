"""What passes see of a workload that is compiled already: one model, recorded on an H200 as it is, compiled, and under the compiler's CUDA
graphs, where the timeline holds a region's name and kernels alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import builders
from kernelwright.model.profile import Profile
from kernelwright.optimize import strategy
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.passes.conditions import PRODUCTS, replays_graphs
from kernelwright.optimize.plan import candidate, refusal
from kernelwright.optimize.view import View
from kernelwright.pipeline.recorded import Recorded
from kernelwright.pipeline.timeline_part import with_timeline
from kernelwright.readers.kineto import read_kineto
from optimizing import environment, facts

TRACES = Path(__file__).parents[1] / "data" / "traces"
COMPILED = ("compiled", "reduce_overhead")


@cache
def recorded(name: str) -> Profile:
    draft = builders.gpu_annotation(capture_metadata=builders.metadata(dtype="float32", device="cuda", version=None), parameters={},
                                    operators=(), timing=None)
    return with_timeline(draft, Recorded(read_kineto(TRACES / f"h200_mlp_{name}" / "trace.json.gz"), None, ()))


def context(name: str, uncompiled: bool = True) -> Context:
    """The model as it is is "inference"."""
    compiled = name in COMPILED
    return Context(facts=facts(already_compiled=compiled), environment=environment(sm_count=132, compute_capability="9.0"),
                   profile=recorded(name), uncompiled=recorded("inference") if compiled and uncompiled else None)


def applicable(given: Context) -> set[str]:
    """Passes whose candidate, with all that comes along, is not refused."""
    return {name for name in CATALOGUE if refusal(candidate([name], given), given) is None}


@pytest.mark.parametrize("name", COMPILED)
def test_every_pass_that_applies_to_the_model_applies_to_it_compiled(name: str) -> None:
    plain, compiled = applicable(context("inference")), applicable(context(name))
    assert plain >= {"split_products", "freeze_weights", "fuse_parallel_linears", "fuse_linear_activation", "cuda_graph"}
    # Norms hold 4% of the model's time, and more of the compiled call's, which is shorter.
    assert compiled - plain == {"unwrap_compiled", "inductor_cooperative_reductions", "inductor_multi_kernel"} and compiled >= plain


@pytest.mark.parametrize(("launches", "replays"), [(100, False), (98, False), (60, True), (1, True)])
def test_a_recording_that_lost_a_launch_call_replays_no_graph(launches: int, replays: bool) -> None:
    given = context("inference")
    timeline = given.profile.timeline.model_copy(update={"launches": launches, "kernels_total": 100})
    profile = given.profile.model_copy(update={"timeline": timeline})
    assert replays_graphs(Context(facts=given.facts, environment=given.environment, profile=profile)) is replays


@pytest.mark.parametrize("name", COMPILED)
def test_passes_on_the_model_get_it_without_torch_compile_and_bring_the_compiler_along(name: str) -> None:
    given = context(name)
    for item in CATALOGUE.values():
        made = candidate([item.name], given).passes
        alone = item.around_any or item.name == "unwrap_compiled" or (item.name == "cuda_graph" and not replays_graphs(given))
        compiles = any(CATALOGUE[one].carrier for one in made)
        assert ("unwrap_compiled" in made) == (not alone or item.name == "unwrap_compiled"), item.name
        assert compiles == (not alone and item.name not in ("side_streams", "piecewise_graphs")), item.name
    assert candidate(["split_products", "cuda_graph"], given).passes == (
        "unwrap_compiled", "split_products", "compile_default", "cuda_graph", "no_grad")


def test_a_graph_is_captured_around_compiled_code_but_not_around_code_that_replays_graphs() -> None:
    assert not replays_graphs(context("inference")) and not replays_graphs(context("compiled"))
    assert candidate(["cuda_graph"], context("compiled")).passes == ("cuda_graph", "no_grad")
    assert replays_graphs(context("reduce_overhead"))
    assert candidate(["cuda_graph"], context("reduce_overhead")).passes == ("unwrap_compiled", "compile_default", "cuda_graph", "no_grad")
    assert candidate(["tf32"], context("reduce_overhead")).passes == ("tf32", "no_grad")


@pytest.mark.parametrize("name", COMPILED)
def test_shares_are_what_the_operators_take_uncompiled_of_the_compiled_calls_time(name: str) -> None:
    given, plain, own = context(name), recorded("inference"), recorded(name)
    norms_ns = sum(item.aggregated.total_duration_ns for item in plain.operators if item.operator_name == "aten::native_layer_norm")
    assert plain.timeline.steps == own.timeline.steps
    assert given.share_pct("aten::native_layer_norm") == pytest.approx(100 * norms_ns / own.timeline.measured_ns)
    assert given.share_pct(*PRODUCTS) == 100.0, "uncompiled they take longer than the whole compiled call: no share is above all"
    said = CATALOGUE["split_products"].prediction(given)
    assert said.words == "float32 products hold 100% of the compiled call's time at most, by a recording without it"
    assert said.gain == (1.0, 4.0) and [move.quantity for move in said.moves] == ["tensor-core share", "kernel time"]


@pytest.mark.parametrize("name", COMPILED)
def test_nothing_is_predicted_that_the_workloads_own_compiler_may_have_done(name: str) -> None:
    plain, given = context("inference"), context(name)
    for one in ("fuse_linear_activation", "fold_linear_bn", "inductor_fuse_more", "compile_default"):
        assert CATALOGUE[one].prediction(plain).gain is not None and CATALOGUE[one].prediction(given).gain is None, one
    moves = {move.quantity for item in CATALOGUE.values() for move in item.prediction(given).moves}
    assert not moves & {"kernels", "DRAM bytes"}, "of compiled code they are not those of the model"


def test_the_search_on_a_captured_region_begins_with_what_its_products_promise() -> None:
    """Without the recording nothing but the region's idle time promises anything."""
    first, blind = (strategy.next_candidate(View(context("reduce_overhead", uncompiled), "equal", []), lambda _item: True)
                    for uncompiled in (True, False))
    assert first is not None and first.passes == ("unwrap_compiled", "split_products", "compile_default", "cuda_graph", "no_grad")
    assert blind is not None and "split_products" not in blind.passes


def test_without_that_recording_names_are_what_is_fused_and_no_share_is_made_up() -> None:
    given = context("reduce_overhead", uncompiled=False)
    assert {item.operator_name for item in given.profile.operators} == {"Torch-Compiled Region: 0/0", "aten::_foreach_copy_"}
    assert given.runs("aten::addmm") and not given.runs("aten::lstm")
    assert {"split_products", "freeze_weights", "fuse_linear_activation"} <= applicable(given)
    assert "persistent_lstm" not in applicable(given)
    said = CATALOGUE["split_products"].prediction(given)
    assert said.gain is None and said.words == "float32 products: share not measured"
