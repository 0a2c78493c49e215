"""One little trace for each rule of docs/timeline.md on gaps, with the answer worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelwright.model.flow import Flow, Gap
from kernelwright.readers.kineto import read_kineto
from kernelwright.timeline.flow import TableName, flow
from kernelwright.timeline.nesting import by_thread
from trace_builder import TraceBuilder

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
COMPILE = "_compile.compile_inner (dynamo_timed)"


def flow_of(builder: TraceBuilder, tmp_path: Path) -> Flow:
    def line_of(table: TableName, row: int) -> str | None:
        return f"{table}.py:{row}"

    return flow(read_kineto(builder.write(tmp_path / "t.json")), line_of=line_of)


def parts(gap: Gap) -> dict[str, int]:
    return {part.cause: part.idle_ns for part in gap.parts}


def started() -> TraceBuilder:
    """One step of 10 us with a kernel until 100 ns, which nothing precedes, and one at 1000, launched late at 900..950."""
    return (TraceBuilder().step(0, 10_000).launch(1, 0, 0).kernel("first", 0, 100, 1)
            .launch(2, 900, 950).kernel("second", 1000, 1100, 2))


def gap_of(builder: TraceBuilder, tmp_path: Path) -> Gap:
    """The one between first and second."""
    found = flow_of(builder, tmp_path)
    return next(gap for gap in found.gaps if gap.next == "second")


def test_a_late_launch_is_the_hosts_and_what_follows_its_return_is_latency(tmp_path: Path) -> None:
    gap = gap_of(started().op("aten::mm", 800, 960), tmp_path)
    assert (gap.start_ns, gap.end_ns, gap.duration_ns, gap.cause) == (100, 1000, 900, "host_bound")
    assert parts(gap) == {"host_bound": 850, "launch_latency": 50}
    assert (gap.call, gap.operator, gap.where) == (None, "aten::mm", "runtime.py:1")
    assert (gap.previous, gap.next, gap.next_call, gap.next_operator) == ("first", "second", "cudaLaunchKernel", "aten::mm")


@pytest.mark.parametrize("name, cause", [
    ("cudaStreamSynchronize", "synchronization"), ("cudaDeviceSynchronize", "synchronization"), ("cuEventSynchronize", "synchronization"),
    ("hipStreamSynchronize", "synchronization"), ("cudaMalloc", "allocator"), ("cudaFree", "allocator"), ("cudaHostAlloc", "allocator"),
    ("cuMemMap", "allocator"), ("cuMemCreate", "allocator"), ("hipMalloc", "allocator"), ("cudaMemcpyAsync", "copy"),
    ("cudaMemcpy", "copy"), ("hipMemcpyAsync", "copy"), ("cuModuleLoadDataEx", "first_use"), ("cuLibraryLoadData", "first_use"),
    ("cudaGraphInstantiate", "first_use"), ("cudaEventRecord", "host_bound"), ("cudaStreamWaitEvent", "host_bound"),
    ("cudaEventQuery", "host_bound"), ("cudaFuncGetAttributes", "host_bound"), ("cuMemMapArrayAsync", "host_bound")])
def test_what_a_call_in_the_gap_makes_it(name: str, cause: str, tmp_path: Path) -> None:
    gap = gap_of(started().launch(3, 200, 700, name=name), tmp_path)
    assert gap.cause == cause
    if cause != "host_bound":
        assert gap.parts[0].idle_ns >= 500 and (gap.call, gap.call_ns, gap.where) == (name, 500, "runtime.py:1")


def test_a_wait_and_the_way_back_from_it(tmp_path: Path) -> None:
    """50 ns waited and 900 ns (the only interval between launches) are the most that a wait of 50 ns is blamed for after it."""
    late = started().launch(3, 60, 110, name="cudaStreamSynchronize")
    assert parts(gap_of(late, tmp_path)) == {"synchronization": 800, "host_bound": 50, "launch_latency": 50}


def test_the_way_back_ends_at_the_next_launch(tmp_path: Path) -> None:
    builder = started().launch(3, 150, 200, name="cudaStreamSynchronize")
    assert parts(gap_of(builder, tmp_path)) == {"synchronization": 750, "host_bound": 50 + 50, "launch_latency": 50}


def test_slow_python_after_a_wait_is_not_the_waits_doing(tmp_path: Path) -> None:
    """Launches are 10 ns apart, the wait took 30 ns: of the 2000 ns after it, 40 would have been saved by not waiting."""
    builder = (TraceBuilder().step(0, 10_000).launch(1, 0, 5).launch(2, 10, 15).launch(3, 20, 25).kernel("a", 5, 50, 1)
               .kernel("b", 50, 70, 2).kernel("c", 70, 100, 3).launch(9, 75, 105, name="cudaDeviceSynchronize")
               .launch(4, 2105, 2110).kernel("late", 2110, 2120, 4).launch(5, 2115, 2116).kernel("e", 2120, 2130, 5))
    gap = flow_of(builder, tmp_path).gaps[0]
    assert gap.next == "late" and gap.cause == "host_bound" and parts(gap) == {"host_bound": 1965, "synchronization": 45}


def test_the_data_loader_outweighs_the_wait_before_it(tmp_path: Path) -> None:
    gap = gap_of(started().launch(3, 60, 110, name="cudaStreamSynchronize").range(LOADER, 120, 800), tmp_path)
    assert gap.cause == "data_loader" and (gap.call, gap.call_ns, gap.where) == (LOADER, 680, "ranges.py:0")
    assert parts(gap) == {"data_loader": 680, "synchronization": 120, "host_bound": 50, "launch_latency": 50}


@pytest.mark.parametrize("inner", ["cudaMalloc", "cudaMemcpyAsync", "cudaStreamSynchronize"])
def test_what_the_loader_does_inside_is_the_loaders(inner: str, tmp_path: Path) -> None:
    gap = gap_of(started().range(LOADER, 110, 890).launch(3, 200, 700, name=inner), tmp_path)
    assert gap.cause == "data_loader" and parts(gap)["data_loader"] == 780


@pytest.mark.parametrize("outer, inner, cause", [
    ("cudaMemcpyAsync", "cudaStreamSynchronize", "copy"), ("cudaMalloc", "cudaMemcpy", "allocator"),
    ("cuModuleLoadData", "cuMemAlloc", "first_use")])
def test_of_two_calls_at_once_the_earlier_cause_counts(outer: str, inner: str, cause: str, tmp_path: Path) -> None:
    for first, second in ((outer, inner), (inner, outer)):
        gap = gap_of(started().launch(3, 200, 700, name=first).launch(4, 200, 700, name=second), tmp_path)
        assert gap.cause == cause and parts(gap)[cause] == 500


def test_compiling_by_its_ranges_and_module_loading_by_its_overheads(tmp_path: Path) -> None:
    gap = gap_of(started().op(COMPILE, 200, 800), tmp_path)
    assert (gap.cause, gap.call, gap.operator, parts(gap)["first_use"]) == ("first_use", COMPILE, COMPILE, 600)
    gap = gap_of(started().event("overhead", "Lazy Function Loading", 200, 800, pid=-1, tid=0), tmp_path)
    assert (gap.cause, gap.call, gap.where) == ("first_use", "Lazy Function Loading", "overheads.py:0")


def test_the_profilers_overhead_wins_over_all_that_it_slows(tmp_path: Path) -> None:
    builder = started().range(LOADER, 110, 890).event("overhead", "Activity Buffer Request", 200, 800, pid=-1, tid=0)
    gap = gap_of(builder, tmp_path)
    assert gap.cause == "profiler" and parts(gap) == {"profiler": 600, "data_loader": 180, "host_bound": 70, "launch_latency": 50}
    other_thread = started().event("overhead", "Buffer Flush", 200, 800, tid=777)
    assert gap_of(other_thread, tmp_path).cause == "host_bound", "flushing on a thread of its own holds nobody up"


def test_time_between_steps_is_nobodys(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 200).step(900, 2000).launch(1, 0, 0).kernel("first", 0, 100, 1)
               .launch(3, 250, 850, name="cudaMalloc").launch(2, 940, 950).kernel("second", 1000, 1100, 2))
    gap = gap_of(builder, tmp_path)
    assert gap.cause == "outside" and parts(gap) == {"outside": 700, "host_bound": 150, "launch_latency": 50}
    assert gap.call is None and gap.where == "runtime.py:2"


def test_work_of_between_the_steps_is_no_gap_of_theirs(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 200).step(900, 2000).launch(1, 0, 0).kernel("first", 0, 100, 1)
               .launch(3, 300, 310).kernel("between", 400, 990, 3).launch(2, 920, 930).kernel("second", 1000, 1100, 2))
    found = flow_of(builder, tmp_path)
    (gap,) = found.gaps
    assert parts(gap) == {"outside": 200 + 590, "host_bound": 100, "dependency": 10}


def test_work_that_waited_in_the_queue_depends_on_the_work_before(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 1000).launch(1, 0, 5).launch(2, 10, 15).launch(3, 20, 25).kernel("a", 8, 100, 1)
               .kernel("b", 103, 200, 2).kernel("c", 205, 300, 3))
    found = flow_of(builder, tmp_path)
    assert [(gap.next, gap.duration_ns, gap.cause, gap.after_stream, gap.event_wait) for gap in found.gaps if gap.previous] == [
        ("c", 5, "dependency", 7, False), ("b", 3, "dependency", 7, False)]


def test_launched_just_before_the_gap_is_still_launch_latency(tmp_path: Path) -> None:
    """With nothing in the way a launch takes 20 ns here: of 30 ns idle, 15 ns after a launch that returned 5 ns earlier are such."""
    builder = (TraceBuilder().step(0, 1000).launch(1, 0, 10).kernel("a", 30, 100, 1).launch(2, 90, 95).kernel("b", 130, 140, 2))
    found = flow_of(builder, tmp_path)
    gap = next(gap for gap in found.gaps if gap.next == "b")
    assert parts(gap) == {"launch_latency": 15, "dependency": 15}


def test_an_event_of_another_stream(tmp_path: Path) -> None:
    """Stream 20's second kernel was launched at 40, after a wait for an event, and began when stream 7's had ended."""
    builder = (TraceBuilder().step(0, 2000).launch(1, 0, 5).kernel("long", 10, 900, 1).launch(2, 6, 9).kernel("short", 15, 50, 2, stream=20)
               .launch(8, 20, 25, name="cudaStreamWaitEvent").launch(3, 30, 40).kernel("after", 905, 1000, 3, stream=20))
    found = flow_of(builder, tmp_path)
    (gap,) = found.stream_gaps
    assert (gap.stream, gap.start_ns, gap.end_ns, gap.cause) == (20, 50, 905, "dependency")
    assert (gap.after_stream, gap.event_wait, gap.next, gap.previous) == (7, True, "after", "short")
    assert found.devices[0].stream_causes[0].cause == "dependency" and found.devices[0].idle_ns == 10 + 5


def test_a_stream_whose_launches_came_late_is_the_hosts_though_others_ran(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 2000).launch(1, 0, 5).kernel("long", 10, 900, 1).launch(2, 6, 9).kernel("short", 15, 50, 2, stream=20)
               .launch(3, 700, 710).kernel("late", 715, 800, 3, stream=20))
    (gap,) = flow_of(builder, tmp_path).stream_gaps
    assert (gap.stream, gap.cause, parts(gap)) == (20, "host_bound", {"host_bound": 660, "launch_latency": 5})


def test_nodes_of_one_graph_wait_for_each_other_even_before_the_call_returns(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 1000).launch(1, 0, 900, name="cudaGraphLaunch")
               .kernel("node 1", 100, 200, 1).kernel("node 2", 300, 400, 1))
    found = flow_of(builder, tmp_path)
    assert {gap.next: gap.cause for gap in found.gaps} == {"node 1": "host_bound", "node 2": "dependency"}


def test_without_its_launch_a_gap_is_unknown(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 1000).launch(1, 0, 0).kernel("first", 0, 100, 1).kernel("orphan", 300, 400, 77))
    (gap,) = flow_of(builder, tmp_path).gaps
    assert (gap.cause, gap.next, gap.next_call, gap.where) == ("unknown", "orphan", None, None)


def test_the_steps_own_thread_explains_what_autograds_thread_launches_late(tmp_path: Path) -> None:
    """loss.item() on the main thread, then backward's first launch on another."""
    def builder(waiting: int) -> TraceBuilder:
        return (TraceBuilder().step(0, 10_000).launch(1, 0, 0).kernel("first", 0, 100, 1)
                .launch(3, 60, 500, name="cudaStreamSynchronize", tid=waiting)
                .launch(2, 900, 950, tid=555).kernel("second", 1000, 1100, 2))

    assert gap_of(builder(100), tmp_path).call == "cudaStreamSynchronize"
    assert gap_of(builder(555), tmp_path).call == "cudaStreamSynchronize"
    assert gap_of(builder(777), tmp_path).cause == "host_bound", "some third thread's waiting holds up nobody"


