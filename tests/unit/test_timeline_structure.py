"""Regions, copies, graph candidates, comparisons and iterations against slow, obvious implementations."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.model.base import Figure
from kernelwright.model.structure import HostLink
from kernelwright.model.trace import Trace
from kernelwright.timeline.alignment import align
from kernelwright.timeline.graph_candidates import capturable, graph_candidates
from kernelwright.timeline.iteration_compare import by_count, compare_iterations
from kernelwright.timeline.iterations import iterations, with_found_steps
from kernelwright.timeline.kernel_names import breaks_capture
from kernelwright.timeline.owners import Owners
from kernelwright.timeline.regions import ROOT_NAME, region_tree
from kernelwright.timeline.sequences import sequences
from kernelwright.timeline.structure import structure
from kernelwright.timeline.transfers import transfers
from kernelwright.timeline.work import Work
from property_examples import examples
from random_traces import AUTOGRAD, HOME, Made, traces

LINK = HostLink(name="PCIe Gen5", bandwidth=Figure(value=64.0, unit="GB/s", evidence="datasheet"))


def nowhere(place: int) -> None:
    return None


def busy_at(trace: Trace, device: int | None = None) -> set[int]:
    """Every ns in which something ran on the device (any of them)."""
    rows = range(len(trace.device))
    return {point for row in rows if device is None or trace.device.device[row] == device
            for point in range(int(trace.device.start_ns[row]), int(trace.device.end_ns[row]))}


def launched(trace: Trace) -> list[tuple[int, int, int, int]]:
    """(step, call start, device start, row) of the steps' work, in launch order, by looking at all calls."""
    found = []
    for row in range(len(trace.device)):
        calls = [call for call in range(len(trace.runtime)) if trace.runtime.correlation[call] == trace.device.correlation[row]]
        start = int(trace.device.start_ns[row])
        at = int(trace.runtime.start_ns[calls[0]]) if calls else start
        steps = [step for step in range(len(trace.steps)) if trace.steps.start_ns[step] <= at < trace.steps.end_ns[step]]
        if not calls:
            steps = [step for step in range(len(trace.steps)) if trace.steps.start_ns[step] <= start]
        if steps:
            found.append((steps[-1], at, start, row))
    return sorted(found)


@given(traces())
@examples(40)
def test_work_is_in_launch_order(trace: Trace) -> None:
    work = Work(trace)
    assert sorted(zip(work.step.tolist(), work.called.tolist(), work.start.tolist(), work.rows.tolist(), strict=True)) == launched(trace)
    keys = list(zip(work.step.tolist(), work.called.tolist(), work.start.tolist(), strict=True))
    assert keys == sorted(keys)
    same: dict[int, set[str]] = defaultdict(set)
    for place, row in enumerate(work.rows.tolist()):
        table = trace.device
        same[int(work.symbol[place])].add(repr((table.name(row), table.args[row], int(table.device[row]), int(table.stream[row]))))
    assert all(len(one) == 1 for one in same.values()) and len({min(one) for one in same.values()}) == len(same)


def open_range(trace: Trace, thread: int, point: int) -> int:
    """Row of the innermost range of a thread at a point: the last one opened that has not ended (nor its step)."""
    found = -1
    for row in range(len(trace.ranges)):
        start = int(trace.ranges.start_ns[row])
        step = step_at(trace, start)
        if step < 0 or trace.ranges.thread[row] != thread:
            continue
        if start <= point < min(int(trace.ranges.end_ns[row]), int(trace.steps.end_ns[step])):
            found = row
    return found


def step_at(trace: Trace, point: int) -> int:
    return max([step for step in range(len(trace.steps)) if trace.steps.start_ns[step] <= point < trace.steps.end_ns[step]], default=-1)


def path_of(trace: Trace, row: int) -> tuple[str, ...]:
    """Names of the ranges around a range, and its own."""
    if row < 0:
        return ()
    start, thread = int(trace.ranges.start_ns[row]), int(trace.ranges.thread[row])
    outer = -1
    for other in range(row):
        if trace.ranges.thread[other] != thread or step_at(trace, int(trace.ranges.start_ns[other])) < 0:
            continue
        step = step_at(trace, int(trace.ranges.start_ns[other]))
        if trace.ranges.start_ns[other] <= start < min(int(trace.ranges.end_ns[other]), int(trace.steps.end_ns[step])):
            outer = other
    above = path_of(trace, outer) if outer >= 0 or thread == HOME else path_of(trace, open_range(trace, HOME, start))
    return (*above, trace.ranges.name(row))


