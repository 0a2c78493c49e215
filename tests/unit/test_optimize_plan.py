"""What the search plans to try: the first round, combinations, and what passes refuse. No torch, no waiting."""

from __future__ import annotations

import pytest

from kernelwright.model.verdict import Experiment
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.plan import LADDER, candidate, compatible, first_round, next_round, refusal
from optimizing import (
    context,
    few_passes,  # noqa: F401 a fixture
    verdict,
)


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


@pytest.mark.parametrize("name", ["aten::addmm", "aten::matmul", "aten::expand", "aten::linalg_vector_norm", "aten::cat"])
def test_products_and_views_are_not_predicted_to_fuse(name):
    assert "hold 0%" in CATALOGUE["compile_default"].predict(context(operators=(name,))).words


@pytest.mark.parametrize("name", ["aten::add", "aten::mul_", "aten::gelu", "aten::native_layer_norm", "aten::_softmax",
                                  "aten::cudnn_batch_norm", "aten::native_layer_norm_backward", "aten::_fused_rms_norm"])
def test_elementwise_operators_and_norms_are_predicted_to_fuse(name):
    assert "hold 0%" not in CATALOGUE["compile_default"].predict(context(operators=(name,))).words


@pytest.mark.parametrize(("names", "fits"), [
    (("cuda_graph", "compile_max_autotune"), False), (("cuda_graph", "compile_default"), True),
    (("compile_default", "compile_max_autotune"), False),
    (("bf16", "bf16_autocast"), False), (("bf16", "channels_last", "cuda_graph"), True)])
def test_passes_that_exclude_each_other_are_never_combined(names, fits):
    assert compatible(names) == fits