def test_copies_that_stay_on_the_device_are_launches(tmp_path: Path) -> None:
    def builder(name: str) -> TraceBuilder:
        return started().launch(3, 200, 700, name="cudaMemcpyAsync").event(
            "gpu_memcpy", name, 1200, 1210, pid=0, tid=7, device=0, stream=7, correlation=3)

    assert gap_of(builder("Memcpy DtoD (Device -> Device)"), tmp_path).cause == "host_bound"
    assert gap_of(builder("Memcpy DtoH (Device -> Pageable)"), tmp_path).cause == "copy"


def test_sites_add_up_the_gaps_of_one_place(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 100_000)
    for number in range(5):
        at = number * 1000
        builder.launch(2 * number + 1, at, at + 10).kernel("k", at + 10, at + 100, 2 * number + 1)
        builder.op("aten::item", at + 20, at + 600).launch(100 + number, at + 30, at + 500, name="cudaStreamSynchronize")
    found = flow_of(builder, tmp_path)
    assert {site.call for site in found.sites} == {"cudaStreamSynchronize", None} and found.sites_idle_ns == found.devices[0].idle_ns
    assert sum(site.count for site in found.sites if site.call) == 4
    assert all(site.operator == "aten::item" for site in found.sites if site.call)
    assert sum(site.idle_ns for site in found.sites) == found.sites_idle_ns


