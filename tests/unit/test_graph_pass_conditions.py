"""When graph-level passes apply and what they predict, from the profile alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

import builders
from kernelwright.model.capture import ProbeEnvironment
from kernelwright.model.workload import TensorSpec, WorkloadFacts
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.passes.bounds import in_use

MINE = {"fold_linear_bn", "fold_embedding", "sdpa_substitution", "fuse_parallel_linears", "remove_redundant", "sdpa_backend",
        "pad_to_tiles", "fuse_conv_relu", "fuse_linear_activation", "freeze_weights", "remove_redundant_aten", "batch_products",
        "fuse_pooling", "fuse_norms", "split_matmuls"}


def context(*operators: str, device: str = "cuda", **changes: object) -> Context:
    environment = ProbeEnvironment.model_validate({
        "device": device, "device_name": "GPU", "torch_version": "2.11.0", "cuda_version": None, "python_version": "3.12",
        "triton_version": None, "compute_capability": None, "sm_count": None, "l2_bytes": None, "device_memory_bytes": None,
        "cpu_threads": 2, "matmul_tf32": False, "cudnn_tf32": True, "cudnn_benchmark": False})
    facts = WorkloadFacts.model_validate({
        "form": "model", "version": None, "params": {}, "inputs": (TensorSpec(path="", shape=(2, 3), dtype="float32", device=device),),
        "outputs": (), "training": False, "dtype": "float32", "parameter_count": 1, "parameter_bytes": 4, "already_compiled": False,
        **changes})
    profile = builders.gpu_annotation(
        capture_metadata=builders.metadata(dtype="float32", device=device, version=None), parameters={},
        operators=builders.operators(operators, 2, 300_000))
    return Context(facts=facts, environment=environment, profile=profile)


@pytest.mark.parametrize(("operators", "device", "expected"), [
    (("aten::linear", "aten::addmm"), "cpu", {"fuse_parallel_linears", "freeze_weights"}),
    (("aten::linear", "aten::addmm", "aten::gelu"), "cuda",
     {"fuse_parallel_linears", "freeze_weights", "fuse_linear_activation", "pad_to_tiles", "split_matmuls"}),
    (("aten::embedding", "aten::linear"), "cpu", {"fold_embedding", "fuse_parallel_linears", "freeze_weights"}),
    (("aten::bmm", "aten::_softmax"), "cuda", {"sdpa_substitution", "sdpa_backend", "freeze_weights"}),
    (("aten::_scaled_dot_product_efficient_attention",), "cuda", {"sdpa_backend"}),
    (("aten::cudnn_convolution", "aten::batch_norm", "aten::relu"), "cuda", {"fold_linear_bn", "fuse_conv_relu", "freeze_weights"}),
    (("aten::addmm", "aten::batch_norm"), "cpu", {"fold_linear_bn", "fuse_parallel_linears", "freeze_weights"}),
    (("aten::copy_",), "cpu", {"remove_redundant", "remove_redundant_aten"}),
    (("aten::addmm", "aten::addmm"), "cuda",
     {"fuse_parallel_linears", "freeze_weights", "pad_to_tiles", "batch_products", "split_matmuls"}),
    (("aten::relu",), "cuda", set()),
    (("aten::relu_", "aten::max_pool2d_with_indices"), "cpu", {"fuse_pooling"}),
    (("aten::max_pool2d_with_indices",), "cuda", set()),
    (("aten::relu", "aten::avg_pool2d"), "cuda", set()),
    (("aten::native_layer_norm", "aten::add"), "cuda", {"fuse_norms"}),
    (("aten::native_layer_norm", "aten::add"), "cpu", set()),
    (("aten::mean", "aten::rsqrt", "aten::mul"), "cuda", {"fuse_norms"}),
    (("aten::mean", "aten::native_batch_norm"), "cuda", set()),
])
def test_a_pass_applies_where_the_profile_shows_its_operators(operators: tuple[str, ...], device: str, expected: set[str]) -> None:
    given = context(*operators, device=device)
    assert {name for name in MINE if CATALOGUE[name].refusal(given) is None} == expected


def test_none_applies_to_a_training_step_or_to_a_compiled_workload() -> None:
    every = ("aten::linear", "aten::addmm", "aten::addmm", "aten::embedding", "aten::relu", "aten::cudnn_convolution", "aten::copy_",
             "aten::bmm", "aten::_softmax", "aten::batch_norm", "aten::max_pool2d_with_indices",
             "aten::native_group_norm")
    assert all(CATALOGUE[name].refusal(context(*every)) is None for name in MINE)
    assert all(CATALOGUE[name].refusal(context(*every, training=True)) for name in MINE)
    inside = context(*every, already_compiled=True, compiled_inside=True)
    assert all("already compiled" in (CATALOGUE[name].refusal(inside) or "") for name in MINE)


@pytest.mark.parametrize("name", sorted(MINE - {"split_matmuls"}))  # that one moves the tensor cores' share
def test_predictions_hold_no_number_that_the_profile_does_not(name: str) -> None:
    nothing = CATALOGUE[name].predict(context("aten::cumsum"))
    assert "hold 0%" in nothing.words and nothing.gain in (None, (1.0, 1.0))
    given = CATALOGUE[name].predict(context("aten::linear", "aten::relu", "aten::copy_", "aten::batch_norm"))
    assert given.gain is None or given.gain[0] == 1.0 <= given.gain[1]
    assert all(0 <= move.low < move.high <= 1 for move in given.moves)


def test_sizes_that_fit_the_kernels_need_no_padding() -> None:
    plain = context("aten::addmm")
    refusals = []
    for size in (1000, 1003):
        shapes = ((size,), (64, 128), (128, size))
        operators = tuple(item.model_copy(update={"input_shapes": shapes}) for item in plain.profile.operators)
        given = Context(plain.facts, plain.environment, plain.profile.model_copy(update={"operators": operators}))
        refusals.append(CATALOGUE["pad_to_tiles"].refusal(given))
    assert refusals == ["no linear layer's sizes miss the kernels' alignment", None]


@pytest.mark.parametrize(("shapes", "name", "share"), [
    ({"aten::cudnn_convolution": ((2, 8, 6, 6), (4, 8, 1, 1)), "aten::avg_pool2d": ((2, 4, 6, 6),)}, "a 1x1 convolution", "hold 50%"),
    ({"aten::cudnn_convolution": ((2, 8, 6, 6), (4, 8, 3, 3)), "aten::mean": ((2, 4, 6, 6),)}, "a 3x3 convolution", None),
    ({"aten::cudnn_convolution": ((2, 8, 6, 6), (4, 8, 1, 1)), "aten::mean": ((2, 4, 3, 3),)}, "another's result", None),
    ({"aten::add_": ((2, 4, 6, 6), (4,)), "aten::max_pool2d_with_indices": ((2, 4, 6, 6),)}, "a bias", "hold 50%"),
    ({"aten::relu": ((2, 4, 3, 3),), "aten::max_pool2d_with_indices": ((2, 4, 6, 6),)}, "a ReLU behind the pooling", None),
])
def test_what_stands_before_a_pooling_is_told_by_its_shape(shapes: dict[str, object], name: str, share: str | None) -> None:
    plain = context(*shapes)
    operators = tuple(item.model_copy(update={"input_shapes": shapes[item.operator_name]}) for item in plain.profile.operators)
    timed = builders.timeline(1_200_000, 1_200_000)
    given = Context(plain.facts, plain.environment, plain.profile.model_copy(update={"operators": operators, "timeline": timed}))
    refusal = CATALOGUE["fuse_pooling"].refusal(given)
    assert refusal == (None if share else "the profile shows nothing before a pooling that could go behind it"), name
    assert (share or "hold 0%") in CATALOGUE["fuse_pooling"].predict(given).words


def test_what_shortens_the_work_says_by_how_much_the_kernels_get_shorter() -> None:
    plain = context("aten::addmm", "aten::cudnn_convolution", "aten::batch_norm", "aten::relu")
    timed = builders.timeline(4 * 300_000 * 2, 4 * 300_000 * 2)
    given = Context(plain.facts, plain.environment, plain.profile.model_copy(update={"timeline": timed}))
    for name, share in (("fold_conv_bn", 0.25), ("tf32", None), ("bf16", None), ("compile_default", 0.5)):
        made = CATALOGUE[name].prediction(given)
        move = next(one for one in made.moves if one.quantity == "kernel time")
        assert made.gain is not None and made.gain[1] > 1 and (move.low, move.high) == (pytest.approx(1 / made.gain[1]), 0.95), name
        assert share is None or move.low == pytest.approx(1 - share), name
    graph = {move.quantity for move in CATALOGUE["cuda_graph"].prediction(given).moves}
    assert graph == {"idle time", "launches"}, "it leaves the kernels as they are"
    many = context(*["aten::addmm"] * 19, "aten::batch_norm")
    whole = builders.timeline(40 * 300_000, 40 * 300_000)
    small = Context(many.facts, many.environment, many.profile.model_copy(update={"timeline": whole}))
    assert not any(move.quantity == "kernel time" for move in CATALOGUE["fold_conv_bn"].prediction(small).moves), "5% would be noise"
    for shapes, busy in ((((8,), (1, 64), (64, 512)), False), (((8,), (512, 64), (64, 8)), False), (((8,), (512, 64), (64, 512)), True)):
        products = tuple(one.model_copy(update={"input_shapes": shapes}) for one in given.profile.operators)
        shaped = Context(plain.facts, plain.environment, given.profile.model_copy(update={"operators": products}))
        for name in ("tf32", "bf16"):
            quantities = {move.quantity for move in CATALOGUE[name].prediction(shaped).moves}
            assert ("tensor-core share" in quantities) == busy, "products of a few rows or columns leave tensor cores idle"
    narrow = Context(plain.facts, plain.environment.model_copy(update={"matmul_tf32": True}), shaped.profile)
    assert "tensor-core share" not in {move.quantity for move in CATALOGUE["bf16"].prediction(narrow).moves}
    on_cpu = Context(plain.facts, plain.environment.model_copy(update={"device": "cpu"}), given.profile)
    moves = CATALOGUE["fold_conv_bn"].prediction(on_cpu).moves
    assert not any(move.quantity == "kernel time" for move in moves), "the profiler's time is in it"
    quiet = CATALOGUE["freeze_weights"].prediction(given)
    assert quiet.gain is None and [(one.quantity, one.low, one.high) for one in quiet.moves] == [("kernel time", pytest.approx(0.5), 0.95)]
    compiled = Context(plain.facts.model_copy(update={"already_compiled": True}), plain.environment, given.profile)
    assert not CATALOGUE["freeze_weights"].prediction(compiled).moves, "what the compiler left of it is not known"


def test_attention_written_by_hand_is_expected_to_lose_at_most_all_of_it() -> None:
    """KernelBench's minGPT attention in a minute: without a number it waited behind everything that had one, and was not begun."""
    plain = context("aten::bmm", "aten::_softmax", "aten::masked_fill", "aten::addmm")
    timed = plain.profile.model_copy(update={"timeline": builders.timeline(8 * 300_000, 8 * 300_000)})
    made = CATALOGUE["sdpa_substitution"].prediction(Context(plain.facts, plain.environment, timed))
    assert made.gain is not None and 1.0 == made.gain[0] < 2.0 < made.gain[1] <= 4.0 and "hold 75%" in made.words
    within = tuple(one.model_copy(update={"parents": ("aten::_scaled_dot_product_attention_math",)}) for one in timed.operators)
    one_call = CATALOGUE["sdpa_substitution"].prediction(
        Context(plain.facts, plain.environment, timed.model_copy(update={"operators": within})))
    assert "hold 0%" in one_call.words, "it is one call already"
    untimed = Context(plain.facts, plain.environment, plain.profile.model_copy(update={"timeline": None}))
    assert CATALOGUE["sdpa_substitution"].prediction(untimed).gain is None, "without a timeline no share"


