"""trace.perfetto.gz, read back by a reader that knows the published format and nothing of the writer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import HOSTILE
from kernelwright.attribute.attribute import attribute
from kernelwright.model.trace import Trace
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.nsys import read_nsys
from kernelwright.report import perfetto
from kernelwright.report.perfetto import write_perfetto
from kernelwright.report.text import plain
from kernelwright.report.timeline_events import MOST_NAME
from kernelwright.timeline.flow import FlowOf
from nsys_recordings import recording
from perfetto_reader import read_perfetto
from property_examples import examples
from synthetic_timeline import timeline
from trace_builder import TraceBuilder

TRACES = Path(__file__).resolve().parents[1] / "data"
RECORDINGS = ("captures/h200/gpt2", "captures/h200/train_mlp_step", "traces/h200_mlp_cuda_graph", "traces/cpu_mlp_training")


@pytest.fixture(params=RECORDINGS)
def trace_of(request: pytest.FixtureRequest) -> Trace:
    return read_kineto(TRACES / request.param / "trace.json.gz")


def test_every_event_of_a_recording_is_a_slice_with_its_times(trace_of: Trace, tmp_path: Path) -> None:
    path = tmp_path / "trace.perfetto.gz"
    assert write_perfetto(path, trace_of, operators=attribute(trace_of).operators) == 0
    read = read_perfetto(path)
    tables = (trace_of.device, trace_of.runtime, trace_of.operators, trace_of.ranges, trace_of.overheads)
    base = min(int(table.start_ns.min()) for table in (*tables, trace_of.steps) if len(table))
    wanted = Counter((plain(table.name(row), MOST_NAME), int(table.start_ns[row]) - base, int(table.end_ns[row]) - base)
                     for table in tables for row in range(len(table)))
    wanted.update((f"{trace_of.steps.name(row)} {row}", int(start) - base, int(end) - base)
                  for row, (start, end) in enumerate(zip(trace_of.steps.start_ns, trace_of.steps.end_ns, strict=True)))
    assert Counter((one.name, one.start, one.end) for one in read.slices) == wanted
    for one in read.slices:
        assert read.tracks[read.tracks[one.track][1]][0] in ("Host", "GPU (NVIDIA H200)" if trace_of.is_cuda else "GPU")
    groups = [name for name, parent in read.tracks.values() if parent == 0]
    assert groups == sorted(groups), "the page sorts them by name"


def test_flows_lead_from_each_call_to_what_it_launched(trace_of: Trace, tmp_path: Path) -> None:
    path = tmp_path / "trace.perfetto.gz"
    write_perfetto(path, trace_of)
    read = read_perfetto(path)
    leaving = {flow: one for one in read.slices for flow in one.flows}
    ending = {flow: one for one in read.slices for flow in one.ends}
    assert leaving.keys() == ending.keys() and all(leaving[flow].start <= ending[flow].start for flow in leaving)
    assert (len(ending) > 0) == trace_of.is_cuda
    if trace_of.is_cuda:
        assert all(read.tracks[one.track][0].startswith("CUDA calls") for one in leaving.values())
        assert sum("stream" in read.tracks[one.track][0] for one in ending.values()) == len(ending)


def test_kernels_carry_operator_and_launch_configuration(tmp_path: Path) -> None:
    trace = read_kineto(TRACES / "captures/h200/gpt2/trace.json.gz")
    path = tmp_path / "trace.perfetto.gz"
    write_perfetto(path, trace, operators=attribute(trace).operators)
    kernels = read_perfetto(path).on("GPU 0 stream 7")
    assert len(kernels) == len(trace.device)
    assert {"aten::addmm", "aten::native_layer_norm"} <= {one.notes["operator"] for one in kernels if "operator" in one.notes}
    assert all("grid: " in one.notes["details"] for one in kernels if "gemm" in one.name)


def test_counters_of_queue_and_memory(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 1000).memory(5, 512, 512, 1).memory(300, -512, 0, 1).memory(400, 64, 64, 2, kind=0, device=-1)
    for correlation, (begin, start) in enumerate(((10, 100), (30, 200), (60, 300)), 1):
        builder.launch(correlation, begin, begin + 10).kernel("k", start, start + 90, correlation)
    builder.launch(4, 400, 450).kernel("k", 420, 440, 4)  # begins before the call returns: never queued
    path = tmp_path / "trace.perfetto.gz"
    write_perfetto(path, read_kineto(builder.write(tmp_path / "t.json")))
    assert read_perfetto(path).counters == {
        "GPU 0: launched, not begun": [(20, 1), (40, 2), (70, 3), (100, 2), (200, 1), (300, 0)],
        "GPU 0: allocated": [(5, 512), (300, 0)], "host: allocated": [(400, 64)]}


def test_memory_that_was_allocated_before_the_first_event_is_there_from_the_beginning(tmp_path: Path) -> None:
    builder = TraceBuilder().step(100, 1000).op("aten::mm", 100, 200)
    builder.memory(5, 512, 512, 1).memory(50, 100, 612, 2).memory(300, -512, 100, 1)
    write_perfetto(tmp_path / "p.gz", read_kineto(builder.write(tmp_path / "t.json")))
    assert read_perfetto(tmp_path / "p.gz").counters == {"GPU 0: allocated": [(0, 612), (200, 100)]}
    trace, _ = read_nsys(recording("gpt2") / "report.sqlite")
    assert int(trace.memory.time_ns.max()) < int(trace.operators.start_ns.min()), "all of it lies before"
    write_perfetto(tmp_path / "p.gz", trace)
    assert read_perfetto(tmp_path / "p.gz").counters["GPU 0: allocated"] == [(0, int(trace.memory.total_bytes[-1]))]


@examples(40)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=25))
def test_slices_nest_on_every_track_whatever_overlaps(tmp_path_factory: pytest.TempPathFactory, kernels: list[tuple[int, int]]) -> None:
    folder = tmp_path_factory.mktemp("perfetto")
    builder = TraceBuilder().step(0, 100)
    for place, (start, length) in enumerate(kernels):
        builder.kernel(f"k{place}", start, start + length, place + 1)
    write_perfetto(folder / "p.gz", read_kineto(builder.write(folder / "t.json")))
    read = read_perfetto(folder / "p.gz").on("GPU 0 stream 7")
    assert sorted((one.name, one.start, one.end) for one in read) == sorted(
        (f"k{place}", start, start + length) for place, (start, length) in enumerate(kernels))


def test_idle_time_is_a_track_of_causes(tmp_path: Path) -> None:
    trace, _ = read_nsys(recording("slow_loader") / "report.sqlite")
    of = FlowOf(trace)
    write_perfetto(tmp_path / "p.gz", trace, flow=of.flow(), gaps=of.device_gaps)
    idle = read_perfetto(tmp_path / "p.gz").on("GPU 0 idle, by cause")
    assert len(idle) == len(of.device_gaps) and sum((one.end or 0) - one.start for one in idle) == of.device_gaps.duration_ns.sum()
    assert any(one.name == "data loader" and "in: enumerate(DataLoader)#" in one.notes["details"] for one in idle)


def test_a_graph_launch_leads_to_many_kernels(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 10_000).launch(1, 10, 20, name="cudaGraphLaunch")
    for place in range(50):
        builder.kernel("k", 100 + 10 * place, 105 + 10 * place, 1)
    write_perfetto(tmp_path / "p.gz", read_kineto(builder.write(tmp_path / "t.json")))
    read = read_perfetto(tmp_path / "p.gz")
    (call,) = [one for one in read.slices if one.flows]
    assert call.name == "cudaGraphLaunch" and len(set(call.flows)) == perfetto.MOST_FLOWS
    assert {flow for one in read.slices for flow in one.ends} == set(call.flows)


def test_what_does_not_fit_is_left_out_at_the_end_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "MOST_SLICES", 1000)
    trace = timeline(1000)
    left = write_perfetto(tmp_path / "p.gz", trace)
    read = read_perfetto(tmp_path / "p.gz")
    assert len(read.slices) + left == 4004 and 900 <= len(read.slices) <= 1000
    assert read.instants == [f"{left:,} events that start later are left out"]
    ((_, group),) = [track for track in read.tracks.values() if track[0] == "left out"]
    assert read.tracks[group][0] == "Host"


def test_equal_traces_give_equal_bytes_and_names_are_inert(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 1000).op(HOSTILE, 5, 900).launch(1, 10, 20).kernel(HOSTILE, 30, 800, 1)
    source = builder.write(tmp_path / "t.json")
    for name in ("a.gz", "b.gz"):
        write_perfetto(tmp_path / name, read_kineto(source))
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert not any(mark in one.name for one in read_perfetto(tmp_path / "a.gz").slices for mark in "\x00\x1b\u202e\n")
