"""Kineto traces as other versions of torch, ROCm and distributed runs write them, and traces without the probe's steps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kernelwright.attribute.activity import SYNCHRONIZING
from kernelwright.model.errors import BadInput
from kernelwright.model.trace import Trace
from kernelwright.readers.kineto import read_kineto
from kernelwright.timeline.steps import device_work
from trace_builder import BASE_NS, TraceBuilder


def read(tmp_path: Path, text: str, **options: Any) -> Trace:
    path = tmp_path / "t.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    return read_kineto(path, **options)


def steps(trace: Trace) -> list[tuple[int, int]]:
    return list(zip(trace.steps.start_ns.tolist(), trace.steps.end_ns.tolist(), strict=True))


def names(table: Any) -> list[str]:
    return [table.name(row) for row in range(len(table))]


# -- which ranges are the steps ---------------------------------------------------------------------------------------------


def profiled() -> TraceBuilder:
    """As torch.profiler records: its own steps, on the device's row too."""
    return (TraceBuilder().range("ProfilerStep#7", 1000, 2000).range("ProfilerStep#8", 2000, 3000).range("forward", 1100, 1500)
            .event("gpu_user_annotation", "ProfilerStep#7", 1100, 2500, pid=0, tid=7)
            .op("aten::a", 500, 600).op("aten::b", 1100, 1200).launch(3, 1110, 1120).kernel("k", 1500, 1600, 3)
            .range("forward", 2100, 2500))


def test_torch_profilers_own_steps_are_taken_where_asked_for(tmp_path: Path) -> None:
    trace = read(tmp_path, profiled().text(), need_steps=False)
    assert trace.steps_from == "ProfilerStep" and names(trace.steps) == ["ProfilerStep#7", "ProfilerStep#8"]
    assert steps(trace) == [(0, 1000), (1000, 2000)]
    assert names(trace.ranges) == ["forward", "forward"] and trace.operators.start_ns.tolist() == [-500, 100]
    assert device_work(trace).step.tolist() == [0]


def test_without_being_asked_for_they_are_not(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no profiled step") as caught:
        read(tmp_path, profiled().text())
    assert caught.value.code == "no_steps"


def test_a_named_range_can_be_the_step(tmp_path: Path) -> None:
    trace = read(tmp_path, profiled().text(), steps_range="forward")
    assert trace.steps_from == "range" and steps(trace) == [(0, 400), (1000, 1400)] and "forward" not in names(trace.ranges)
    with pytest.raises(BadInput, match="'backward'"):
        read(tmp_path, profiled().text(), need_steps=False, steps_range="backward")


def test_steps_of_a_second_thread_stay_ranges(tmp_path: Path) -> None:
    builder = TraceBuilder().range("ProfilerStep#1", 0, 1000).range("ProfilerStep#1", 500, 1500, tid=5).range("ProfilerStep#2", 1000, 2000)
    trace = read(tmp_path, builder.text(), need_steps=False)
    assert steps(trace) == [(0, 1000), (1000, 2000)] and names(trace.ranges) == ["ProfilerStep#1"]


def test_a_trace_without_any_steps_is_one_step_on_the_busiest_thread(tmp_path: Path) -> None:
    builder = (TraceBuilder().op("aten::a", 100, 200, tid=3).op("aten::b", 300, 400, tid=4).launch(1, 310, 320, tid=4)
               .launch(2, 330, 340, tid=4).kernel("k", 500, 900, 1).kernel("k", 900, 950, 2))
    trace = read(tmp_path, builder.text(), need_steps=False)
    assert trace.steps_from == "whole" and steps(trace) == [(0, 850)] and trace.steps.thread.tolist() == [4]
    assert device_work(trace).step.tolist() == [0, 0]


def test_the_probes_steps_win(tmp_path: Path) -> None:
    trace = read(tmp_path, profiled().step(1200, 1300).text(), need_steps=False)
    assert trace.steps_from == "kernelwright" and steps(trace) == [(0, 100)] and "ProfilerStep#7" in names(trace.ranges)


def test_a_trace_of_metadata_alone_is_empty(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, '{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1}]}', need_steps=False)
    assert caught.value.code == "empty_trace"


# -- ranks ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("written", "rank", "size"), [
    ('{"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}', 3, 8), ('{"rank": 0}', 0, None),
    ('{"backend": "nccl"}', None, None), ("null", None, None), ('{"rank": 8, "world_size": 8}', None, 8), ('{"rank": -1}', None, None),
    ('{"rank": 99999999999999999999}', None, None),
])
def test_the_rank_is_what_the_trace_says(tmp_path: Path, written: str, rank: int | None, size: int | None) -> None:
    text = TraceBuilder().step(0, 10).text()
    for place in (text.replace('"traceEvents"', f'"distributedInfo": {written}, "traceEvents"'),
                  text.replace('"traceName"', f'"distributedInfo": {written}, "traceName"')):
        trace = read(tmp_path, place)
        assert (trace.rank, trace.world_size) == (rank, size)