LINEAR, WIDE, TABLE = ("aten::linear",), (4, 32, 1024), ((4000, 256), (4, 32))
LOOKED_UP = ("aten::gather", ("aten::embedding", "aten::index_select"), ((4000, 256), (128, 256), (128, 256)))
NORM = ("aten::native_layer_norm", ("aten::layer_norm",), ((4, 32, 256), (256,), (256,)))
UP, DOWN = (("aten::addmm", LINEAR, ((out,), (128, into), (into, out))) for into, out in ((256, 1024), (1024, 256)))
ADDED, GELU = ("aten::add", (), ((4, 32, 256), (4, 32, 256))), ("aten::gelu", (), (WIDE,))
PROJECTION = ("aten::addmm", LINEAR, ((4000,), (128, 256), (256, 4000)))
Calls = list[tuple[str, tuple[str, ...], tuple[tuple[int, ...], ...]]]


@pytest.mark.parametrize(("calls", "gone"), [
    ([LOOKED_UP, NORM, UP, GELU, DOWN, ADDED, PROJECTION], 5),  # the projection is wider than the table
    ([("aten::embedding", (), TABLE), ("aten::view", ("aten::embedding",), ((4, 32),)), NORM,
      ("aten::linear", (), ((4, 32, 256), (1024, 256), (1024,))), ("aten::t", LINEAR, ((1024, 256),)), UP, GELU,
      ("aten::linear", (), (WIDE, (256, 1024), (256,))), DOWN], 7),  # a CPU's: the layer and its parts
    ([LOOKED_UP, ("aten::mm", LINEAR, ((128, 256), (256, 256)))], 1),
    ([LOOKED_UP, UP, GELU], 0),  # never as narrow again
    ([LOOKED_UP, NORM, ("aten::softmax", (), ((4, 32, 256),)), NORM], 1),
    ([LOOKED_UP, ("aten::add", (), ((4, 32, 256), (32, 256))), NORM], 0),  # positions: other rows
    ([LOOKED_UP, ("aten::mul", (), ((4, 32, 256), (256,))), NORM], 2),
    ([LOOKED_UP, ("aten::gelu", (), ((4, 32, 512),))], 0),  # of another tensor
    ([LOOKED_UP, NORM, ("aten::addmm", LINEAR, ((256,), (64, 256), (256, 256)))], 1),  # of half of the rows
    ([LOOKED_UP, LOOKED_UP, NORM], 1),
    ([LOOKED_UP, NORM, ("aten::arange", (), ()), LOOKED_UP, NORM, ADDED], 3),
    ([NORM, UP, DOWN], 0),
    ([("aten::embedding", (), ())], 0),
])
def test_what_a_computed_table_takes_away_is_seen_in_the_calls_after_the_lookup(calls: Calls, gone: int) -> None:
    plain = context(*(name for name, _, _ in calls))
    operators = tuple(item.model_copy(update={"parents": parents, "input_shapes": shapes}) for item, (_, parents, shapes) in zip(
        plain.profile.operators, calls * 2, strict=True))
    timed = builders.timeline(2 * 10 * 300_000, 2 * 10 * 300_000)  # a tenth of a step each
    given = Context(plain.facts, plain.environment, plain.profile.model_copy(update={"operators": operators, "timeline": timed}))
    made = CATALOGUE["fold_embedding"].predict(given)
    assert f"hold {10 * gone}% of the measured time" in made.words
    assert made.gain == (None if gone == 0 else (1.0, pytest.approx(10 / (10 - gone))))
    compiled = replace(given, facts=given.facts.model_copy(update={"already_compiled": True, "compiled_inside": True}))
    assert CATALOGUE["fold_embedding"].predict(compiled).gain is None