def node_at(trace: Trace, thread: int, point: int) -> tuple[str, ...]:
    row = open_range(trace, thread, point)
    if row < 0 and thread != HOME and step_at(trace, point) >= 0:
        row = open_range(trace, HOME, point)
    return path_of(trace, row)


@given(traces())
@examples(40)
def test_the_tree_of_regions_counts_each_nanosecond_once(trace: Trace) -> None:
    work = Work(trace)
    tree = region_tree(trace, work, Owners(trace, work))
    device, launches, host, idle = (Counter[tuple[str, ...]]() for _ in range(4))
    for place, row in enumerate(work.launch.tolist()):
        where = node_at(trace, int(trace.runtime.thread[row]), int(trace.runtime.start_ns[row])) if row >= 0 else ()
        device[where] += int(work.duration[place])
        launches[where] += 1
    busy = busy_at(trace)
    for step in range(len(trace.steps)):
        for point in range(int(trace.steps.start_ns[step]), int(trace.steps.end_ns[step])):
            host[path_of(trace, open_range(trace, HOME, point))] += 1
            idle[path_of(trace, open_range(trace, HOME, point))] += point not in busy
            other = open_range(trace, AUTOGRAD, point)
            if other >= 0:
                host[path_of(trace, other)] += 1
    paths: list[tuple[str, ...]] = []
    for node in tree.nodes:
        paths.append((*paths[node.parent], node.name) if node.parent >= 0 else ())
        where = paths[-1]
        assert node.depth == len(where) and (node.parent >= 0 or node.name == ROOT_NAME)
        timed = trace.is_cuda
        assert (node.device_self_ns, node.launches_self) == (device.pop(where, 0) if timed else None, launches.pop(where, 0))
        assert (node.host_self_ns, node.idle_self_ns) == (host.pop(where, 0), idle.pop(where, 0) if timed else None)
    assert len(set(paths)) == len(paths)
    left = [*device, *launches, *host, *(idle if trace.is_cuda else ())]
    assert not left, "every path has its node"
    for index, node in enumerate(tree.nodes):
        inner = [other for other in tree.nodes if other.parent == index]
        for kind in ("device", "launches", "host", "idle"):
            suffix = "" if kind == "launches" else "_ns"
            whole, own = getattr(node, f"{kind}_total{suffix}"), getattr(node, f"{kind}_self{suffix}")
            assert whole is None or whole == own + sum(getattr(other, f"{kind}_total{suffix}") for other in inner)
    if trace.is_cuda:
        assert tree.nodes[0].device_total_ns == int(work.duration.sum()) and tree.nodes[0].launches_total == len(work)


@given(traces())
@examples(40)
def test_copies_are_summed_by_kind(trace: Trace) -> None:
    work = Work(trace)
    found = transfers(trace, work, {"NVIDIA H200": LINK})
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place in range(len(work)):
        if work.name(place).startswith("Memcpy"):
            groups[work.name(place), int(work.device[place])].append(place)
    assert found.count == sum(map(len, groups.values())) and len(found.rows) == len(groups)
    expected = set()
    for (name, device), places in groups.items():
        kernels = {point for other in range(len(work)) if work.device[other] == device and not work.name(other).startswith("Mem")
                   for point in range(int(work.start[other]), int(work.end[other]))}
        points = [point for place in places for point in range(int(work.start[place]), int(work.end[place]))]
        sizes = [int(trace.device.args[int(work.rows[place])]["bytes"]) for place in places]
        size = sum(sizes) if min(sizes) >= 0 else None
        expected.add((name.split()[1], device, len(places), size, len(points), len([point for point in points if point in kernels]),
                      size / len(points) if size is not None and points else None))
    assert {(row.direction, row.device, row.count, row.bytes, row.duration_ns, row.hidden_ns, row.bandwidth_gbs)
            for row in found.rows} == expected
    for row in found.rows:
        over_link = row.direction in ("HtoD", "DtoH") and row.device == 0 and row.bandwidth_gbs is not None
        assert row.link_pct == (100 * row.bandwidth_gbs / 64 if over_link else None)


