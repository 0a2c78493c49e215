"""The search on a workload that replays CUDA graphs of its own: those by torch.cuda.make_graphed_callables are taken off, others stay. No
torch."""

from __future__ import annotations

from dataclasses import replace

import pytest

import builders
from kernelwright.optimize.expected import modelled
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.plan import candidate, first_round, refusal
from kernelwright.optimize.recognised import recognised
from kernelwright.optimize.view import always
from optimizing import context, profile_of

PRODUCTS = ("aten::addmm", "aten::native_batch_norm", "aten::addmm")


def graphed(plain_us: float = 3000.0, launches: int = 2, **changes: object) -> Context:
    """A call of 1000 us, one launch to the profiler; without its graph it takes plain_us and runs PRODUCTS."""
    plain = profile_of("cuda", PRODUCTS, timing=builders.timing(plain_us))
    here = context("cuda", ("Graphed",), plain, **{"already_graphed": True, **changes})
    timeline = here.profile.timeline.model_copy(update={"launches": launches, "kernels_total": 30, "idle_share_pct": 0.0})
    return replace(here, profile=here.profile.model_copy(update={"timeline": timeline}))


def captured(operators: tuple[str, ...] = 3 * ("cudaGraphLaunch",), **changes: object) -> Context:
    """A call whose graph the workload captured itself."""
    return context("cuda", operators, **changes)


def test_passes_on_the_model_take_the_graph_off_and_bring_one_of_the_whole_call():
    here = graphed()
    assert candidate(["fold_linear_bn"], here).passes == ("unwrap_compiled", "fold_linear_bn", "compile_default", "cuda_graph", "no_grad")
    assert candidate(["bf16"], here).passes == ("unwrap_compiled", "bf16", "cuda_graph", "no_grad")
    assert candidate(["cuda_graph"], here).passes == ("unwrap_compiled", "cuda_graph", "no_grad")
    assert candidate(["compile_max_autotune"], here).passes == ("unwrap_compiled", "compile_max_autotune", "no_grad"), "it has its own"
    for name in ("tf32", "no_grad", "cudnn_benchmark"):
        assert "unwrap_compiled" not in candidate([name], here).passes, name
    assert all(refusal(candidate([name], here), here) is None for name in ("cuda_graph", "bf16", "compile_default"))


def test_a_ladder_row_is_what_torch_gives():
    here = graphed()
    row = next(item for item in first_round(here, "equal") if item.name == "compile_default")
    assert row.ladder_row and row.passes == ("unwrap_compiled", "compile_default", "no_grad")


@pytest.mark.parametrize("here", [graphed(launches=30), graphed(training=True), replace(graphed(), environment=context("cpu").environment)],
                         ids=["a part of it", "a training step", "no GPU"])
def test_a_graph_of_the_whole_call_comes_only_where_that_can_be_captured(here):
    assert "cuda_graph" not in candidate(["bf16"], here).passes and candidate(["bf16"], here).passes[0] == "unwrap_compiled"


def test_what_a_graph_hides_is_predicted_from_the_recording_without_it():
    here = graphed()
    assert here.runs("aten::addmm") and CATALOGUE["fuse_norms"].prediction(here).gain is not None, "nothing of it is fused yet"
    compiled = context("cuda", ("Torch-Compiled Region: 0/0",), here.uncompiled, already_compiled=True)
    assert CATALOGUE["fuse_norms"].prediction(compiled).gain is None

    def expected(*names: str) -> float:
        return modelled(here, candidate(names, here).passes, lambda _name: None)

    assert expected("unwrap_compiled") == pytest.approx(expected("no_grad") / 3, rel=0.01), "alone it gives up the graph"
    assert expected("compile_default") < 1 < expected("tf32")
    assert always(("unwrap_compiled", "bf16", "cuda_graph", "no_grad")) == ("unwrap_compiled", "cuda_graph", "no_grad")
    assert always(("unwrap_compiled", "bf16", "no_grad")) == ("no_grad",)


def test_the_report_says_what_was_done_with_the_graph():
    assert recognised(graphed())[0].startswith("Already graphed: what torch.cuda.make_graphed_callables made of the model is the original")
    assert recognised(captured())[0].startswith("Already graphed: nearly all of a call") and "return the model uncaptured" in recognised(
        captured())[0]
    part = captured(("cudaGraphLaunch", "cudaGraphLaunch", "aten::addmm"))
    assert recognised(part)[0] == "Already graphed: the workload replays CUDA graphs of its own, so none was made of the whole call."


def test_what_a_graph_of_its_own_holds_is_left_alone_with_the_reason():
    here = captured()
    allowed = {name for name, item in CATALOGUE.items() if item.refusal(here) is None}
    assert all(CATALOGUE[name].dimension == "host" for name in allowed) and "no_grad" in allowed
    assert "can't be changed from outside" in CATALOGUE["bf16"].refusal(here)
    assert "can't be changed from outside" in CATALOGUE["compile_default"].refusal(here)
    part = captured(("cudaGraphLaunch", "cudaGraphLaunch", "aten::addmm"))
    assert CATALOGUE["bf16"].refusal(part) is None and "replays CUDA graphs already" in CATALOGUE["cuda_graph"].refusal(part)
    function = captured(3 * ("Graphed",))
    assert "can't be changed from outside" in CATALOGUE["bf16"].refusal(function), "of a function nothing is kept"