def test_a_function_over_weights_is_left_with_its_poolings() -> None:
    given = context("aten::relu_", "aten::max_pool2d_with_indices", form="versions")
    assert CATALOGUE["fuse_pooling"].refusal(given) == "the workload is a function, not a module"


def test_norms_are_fused_where_the_profile_shows_one() -> None:
    mine = CATALOGUE["fuse_norms"]
    assert mine.refusal(context("aten::addmm", "aten::softmax")) == "the profile shows no layer, RMS, group or instance norm"
    assert "CUDA" in (mine.refusal(context("aten::native_layer_norm", device="cpu")) or "")
    assert "hold 33%" in mine.predict(context("aten::native_layer_norm", "aten::addmm")).words
    assert "training" in (mine.refusal(context("aten::native_layer_norm", training=True)) or "")


def test_a_call_gets_no_shorter_than_what_it_must_move_and_compute() -> None:
    """Where all of it can be fused Amdahl sets no limit, and the roofline does."""
    plain = context("aten::mul")

    def gain(**changes: object) -> tuple[float, float] | None:
        whole = plain.profile.operators[0].aggregated.total_duration_ns
        profile = plain.profile.model_copy(update={"timeline": builders.timeline(whole, whole), **changes})
        return CATALOGUE["compile_default"].predict(Context(plain.facts, plain.environment, profile)).gain

    assert gain(roofline=None) is None
    known = {"roofline": builders.roofline("float32"), "work": builders.work()}
    least_ns = max(bound.least_ns for bound in in_use(plain.profile.model_copy(update=known)) if bound is not None)
    assert gain(**known, timing=builders.timing(1e4)) == pytest.approx((1.0, 1e7 / least_ns)) and least_ns < 5e6
    assert gain(**known, timing=builders.timing(0.9 * least_ns / 1e3)) == (1.0, 1.0)