def test_collectives_keep_their_group_and_number(tmp_path: Path) -> None:
    said = {"Collective_name": "allreduce", "Process_Group_Name": "0", "Process_Group_Ranks": "[0, 1]", "Group_size": 2,
            "In_msg_nelems": 4096, "Out_msg_nelems": 4096, "dtype": "Float", "Seq": 12, "Comms_Id": 10159970886766084423}
    builder = TraceBuilder().step(0, 100).op("record_param_comms", 1, 9, **said).op("aten::a", 10, 20)
    builder.event("kernel", "ncclDevKernel", 30, 60, pid=0, tid=9, device=0, stream=9, correlation=1, **said).kernel("k", 70, 80, 2)
    trace = read(tmp_path, builder.text())
    expected = {"name": "allreduce", "group": "0", "ranks": "[0, 1]", "size": 2, "in_elements": 4096, "out_elements": 4096,
                "dtype": "Float", "sequence": 12}
    assert [args.get("collective") for args in trace.device.args] == [expected, None]
    assert [args.get("collective") for args in trace.operators.args] == [expected, None]


# -- other versions of torch ------------------------------------------------------------------------------------------------


def test_whole_microseconds_and_kinetos_older_count(tmp_path: Path) -> None:
    """As torch 1.12 to 2.1 wrote: no decimals, so that an operator and the first one inside it begin alike."""
    text = (TraceBuilder().step(0, 100_000).op("aten::inner", 5_000, 6_000).op("aten::outer", 5_000, 6_000).op("aten::next", 7_000, 8_000)
            .text())
    text = re.sub(r'"(ts|dur)": (\d+)\.\d+', r'"\1": \2', text)
    for written, first in ((text, "aten::inner"), (text.replace('"Ev Idx": 1', '"Ev Idx": 9'), "aten::outer"),
                           (text.replace('"Ev Idx": 1', '"Ev Idx": 9').replace("Ev Idx", "Profiler Event Index"), "aten::outer")):
        trace = read(tmp_path, written)
        assert names(trace.operators)[0] == first and trace.operators.duration_ns.tolist() == [1000, 1000, 1000]
        assert int(trace.operators.start_ns[2] - trace.operators.start_ns[0]) == 2000
    assert trace.operators.args[1]["opened"] == 9


def test_the_oldest_categories(tmp_path: Path) -> None:
    text = (TraceBuilder().step(0, 1000).op("aten::a", 1, 9).launch(3, 5, 9).kernel("k", 20, 90, 3)
            .copy("Memcpy HtoD (Pageable -> Device)", 100, 120, 4, 64).text())
    for new, old in (("cpu_op", "Operator"), ("cuda_runtime", "Runtime"), ("kernel", "Kernel"), ("gpu_memcpy", "Memcpy")):
        text = text.replace(f'"cat": "{new}"', f'"cat": "{old}"')
    trace = read(tmp_path, text)
    assert [args["category"] for args in trace.device.args] == ["kernel", "memcpy"] and len(trace.runtime) == len(trace.operators) == 1


def other_layouts() -> TraceBuilder:
    builder = TraceBuilder().step(0, 10**6).event("cpu_op", 'a "quoted" \\ name', 5, 9)
    for number in range(60):
        builder.op("aten::a", 10 * number, 10 * number + 5).launch(number, 10 * number, 10 * number + 4).kernel("k", 50, 90, number)
    return builder


