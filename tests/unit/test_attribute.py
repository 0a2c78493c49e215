"""Kernel -> operator -> stage, module, source line; counted work; nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.attribute import Attributed, attribute
from kernelwright.attribute.inductor import fused_operators
from kernelwright.attribute.sources import user_line
from kernelwright.model.capture import OpRecord
from kernelwright.model.profile import Operator
from kernelwright.model.trace import Trace
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.lines import Frame, UserStack
from trace_builder import TraceBuilder


def read(builder: TraceBuilder, tmp_path: Path, name: str = "t.json") -> Trace:
    return read_kineto(builder.write(tmp_path / name))


def by_id(result: Attributed) -> dict[str, Operator]:
    return {operator.operator_id: operator for operator in result.operators}


def adds_up(result: Attributed) -> bool:
    return result.attributed_ns + result.unattributed_ns == result.measured_ns


def record(name: str, dims: list[tuple[int, ...]], flops: float | None, size: float = 8.0) -> OpRecord:
    return OpRecord(name=name, dims=tuple(dims), dtype="float32", flops=flops, bytes=size)


def test_kernels_go_to_the_innermost_operator_around_their_launch_call(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 1000).op("aten::linear", 10, 200).op("aten::addmm", 20, 100).launch(1, 30, 40).launch(2, 150, 160)
               .op("aten::relu", 300, 400).launch(3, 310, 320, name="cuLaunchKernel", category="cuda_driver")
               .kernel("gemm", 500, 560, 1).kernel("late, while another operator runs", 560, 565, 2).kernel("relu", 600, 601, 3))
    result = attribute(read(builder, tmp_path))
    found = by_id(result)
    assert {name: [kernel.kernel_name for kernel in operator.kernels] for name, operator in found.items()} == {
        "aten::addmm_0": ["gemm"], "aten::linear_0": ["late, while another operator runs"], "aten::relu_0": ["relu"]}
    assert found["aten::addmm_0"].parents == ("aten::linear",)
    kernel = found["aten::addmm_0"].kernels[0]
    assert (kernel.attribution.method, kernel.attribution.confidence) == ("correlation", "high")
    assert (kernel.stream_id, kernel.device_id, kernel.grid, kernel.block) == (7, 0, (4, 32, 2), (128, 1, 1))
    assert result.measured_ns == 66 and adds_up(result)


def test_threads_are_told_apart(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 1000).op("aten::main", 0, 900).op("aten::other", 100, 200, tid=7)
               .launch(1, 150, 160, tid=7).launch(2, 150, 160).kernel("a", 300, 310, 1).kernel("b", 310, 330, 2))
    found = by_id(attribute(read(builder, tmp_path)))
    assert found["aten::other_0"].kernels[0].kernel_name == "a" and found["aten::main_0"].kernels[0].kernel_name == "b"


def test_what_has_no_operator_is_kept_and_said(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 1000).range("stage:x", 0, 900).launch(1, 10, 20).kernel("by hand", 30, 80, 1)
               .kernel("no launch call", 100, 107, 99).kernel("before the steps", -20, -10, 98))
    result = attribute(read(builder, tmp_path))
    assert [(kernel.kernel_name, kernel.attribution.method) for kernel in result.unattributed] == [
        ("by hand", "none"), ("no launch call", "none")]
    assert result.operators == () and result.unattributed_ns == result.measured_ns == 57
    assert any("outside any PyTorch operator" in text for text in result.warnings)
    assert any("no launch call" in text for text in result.warnings)


def test_own_triton_kernels_outside_operators_stand_for_themselves(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 1000).range("stage:x", 0, 900).launch(1, 10, 20).kernel("row_kernel", 30, 80, 1)
               .op("aten::empty_like", 90, 95).launch(2, 100, 110).kernel("row_kernel", 120, 150, 2).launch(3, 200, 210)
               .kernel("somebody's", 220, 230, 3).kernel("row_kernel", 300, 307, 99))
    result = attribute(read(builder, tmp_path), own={"row_kernel": "softmax.row_kernel"})
    found = by_id(result)
    assert set(found) == {"softmax.row_kernel_0", "softmax.row_kernel_1"} and adds_up(result)
    assert all(operator.own_launch and operator.stage == "x" and operator.step == 0 for operator in found.values())
    assert {kernel.attribution.confidence for operator in found.values() for kernel in operator.kernels} == {"high"}
    assert [kernel.kernel_name for kernel in result.unattributed] == ["somebody's", "row_kernel"]  # the last has no launch call


def test_graph_launches_take_the_region_around_them_or_stand_for_themselves(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 1000).op("Torch-Compiled Region: 0/0", 10, 100).launch(1, 20, 30, name="cudaGraphLaunch")
               .range("stage:replay", 200, 400).launch(2, 210, 230, name="cudaGraphLaunch")
               .kernel("triton_poi_fused_addmm_relu_0", 50, 60, 1).kernel("gemm", 60, 80, 1)
               .kernel("n1", 300, 310, 2).kernel("Memset", 310, 311, 2, category="gpu_memset").kernel("n2", 320, 340, 2))
    result = attribute(read(builder, tmp_path))
    found = by_id(result)
    region, replay = found["Torch-Compiled Region: 0/0_0"], found["cudaGraphLaunch_0"]
    assert region.is_fused and region.fused_ops == ("addmm", "relu") and region.aggregated.kernel_count == 2
    assert {kernel.attribution.confidence for kernel in (*region.kernels, *replay.kernels)} == {"low"}
    assert replay.stage == "replay" and replay.step == 0 and [kernel.category for kernel in replay.kernels] == ["kernel", "memset",
                                                                                                                "kernel"]
    assert replay.aggregated.total_duration_ns == 31 and replay.aggregated.dominant_kernel_id == replay.kernels[2].kernel_id
    assert adds_up(result)


def test_generated_kernels_say_what_was_fused(tmp_path: Path) -> None:
    name = "triton_per_fused_add_addmm_native_layer_norm_1"
    builder = TraceBuilder().step(0, 100).op(name, 10, 50).launch(1, 20, 30).kernel(name, 40, 60, 1)
    operator = attribute(read(builder, tmp_path)).operators[0]
    assert operator.is_fused and operator.fused_ops == ("add", "addmm", "native_layer_norm")
    assert (operator.kernels[0].attribution.method, operator.kernels[0].attribution.confidence) == ("inductor", "medium")


@pytest.mark.parametrize(("name", "expected"), [
    ("triton_poi_fused_addmm_relu_0", ("addmm", "relu")),
    ("triton_red_fused__softmax_12", ("_softmax",)),
    ("triton_per_fused__to_copy_add_native_layer_norm_backward_3", ("_to_copy", "add", "native_layer_norm_backward")),
    ("triton_poi_fused_convolution_max_pool2d_with_indices_relu_7", ("convolution", "max_pool2d_with_indices", "relu")),
    ("triton_tem_fused_mm_2", ("mm",)),
    ("cpp_fused_gelu_0", ("gelu",)),
    ("triton_poi_0", ()),
    ("ampere_sgemm_fused_nothing_1", ()),
])
def test_names_of_generated_kernels(name: str, expected: tuple[str, ...]) -> None:
    assert fused_operators(name) == expected


def test_cpu_rows_are_self_times_and_one_row_a_step_for_the_rest(tmp_path: Path) -> None:
    builder = (TraceBuilder(device="").op("warm-up", -50, -10).step(0, 100).op("aten::linear", 10, 60).op("aten::addmm", 20, 50)
               .step(200, 300).op("aten::linear", 200, 300))
    result = attribute(read(builder, tmp_path))
    assert {name: operator.aggregated.total_duration_ns for name, operator in by_id(result).items()} == {
        "aten::linear_0": 20, "aten::addmm_0": 30, "aten::linear_1": 100}
    assert [(row.kernel_name, row.duration_ns) for row in result.unattributed] == [("(outside operators)", 50)]
    assert [operator.step for operator in result.operators] == [0, 0, 1]
    assert result.measured_ns == 200 and adds_up(result)


def test_cpu_threads_at_once_add_up_too(tmp_path: Path) -> None:
    builder = (TraceBuilder(device="").step(0, 100).op("aten::a", 0, 50).op("aten::b", 40, 90, tid=200).op("aten::c", 45, 60, tid=200))
    result = attribute(read(builder, tmp_path))
    assert result.measured_ns == 110 and adds_up(result) and result.unattributed_ns == 10


def test_stages_follow_threads_and_backward_follows_forward(tmp_path: Path) -> None:
    builder = (TraceBuilder(device="").step(0, 1000).range("stage:outer", 0, 300).range("stage:inner", 100, 200)
               .op("aten::mm", 110, 150, Sequence_number=5, Fwd_thread_id=0).op("aten::add", 210, 220, Sequence_number=6, Fwd_thread_id=0)
               .op("aten::plain", 310, 320)
               .op("MmBackward0", 400, 450, tid=9, Sequence_number=5, Fwd_thread_id=1).op("aten::mm", 410, 440, tid=9)
               .range("stage:loss", 500, 600).op("AddBackward0", 510, 520, tid=9, Sequence_number=6, Fwd_thread_id=1))
    result = by_id(attribute(read(builder, tmp_path)))
    assert {name: operator.stage for name, operator in result.items()} == {
        "aten::mm_0": "inner", "aten::add_0": "outer", "aten::plain_0": None, "MmBackward0_0": "inner", "aten::mm_1": "inner",
        "AddBackward0_0": "loss"}, "a range that the caller is in at that moment comes before the forward call's stage"


def stacks_of(*, frames: bool = True) -> TraceBuilder:
    builder = TraceBuilder(device="").step(0, 1000)
    if frames:
        (builder.event("python_function", "kernelwright/probe/annotation.py(67): _steps", -5, 1005)
         .event("python_function", "net.py(12): forward", 5, 500).event("python_function",
                                                                        "torch/nn/modules/linear.py(130): forward", 15, 110)
         .event("python_function", "<built-in function linear>", 18, 105))
    return (builder.range("kernelwright.module:", 6, 480).range("kernelwright.module:blocks.0.fc", 14, 120)
            .op("aten::linear", 20, 100, Sequence_number=3, Fwd_thread_id=0).op("aten::addmm", 30, 90).op("aten::add", 200, 210)
            .op("LinearBackward0", 600, 700, tid=9, Sequence_number=3, Fwd_thread_id=1))


def timeline_of(extra: str | None = None) -> TraceBuilder:
    builder = TraceBuilder(device="")
    for start in (0, 1000):
        (builder.step(start, start + 100).op("aten::linear", start + 10, start + 20).op("aten::addmm", start + 11, start + 15)
         .op("aten::add", start + 20, start + 22).op("LinearBackward0", start + 30, start + 40, tid=9))
    if extra:
        builder.op(extra, 1050, 1060)
    return builder


def test_modules_and_source_lines_come_from_the_second_recording_by_position(tmp_path: Path) -> None:
    result = attribute(read(timeline_of(), tmp_path), stacks=read(stacks_of(), tmp_path, "stacks.json"))
    found = by_id(result)
    for call in (0, 1):
        assert (found[f"aten::addmm_{call}"].module, found[f"aten::addmm_{call}"].source) == ("blocks.0.fc", "net.py:12")
        assert (found[f"aten::add_{call}"].module, found[f"aten::add_{call}"].source) == (None, "net.py:12"), "the model itself has no path"
        assert (found[f"LinearBackward0_{call}"].module, found[f"LinearBackward0_{call}"].source) == ("blocks.0.fc", "net.py:12")
    assert result.warnings == ()


def test_where_the_recordings_differ_the_place_is_not_guessed(tmp_path: Path) -> None:
    result = attribute(read(timeline_of(extra="aten::surprise"), tmp_path), stacks=read(stacks_of(), tmp_path, "stacks.json"))
    found = by_id(result)
    assert found["aten::addmm_0"].source == "net.py:12" and found["aten::addmm_1"].source is None
    assert found["LinearBackward0_1"].source == "net.py:12", "the other thread of that step still agrees"
    assert len(result.warnings) == 1 and "other operators" in result.warnings[0]


STACKS = (UserStack((Frame("train.py", 40, "main"), 3, Frame("net.py", 14, "forward"))), UserStack(()),
          UserStack((Frame("net.py", 12, "forward", 1),)), UserStack((Frame("train.py", 41, "main"),)))


def marked() -> TraceBuilder:
    builder = stacks_of()
    for number, start in ((0, 7), (2, 150), (1, 550), (0, 590)):
        builder.range(f"kernelwright.line:{number}", start, start + 1, tid=100)
    return builder


def test_exact_lines_come_from_the_markers(tmp_path: Path) -> None:
    result = attribute(read(timeline_of(), tmp_path), stacks=read(marked(), tmp_path, "stacks.json"), lines=STACKS)
    found = by_id(result)
    addmm, add, backward = found["aten::addmm_1"], found["aten::add_1"], found["LinearBackward0_1"]
    assert (addmm.source, addmm.source_kind, addmm.module) == ("net.py:14", "line", "blocks.0.fc")
    assert (add.source, add.source_kind) == ("net.py:12", "definition"), "compiled code shows where its function begins"
    assert (backward.source, backward.source_kind) == ("net.py:14", "line")
    assert result.stacks[addmm.stack or 0] == ("train.py:40 main", "(3 library frames)", "net.py:14 forward")
    assert {operator.stack for operator in result.operators} <= {None, *range(len(result.stacks))}


def test_without_the_table_markers_say_nothing(tmp_path: Path) -> None:
    found = by_id(attribute(read(timeline_of(), tmp_path), stacks=read(marked(), tmp_path, "stacks.json")))
    assert (found["aten::addmm_0"].source, found["aten::addmm_0"].source_kind) == ("net.py:12", "definition")
    assert found["aten::addmm_0"].stack is None


def test_hostile_marker_numbers_are_passed_over(tmp_path: Path) -> None:
    builder = stacks_of(frames=False)
    for place, number in enumerate(("-1", "99", "x", "\u0662", "9" * 5000, "")):
        builder.range(f"kernelwright.line:{number}", 7 + place, 8 + place)
        found = by_id(attribute(read(timeline_of(), tmp_path), stacks=read(builder, tmp_path, "stacks.json"), lines=STACKS))
        assert found["aten::addmm_0"].source is None


def test_waits_and_graph_launches_have_lines_too(tmp_path: Path) -> None:
    def run(start: int, *, markers: bool) -> TraceBuilder:
        builder = TraceBuilder().step(start, start + 900)
        if markers:
            builder.range("kernelwright.line:0", start + 5, start + 6).range("kernelwright.line:3", start + 205, start + 206)
        return (builder.op("aten::item", start + 10, start + 100).launch(1, start + 20, start + 30, name="cudaMemcpyAsync")
                .launch(2, start + 40, start + 60, name="cudaStreamSynchronize").launch(3, start + 210, start + 220, name="cudaGraphLaunch")
                .launch(4, start + 300, start + 400, name="cudaDeviceSynchronize")
                .kernel("copy", start + 32, start + 38, 1, category="gpu_memcpy").kernel("replayed", start + 230, start + 250, 3))

    trace = read(run(0, markers=False), tmp_path)
    result = attribute(trace, stacks=read(run(50, markers=True), tmp_path, "stacks.json"), lines=STACKS)
    places = {trace.runtime.name(row): result.places.of_runtime(row) for row in range(len(trace.runtime))}
    assert {name: place.source for name, place in places.items()} == {
        "cudaMemcpyAsync": "net.py:14", "cudaStreamSynchronize": "net.py:14", "cudaGraphLaunch": "train.py:41",
        "cudaDeviceSynchronize": "train.py:41"}
    assert by_id(result)["cudaGraphLaunch_0"].source == "train.py:41"


@pytest.mark.parametrize(("frame", "line"), [
    ("model.py(12): forward", "model.py:12"), ("/home/me/a b/model.py(3): <lambda>", "/home/me/a b/model.py:3"),
    ("torch/nn/modules/linear.py(130): forward", None), ("<built-in function linear>", None), ("nn.Module: Linear_0", None),
    ("contextlib.py(81): inner", None), ("/usr/lib/python3.11/site-packages/x/y.py(1): f", None), ("<string>(2): f", None),
    ("/x/kernelwright/probe/annotation.py(67): _steps", None), ("/tmp/torchinductor_me/ab/cd.py(5): call", None),
])
def test_which_frames_are_the_users(frame: str, line: str | None) -> None:
    assert user_line(frame) == line


def test_counted_work_goes_once_to_the_operator_that_holds_the_kernel(tmp_path: Path) -> None:
    conv = {"Input_Dims": [[1, 3, 8, 8], [4, 3, 3, 3], []], "Input_type": ["float", "float", ""]}
    builder = TraceBuilder()
    for step, start in enumerate((0, 1000)):
        (builder.step(start, start + 900).op("aten::conv2d", start + 10, start + 200, **conv).op("aten::convolution", start + 20,
                                                                                                 start + 190, **conv)
         .op("aten::cudnn_convolution", start + 30, start + 100, **conv).launch(10 * step + 1, start + 40, start + 50)
         .op("aten::add_", start + 120, start + 150).launch(10 * step + 2, start + 130, start + 140)
         .kernel("implicit_gemm", start + 300, start + 400, 10 * step + 1).kernel("bias", start + 400, start + 410, 10 * step + 2))
    ops = [record("aten::convolution", [(1, 3, 8, 8), (4, 3, 3, 3)], 1000.0), record("aten::mm", [(2, 2), (2, 2)], 16.0)]
    result = attribute(read(builder, tmp_path), ops=ops)
    assert {(operator.operator_id, operator.flops, operator.min_bytes) for operator in result.operators} == {
        ("aten::cudnn_convolution_0", 1000.0, 8.0), ("aten::add__0", None, None),
        ("aten::cudnn_convolution_1", 1000.0, 8.0), ("aten::add__1", None, None)}
    assert any("1 of 2" in text for text in result.warnings), result.warnings


def test_same_calls_take_their_records_in_order_and_inner_copies_take_none(tmp_path: Path) -> None:
    copy = {"Input_Dims": [[8], [8]], "Input_type": ["float", "float"]}
    builder = (TraceBuilder(device="").step(0, 1000)
               .op("aten::addmm", 10, 100, Input_Dims=[[8], [4, 2], [2, 8]], Input_type=["float"] * 3).op("aten::copy_", 20, 30, **copy)
               .op("aten::copy_", 200, 230, **copy).op("aten::copy_", 300, 330, **copy))
    ops = [record("aten::addmm", [(8,), (4, 2), (2, 8)], 128.0, 5.0), record("aten::copy_", [(8,), (8,)], None, 64.0),
           record("aten::copy_", [(8,), (8,)], None, 65.0)]
    found = by_id(attribute(read(builder, tmp_path), ops=ops))
    assert {name: operator.min_bytes for name, operator in found.items()} == {
        "aten::addmm_0": 5.0, "aten::copy__0": None, "aten::copy__1": 64.0, "aten::copy__2": 65.0}


def test_shapes_and_dtypes_of_tensor_arguments(tmp_path: Path) -> None:
    builder = (TraceBuilder(device="").step(0, 100)
               .op("aten::cat", 1, 2, Input_Dims=[[[2, 3], [4, 3]], []], Input_type=["TensorList", "Scalar"])
               .op("aten::embedding", 3, 4, Input_Dims=[[10, 4], [7], []], Input_type=["c10::BFloat16", "long int", "Scalar"])
               .op("aten::sum", 5, 6, Input_Dims=[[]], Input_type=["double"]))
    found = by_id(attribute(read(builder, tmp_path)))
    assert found["aten::cat_0"].input_shapes == ((2, 3), (4, 3))
    assert found["aten::embedding_0"].input_shapes == ((10, 4), (7,)) and found["aten::embedding_0"].dtype == "bfloat16"
    assert found["aten::sum_0"].input_shapes == ((),) and found["aten::sum_0"].dtype == "float64"


def test_memory_at_the_peak_by_operator_and_line(tmp_path: Path) -> None:
    def run(builder: TraceBuilder, start: int) -> TraceBuilder:
        return (builder.step(start, start + 900).op("aten::relu", start + 10, start + 40).op("aten::empty_like", start + 12, start + 20)
                .op("aten::mm", start + 300, start + 400))

    trace = read(run(TraceBuilder(), 0).launch(1, 310, 311).kernel("k", 320, 330, 1)
                 .memory(-50, 64, 1064, 1).memory(15, 512, 1576, 2).memory(50, -64, 1512, 1).memory(310, 4096, 5608, 3)
                 .memory(320, -1000, 4608, 99).memory(500, 256, 4864, 4).memory(950, 10**9, 10**9 + 4864, 5)
                 .memory(30, 2048, 2048, 7, kind=0, device=-1), tmp_path)
    stacks = read(run(TraceBuilder(), 0).range("kernelwright.line:0", 1, 2), tmp_path, "stacks.json")
    gpu, cpu = attribute(trace, stacks=stacks, lines=STACKS).memory
    assert (gpu.device, gpu.complete, gpu.start_bytes, gpu.peak_bytes, gpu.peak_ns, gpu.peak_step) == ("cuda:0", True, 1064, 5608, 310, 0)
    assert gpu.before_bytes == 1000, "the 64 of before were freed"
    assert [(owner.operator, owner.source, owner.source_kind, owner.bytes, owner.count) for owner in gpu.owners] == [
        ("aten::mm", "net.py:14", "line", 4096, 1), ("aten::relu", "net.py:14", "line", 512, 1)], "empty_like() belongs to relu"
    assert (gpu.allocations, gpu.allocated_bytes, gpu.end_bytes) == (3, 512 + 4096 + 256, 4864), "what comes after the steps does not count"
    assert (cpu.device, cpu.complete, cpu.peak_bytes, cpu.before_bytes) == ("cpu", False, 2048, 0)


def test_many_owners_are_summed(tmp_path: Path) -> None:
    builder = TraceBuilder(device="").step(0, 10_000)
    for place in range(50):
        (builder.op(f"aten::op{place}", 100 * place, 100 * place + 50)
         .memory(100 * place + 1, 10, 10 * (place + 1), place, kind=0, device=-1))
    (use,) = attribute(read(builder, tmp_path)).memory
    assert (use.peak_bytes, len(use.owners), use.left_bytes, use.left_count) == (500, 30, 200, 20)