def test_a_recording_without_device_work_has_no_devices(tmp_path: Path) -> None:
    found = flow_of(TraceBuilder(device="").step(0, 100).op("aten::a", 10, 60), tmp_path)
    assert (found.devices, found.gaps, found.launches, found.sites) == ((), (), None, ()) and len(found.steps) == 1


def test_a_wait_before_the_first_step_is_not_the_steps(tmp_path: Path) -> None:
    builder = (TraceBuilder().launch(3, -500, -10, name="cudaDeviceSynchronize").step(0, 10_000)
               .launch(1, 300, 310).kernel("a", 320, 400, 1))
    (gap,) = flow_of(builder, tmp_path).gaps
    assert parts(gap) == {"host_bound": 310, "launch_latency": 10}


def test_rows_by_thread_keep_their_order() -> None:
    process, thread = (np.array(values, dtype=np.int64) for values in ([2, 1, 2, 1, 2], [5, 5, 4, 5, 5]))
    assert [(key, rows.tolist()) for key, rows in by_thread(process, thread)] == [((2, 5), [0, 4]), ((1, 5), [1, 3]), ((2, 4), [2])]
    assert [(key, rows.tolist()) for key, rows in by_thread(thread[:2], process[:2])] == [((5, 2), [0]), ((5, 1), [1])]
    assert by_thread(process[:0], thread[:0]) == []