@pytest.mark.parametrize("change", [
    lambda document: json.dumps(document, sort_keys=True),
    lambda document: json.dumps(document, indent=4, sort_keys=True),
    lambda document: json.dumps(document["traceEvents"]),
    lambda document: json.dumps({"traceEvents": [{"id": 7, **event} for event in document["traceEvents"]]}),
    lambda document: "\ufeff" + json.dumps(document),
    lambda document: json.dumps({"otherData": {"traceEvents": [{"ph": "X"}]}, **document}),
], ids=["sorted", "sorted-indented", "list", "other-first-key", "byte-order-mark", "name-inside"])
def test_traces_that_something_else_wrote_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    text = other_layouts().text()
    monkeypatch.setattr("kernelwright.readers.packed.CHUNK_BYTES", 333)
    expected = read(tmp_path, text)
    trace = read(tmp_path, change(json.loads(text, parse_float=lambda number: f"@{number}@")).replace('"@', "").replace('@"', ""))
    assert trace.operators.start_ns.tolist() == expected.operators.start_ns.tolist() and names(trace.operators) == names(expected.operators)
    assert trace.device.correlation.tolist() == expected.device.correlation.tolist()
    assert list(trace.operators.args) == list(expected.operators.args) and list(trace.device.args) == list(expected.device.args)


KINETO = """  {{
    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": 1,
    "ts": {ts}, "dur": 5.000,
    "args": {{
{args}
    }}
  }}"""


@pytest.mark.parametrize(("name", "args", "read_name"), [
    ('<eval_with_key>({"device": "cpu"})', '"Ev Idx": 3', '<eval_with_key>({"device": "cpu"})'),
    ("C:\\Users\\me\\train.py(3): f", '"Ev Idx": 3', "C:\\Users\\me\\train.py(3): f"),
    ("a\x01b", '"Ev Idx": 3', "a b"),
    ("a\udcffb", '"Ev Idx": 3', "a\ufffdb"),
    ("aten::a", '"est. achieved occupancy %": nan, "blocks per SM": -inf, "x": [N/A, Infinity], "Ev Idx": 3', "aten::a"),
], ids=["quotes", "backslashes", "control", "not-utf-8", "no-numbers"])
def test_what_some_versions_wrote_broken_is_mended(tmp_path: Path, name: str, args: str, read_name: str) -> None:
    events = [KINETO.format(name=name, args=f"      {args}", ts=f"{BASE_NS // 1000 + 10}.{number:03d}") for number in range(3)]
    step = KINETO.format(name="kernelwright.step", args="", ts=f"{BASE_NS // 1000}.000").replace("cpu_op", "user_annotation")
    trace = read(tmp_path, '{\n  "traceEvents": [\n' + ",\n".join([step, *events]) + '\n  ],\n  "traceName": "t"\n}\n')
    assert names(trace.operators) == [read_name] * 3 and trace.operators.args[2]["opened"] == 3


# -- ROCm -------------------------------------------------------------------------------------------------------------------


def test_rocm_launches_lend_their_sizes_to_what_they_launched(tmp_path: Path) -> None:
    """As ROCm 6.2 wrote: streams as addresses, sizes as text, grid and block with the call alone."""
    builder = TraceBuilder("AMD Radeon Graphics", sms=104).step(0, 1000)
    builder.event("cuda_runtime", "hipMemcpyWithStream", 10, 70, correlation=117, stream="0x0", size="2560", kind="1", src="0x55")
    builder.event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 25, 47, pid=2, tid=0, device=2, stream=0, correlation=117, kind="HtoD")
    for correlation, grid in ((118, [3, 1, 1]), (119, [9, 1, 1])):
        builder.event("cuda_runtime", "hipLaunchKernel", 100, 110, correlation=correlation, stream="0x0", kernel="k", grid=grid,
                      block=[128, 1, 1], shared_memory=512)
        builder.event("kernel", "k", 120 + correlation, 130 + correlation, pid=2, tid=0, device=2, stream=0, correlation=correlation,
                      kind="Dispatch Kernel")
    builder.event("cuda_runtime", "hipDeviceSynchronize", 300, 400, correlation=120, cid=3)
    trace = read(tmp_path, builder.text())
    copy, *kernels = trace.device.args
    assert copy["bytes"] == 2560 and copy["category"] == "memcpy" and copy["grid"] is None
    assert [(one["grid"], one["block"], one["shared_bytes"], one["bytes"]) for one in kernels] == [
        ([3, 1, 1], [128, 1, 1], 512, -1), ([9, 1, 1], [128, 1, 1], 512, -1)]
    assert trace.is_cuda and trace.runtime.stream.tolist() == [-1] * 4 and len(device_work(trace).rows) == 3
    assert {"hipDeviceSynchronize", "hipMemcpyWithStream"} <= SYNCHRONIZING
