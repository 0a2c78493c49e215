"""Recorded captures of an H200: flow's figures agree with what nsys says of them, and the gaps have the right causes on the right lines."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kernelwright.attribute.calls import Calls
from kernelwright.attribute.event_lines import EventLines
from kernelwright.attribute.moments import Moments
from kernelwright.attribute.sources import Places
from kernelwright.model.flow import Flow
from kernelwright.model.trace import Trace
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.lines import read_lines
from kernelwright.readers.nsys import read_nsys
from kernelwright.readers.nsys_names import api_name
from kernelwright.timeline.flow import flow
from kernelwright.timeline.intervals import union_length
from kernelwright.timeline.launches import LaunchedWork, api_calls
from kernelwright.timeline.names import synchronizes
from kernelwright.timeline.summary import summarize
from nsys_recordings import NAMES, WITH_STATS, recording, stats


@cache
def traces(name: str) -> tuple[Trace, ...]:
    return tuple(trace for trace in read_nsys(recording(name) / "report.sqlite") if trace is not None)


@cache
def flow_of(name: str) -> Flow:
    trace, *stacks = traces(name)
    file = recording(name) / "lines.json.gz"
    lines = read_lines(file) if file.exists() else ()
    calls, theirs = Calls(trace), stacks[0] if stacks else None
    return flow(trace, line_of=EventLines(calls, Places(calls, theirs, lines), Moments(trace, theirs, lines)).line_of)


@cache
def origin(name: str) -> int:
    """nsys's time of the first step: that of any row less ours."""
    start = min(int(row["Start (ns)"]) for row in stats(name, "stats_cuda_gpu_trace"))
    return start - min(int(trace.device.start_ns.min()) for trace in traces(name))


# -- agreement with nsys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_STATS)
def test_busy_share_is_nsyss_time_utilisation(name: str) -> None:
    """`nsys analyze -r gpu_time_util`: In-Use is the merged time of kernels, copies and memsets, in stretches of their own choice."""
    starts, ends = (np.concatenate([getattr(trace.device, side) for trace in traces(name)]) + origin(name)
                    for side in ("start_ns", "end_ns"))
    rows = stats(name, "analyze_gpu_time_util")
    assert rows
    for row in rows:
        low = int(row["Start (ns)"])
        high = low + int(row["Duration (ns)"])
        busy = union_length(np.clip(starts, low, high), np.clip(ends, low, high))
        assert abs(100 * busy / (high - low) - float(row["In-Use (%)"])) <= 0.051, row


@pytest.mark.parametrize("name", WITH_STATS)
def test_latency_is_nsyss_queue_time(name: str) -> None:
    """`nsys stats -r cuda_kern_exec_trace`: the queue time of a kernel is from its call's return to its start; none where it began before.
    Of a graph's kernels it is told for the first node only here."""
    launched = LaunchedWork(traces(name)[0])
    table, device = launched.table, launched.trace.device
    ours = {(int(table.begun_ns[at]) + origin(name), int(table.latency_ns[at])) for at in range(len(table))
            if device.args[int(table.first[at])]["category"] == "kernel"}
    theirs = {int(row["Kernel Start (ns)"]): int(row["Queue Dur (ns)"] or 0) for row in stats(name, "stats_cuda_kern_exec_trace")}
    assert ours and all(theirs[start] == latency for start, latency in ours)


@pytest.mark.parametrize("name", WITH_STATS)
def test_sums_of_calls_are_nsyss(name: str) -> None:
    found: dict[str, list[int]] = {}
    for trace in traces(name):
        for call in api_calls(trace.runtime, np.arange(len(trace.runtime))):
            count, total, low, high = found.get(call.name, (0, 0, call.min_ns, call.max_ns))
            found[call.name] = [count + call.count, total + call.total_ns, min(low, call.min_ns), max(high, call.max_ns)]
    assert found == {api_name(row["Name"]): [int(row[key]) for key in ("Num Calls", "Total Time (ns)", "Min (ns)", "Max (ns)")]
                     for row in stats(name, "stats_cuda_api_sum")}


@pytest.mark.parametrize("name", WITH_STATS)
def test_calls_that_wait_are_nsyss(name: str) -> None:
    """`nsys analyze -r cuda_api_sync`: the longest 50 calls that block the host; copies have a rule of their own."""
    ours = sorted((int(trace.runtime.duration_ns[row]) for trace in traces(name) for row in range(len(trace.runtime))
                   if synchronizes(trace.runtime.name(row))), reverse=True)[:50]
    assert [int(row["Duration (ns)"]) for row in stats(name, "analyze_cuda_api_sync")] == ours


@pytest.mark.parametrize("name", NAMES)
def test_figures_agree_with_the_summary_of_the_annotation_mode(name: str) -> None:
    found, summary = flow_of(name), summarize(traces(name)[0], attributed_ns=0, unattributed_ns=0)
    (device,) = found.devices
    assert (device.busy_ns, device.idle_ns, device.span_ns, device.gap_count) == (
        summary.busy_ns, summary.gap_total_ns, summary.span_ns, summary.gap_count)
    assert sum(part.idle_ns for part in device.causes) == device.idle_ns and sum(device.concurrency_ns) == device.span_ns
    assert found.launches is not None and found.launches.order.launches == summary.launches


# -- causes -----------------------------------------------------------------------------------------------------------------


