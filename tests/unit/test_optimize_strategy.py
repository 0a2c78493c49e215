"""What may be tried next, with the whole catalogue. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.model.activity import Activity, HostCopy
from kernelwright.model.trial import Screen
from kernelwright.model.verdict import Experiment
from kernelwright.model.workload import GenerationLoop
from kernelwright.optimize import lower_precision, ruled_out, strategy
from kernelwright.optimize.expected import Hope, hope
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.optimize.passes.base import Context, Prediction
from kernelwright.optimize.plan import LADDER, Candidate, candidate, first_round
from kernelwright.optimize.waiting import not_tried
from kernelwright.probe.rewrites import cuda_graph, graphs
from optimizing import CONVOLUTIONAL, context

HERE = context(operators=(*CONVOLUTIONAL, "aten::addmm", "aten::relu", "aten::bmm", "aten::_softmax", "aten::mul"))


def seen(index: int, *passes: str, speedup: float | None, parents: tuple[str, ...] = (), reason: str = "") -> Experiment:
    item = candidate(passes, HERE, parents=parents, dimension=CATALOGUE[passes[-1]].dimension)
    screen = Screen(status="not_applicable", reason=reason)
    if speedup:
        screen = Screen(status="timed", speedup=speedup, interval=(speedup - 0.01, speedup + 0.01), pairs=9, elapsed_s=2.0)
    return Experiment(index=index, name=item.name, passes=item.passes, precision="equal", candidate_file="c", reason=reason,
                      parents=parents, status="screened" if speedup else "not_applicable", screen=screen, dimension=item.dimension,
                      ladder_row=item.name in LADDER)


def proposed(*done: Experiment) -> list[set[str]]:
    return [set(item.passes) for item in strategy.proposals(strategy.View(HERE, "equal", done))]


def test_what_found_nothing_to_change_is_not_tried_again_under_another_compile_mode_or_setting():
    mode = "compile_reduce_overhead"
    done = [seen(1, mode, speedup=1.5), seen(2, "fold_linear_bn", mode, speedup=1.8, parents=(mode,)),
            seen(3, "fold_conv_bn", mode, speedup=1.7, parents=(mode,)),
            seen(4, "inductor_memory_planning", mode, speedup=1.6, parents=(mode,))]
    both = {"fold_linear_bn", "fold_conv_bn"}
    assert {*both, "inductor_memory_planning", mode, "no_grad"} in proposed(*done), "the rescue pool"
    idle = seen(5, "fold_linear_bn", "fold_conv_bn", "compile_default", "cuda_graph", speedup=None,
                reason="found nothing to change in the compiled graphs: fold_linear_bn")
    left = [names for names in proposed(*done, idle) if both <= names]
    beside = [{name for name in names - both if CATALOGUE[name].level in ("module", "functional", "aten")} for names in left]
    assert all(beside), "beside another rewrite it may find something"


def test_the_words_are_those_of_the_rewrite():
    assert f"not applicable: {ruled_out.IDLE}" in Path(graphs.__file__).read_text()


def test_no_pass_for_the_hosts_launches_is_put_on_a_cuda_graph_or_in_its_place():
    """On an H100 it took 54 to 77 s to build and gained nothing: the whole call was one launch."""
    def with_wrapper(*passes: str) -> bool:
        done = [seen(1, *passes, speedup=2.5), seen(2, "compile_default", speedup=1.4)]
        return any("inductor_cpp_wrapper" in names for names in proposed(*done))

    assert with_wrapper("channels_last", "compile_default")
    assert not with_wrapper("compile_default", "cuda_graph") and not with_wrapper("compile_max_autotune")
    gained = [seen(1, "compile_default", speedup=1.4),
              seen(2, "inductor_cpp_wrapper", "compile_default", speedup=1.6, parents=("compile_default",)),
              seen(3, "cuda_graph", speedup=1.3), seen(4, "fold_conv_bn", "compile_default", "cuda_graph", speedup=2.5)]
    assert not any("inductor_cpp_wrapper" in names for names in proposed(*gained)), "nor by the rescue pool"


def test_what_was_of_no_use_on_top_of_the_best_is_not_put_there_by_the_rescue_pool():
    """On an H100 the two libraries were timed once more, under the compiler, for 35 of GPT-2's 120 seconds."""
    best = ("split_products", "cuda_graph")
    done = [seen(1, *best, speedup=3.4), seen(2, "blas_library", speedup=1.3), seen(3, "compile_default", speedup=1.5)]
    assert {*best, "compile_default", "blas_library", "no_grad"} in proposed(*done)
    done.append(seen(4, *best, "blas_library", speedup=None, parents=("split_products+cuda_graph",), reason="neither library is faster"))
    assert not any({*best, "blas_library"} < names for names in proposed(*done))
    assert {*best, "compile_default", "no_grad"} in proposed(*done)


