"""Every figure of the flow against a count nanosecond by nanosecond, on random little traces. Exact."""

from __future__ import annotations

from collections import Counter

from hypothesis import given

from flow_brute import Brute, Row, make, pairs, traces
from kernelwright.model.flow import GAP_CAUSES, DeviceFlow, Flow
from kernelwright.timeline.flow import FlowOf
from kernelwright.timeline.gaps import GapTable, idle_of_calls
from kernelwright.timeline.names import copies, synchronizes
from property_examples import examples

KINDS = {"ncclDevKernel_AllReduce": "comm", "Memcpy": "copy", "Memset": "memset"}
CHECKS = (
    "gaps_of_devices_and_the_cause_of_each_nanosecond", "gaps_of_streams_and_the_cause_of_each_nanosecond", "busy_overlap_and_concurrency",
    "idle_time_of_each_call", "launches_queue_and_order", "what_stands_before_and_after_a_gap", "sums_of_calls")


@given(traces())
@examples(60)
def test_all_figures(rows: dict[str, list[Row]]) -> None:
    of = FlowOf(make(**rows))
    brute, found = Brute(rows), of.flow()
    for check in CHECKS:
        globals()[f"check_{check}"](brute, of, found)


def described(gaps: GapTable) -> list[tuple[int, int, int, int, dict[str, int]]]:
    return [(int(gaps.device[at]), int(gaps.stream[at]), int(gaps.start_ns[at]), int(gaps.end_ns[at]),
             {cause: int(time) for cause, time in zip(GAP_CAUSES, gaps.parts_ns[at], strict=True) if time}) for at in range(len(gaps))]


def check_gaps_of_devices_and_the_cause_of_each_nanosecond(brute: Brute, of: FlowOf, found: Flow) -> None:
    expected = [(device, -1, start, end, dict(brute.parts(device, None, start, end)))
                for device in (0, 1) for start, end in brute.idle(device)]
    assert described(of.device_gaps) == expected


def check_idle_time_of_each_call(brute: Brute, of: FlowOf, found: Flow) -> None:
    """The calls' times add up to the two causes', and none has more than passed idle in it and on the way back from it."""
    gaps, idle = of.device_gaps, idle_of_calls(of.trace)
    named = [GAP_CAUSES.index("copy"), GAP_CAUSES.index("synchronization")]
    assert int(idle.sum()) == int(gaps.parts_ns[:, named].sum()) and (idle >= 0).all()
    runtime, stretches = of.trace.runtime, [stretch for device in (0, 1) for stretch in brute.idle(device)]
    for row in idle.nonzero()[0].tolist():
        assert synchronizes(runtime.name(row)) or copies(runtime.name(row))
        low, high = int(runtime.start_ns[row]), int(runtime.end_ns[row])
        back = high + (high - low) + brute.interval if synchronizes(runtime.name(row)) else high
        assert idle[row] <= sum(max(0, min(end, back) - max(start, low)) for start, end in stretches)


def check_gaps_of_streams_and_the_cause_of_each_nanosecond(brute: Brute, of: FlowOf, found: Flow) -> None:
    used = {device: {row.stream for row, _, _ in brute.work if row.device == device and row.end > row.start} for device in (0, 1)}
    expected = [(device, stream, start, end, dict(brute.parts(device, stream, start, end)))
                for device in (0, 1) for stream in (7, 8) if len(used[device]) > 1 for start, end in brute.idle(device, stream)]
    assert described(of.stream_gaps) == expected


def check_busy_overlap_and_concurrency(brute: Brute, of: FlowOf, found: Flow) -> None:
    assert [device.device for device in found.devices] == sorted({row.device for row, _, _ in brute.work})
    for device in found.devices:
        check_device(brute, device)
    assert [(step.busy_ns, step.launches, step.work_ns) for step in found.steps] == [
        (sum(any(row.start <= at < row.end for row in brute.device) for at in range(step.start, step.end)),
         sum(brute._placed(brute.first_of(call))[1] == index for call in brute.calls),
         sum(row.end - row.start for row, _, mine in brute.work if mine == index)) for index, step in enumerate(brute.steps)]