def causes(name: str) -> list[str]:
    """Of all idle time, most first."""
    return [part.cause for part in flow_of(name).devices[0].causes]


def sites(name: str, cause: str) -> list[tuple[str | None, str | None, str | None, int]]:
    return [(site.call, site.operator, site.where, site.count) for site in flow_of(name).sites if site.cause == cause]


def line(file: str, text: str) -> str:
    """"file.py:12" of the one line of a recorded workload that holds this text."""
    source = (Path(__file__).parents[1] / "gpu" / "nsys" / file).read_text().splitlines()
    (number,) = [number for number, content in enumerate(source, 1) if text in content]
    return f"{file}:{number}"


def test_the_slow_loader_is_the_data_loaders_gap_on_the_line_that_asks_for_the_batch() -> None:
    found = flow_of("slow_loader")
    assert causes("slow_loader")[0] == "data_loader"
    assert [(gap.cause, gap.where) for gap in found.gaps[:2]] == [("data_loader", line("slow_loader.py", "next(self.batches)"))] * 2
    assert found.devices[0].causes[0].idle_ns > 0.8 * found.devices[0].idle_ns
    assert sites("slow_loader", "synchronization")[0][1:3] == ("aten::copy_", line("slow_loader.py", "x.to(self.device)"))


def test_the_hidden_synchronisation_the_allocations_and_the_copy() -> None:
    item = line("hidden_sync.py", ".item() > 1e30")
    assert sites("hidden_sync", "synchronization") == [("cudaStreamSynchronize", "aten::_local_scalar_dense", item, 12)]
    assert {(call, where) for call, _, where, _ in sites("hidden_sync", "allocator")} == {
        ("cudaFree", line("hidden_sync.py", "empty_cache")), ("cudaMalloc", item)}
    assert sites("hidden_sync", "copy")[0] == ("cudaMemcpyAsync", "aten::copy_", line("hidden_sync.py", "host.to("), 2)


@pytest.mark.parametrize("name", ["gpt2", "gpt2-inductor", "mlp_activations", "two_streams"])
def test_workloads_whose_host_is_slower_than_the_device_are_host_bound(name: str) -> None:
    found = flow_of(name).devices[0]
    assert found.causes[0].cause == "host_bound" and found.causes[0].idle_ns > 0.7 * found.idle_ns
    assert all(gap.cause != "dependency" for gap in flow_of(name).gaps if gap.duration_ns > 10_000)


def test_the_line_of_a_late_launch() -> None:
    gap = next(gap for gap in flow_of("two_streams").gaps if gap.next_operator == "aten::add")
    assert (gap.cause, gap.where) == ("host_bound", line("two_streams.py", "return left + right"))


def test_two_streams() -> None:
    (device,) = flow_of("two_streams").devices
    assert [(stream.stream, stream.kernels) for stream in device.streams] == [(7, 18), (13, 16)]
    assert sum(stream.busy_ns for stream in device.streams) == device.busy_ns, "the host launched them too late to overlap"
    assert device.concurrency_ns == (device.idle_ns, device.busy_ns) and device.overlaps.compute_compute_ns == 0
    assert device.stream_causes[0].cause == "host_bound"
    assert flow_of("two_streams").launches.order.stream_switches == 3


def test_kernels_of_a_graph_wait_for_each_other_only() -> None:
    gaps = [gap for gap in flow_of("mlp_activations-cudagraphs").gaps if gap.next_call == "cudaGraphLaunch"]
    assert {gap.cause for gap in gaps if gap.duration_ns < 5_000} == {"dependency"}
    assert [gap.cause for gap in gaps if gap.duration_ns > 5_000] == ["host_bound"] * 2, "one gap before each launch of the graph"


def test_the_profilers_own_time_is_told_apart() -> None:
    """nsys got new buffers while gpt2 ran."""
    assert {call for call, *_ in sites("gpt2", "profiler")} == {"Chunk Allocation"}


# -- Kineto -----------------------------------------------------------------------------------------------------------------

KINETO = sorted((Path(__file__).parents[1] / "data" / "traces").glob("*/trace.json.gz"))


@pytest.mark.parametrize("path", KINETO, ids=lambda path: path.parent.name)
def test_kineto_recordings_by_the_same_engine(path: Path) -> None:
    trace = read_kineto(path)
    found, summary = flow(trace), summarize(trace, attributed_ns=0, unattributed_ns=0)
    if not trace.is_cuda:
        assert found.devices == () and found.gaps == ()
        return
    (device,) = found.devices
    assert (device.busy_ns, device.idle_ns, device.span_ns, device.gap_count) == (
        summary.busy_ns, summary.gap_total_ns, summary.span_ns, summary.gap_count)
    assert {cause.cause for cause in device.causes} <= {
        "host_bound", "launch_latency", "dependency", "outside", "synchronization", "copy"}
    assert device.causes[0].cause == "host_bound", "small steps, slowed by the recording"


def test_the_wait_for_a_copy_in_a_kineto_recording() -> None:
    (path,) = (path for path in KINETO if path.parent.name == "h200_conv_copy")
    waits = [gap for gap in flow(read_kineto(path)).gaps if gap.cause == "synchronization"]
    assert [(gap.call, gap.operator, gap.previous) for gap in waits] == [
        ("cudaStreamSynchronize", "aten::copy_", "Memcpy HtoD (Pageable -> Device)")] * 2