def test_what_found_nothing_in_the_graphs_of_the_best_is_put_there_by_the_rescue_pool_beside_another_rewrite():
    best, mode = ("compile_default", "cuda_graph"), "compile_reduce_overhead"
    done = [seen(1, *best, speedup=3.0), seen(2, mode, speedup=1.5), seen(3, "fuse_conv_relu", mode, speedup=1.7, parents=(mode,)),
            seen(4, "fold_conv_bn", speedup=1.2), seen(5, *best, "fuse_conv_relu", speedup=None, parents=("+".join(best),),
                                                       reason=f"{ruled_out.IDLE}: fuse_conv_relu")]
    found = strategy._rescues(strategy.View(HERE, "equal", done))
    assert {*best, "fold_conv_bn", "fuse_conv_relu", "no_grad"} in [set(item.passes) for item in found]


def test_what_does_not_apply_beside_a_pass_that_measures_is_tried_without_it():
    """Attention on an H200: under the compiler neither BLAS library was faster, and what went with it was not tried there alone."""
    split, best = ("split_products", "cuda_graph"), ("split_products", "blas_library", "cuda_graph")
    done = [seen(1, "cuda_graph", speedup=1.25), seen(2, *split, speedup=2.6, parents=("cuda_graph",)),
            seen(3, "blas_library", speedup=1.1), seen(4, "compile_default", speedup=1.3),
            seen(5, *best, speedup=2.8, parents=("split_products+cuda_graph",))]

    def without(*rows: Experiment, less: str = "blas_library") -> bool:
        found = strategy._relieved(strategy.View(HERE, "equal", rows), "equal")
        return [set(item.passes) for item in found] == [{*best, "compile_default", "no_grad"} - {less}]

    refused = seen(6, *best, "compile_default", speedup=None, parents=(done[-1].name,), reason="neither library is 3% faster")
    assert not without(*done) and without(*done, refused)
    assert not without(*done, refused.model_copy(update={"reason": f"{ruled_out.IDLE}: blas_library"})), "that is known otherwise"
    assert not without(*(row for row in done if "compile_default" not in row.passes), refused), "it may be the compiler"
    again = seen(7, *split, "compile_default", speedup=None, parents=(done[-1].name,), reason="no product is faster")
    found = strategy._relieved(strategy.View(HERE, "equal", [*done, refused, again]), "equal")
    assert [set(item.passes) for item in found] == [{"cuda_graph", "compile_default", "no_grad"}], "then without the next"


def test_another_capture_may_take_the_place_of_the_compilers_cuda_graphs():
    done = [seen(1, "compile_default", speedup=1.4), seen(2, "compile_reduce_overhead", speedup=2.0)]
    assert any("piecewise_graphs" in names for names in proposed(*done))


def test_settings_that_a_rewrite_is_measured_against_make_it_another_trial():
    done = [seen(1, "fuse_conv_relu", "compile_default", speedup=None, reason=f"{ruled_out.IDLE}: fuse_conv_relu")]

    def is_open(*names: str) -> bool:
        return bool(ruled_out.still_open(strategy.View(HERE, "equal", done), [candidate(["fuse_conv_relu", *names], HERE)]))

    assert not is_open("compile_default", "cuda_graph") and not is_open("inductor_memory_planning", "compile_reduce_overhead")
    assert is_open("compile_default", "cudnn_benchmark") and is_open("compile_default", "fold_conv_bn")