@given(traces())
@examples(40)
def test_a_comparison_adds_up_and_aligns_what_it_can(trace: Trace) -> None:
    work = Work(trace)
    for a in range(len(trace.steps)):
        for b in range(len(trace.steps)):
            found = compare_iterations(trace, work, a, b)
            assert found.b_device_ns - found.a_device_ns == found.matched_difference_ns + found.only_b_ns - found.only_a_ns
            assert sum(row.difference_ns for row in found.differences) == found.b_device_ns - found.a_device_ns
            first, second = work.symbol[work.of_step(a)].tolist(), work.symbol[work.of_step(b)].tolist()
            assert found.matched + found.only_a == len(first) and found.matched + found.only_b == len(second)
            if a == b:
                assert found.matched == len(first) and not found.differences


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
@examples(50)
def test_pairs_by_count(a: list[int], b: list[int]) -> None:
    mine, other = by_count(np.array(a, dtype=np.int64), np.array(b, dtype=np.int64))
    expected = {([i for i, x in enumerate(a) if x == symbol][n], [i for i, x in enumerate(b) if x == symbol][n])
                for symbol in set(a) & set(b) for n in range(min(a.count(symbol), b.count(symbol)))}
    assert set(zip(mine.tolist(), other.tolist(), strict=True)) == expected and mine.size == len(expected)


@given(traces())
@examples(50)
def test_sequences_are_where_they_say(trace: Trace) -> None:
    work = Work(trace)
    for fusible in (False, True):
        for found in sequences(work, nowhere, fusible=fusible):
            starts, duration, gap = [], 0, 0
            for step in range(len(trace.steps)):
                for stream in set(work.stream.tolist()):
                    places = sorted((place for place in range(len(work)) if work.step[place] == step and work.stream[place] == stream),
                                    key=lambda place: (int(work.start[place]), place))
                    at = 0
                    while at + len(found.kernels) <= len(places):
                        here = places[at:at + len(found.kernels)]
                        apart = fusible and any(second != first + 1 for first, second in itertools.pairwise(here))
                        if apart or tuple(work.name(place) for place in here) != found.kernels:
                            at += 1
                            continue
                        starts.append(int(work.start[here[0]]))
                        duration += sum(int(work.duration[place]) for place in here)
                        busy = busy_at(trace, int(work.device[here[0]]))
                        gap += sum(1 for first, second in itertools.pairwise(here)
                                   for point in range(int(work.end[first]), int(work.start[second])) if point not in busy)
                        at += len(found.kernels)
            assert (found.count, found.duration_ns, found.gap_ns) == (len(starts), duration, gap)
            assert not fusible or found.fusible
            assert found.fusible == (not any(name.startswith(("Mem", "gemm", "nccl")) for name in found.kernels))


def repeated(trace: Trace, times: int, span: int) -> Trace:
    """The trace's first step, `times` times over."""
    from random_traces import Made as Fresh

    made = Fresh()
    keep = [one for one in launched(trace) if one[0] == 0]
    for time in range(times):
        low = time * span
        made.step(low, low + span)
        for _, at, start, row in keep:
            calls = [call for call in range(len(trace.runtime)) if trace.runtime.correlation[call] == trace.device.correlation[row]]
            if calls:
                made.launch(trace.device.name(row), low + at, low + int(trace.runtime.end_ns[calls[0]]), low + start,
                            low + int(trace.device.end_ns[row]), stream=int(trace.device.stream[row]), device=int(trace.device.device[row]),
                            thread=int(trace.runtime.thread[calls[0]]), grid=trace.device.args[row]["grid"][0])
        for call in range(len(trace.runtime)):
            if trace.runtime.correlation[call] < 0 and 0 <= trace.runtime.start_ns[call] < trace.steps.end_ns[0]:
                made.call(trace.runtime.name(call), low + int(trace.runtime.start_ns[call]), low + int(trace.runtime.end_ns[call]),
                          int(trace.runtime.thread[call]))
    return made.trace()


