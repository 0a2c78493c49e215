"""When the runtime and Inductor passes apply, and what they predict, from profiles made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch._inductor

import builders
from kernelwright.model.activity import Activity, HostCopy, Synchronization
from kernelwright.model.capture import ProbeEnvironment
from kernelwright.model.profile import MemoryUse
from kernelwright.model.workload import TensorSpec, WorkloadFacts
from kernelwright.optimize.expected import modelled
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.passes.base import GRAPH_LEVELS
from kernelwright.optimize.passes.conditions import loading_share
from kernelwright.optimize.passes.shares import half_empty_pct, less_waiting
from kernelwright.optimize.plan import compatible
from kernelwright.probe import rewrites

INDUCTOR = sorted(name for name, item in CATALOGUE.items() if name.startswith("inductor_"))
RELU, MATMUL, LSTM = "aten::relu", "aten::mm", "aten::_cudnn_rnn"


def context(
    *names: str, device: str = "cuda", shapes: tuple[tuple[int, ...], ...] = (), grid: tuple[int, int, int] | None = None,
    activity: Activity | None = None, allocated: int | None = None, peak: int = 0, capability: str = "9.0", **facts: object,
) -> Context:
    on_cpu = device == "cpu"
    operators = tuple(
        operator.model_copy(update={"input_shapes": shapes, "kernels": (operator.kernels[0].model_copy(update={"grid": grid}),)})
        for operator in builders.operators(names, 2, 300_000, on_cpu=on_cpu))
    measured = sum(operator.aggregated.total_duration_ns for operator in operators)
    timeline = builders.timeline(measured, measured, on_cpu=on_cpu, kernels=len(operators)).model_copy(update={"activity": activity})
    memory = () if allocated is None else (MemoryUse(
        device="cpu", complete=False, start_bytes=0, peak_bytes=peak + (1 << 20), peak_ns=0, peak_step=0, end_bytes=0,
        before_bytes=1 << 20, owners=(),
        allocations=1, allocated_bytes=allocated, timeline=()),)
    profile = builders.gpu_annotation(operators=operators, unattributed_kernels=(), timeline=timeline, timing=None, memory=memory)
    environment = ProbeEnvironment(
        device=device, device_name="a device", torch_version="2.13.0", cuda_version=None, python_version="3.12", triton_version=None,
        compute_capability=None if on_cpu else capability, sm_count=None if on_cpu else 132, l2_bytes=None, device_memory_bytes=None,
        cpu_threads=2, matmul_tf32=False, cudnn_tf32=True, cudnn_benchmark=False)
    known = {"form": "model", "version": None, "params": {}, "outputs": (), "training": False, "dtype": "float32", "parameter_count": 1,
             "parameter_bytes": 4, "already_compiled": False, "inputs": (TensorSpec(path="", shape=(2,), dtype="float32", device=device),)}
    return Context(facts=WorkloadFacts.model_validate({**known, **facts}), environment=environment, profile=profile)


def why_not(name: str, about: Context) -> str | None:
    return CATALOGUE[name].refusal(about)


def waits(idle_ns: int = 0) -> Activity:
    row = Synchronization(call="cudaStreamSynchronize", operators=("aten::item",), count=2, wait_ns=1000, idle_ns=idle_ns)
    return Activity(synchronization_count=2, synchronization_wait_ns=1000, synchronization_idle_ns=idle_ns, synchronizations=(row,))


def uploads(duration_ns: int) -> Activity:
    return Activity(host_copies=(HostCopy(direction="HtoD", memory="pageable", count=2, bytes=8, duration_ns=duration_ns),))


def test_streams_pay_where_kernels_leave_room() -> None:
    small, large = context(MATMUL, RELU, grid=(16, 1, 1)), context(MATMUL, RELU, grid=(64, 4, 1))
    assert half_empty_pct(small) == 100 and half_empty_pct(large) == 0 and half_empty_pct(context(MATMUL)) is None
    assert why_not("side_streams", small) is None and why_not("side_streams", context(MATMUL)) is None
    assert why_not("side_streams", large) == "kernels that leave multiprocessors free hold 0% of the measured time"
    assert CATALOGUE["side_streams"].predict(small).gain == (1.0, 4.0), "at most four streams' worth"
    assert CATALOGUE["side_streams"].predict(context(MATMUL)).gain is None


def test_a_training_step_and_a_call_have_a_capture_each() -> None:
    training, call = context(MATMUL, training=True), context(MATMUL)
    assert why_not("graphed_training", training) is None and why_not("cuda_graph", training) is not None
    assert why_not("cuda_graph", call) is None and "no training step" in str(why_not("graphed_training", call))
    assert not compatible(("graphed_training", "compile_reduce_overhead"))


def test_waits_and_copies_are_taken_from_the_profile() -> None:
    for name in ("remove_syncs", "resident_constants", "pinned_copies"):
        assert why_not(name, context(MATMUL)) is None, "not recorded: it may be"
        assert "the profile shows no" in str(why_not(name, context(MATMUL, activity=Activity())))
    assert why_not("remove_syncs", context(MATMUL, activity=waits())) is None
    half = context(MATMUL, activity=waits(idle_ns=333_333))
    prediction = CATALOGUE["remove_syncs"].predict(half)
    assert prediction.gain == pytest.approx((1.0, 2.0), rel=0.01) and prediction.moves[0].quantity == "idle time"
    copies = context(MATMUL, activity=uploads(333_333))
    assert why_not("pinned_copies", copies) is None
    assert CATALOGUE["pinned_copies"].predict(copies).gain == pytest.approx((1.0, 2.0), rel=0.01)
    assert not compatible(("pinned_copies", "resident_constants"))


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_workers_load_where_the_call_waits_for_a_loader(device: str) -> None:
    loads = context(MATMUL, device=device, activity=Activity(data_loader_wait_ns=400_000, data_loader_idle_ns=300_000))
    assert why_not("loader_workers", loads) is None
    assert CATALOGUE["loader_workers"].predict(loads).gain == pytest.approx((1.0, 2.0), rel=0.2)
    mostly = context(MATMUL, device=device, activity=Activity(data_loader_wait_ns=500_000, data_loader_idle_ns=500_000))
    assert CATALOGUE["loader_workers"].predict(mostly).gain == pytest.approx(
        (1.0, {"cuda": 4.0, "cpu": 4.8}[device]), rel=0.02), "four workers load all the time"
    idle = [move for move in CATALOGUE["loader_workers"].predict(mostly).moves if move.quantity == "idle time"]
    assert [(move.low, round(move.high, 2)) for move in idle] == ([(0.0, 0.9)] if device == "cuda" else []), "a tenth of the waiting"
    hidden = context(MATMUL, device=device, activity=Activity(data_loader_wait_ns=400_000))
    assert why_not("loader_workers", hidden) == "waits for a DataLoader hold 0% of the measured time"
    assert why_not("loader_workers", context(MATMUL, device=device)) == "the profile shows no DataLoader inside a call"


def half_idle(**of_loaders: int) -> Context:
    """A call whose device stands by for half of its time, 1.2 ms in two steps."""
    made = context(MATMUL, activity=Activity(**of_loaders))
    timeline = made.profile.timeline.model_copy(update={"idle_share_pct": 50.0, "span_ns": 2 * made.profile.timeline.busy_ns})
    return replace(made, profile=made.profile.model_copy(update={"timeline": timeline}))


def test_of_a_compiled_workload_it_is_not_said_how_its_idle_time_moves() -> None:
    """The waiting is of the model without its compiler, the idle time of the call with it."""
    half = half_idle(data_loader_wait_ns=400_000, data_loader_idle_ns=300_000)
    assert less_waiting(half, 25.0) and not less_waiting(replace(half, uncompiled=half.profile), 25.0)


def test_waiting_for_a_loader_is_none_that_a_graph_or_fewer_launches_take() -> None:
    free, half = half_idle(), half_idle(data_loader_wait_ns=400_000, data_loader_idle_ns=300_000)
    assert loading_share(free) == 0 and loading_share(half) == pytest.approx(0.25)
    for name in ("cuda_graph", "piecewise_graphs", "compile_reduce_overhead"):
        both = [CATALOGUE[name].predict(one) for one in (free, half)]
        assert [one.gain[1] for one in both] == pytest.approx([2.0, 1 / 0.75], rel=0.01), name
        assert "25% for a DataLoader" in both[1].words and "DataLoader" not in both[0].words
        assert [next(move.high for move in one.moves if move.quantity == "idle time") for one in both] == pytest.approx([0.5, 0.75]), \
            "the loader's half of it stays"
    graphs, workers = ([modelled(one, [name], lambda _name: None) for one in (free, half)] for name in ("cuda_graph", "loader_workers"))
    assert graphs == pytest.approx([1 / 0.65, 1 / (0.5 + 0.25 + 0.3 * 0.25)], rel=0.01)
    assert workers == pytest.approx([1.01, 1 / (0.75 + 0.25 - 0.134)], rel=0.01), "a call takes as long as what does not wait, at best"
    shown = {"loader_workers": 1.25, "split_products": 2.0}.get
    assert modelled(half, ["loader_workers"], shown) == pytest.approx(1 / (0.75 + 0.25 - 0.2), rel=0.01), "as a trial has shown"
    assert modelled(half, ["loader_workers", "split_products"], shown) == pytest.approx(1 / (0.25 + 0.25 + 0.05), rel=0.01)
    both = modelled(half, ["cuda_graph", "loader_workers"], lambda _name: None)
    assert both == pytest.approx(1 / (0.5 + 0.25 - 0.134 + 0.3 * 0.25), rel=0.01)


def test_pieces_are_captured_only_where_the_whole_cannot_be() -> None:
    assert why_not("piecewise_graphs", context(MATMUL, activity=waits())) is None
    assert "captured whole" in str(why_not("piecewise_graphs", context(MATMUL, activity=Activity())))


def test_the_heap_is_kept_where_a_cpu_call_allocates_much() -> None:
    much = context(RELU, device="cpu", allocated=80 << 20, peak=33 << 20)
    assert why_not("keep_heap", much) is None
    assert CATALOGUE["keep_heap"].predict(much).words.startswith("a call allocates 40 MiB")
    assert why_not("keep_heap", context(RELU, device="cpu", allocated=80 << 20, peak=30 << 20)) \
        == "a call's results hold 30.00 MiB at most, which the C library keeps by itself"
    assert "host" in str(why_not("keep_heap", context(RELU)))


def test_inductor_settings_apply_where_their_operators_are() -> None:
    few_shapes = context(MATMUL, shapes=((8, 8), (8, 8)))
    assert why_not("inductor_search_products", few_shapes) is None
    many = Context(few_shapes.facts, few_shapes.environment, few_shapes.profile.model_copy(update={"operators": tuple(
        operator.model_copy(update={"input_shapes": ((n, 8), (8, 8))}) for n, operator in enumerate(few_shapes.profile.operators * 2))}))
    assert str(why_not("inductor_search_products", many)).startswith("4 different matrix products")
    assert why_not("inductor_tma_products", few_shapes) is None
    assert "compute capability 8.0" in str(why_not("inductor_tma_products", context(MATMUL, capability="8.0")))
    convolution = "aten::cudnn_convolution"
    assert why_not("inductor_conv_1x1", context(convolution, shapes=((1, 8, 4, 4), (8, 8, 1, 1)))) is None
    assert why_not("inductor_conv_1x1", context(convolution, shapes=((1, 8, 4, 4), (8, 8, 3, 3)))) == "the profile shows no 1x1 convolution"
    assert why_not("inductor_keep_layout", context(convolution)) is None
    assert why_not("inductor_keep_layout", context(MATMUL)) == "the profile shows no convolution"
    assert why_not("inductor_multi_kernel", context("aten::native_layer_norm")) is None
    assert why_not("inductor_cooperative_reductions", context("aten::sum")) is None
    for name in ("inductor_multi_kernel", "inductor_cooperative_reductions", "inductor_tune_kernels", "inductor_measure_fusions"):
        assert "hold 0%" in str(why_not(name, context(MATMUL))), name
    assert "launches 1 kernels" in str(why_not("inductor_combo_kernels", context(MATMUL)))
    assert why_not("inductor_combo_kernels", context(*[RELU] * 30)) is None


@pytest.mark.parametrize("name", INDUCTOR)
def test_every_inductor_option_exists_and_none_sets_what_another_sets_otherwise(name: str) -> None:
    assert CATALOGUE[name].level == "inductor" and "inductor" in GRAPH_LEVELS
    module = __import__(f"{rewrites.__name__}.{name}", fromlist=[name])
    own = getattr(module, name)()
    assert own and set(own) <= set(torch._inductor.list_options())
    for other in INDUCTOR:
        theirs = getattr(__import__(f"{rewrites.__name__}.{other}", fromlist=[other]), other)()
        assert all(theirs[option] == value for option, value in own.items() if option in theirs)


def test_planned_buffers_and_reductions_over_blocks_are_never_in_one_candidate() -> None:
    """torch 2.11's planner lays a reduction's semaphores over its workspace: the call never ends."""
    both = ("inductor_memory_planning", "inductor_cooperative_reductions", "compile_default")
    assert not compatible(both) and compatible(both[1:]) and compatible((both[0], both[2]))


@pytest.mark.parametrize("name", INDUCTOR)
def test_no_inductor_setting_for_what_is_compiled_already(name: str) -> None:
    assert why_not(name, context(MATMUL, already_compiled=True, compiled_inside=True)) == "the workload is already compiled, from inside"


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_partners_and_conflicts_name_passes_and_do_not_exclude_each_other(name: str) -> None:
    item = CATALOGUE[name]
    assert item.partners | item.conflicts <= set(CATALOGUE)
    assert compatible((name, *item.partners))