OPENED = [(name, opener) for name in ("fuse_conv_relu", "fuse_linear_activation", "sdpa_backend")
          for opener in sorted(CATALOGUE[name].opened_by)]


def idle_row(index: int, *passes: str, idle: str, parents: tuple[str, ...] = ()) -> Experiment:
    return seen(index, *passes, speedup=None, parents=parents, reason=f"{ruled_out.IDLE}: {idle}")


@pytest.mark.parametrize("base", ["compile_default", "compile_reduce_overhead", "compile_default+cuda_graph",
                                  "inductor_memory_planning+compile_default"])
@pytest.mark.parametrize(("name", "opener"), OPENED)
def test_what_found_nothing_is_tried_with_what_brings_it_together(name, opener, base):
    """A convolution and its ReLU with a batch norm between them, which gained nothing by being folded away alone."""
    first = [seen(1, "cuda_graph", speedup=1.2)] if "cuda_graph" in base else []
    best = seen(2, *base.split("+"), speedup=2.3)
    done = [*first, best, idle_row(4, name, *base.split("+"), idle=name, parents=(best.name,))]
    without = seen(3, opener, *base.split("+"), speedup=2.28, parents=(best.name,))
    wanted = {opener, name, *base.split("+"), "no_grad"}
    assert wanted in proposed(*done) and wanted in proposed(*done, without)
    idle = idle_row(3, opener, *base.split("+"), idle=opener, parents=(best.name,))
    assert wanted not in proposed(*done, idle), "what changes nothing there brings nothing together"
    again = [idle_row(5 + place, one, name, *base.split("+"), idle=name, parents=(best.name,))
             for place, one in enumerate(sorted(CATALOGUE[name].opened_by))]
    assert not any(names - {"cuda_graph"} == wanted - {"cuda_graph"} for names in proposed(*done, *again)), "nor is that tried twice"


def test_what_was_idle_alone_or_in_a_graph_is_not_given_up_before_its_openers_were_beside_it():
    alone = idle_row(2, "fuse_conv_relu", "compile_default", idle="fuse_conv_relu")
    done = [seen(1, "compile_default", speedup=1.5), alone]
    assert any({"fold_conv_bn", "fuse_conv_relu"} <= names for names in proposed(*done))
    twice = [idle_row(3 + place, opener, "fuse_conv_relu", "compile_default", idle="fuse_conv_relu", parents=("compile_default",))
             for place, opener in enumerate(("fold_conv_bn", "fold_linear_bn"))]
    assert not any("fuse_conv_relu" in names for names in proposed(*done, *twice)), "two of them brought nothing together"


@pytest.mark.parametrize("gone", ["wrong", "not_applicable"])
def test_what_has_nothing_to_bring_it_together_is_refuted(gone):
    opener = seen(3, "fold_linear_bn", "compile_default", "cuda_graph", speedup=None, parents=("cuda_graph",),
                  reason=f"{ruled_out.IDLE}: fold_linear_bn")
    opener = opener.model_copy(update={"status": "screened" if gone == "wrong" else gone, "screen": Screen(status=gone)})
    other = opener.model_copy(update={"name": "fold_linear_bn+compile_default", "passes": ("fold_linear_bn", "compile_default", "no_grad"),
                                      "parents": ("compile_default",)})
    done = [seen(1, "cuda_graph", speedup=1.2), seen(2, "compile_default", speedup=1.1), opener, other,
            idle_row(4, "fuse_linear_activation", "compile_default", "cuda_graph", idle="fuse_linear_activation", parents=("cuda_graph",))]
    assert not any("fuse_linear_activation" in names for names in proposed(*done))