@given(traces(), st.integers(2, 3))
@examples(40)
def test_graph_candidates_by_hand(trace: Trace, times: int) -> None:
    trace = repeated(trace, times, 400)
    work = Work(trace)
    found, reason = graph_candidates(trace, work, nowhere)
    assert reason is None
    forbidden = [int(trace.runtime.start_ns[row]) for row in range(len(trace.runtime)) if breaks_capture(trace.runtime.name(row))]
    count = len(work) // times
    stretches: list[list[int]] = [[]]
    for place in range(count):
        name = work.name(place)
        if name.startswith("Memcpy DtoH") or "Pageable" in name:
            stretches.append([])
            continue
        last = stretches[-1][-1] if stretches[-1] else None
        if last is not None and (work.device[last] != work.device[place]
                                 or any(work.called[last] <= call < work.called[place] for call in forbidden)):
            stretches.append([])
        stretches[-1].append(place)
    expected = []
    for stretch in (one for one in stretches if len(one) >= 2):
        device = int(work.device[stretch[0]])
        busy = busy_at(trace, device)
        usual = usual_gap(trace, work, device, busy)
        idle = gain = duration = 0
        for time in range(times):
            mine = [place + time * count for place in stretch]
            begin, end = min(int(work.start[place]) for place in mine), max(int(work.end[place]) for place in mine)
            idle += sum(1 for point in range(begin, end) if point not in busy)
            duration += sum(int(work.duration[place]) for place in mine)
            for place in mine:
                gap = gap_before(trace, work, place, busy)
                if gap is not None and work.returned[place] > work.start[place] - gap:
                    gain += min(max(0, gap - usual), int(work.start[place]) - begin)
        expected.append((len(stretch), duration // times, idle // times, gain // times))
    assert sorted((one.launches, one.duration_ns, one.idle_ns, one.gain_ns) for one in found) == sorted(expected)
    assert all(one.gain_ns <= one.idle_ns for one in found)


def gap_before(trace: Trace, work: Work, place: int, busy: set[int]) -> int | None:
    """Idle time of the device right before a launch; None where it was busy, nothing ran before, or another one begins there first."""
    start, device = int(work.start[place]), work.device[place]
    if start - 1 in busy or start not in busy:
        return None
    earlier = [point for point in busy if point < start]
    first = min(other for other in range(len(work)) if work.start[other] == start and work.device[other] == device)
    return start - max(earlier) - 1 if earlier and first == place else None


def usual_gap(trace: Trace, work: Work, device: int, busy: set[int]) -> int:
    gaps = []
    for place in range(len(work)):
        gap = gap_before(trace, work, place, busy) if work.device[place] == device else None
        if gap is not None and work.returned[place] <= work.start[place] - gap:
            gaps.append(gap)
    return int(np.median(gaps)) if gaps else 0


def test_one_iteration_gives_no_graph_candidates_and_says_why() -> None:
    trace = Made().step(0, 50).launch("add", 1, 2, 3, 5).launch("add", 6, 7, 8, 9).trace()
    assert graph_candidates(trace, Work(trace), nowhere) == ((), "one iteration only: what repeats in each can't be told")
    assert any(one.name == "graph_candidates" for one in structure(trace).abstained)


def test_alignment_of_iterations_that_differ_in_one_launch() -> None:
    made = Made()
    for step in range(3):
        low = step * 100
        made.step(low, low + 100)
        for index in range(8):
            if step == 1 and index == 3:
                continue
            made.launch("abcdefgh"[index], low + 10 * index, low + 10 * index + 2, low + 10 * index + 1, low + 10 * index + 5 + step)
    trace = made.trace()
    work = Work(trace)
    found = compare_iterations(trace, work, 0, 1)
    assert (found.matched, found.only_a, found.only_b, found.only_a_ns) == (7, 1, 0, 4)
    assert found.differences[0].kernel == "d" and found.differences[0].change == "only in a"
    candidates, _ = graph_candidates(trace, work, nowhere)
    assert sorted((one.first_kernel, one.last_kernel) for one in candidates) == [("a", "c"), ("e", "h")]
    assert capturable(work).all() and align(work.symbol[work.of_step(0)], work.symbol[work.of_step(2)]) is not None


@given(traces())
@examples(40)
def test_iterations_are_summed(trace: Trace) -> None:
    work = Work(trace)
    for index, row in enumerate(iterations(trace, work)):
        mine = [place for place in range(len(work)) if work.step[place] == index]
        points = {point for place in mine for point in range(int(work.start[place]), int(work.end[place]))}
        assert row.launches == len(mine) and row.wall_ns == int(trace.steps.duration_ns[index])
        if trace.is_cuda:
            assert row.device_ns == sum(int(work.duration[place]) for place in mine) and row.device_busy_ns == len(points)


@given(traces())
@examples(40)
def test_everything_fits_together_on_any_trace(trace: Trace) -> None:
    found = structure(trace)
    assert len(found.iterations) == len(trace.steps) and found.iterations_found.confidence == "given"
    assert found.model_validate_json(found.model_dump_json()) == found


# -- iterations that nobody marked ----------------------------------------------------------------------------------------


def loop(words: list[str], *, before: str = "", after: str = "", sync: bool = True) -> Trace:
    """One step over everything; a letter is a kernel, a word an iteration that may end with a synchronisation."""
    made = Made()
    now = 10
    for word in [before, *words, after]:
        for letter in word:
            made.launch(letter, now, now + 2, now + 3, now + 9)
            now += 10
        if sync and word in words:
            made.call("cudaDeviceSynchronize", now, now + 5)
            now += 20
    made.step(0, now + 100)
    return made.trace(steps_from="whole")


def test_iterations_are_found_with_what_is_left_out() -> None:
    trace, found = with_found_steps(loop(["abcde"] * 12, before="xyz", after="ab"))
    assert (found.steps_from, found.count, found.confidence, found.launches_each) == ("found", 12, "high", 5)
    assert (found.launches_left_out, found.launches_total, found.device_left_out_ns) == (5, 65, 30)
    assert found.confirmed_by == "cudaDeviceSynchronize" and found.note == ""
    assert trace.steps_from == "found" and len(trace.steps) == 12 and trace.steps.start_ns[0] == 0
    work = Work(trace)
    assert ["".join(work.name(place) for place in range(*work.of_step(step).indices(len(work)))) for step in range(11)] == ["abcde"] * 11
    assert [row.launches for row in iterations(trace, work)] == [5] * 12


def test_what_may_be_layers_is_not_called_certain() -> None:
    _, found = with_found_steps(loop(["abc"] * 12, before="x", after="yz", sync=False))
    assert found.confidence == "medium" and found.confirmed_by is None and "layers" in found.note


def test_iterations_that_something_interrupts_are_told_and_beyond_measure_refused() -> None:
    few = with_found_steps(loop(["abcd"] * 9 + ["abXcd"] + ["abcd"] * 4))[1]
    assert few.count == 13 and few.launches_left_out == 5 and "come between them 1 times" in few.note and few.confidence == "high"
    trace = loop((["abc"] * 4 + ["xyzw"]) * 1 + (["abc"] * 3 + ["vwxyz"]) * 2)
    same, many = with_found_steps(trace)
    layers, two = with_found_steps(loop(["x" + "abc" * 8 + "yz"] * 2, sync=False))
    assert two.confidence == "low" and two.launches_each == 3 and layers.steps_from == "whole", "two iterations of eight layers"
    assert many.confidence == "low" and same is trace and many.steps_from == "whole" and many.note


def test_nothing_that_repeats() -> None:
    trace = loop(["abc", "def"])
    same, found = with_found_steps(trace)
    assert same is trace and found.confidence == "low" and "no sequence of launches" in found.note
    marked = replace(trace, steps_from="ProfilerStep")
    assert with_found_steps(marked)[1].confidence == "given"


def test_times_move_to_the_first_found_iteration() -> None:
    trace = loop(["abcde"] * 6, before="xyz")
    moved, _ = with_found_steps(trace)
    shift = int(trace.runtime.start_ns[3])
    assert (moved.device.start_ns == trace.device.start_ns - shift).all() and (moved.runtime.end_ns == trace.runtime.end_ns - shift).all()
