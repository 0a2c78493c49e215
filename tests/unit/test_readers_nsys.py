"""Nsight Systems exports: the same tables from every year's schema, joins, steps and names; hostile files are in test_nsys_hostile."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.attribute import attribute
from kernelwright.attribute.calls import Calls
from kernelwright.model.errors import BadInput
from kernelwright.model.table import EventTable
from kernelwright.model.trace import Trace
from kernelwright.readers.nsys import read_gpus, read_nsys
from kernelwright.readers.nsys_names import api_name, copy_name, fill_name, range_name, range_names
from kernelwright.timeline.steps import device_work
from nsys_builder import GENERATIONS, PID, TID, Generation, NsysBuilder


def rows(table: EventTable) -> list[tuple[Any, ...]]:
    """Everything in a table, row by row."""
    columns = [getattr(table, one.name).tolist() for one in fields(table) if one.name not in ("names", "args", "name_id")]
    return [(table.name(row), *(column[row] for column in columns), dict(table.args[row])) for row in range(len(table))]


def contents(trace: Trace) -> dict[str, Any]:
    """Everything in a trace."""
    return {one.name: rows(value) if isinstance(value := getattr(trace, one.name), EventTable)
            else [getattr(value, column.name).tolist() for column in fields(value)] if one.name == "memory" else value
            for one in fields(trace) if one.name != "source"}


def training_step() -> NsysBuilder:
    """A forward and a backward operator, a copy, a fill, device memory, and a step with line markers."""
    made = NsysBuilder().gpu()
    made.range("aten::warmup, op_id = 1, sizes = [[2]], input_op_ids = [(0,-1)]", 10, 40).call(1, 20, 30).kernel("early", 50, 60, 1)
    made.step(1000, 2000, op_id=2).range("stage:front, op_id = 3", 1010, 1300)
    made.range("aten::addmm, seq = 7, op_id = 4, sizes = [[64], [32, 128], [128, 64], [], []], input_op_ids = [(0,-1)]", 1020, 1200)
    made.call(2, 1050, 1060).kernel("void gemm<(int)4>(float *)", 1100, 1500, 2)
    made.call(3, 1070, 1080, "cudaMemcpyAsync_v3020").copy(1500, 1600, 3, kind=2, source=2, target=1)
    made.call(4, 1090, 1095, "cudaMemsetAsync_ptsz_v7000").fill(1600, 1610, 4)
    made.range("autograd::engine::evaluate_function: AddmmBackward0, op_id = 5", 1400, 1600, tid=TID + 9)
    made.range("AddmmBackward0, seq = 7, op_id = 6, sizes = [[32, 64]], input_op_ids = [(4,0)]", 1410, 1590, tid=TID + 9)
    made.range("aten::mm, op_id = 7, sizes = [[32, 64], [64, 128]], input_op_ids = [(4,0)]", 1420, 1580, tid=TID + 9)
    made.call(5, 1430, 1440, tid=TID + 9).kernel("void gemm<(int)4>(float *)", 1700, 1900, 5, stream=9)
    made.call(6, 1990, 1999, "cuStreamSynchronize")
    made.memory(0, 4096, 0x1000, 99).memory(1055, 512, 0x2000, 2).memory(1435, 512, 0x2000, 5, freed=True).memory(1500, 64, 0x9, 2, kind=1)
    made.range("kernelwright.stacks_step, op_id = 8", 3000, 4000).range("kernelwright.line:0, op_id = 9", 3001, 3002)
    made.range("kernelwright.module:up, op_id = 10", 3003, 3900).call(7, 3100, 3110).kernel("again", 3200, 3300, 7)
    made.add("PROFILER_OVERHEAD", start=1002, end=1004, globalTid=1 << 48 | PID << 24 | TID, nameId=made.string("CUPTI Buffer flush"),
             returnValue=0)
    return made


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_year_gives_the_same_tables(tmp_path: Path, generation: Generation, registered: bool) -> None:
    expected = read_nsys(training_step().write(tmp_path / "now.sqlite"))
    read = read_nsys(training_step().write(tmp_path / "other.sqlite", generation, registered=registered))
    assert [contents(trace) for trace in read if trace] == [contents(trace) for trace in expected if trace]


def test_the_tables(tmp_path: Path) -> None:
    trace, stacks = read_nsys(training_step().write(tmp_path / "r.sqlite"))
    assert stacks is not None
    assert (trace.recorder, trace.steps_from, trace.is_cuda, trace.source) == ("nsys", "kernelwright", True, "r.sqlite")
    assert (trace.device_names, trace.sm_counts) == (("NVIDIA H200",), (132,))
    assert [(row[0], row[1], row[2]) for row in rows(trace.steps)] == [("kernelwright.step", 0, 1000)]
    assert [(row[0], row[1], row[2]) for row in rows(trace.device)] == [
        ("early", -950, -940), ("void gemm<(int)4>(float *)", 100, 500), ("Memcpy DtoH (Device -> Pinned)", 500, 600),
        ("Memset (Device)", 600, 610), ("void gemm<(int)4>(float *)", 700, 900)]
    assert trace.device.args[1] == {"category": "kernel", "grid": [4, 2, 1], "block": [128, 1, 1], "graph": False, "shared_bytes": 1040,
                                    "registers": 32, "bytes": -1}
    assert trace.device.args[2] == {"category": "memcpy", "grid": None, "block": None, "graph": False, "shared_bytes": None,
                                    "registers": None, "bytes": 4096}
    assert (trace.device.args[3]["category"], trace.device.args[3]["bytes"]) == ("memset", 512)
    assert trace.device.stream.tolist() == [7, 7, 7, 7, 9] and set(trace.device.process.tolist()) == {PID}
    assert [row[0] for row in rows(trace.runtime)] == ["cudaLaunchKernel"] * 2 + ["cudaMemcpyAsync", "cudaMemsetAsync", "cudaLaunchKernel",
                                                                                "cuStreamSynchronize"]
    assert set(trace.runtime.thread.tolist()) == {TID, TID + 9}
    assert [row[0] for row in rows(trace.operators)] == [
        "aten::warmup", "aten::addmm", "autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0", "aten::mm"]
    assert trace.operators.args[1] == {"dims": [[64], [32, 128], [128, 64], [], []], "types": [], "sequence": 7, "forward_thread": 0,
                                       "opened": 4}
    assert [trace.operators.args[row]["forward_thread"] for row in (2, 3, 4)] == [TID, TID, 0]
    assert trace.operators.args[2]["sequence"] == 7, "the range around a backward node has its number, as Kineto's"
    assert [row[0] for row in rows(trace.ranges)] == ["stage:front"] and trace.ranges.args[0] == {"opened": 3}
    assert len(trace.python) == len(trace.lines) == 0 and [row[0] for row in rows(trace.overheads)] == ["CUPTI Buffer flush"]


def test_the_step_with_markers_is_a_trace_of_its_own(tmp_path: Path) -> None:
    _, stacks = read_nsys(training_step().write(tmp_path / "r.sqlite"))
    assert stacks is not None
    assert [(row[0], row[1], row[2]) for row in rows(stacks.steps)] == [("kernelwright.stacks_step", 2000, 3000)]
    assert [row[0] for row in rows(stacks.lines)] == ["kernelwright.line:0"]
    assert [row[0] for row in rows(stacks.ranges)] == ["kernelwright.module:up"]
    assert [(row[0], row[1]) for row in rows(stacks.device)] == [("again", 2200)]


def test_work_launched_before_the_markers_stays_in_the_timeline(tmp_path: Path) -> None:
    made = NsysBuilder().step(0, 100).call(1, 50, 60).kernel("late", 900, 950, 1).range("kernelwright.stacks_step, op_id = 2", 500, 600)
    trace, stacks = read_nsys(made.call(2, 510, 520).kernel("early", 530, 540, 2).write(tmp_path / "r.sqlite"))
    assert [row[0] for row in rows(trace.device)] == ["late"]
    assert stacks is not None and [row[0] for row in rows(stacks.device)] == ["early"]


def test_memory_is_the_driver_s(tmp_path: Path) -> None:
    trace, _ = read_nsys(training_step().write(tmp_path / "r.sqlite"))
    memory = trace.memory
    assert memory.change_bytes.tolist() == [4096, 512, -512], "host memory is left out"
    assert memory.total_bytes.tolist() == [4096, 4608, 4096] and memory.time_ns.tolist() == [-1000, 55, 435]
    assert memory.thread.tolist() == [-1, TID, TID + 9] and set(memory.device_type.tolist()) == {1}


def test_shapes_and_gradients_are_found_without_dtypes(tmp_path: Path) -> None:
    calls = Calls(read_nsys(training_step().write(tmp_path / "r.sqlite"))[0])
    assert calls.shapes(1) == ((64,), (32, 128), (128, 64)) and calls.dtype(1) == ""
    assert calls.forward_call(4) == 1 and calls.forward_call(1) is None
    assert calls.stage(4) == "front", "a gradient belongs to the stage of its forward call"


def test_attribution_adds_up(tmp_path: Path) -> None:
    trace, stacks = read_nsys(training_step().write(tmp_path / "r.sqlite"))
    found = attribute(trace, stacks=stacks)
    assert found.attributed_ns + found.unattributed_ns == found.measured_ns == 400 + 100 + 10 + 200
    assert {operator.operator_name for operator in found.operators} == {"aten::addmm", "aten::mm"}


def test_equal_correlation_ids_of_two_processes_are_not_mixed(tmp_path: Path) -> None:
    made = NsysBuilder().step(0, 1000).call(1, 10, 20).call(1, 30, 40, "cudaMemcpyAsync_v3020", pid=PID + 1)
    made.kernel("first", 100, 200, 1).kernel("second", 300, 450, 1, pid=PID + 1).kernel("nobody's", 500, 600, 1, pid=PID + 2)
    trace, _ = read_nsys(made.write(tmp_path / "r.sqlite"))
    work = device_work(trace)
    assert [trace.runtime.name(row) if row >= 0 else None for row in work.launch.tolist()] == ["cudaLaunchKernel", "cudaMemcpyAsync", None]
    assert trace.device.process.tolist() == [PID, PID + 1, PID + 2] and work.ambiguous == 0


def test_the_same_process_id_on_two_machines(tmp_path: Path) -> None:
    made = NsysBuilder().step(0, 1000).call(1, 10, 20).kernel("here", 100, 200, 1)
    made.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=30, end=40, eventClass=0, globalTid=2 << 48 | PID << 24 | TID, correlationId=1,
             nameId=made.string("cudaLaunchKernel_v7000"), returnValue=0)
    made.add("CUPTI_ACTIVITY_KIND_MEMSET", start=300, end=400, deviceId=0, streamId=7, correlationId=1, globalPid=2 << 48 | PID << 24,
             bytes=8, memKind=2)
    trace, _ = read_nsys(made.write(tmp_path / "r.sqlite"))
    assert trace.runtime.start_ns[device_work(trace).launch].tolist() == [10, 30]
    assert len(set(trace.runtime.process.tolist())) == 2


def test_kernels_of_graphs(tmp_path: Path) -> None:
    made = NsysBuilder().step(0, 1000).range("aten::run, op_id = 2, sizes = [[1]]", 5, 90).call(1, 10, 20, "cudaGraphLaunch_v10000")
    made.kernel("a", 100, 200, 1, node=5).kernel("b", 200, 250, 1, node=6)
    trace, _ = read_nsys(made.write(tmp_path / "r.sqlite"))
    assert [details["graph"] for details in trace.device.args] == [True, True]
    found = attribute(trace)
    assert [kernel.attribution.confidence for kernel in found.operators[0].kernels] == ["low", "low"]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_graphs_whose_nodes_were_not_recorded(tmp_path: Path, generation: Generation) -> None:
    made = NsysBuilder().step(0, 1000)
    for correlation, graph in ((1, 77), (2, 12), (3, 77)):
        made.call(correlation, correlation * 10, correlation * 10 + 5, "cudaGraphLaunch_v10000")
        made.graph(correlation * 100, correlation * 100 + 50, correlation, graph)
    trace, _ = read_nsys(made.write(tmp_path / "r.sqlite", generation))
    assert [row[0] for row in rows(trace.device)] == ["CUDA graph 1", "CUDA graph 2", "CUDA graph 1"]
    assert trace.device.args[0]["graph"] is True and trace.device.args[0]["category"] == "kernel" and trace.device.args[0]["grid"] is None
    assert attribute(trace).measured_ns == 150


def test_a_graph_counts_once_where_its_nodes_are_there_too(tmp_path: Path) -> None:
    made = NsysBuilder().step(0, 1000).call(1, 10, 20, "cudaGraphLaunch_v10000").kernel("a", 100, 200, 1, node=5).graph(100, 210, 1, 3)
    assert [row[0] for row in rows(read_nsys(made.write(tmp_path / "r.sqlite"))[0].device)] == ["a"]


def test_a_stage_marked_by_nvtx_is_there_once(tmp_path: Path) -> None:
    made = NsysBuilder().step(0, 1000, op_id=1).range("stage:a", 10, 500).range("stage:a, op_id = 2", 12, 490)
    made.range("stage:plain", 20, 30).range("stage:a", 600, 700)
    trace, _ = read_nsys(made.write(tmp_path / "r.sqlite"))
    assert [(row[0], row[1], row[2]) for row in rows(trace.ranges)] == [
        ("stage:a", 12, 490), ("stage:plain", 20, 30), ("stage:a", 600, 700)]


def foreign() -> NsysBuilder:
    """A recording that the probe did not make."""
    made = NsysBuilder()
    for step in range(3):
        at = step * 1000
        made.range(f"ProfilerStep#{step}, op_id = {step + 10}", at, at + 900).range("train", at + 10, at + 800)
        made.range("inner train", at + 20, at + 30).range("train", at + 40, at + 50)
        made.call(step + 1, at + 100, at + 110).kernel("k", at + 200, at + 400, step + 1)
    return made.range("iteration", 5, 700, kind=60).range("iteration", 1005, 1700, kind=60).range("open", 2500, None).call(9, 2600, 2610)


def test_steps_of_torch_profiler(tmp_path: Path) -> None:
    trace, stacks = read_nsys(foreign().write(tmp_path / "r.sqlite"))
    assert stacks is None and trace.steps_from == "ProfilerStep"
    assert [(row[0], row[1], row[2]) for row in rows(trace.steps)] == [("ProfilerStep#0", 0, 900), ("ProfilerStep#1", 1000, 1900),
                                                                     ("ProfilerStep#2", 2000, 2900)]
    assert "ProfilerStep#0" not in {row[0] for row in rows(trace.ranges)}


@pytest.mark.parametrize(("name", "starts"), [("train", [0, 1000, 2000]), ("iteration", [0, 1000])])
def test_steps_are_the_ranges_of_a_name(tmp_path: Path, name: str, starts: list[int]) -> None:
    trace, _ = read_nsys(foreign().write(tmp_path / "r.sqlite"), steps_range=name)
    assert trace.steps_from == "range" and trace.steps.start_ns.tolist() == starts, "the inner one of two nested ranges is no step"


def test_steps_are_those_of_one_process(tmp_path: Path) -> None:
    """Ranks that were recorded together step out of time with each other."""
    made = NsysBuilder()
    for number in range(3):
        made.range(f"kernelwright.step, op_id = {number * 9 + 1}", number * 100, number * 100 + 60)
        made.range(f"kernelwright.step, op_id = {number * 9 + 1}", number * 100 + 65, number * 100 + 90, pid=PID + 1)
    trace, _ = read_nsys(made.write(tmp_path / "r.sqlite"))
    assert trace.steps.start_ns.tolist() == [0, 100, 200] and set(trace.steps.process.tolist()) == {PID}


def test_a_range_that_is_not_there(tmp_path: Path) -> None:
    for name in ("absent", "open"):
        with pytest.raises(BadInput, match=f"no finished NVTX range named '{name}'") as error:
            read_nsys(foreign().write(tmp_path / f"{name}.sqlite"), steps_range=name)
        assert error.value.code == "no_steps" and error.value.fix


def test_the_whole_recording_as_one_step(tmp_path: Path) -> None:
    made = NsysBuilder().call(1, 500, 510, tid=TID).call(2, 520, 530, tid=TID + 1).call(3, 540, 550, tid=TID + 1)
    trace, _ = read_nsys(made.kernel("k", 600, 900, 1).kernel("k", 900, 1000, 2).write(tmp_path / "r.sqlite"))
    assert trace.steps_from == "whole" and rows(trace.steps)[0][:3] == ("whole recording", 0, 500)
    assert trace.steps.thread.tolist() == [TID + 1], "the thread with the most calls"
    assert device_work(trace).rows.size == 2


def test_a_range_that_never_ended_reaches_to_the_end(tmp_path: Path) -> None:
    made = NsysBuilder().step(0, 100).range("outer", 10, None).range("kernelwright.step, op_id = 9", 200, None).call(1, 20, 5000)
    trace, _ = read_nsys(made.write(tmp_path / "r.sqlite"))
    assert len(trace.steps) == 1 and [(row[0], row[2]) for row in rows(trace.ranges)] == [("outer", 5000)]


def test_recordings_without_device_work(tmp_path: Path) -> None:
    trace, _ = read_nsys(NsysBuilder().step(0, 100).range("aten::mm, op_id = 2, sizes = [[2, 2]]", 10, 60).write(tmp_path / "r.sqlite"))
    assert not trace.is_cuda and attribute(trace).attributed_ns == 50


def test_devices_that_processes_number_differently(tmp_path: Path) -> None:
    made = NsysBuilder().gpu("A", 10, 0).gpu("B", 20, 1).step(0, 1000)
    for process, gpu in ((PID, 0), (PID + 1, 1)):
        made.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=process).call(1, 10, 20, pid=process)
        made.kernel("k", 100, 200, 1, pid=process)
    trace, _ = read_nsys(made.write(tmp_path / "r.sqlite"))
    assert (trace.device_names, trace.sm_counts) == (("A", "B"), (10, 20))
    assert sorted(zip(trace.device.process.tolist(), trace.device.device.tolist(), strict=True)) == [(PID, 0), (PID + 1, 1)]


def test_a_process_that_sees_one_gpu_of_two(tmp_path: Path) -> None:
    made = NsysBuilder().gpu("A", 10, 0).gpu("B", 20, 1).step(0, 1000).add("TARGET_INFO_CUDA_DEVICE", gpuId=1, cudaId=0, pid=PID)
    trace, _ = read_nsys(made.call(1, 10, 20).kernel("k", 100, 200, 1).write(tmp_path / "r.sqlite"))
    assert (trace.device_names, trace.sm_counts, trace.device.device.tolist()) == (("B",), (20,), [0])


def test_facts_of_the_gpu(tmp_path: Path) -> None:
    made = NsysBuilder().step(0, 1).add("TARGET_INFO_GPU", id=0, name="NVIDIA H200", smCount=132, totalMemory=150109880320,
                                        memoryBandwidth=4814304000000, l2CacheSize=62914560, clockRate=1980000000, computeMajor=9,
                                        computeMinor=0, busLocation="0000:00:06.0")
    gpu, = read_gpus(made.write(tmp_path / "r.sqlite"))
    assert (gpu.name, gpu.sm_count, gpu.memory_bytes_per_s, gpu.compute_capability, gpu.bus) == (
        "NVIDIA H200", 132, 4814304000000, (9, 0), "0000:00:06.0")
    unknown, = read_gpus(NsysBuilder().step(0, 1).add("TARGET_INFO_GPU", id=0, name="?").write(tmp_path / "s.sqlite"))
    assert unknown.sm_count is None and unknown.memory_bytes_per_s is None and unknown.compute_capability is None


@pytest.mark.parametrize(("text", "parts"), [
    (b"aten::addmm, seq = 0, op_id = 7, sizes = [[1, 2]], input_op_ids = [(0,-1)]", (b"aten::addmm", 0, 7, b"[[1, 2]]")),
    (b"aten::t, op_id = 7, sizes = [[1, 2]]", (b"aten::t", -1, 7, b"[[1, 2]]")),
    (b"aten::t, seq = 3, sizes = [[1, 2]]", (b"aten::t", 3, -1, b"[[1, 2]]")),
    (b"aten::t, seq = 3", (b"aten::t", 3, -1, b"")),
    (b"stage:a, op_id = 12", (b"stage:a", -1, 12, b"")),
    (b"my range", (b"my range", -1, -1, b"")),
    (b"", (b"", -1, -1, b"")),
    (b"a, op_id = many", (b"a, op_id = many", -1, -1, b"")),
    (b"a, op_id = 99999999999999999999", (b"a, op_id = 99999999999999999999", -1, -1, b"")),
])
def test_parts_of_a_range_s_text(text: bytes, parts: tuple[bytes, int, int, bytes]) -> None:
    assert range_name(text) == parts
    usual = (b"aten::t, seq = 1, op_id = 2, sizes = [[1]], input_op_ids = [(0,-1)]", b"kernelwright.step, op_id = 3")
    together = list(zip(*range_names([usual[0], text, usual[1]]), strict=True))
    assert together == [(b"aten::t", 1, 2, b"[[1]]"), parts, (b"kernelwright.step", -1, 3, b"")]


PARTS = (b"a", b", seq = ", b", op_id = ", b"12", b", sizes = ", b"[[1]]", b", input_op_ids = ", b"[]")


@given(st.lists(st.sampled_from(PARTS), max_size=9))
def test_many_texts_are_read_as_one_is(parts: list[bytes]) -> None:
    texts = [b"aten::t, seq = 1, op_id = 2, sizes = [[1]]", b"".join(parts)]
    assert list(zip(*range_names(texts), strict=True)) == [range_name(text) for text in texts]


@pytest.mark.parametrize(("text", "operator"), [
    ("aten::mm, op_id = 2, sizes = [[2, 2]]", True), ("aten::mm", True), ("torchvision::nms, op_id = 2", True),
    ("Torch-Compiled Region: 0/0, op_id = 2", True), ("triton_poi_fused_relu_0, op_id = 3, sizes = [[8]]", True),
    ("autograd::engine::evaluate_function: MmBackward0, op_id = 5", True), ("compile_fx (dynamo_timed), op_id = 4", True),
    ("my::range", False), ("my range, op_id = 3", False), ("Optimizer.step#SGD.step, op_id = 4", False),
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__, op_id = 4", False), ("stage:x, op_id = 1", False)])
def test_operators_and_annotations_are_told_apart(tmp_path: Path, text: str, operator: bool) -> None:
    trace, _ = read_nsys(NsysBuilder().step(0, 100).range(text, 1, 2).write(tmp_path / "r.sqlite"))
    assert (len(trace.operators), len(trace.ranges)) == ((1, 0) if operator else (0, 1))


def test_names_of_calls_and_copies() -> None:
    assert [api_name(name) for name in ("cudaLaunchKernel_v7000", "cudaLaunchKernelExC_v11060", "cudaMemcpyAsync_ptsz_v7000",
                                        "cuMemcpyDtoH_v2", "cuLaunchKernel", "cuStreamSynchronize_ptsz")] == [
        "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cuMemcpyDtoH_v2", "cuLaunchKernel", "cuStreamSynchronize"]
    assert copy_name("HTOD", "PAGEABLE", "DEVICE") == "Memcpy HtoD (Pageable -> Device)"
    assert copy_name("PTOP", "DEVICE", "DEVICE") == "Memcpy PtoP (Device -> Device)"
    assert copy_name("DTOA", "DEVICE_STATIC", "nonsense") == "Memcpy DtoA (Device Static -> Unknown)"
    assert copy_name("UVM_DTOH", "MANAGED", "MANAGED") == "Unified memory migration DtoH"
    assert fill_name("DEVICE") == "Memset (Device)"


def test_the_file_s_own_numbers_of_kinds_count(tmp_path: Path) -> None:
    made = NsysBuilder().step(0, 100).call(1, 1, 2).copy(10, 20, 1, kind=42, source=50, target=51)
    made.add("ENUM_CUDA_MEMCPY_OPER", id=42, name="CUDA_MEMCPY_KIND_DTOH").add("ENUM_CUDA_MEM_KIND", id=50, name="X_KIND_DEVICE_STATIC")
    made.add("ENUM_CUDA_MEM_KIND", id=51, name="CUDA_MEMOPR_MEMORY_KIND_PINNED")
    assert rows(read_nsys(made.write(tmp_path / "r.sqlite"))[0].device)[0][0] == "Memcpy DtoH (Device Static -> Pinned)"


def test_events_of_the_same_times_are_in_the_order_in_which_they_were_opened(tmp_path: Path) -> None:
    made = NsysBuilder().step(0, 100, op_id=1).range("inner, op_id = 9", 10, 20).range("outer, op_id = 8", 10, 20)
    assert [row[0] for row in rows(read_nsys(made.write(tmp_path / "r.sqlite"))[0].ranges)] == ["outer", "inner"]


def test_a_gradient_whose_forward_call_was_not_recorded(tmp_path: Path) -> None:
    made = NsysBuilder().step(0, 1000)
    for at in (100, 300):
        made.range("autograd::engine::evaluate_function: MmBackward0, op_id = 5", at, at + 90)
        made.range("MmBackward0, seq = 4, op_id = 6, sizes = [[2]]", at + 5, at + 80)
    trace, _ = read_nsys(made.write(tmp_path / "r.sqlite"))
    assert [details["forward_thread"] for details in trace.operators.args] == [-1] * 4
    assert all(Calls(trace).forward_call(row) is None for row in range(4))


def test_a_forward_call_that_is_repeated_in_the_backward_pass_is_no_gradient(tmp_path: Path) -> None:
    """Activation checkpointing runs the forward again inside a backward node."""
    made = NsysBuilder().step(0, 1000).range("aten::mm, seq = 3, op_id = 2, sizes = [[2]]", 10, 20)
    made.range("autograd::engine::evaluate_function: CheckpointBackward, op_id = 4", 100, 900)
    made.range("CheckpointBackward, seq = 3, op_id = 5, sizes = [[2]]", 110, 890)
    made.range("aten::mm, seq = 9, op_id = 6, sizes = [[2]]", 120, 200)
    made.range("autograd::engine::evaluate_function: MmBackward0, op_id = 7", 300, 400)
    made.range("MmBackward0, seq = 9, op_id = 8, sizes = [[2]]", 310, 390)
    trace, _ = read_nsys(made.write(tmp_path / "r.sqlite"))
    by_id = {details["opened"]: (row, details) for row, details in enumerate(trace.operators.args)}
    assert by_id[6][1]["forward_thread"] == 0 and by_id[8][1]["forward_thread"] == TID
    calls = Calls(trace)
    assert calls.forward_call(by_id[8][0]) == by_id[6][0] and calls.forward_call(by_id[5][0]) == by_id[2][0]


def test_arrays_are_plain_int64(tmp_path: Path) -> None:
    trace, _ = read_nsys(training_step().write(tmp_path / "r.sqlite"))
    for table in (trace.device, trace.runtime, trace.operators, trace.ranges, trace.lines, trace.steps, trace.overheads, trace.python):
        for one in fields(table):
            if one.name not in ("names", "args"):
                assert getattr(table, one.name).dtype == np.int64
        assert len(table.args) == len(table)