def test_an_opener_that_does_not_apply_brings_nothing_together():
    here = context(operators=("aten::addmm", "aten::relu"))
    done = [seen(1, "cuda_graph", speedup=1.2), seen(2, "compile_default", "cuda_graph", speedup=1.3, parents=("cuda_graph",)),
            idle_row(3, "fuse_linear_activation", "compile_default", "cuda_graph", idle="fuse_linear_activation", parents=("cuda_graph",))]
    names = [set(item.passes) for item in strategy.proposals(strategy.View(here, "equal", done))]
    assert CATALOGUE["fold_linear_bn"].refusal(here) and not any("fuse_linear_activation" in one for one in names)


def test_every_pass_that_opens_another_is_one():
    assert dict(OPENED).keys() == {item.name for item in CATALOGUE.values() if item.opened_by}
    assert CATALOGUE["fuse_conv_relu"].opened_by == {"fold_conv_bn", "fold_linear_bn", "few_channel_convolutions"}
    for item in CATALOGUE.values():
        assert item.opened_by <= CATALOGUE.keys() and item.name not in item.opened_by
        assert not any(CATALOGUE[name].opened_by for name in item.opened_by), "asking one for the other would not end"


@pytest.mark.parametrize(("device", "gain", "compiler", "first"), [
    ("cpu", 1.4, 1.03, "fold_embedding+compile_default"),
    ("cpu", 1.4, 1.5, "compile_default"),  # the compiler is expected to give more by itself
    ("cpu", 1.04, 1.03, "compile_default"),
    ("cuda", 1.4, 1.03, "compile_default"),  # its compilations take seconds, and others go on beside the timing
])
def test_without_a_gpu_what_is_expected_to_outdo_the_compiler_that_it_needs_comes_with_it_at_once(monkeypatch, device, gain, compiler,
                                                                                                 first):
    """The embedding example on two cores in 60 s: the compiler alone, 1.05x, was screened and judged, and nothing fitted after that."""
    for name, most in (("fold_embedding", gain), ("compile_default", compiler)):
        said = Prediction(f"{name} says so", (most, most))
        monkeypatch.setitem(CATALOGUE, name, replace(CATALOGUE[name], predict=lambda _, said=said: said))
    here = context(device, operators=("aten::embedding", "aten::addmm"))
    done = [seen(1, "no_grad", speedup=1.0)]
    view = strategy.View(here, "equal", done)
    compiled = {"fold_embedding+compile_default", "compile_default"}
    assert strategy.next_candidate(view, lambda item: item.name in compiled).name == first
    after = [*done, seen(2, *first.split("+"), speedup=1.01)]
    left = strategy.next_candidate(strategy.View(here, "equal", after), lambda item: item.name in compiled)
    assert left.name == (compiled - {first}).pop(), "the other comes next"


WAITS = Activity(synchronization_count=2, host_copies=(HostCopy(direction="HtoD", memory="pageable", count=1, bytes=8, duration_ns=9),))
"""A model that reads a value on the host and copies a table of its own from there."""


def after(*done: Experiment, activity: Activity | None = WAITS) -> strategy.View:
    idle = HERE.profile.timeline.model_copy(update={"activity": activity, "idle_share_pct": 70.0})
    return strategy.View(replace(HERE, profile=HERE.profile.model_copy(update={"timeline": idle})), "equal", done)


def captures(view: strategy.View) -> list[set[str]]:
    return [set(item.passes) - {"no_grad", "cuda_graph"} for item in strategy.proposals(view) if "cuda_graph" in item.passes
            and {"remove_syncs", "resident_constants"} & set(item.passes)]


REFUSED = seen(1, "cuda_graph", speedup=None, reason="not applicable: the call can't be captured (CUDA error)")