def check_device(brute: Brute, device: DeviceFlow) -> None:
    work = [row for row, _, _ in brute.work if row.device == device.device]
    assert device.span_start_ns == brute.low and device.span_end_ns == max([brute.low, *(row.end for row in work if row.end > row.start)])
    counted: Counter[str] = Counter()
    streams: Counter[int] = Counter()
    at_once: Counter[int] = Counter()
    for at in range(device.span_start_ns, device.span_end_ns):
        running = [row for row in work if row.start <= at < row.end]
        kinds = Counter(KINDS.get(row.name.split()[0], "compute") for row in running)
        at_once[len({row.stream for row in running})] += 1
        streams.update({row.stream for row in running})
        counted.update({
            "busy": bool(running), "idle": not running, **{kind: count > 0 for kind, count in kinds.items()}, "two": kinds["compute"] > 1,
            "compute+copy": kinds["compute"] and kinds["copy"] > 0, "compute+comm": kinds["compute"] and kinds["comm"] > 0,
            "bare copy": kinds["copy"] and not kinds["compute"] and not kinds["comm"], "bare comm": kinds["comm"] and not kinds["compute"]})
    overlap = device.overlaps
    assert (device.busy_ns, device.idle_ns) == (counted["busy"], counted["idle"])
    assert device.idle_ns == sum(cause.idle_ns for cause in device.causes)
    assert device.gap_count == sum(cause.gaps for cause in device.causes)
    assert (overlap.compute_ns, overlap.communication_ns, overlap.copy_ns, overlap.memset_ns) == tuple(
        counted[kind] for kind in ("compute", "comm", "copy", "memset"))
    assert (overlap.compute_compute_ns, overlap.compute_copy_ns, overlap.compute_communication_ns) == (
        counted["two"], counted["compute+copy"], counted["compute+comm"])
    assert (overlap.exposed_copy_ns, overlap.exposed_communication_ns) == (counted["bare copy"], counted["bare comm"])
    assert sum(device.concurrency_ns) == device.span_ns
    assert device.concurrency_ns == tuple(at_once[k] for k in range(max(at_once, default=0) + 1))
    assert {row.stream: row.busy_ns for row in device.streams} == {row.stream: streams[row.stream] for row in work}
    assert device.stream_count == len({row.stream for row in work})


def check_launches_queue_and_order(brute: Brute, of: FlowOf, found: Flow) -> None:
    if not brute.calls:
        assert found.launches is None
        return
    assert found.launches is not None and found.launches.latency is not None
    first = [brute.first_of(call) for call in brute.calls]
    waits = [brute.call_latency(call) for call in brute.calls]
    latency = found.launches.latency
    assert (found.launches.order.launches, latency.count, latency.total_ns, latency.max_ns) == (
        len(waits), len(waits), sum(waits), max(waits))
    assert found.launches.begun_before_return == sum(row.start < call.end for call, row in zip(brute.calls, first, strict=True))
    assert (found.launches.unqueued_latency.count if found.launches.unqueued_latency else 0) == sum(map(brute.unqueued, brute.calls))
    assert found.launches.order.overtaken == sum(
        any(later.device == row.device and later.start < row.start for later in first[index + 1:]) for index, row in enumerate(first))
    assert found.launches.order.stream_switches == sum(
        (one.device, one.stream) != (two.device, two.stream) for one, two in pairs(first))
    for device in found.devices:
        depth = {at: sum(call.end <= at < row.start for call, row in zip(brute.calls, first, strict=True) if row.device == device.device)
                 for at in range(device.span_start_ns, device.span_end_ns)}
        if device.queue is not None:
            assert device.queue.deepest == max(depth.values()) and device.queue.empty_ns == list(depth.values()).count(0)
            assert abs(device.queue.mean - sum(depth.values()) / len(depth)) < 1e-9
            assert all(depth[at] == level for at, level in device.queue.points)


def check_what_stands_before_and_after_a_gap(brute: Brute, of: FlowOf, found: Flow) -> None:
    for at, gap in enumerate(found.gaps):
        assert gap.duration_ns == sum(part.idle_ns for part in gap.parts) and gap.cause == gap.parts[0].cause, at
        work = [row for row, _, _ in brute.work if row.device == gap.device]
        assert gap.next in {row.name for row in work if row.start == gap.end_ns}
        before = [row for row in work if row.start < row.end <= gap.start_ns]
        assert (gap.previous is None) == (not before)
        if before:
            assert gap.previous in {row.name for row in before if row.end == max(other.end for other in before)}


def check_sums_of_calls(brute: Brute, of: FlowOf, found: Flow) -> None:
    inside = [call for call in brute.runtime if any(step.start <= call.start < step.end for step in brute.steps)]
    names = {call.name.removesuffix("_v7000") for call in inside}
    durations = {name: sorted(call.end - call.start for call in inside if call.name.removesuffix("_v7000") == name) for name in names}
    assert {(call.name, call.count, call.total_ns, call.min_ns, call.max_ns) for call in found.api_calls} == {
        (name, len(times), sum(times), times[0], times[-1]) for name, times in durations.items()}