def test_a_call_that_cannot_be_captured_is_captured_without_what_is_in_the_way():
    """On an H200 a model with an .item() and a table on the host spent its minute on the compiler; no pass for it was tried."""
    both = {"remove_syncs", "resident_constants"}
    assert captures(after(REFUSED)) == [both], "all at once"
    assert strategy.next_candidate(after(REFUSED), lambda item: True).name == "remove_syncs+resident_constants+cuda_graph", "at once"
    refused = seen(2, *both, "cuda_graph", speedup=None, reason="the model copies no tensor of its own from the host")
    assert captures(after(REFUSED, refused)) == [{"remove_syncs"}, {"resident_constants"}], "then one of them"
    on_top = captures(after(REFUSED, refused, seen(3, "remove_syncs", "cuda_graph", speedup=2.0)))
    assert {"resident_constants"} not in on_top and {"remove_syncs", "compile_default"} in on_top, "what was captured is gone on from"
    freed, ahead = seen(3, "remove_syncs", "cuda_graph", speedup=2.0), seen(4, "compile_default", speedup=3.0)
    view = after(REFUSED, refused, freed, ahead)
    assert {"remove_syncs", "compile_default"} in captures(view)
    graphs = [set(item.passes) for item in strategy.proposals(view) if "cuda_graph" in item.passes]
    assert len(graphs) > 2 and all("remove_syncs" in names for names in graphs), "each without what was in the way"
    compiled = seen(4, "compile_default", "cuda_graph", speedup=2.0)
    assert both in captures(after(REFUSED, compiled)), "what the compiler takes out of the way is none of theirs"


def test_casts_are_tried_in_the_graph_that_was_captured_without_what_was_in_the_way():
    freed = seen(2, "remove_syncs", "resident_constants", "cuda_graph", speedup=3.0)
    for level in ("tf32", "bf16"):
        view = replace(after(REFUSED, freed), precision=level)
        found = strategy.next_candidate(view, lambda item: True)
        assert {"remove_syncs", "resident_constants", "cuda_graph"} < set(found.passes) and found.precision == level, found.name
    assert not lower_precision.casts_in_graph(replace(after(REFUSED), precision="bf16"))


def test_a_graph_that_something_else_kept_from_being_captured_is_given_up():
    odd = seen(1, "cuda_graph", speedup=None, reason="not applicable: the call changes its inputs in place")
    assert captures(after(odd)) == [] and ruled_out.UNCAPTURED in Path(cuda_graph.__file__).read_text()


def test_a_capture_without_obstacles_is_held_against_the_best_so_far():
    ahead = seen(2, "compile_default", speedup=20.0)
    assert [one for one in captures(after(REFUSED, ahead)) if one == {"remove_syncs", "resident_constants"}]
    (freed,) = [item for item in strategy.proposals(after(REFUSED, ahead)) if item.name == "remove_syncs+resident_constants+cuda_graph"]
    assert hope(after(REFUSED, ahead), freed).ratio < 0.2 and hope(after(REFUSED), freed).ratio > 1.5


def test_no_obstacle_is_looked_for_where_the_call_is_captured_or_none_is_in_the_profile():
    assert captures(after(seen(1, "cuda_graph", speedup=1.4))) == [] == captures(after()), "as it is, or not known yet"
    assert captures(after(REFUSED, activity=Activity())) == []
    alone = seen(2, "remove_syncs", speedup=None, reason="no wait of the host that the result does not need")
    assert captures(after(REFUSED, alone)) == [{"resident_constants"}], "what found nothing alone is none"


def test_a_pass_that_was_tried_on_top_of_another_was_begun():
    """A search that ended by itself after a quarter of its budget said of five passes that a screen takes 6 s, and that 418 s are left."""
    late = seen(3, "freeze_weights", "inductor_fuse_more", "compile_default", speedup=1.2).model_copy(update={"status": "out_of_budget"})
    idle = seen(4, "freeze_weights", "fuse_linear_activation", "compile_default", speedup=None, reason=ruled_out.IDLE)
    view = strategy.View(HERE, "equal", [seen(1, "freeze_weights", "direct_calls", "compile_default", speedup=1.3), late, idle,
                                         seen(5, "compile_reduce_overhead", speedup=1.1)])
    left = {item.name for item in not_tried(view, first_round(HERE, "equal"))}
    assert not {"direct_calls+compile_default", "freeze_weights+compile_default", "fuse_linear_activation+compile_default",
                "compile_default", "compile_reduce_overhead"} & left
    assert {"inductor_fuse_more+compile_default", "compile_max_autotune", "cuda_graph", "fuse_norms+compile_default"} <= left


def idling(**changes: object) -> Context:
    """The device waits 90% of a call."""
    here = context(operators=("aten::addmm", "aten::layer_norm", "aten::mul"), **changes)
    timeline = here.profile.timeline.model_copy(update={"idle_share_pct": 90.0})
    return replace(here, profile=here.profile.model_copy(update={"timeline": timeline}))


GRAPHS_OF_SIZES = {"compile_reduce_overhead", "compile_max_autotune", "piecewise_graphs"}


def of_sizes(items: Iterable[Candidate]) -> list[str]:
    return [item.name for item in items if GRAPHS_OF_SIZES & set(item.passes)]


def test_in_a_generation_loop_that_grows_a_graph_for_each_size_comes_after_one_of_the_whole_call():
    """On an H200, after two small workloads that compiled quickly, it took 35 of a loop's 60 seconds, and nothing was kept."""
    quick = {"compile": 0.5, "cheap": 3.0}
    loop = GenerationLoop(module="decoder", calls=24, grows=(1, 24), reads=0)

    def view(*done: Experiment, **changes: object) -> strategy.View:
        return strategy.View(idling(**changes), "equal", done, costs=quick)

    def next_of(where: strategy.View) -> str:
        return strategy.next_candidate(where, lambda _: True).name

    assert next_of(view()) in GRAPHS_OF_SIZES and of_sizes(strategy.upcoming(view(), 9))
    same_size = loop.model_copy(update={"grows": None})
    assert next_of(view(loop=same_size)) in GRAPHS_OF_SIZES
    assert next_of(view(loop=loop)) == "cuda_graph" and not of_sizes(strategy.upcoming(view(loop=loop), 99))
    assert of_sizes(strategy.proposals(view(loop=loop))), "it is not given up"
    failed = seen(1, "cuda_graph", speedup=None, reason="the call can't be captured")
    assert next_of(view(failed, loop=loop)) in GRAPHS_OF_SIZES
    slow = seen(1, "cuda_graph", speedup=1.01)
    assert of_sizes(strategy.upcoming(view(slow, loop=loop), 99))


@pytest.mark.parametrize(("ratio", "first"), [(1.03, "step"), (1.0, "ladder"), (0.9, "ladder")])
def test_of_one_dimension_what_is_expected_to_gain_comes_before_the_ladders_rows(monkeypatch, ratio, first):
    """On an H200 the embedding example's search at bfloat16 ended at 6.87x, in front of a fold with which it had found 8.69x."""
    done = [seen(index, *passes, speedup=speed).model_copy(update={"precision": level}) for index, (passes, speed, level) in enumerate([
        (("no_grad",), 1.0, "equal"), (("fold_conv_bn",), 1.1, "equal"), (("compile_default",), 1.1, "equal"), (("tf32",), 2.0, "tf32"),
        (("channels_last", "compile_default", "tf32"), 3.0, "tf32")], start=1)]
    folds = {"fold_conv_bn", "channels_last", "compile_default", "tf32", "no_grad"}
    monkeypatch.setattr(strategy, "hope", lambda _view, item: Hope(1.0, *(
        (ratio, ratio - 1.0) if set(item.passes) == folds else (0.8, -0.5) if item.ladder_row else (0.7, -0.3))))
    monkeypatch.setattr(strategy, "_order", lambda *_given: ["fusion"])
    monkeypatch.setattr(strategy, "_lower_compiled", lambda *_given: [])
    chosen = strategy.next_candidate(strategy.View(HERE, "tf32", done), lambda item: item.ladder_row or set(item.passes) == folds)
    assert (set(chosen.passes) == folds, chosen.ladder_row) == (first == "step", first == "ladder"), chosen.name
