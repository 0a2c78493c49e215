"""Ranks side by side: waits against a run's true clock, whatever the ranks' own clocks say; times against a count of each nanosecond."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from flow_brute import Row, make
from kernelwright.timeline.collectives import collectives
from kernelwright.timeline.ranks import Matched, compare_ranks, match, outside, waits, without_first_steps
from property_examples import examples
from ranks_made import Run, Talk, covered, recording, recordings, runs

MANY = examples(50)


def _expected(run: Run) -> list[tuple[Talk, dict[int, int]]]:
    """Every collective that two ranks or more recorded, with each one's wait on the true clock."""
    return [(talk, {rank: talk.latest - at for rank, at in enumerate(talk.arrivals) if at is not None})
            for talk in run.talks if sum(at is not None for at in talk.arrivals) > 1]


@MANY
@given(runs())
def test_waits_are_those_of_the_true_clock_whatever_the_ranks_clocks_say(run):
    _check_waits(run)


@MANY
@given(runs(lose=True))
def test_numbered_collectives_are_matched_where_ranks_recorded_different_ones(run):
    _check_waits(run)


def _check_waits(run: Run) -> None:
    found = compare_ranks(recordings(run), notable_ns=0)
    expected = _expected(run)
    aligned = [(talk, wait) for talk, wait in expected if talk.kind != "broadcast"]
    waited: list[tuple[int, int, int, int, int]] = []  # (rank, for rank, step, start, end)
    last = [0] * run.ranks
    for talk, wait in aligned:
        late = min(rank for rank, ns in wait.items() if ns == 0)
        last[late] += max(wait.values()) > 0
        waited += [(rank, late, talk.step, talk.latest - ns, talk.latest) for rank, ns in wait.items()]
    waits_for = np.array([[len(covered([one[3:] for one in waited if one[:2] == (rank, late)])) for late in range(run.ranks)]
                          for rank in range(run.ranks)])
    by_step = np.array([[len(covered([one[3:] for one in waited if (one[0], one[2]) == (rank, step)])) for step in range(run.steps)]
                        for rank in range(run.ranks)])
    assert found.waits_for == tuple(map(tuple, waits_for.tolist())) and found.waits_by_step == tuple(map(tuple, by_step.tolist()))
    assert [row.last for row in found.ranks] == last
    assert [row.caused_ns for row in found.ranks] == waits_for.sum(axis=0).tolist()
    assert found.collectives == len(aligned) and found.waited == sum(max(wait.values()) > 0 for _, wait in aligned)
    assert found.unmatched == sum(sum(at is not None for at in talk.arrivals) == 1 for talk in run.talks)
    longest = sorted((max(wait.values()) for _, wait in aligned), reverse=True)
    assert [row.longest_wait_ns for row in found.worst] == [wait for wait in longest if wait > 0]
    kinds = {row.kind: row for row in found.kinds}
    assert {name: row.count for name, row in kinds.items()} == {
        name: count for name in ("all_reduce", "all_gather", "broadcast") if (count := sum(talk.kind == name for talk, _ in expected))}
    for name, row in kinds.items():
        assert row.aligned == (name != "broadcast")
        assert row.waiting_ns == sum(sum(wait.values()) for talk, wait in aligned if talk.kind == name)
        if row.aligned:
            assert row.transfer_ns == sum(talk.end - talk.latest for talk, _ in aligned if talk.kind == name)
        assert row.bytes == (row.count * 80 if run.numbered else None)


@MANY
@given(runs())
def test_times_of_each_rank_equal_a_count_of_each_nanosecond(run):
    found = compare_ranks(recordings(run))
    for rank, row in enumerate(found.ranks):
        mine = [(start, end) for owner, _, start, end in run.compute if owner == rank]
        talks = [(talk.arrivals[rank], talk.end) for talk in run.talks]
        waited = [(talk.arrivals[rank], talk.latest) for talk in run.talks if talk.kind != "broadcast"]
        high = max([run.steps * run.step_ns - 10, *(end for _, end in mine + talks)])
        compute, talking, waiting, all_of = (covered(spans) for spans in (mine, talks, waited, [(0, high)]))
        times = row.exposure
        assert times.span_ns == high
        assert (times.compute_ns, times.communication_ns, times.overlapped_ns) == (len(compute), len(talking), len(compute & talking))
        assert (times.exposed_ns, times.waiting_ns) == (len(talking - compute), len(waiting))
        assert times.exposed_waiting_ns == len(waiting - compute)
        assert times.idle_ns == len(all_of - compute - talking) and times.exposed_transfer_ns == len(talking - compute - waiting)


@MANY
@given(runs())
def test_the_first_steps_can_be_left_out(run):
    later = compare_ranks(recordings(run), leave_out=1, notable_ns=0)
    if run.steps == 1:
        assert later.waits_by_step == compare_ranks(recordings(run), notable_ns=0).waits_by_step
        return
    kept = replace(run, talks=tuple(talk for talk in run.talks if talk.step), compute=tuple(one for one in run.compute if one[1]))
    assert later.collectives == sum(talk.kind != "broadcast" for talk in kept.talks)
    assert all(row.steps == run.steps - 1 for row in later.ranks)
    waiting = sum(sum(wait.values()) for talk, wait in _expected(kept) if talk.kind != "broadcast")
    assert sum(row.waiting_ns for row in later.kinds) == waiting


def test_collectives_without_numbers_are_matched_in_steps_where_all_ranks_have_equally_many():
    talks = tuple(Talk("all_reduce", step, n, (at, at + 10), at + 20) for n, (step, at) in enumerate([(0, 5), (0, 50), (1, 310), (1, 350)]))
    run = Run(2, 2, 300, talks, (), (0, 1000), numbered=False)
    traces = recordings(run)
    traces[1] = (1, recording(replace(run, talks=talks[1:]), 1))
    found = compare_ranks(traces, notable_ns=0)
    assert (found.collectives, found.unmatched, found.matched_by) == (2, 3, "order")
    assert any("3 of 7 recorded collectives could not be matched" in warning for warning in found.warnings)


def test_process_groups_are_kept_apart():
    """Ranks 0 and 1 reduce in one group, 2 and 3 in another of the same name; rank 3 is late."""
    talks = (Talk("all_reduce", 0, 7, (10, 10, 10, 60), 70),)
    traces = []
    for rank, trace in recordings(Run(4, 1, 300, talks, (), (0, 0, 0, 0), numbered=True)):
        group = [[0, 1], [2, 3]][rank // 2]
        args = tuple({**row, "collective": {**row["collective"], "ranks": str(group), "size": 2}} for row in trace.device.args)
        end = np.array([20 if rank < 2 else 70], dtype=np.int64)
        traces.append((rank, replace(trace, device=replace(trace.device, args=args, end_ns=end))))
    found = compare_ranks(traces, notable_ns=0)
    assert found.waits_for == ((0, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 50), (0, 0, 0, 0))
    assert [(row.group, row.count, row.last_rank) for row in found.kinds] == [("0 [2, 3]", 1, 3), ("0 [0, 1]", 1, None)]


def _gloo(starts, ends, rank, step_ns=100_000):
    """Two steps of gloo on a thread of its own; an operator computes for the first 40 us of each, a collective's call in the middle."""
    ranges = [Row(start, end, "gloo:all_reduce", thread=9) for start, end in zip(starts, ends, strict=True)]
    operators = [Row(at, at + 40_000, "aten::mm") for at in (0, step_ns)]
    operators += [Row(at + 10_000, at + 15_000, "c10d::allreduce_") for at in (0, step_ns)]
    steps = [Row(at, at + step_ns - 1000, "kernelwright.step") for at in (0, step_ns)]
    return replace(make(ranges=ranges, operators=operators, steps=steps), rank=rank, world_size=2)


def test_on_the_host_collectives_are_ranges_of_other_threads():
    traces = [(0, _gloo((20_000, 120_000), (60_000, 180_000), 0)), (1, _gloo((50_000, 170_000), (60_000, 180_000), 1))]
    found = compare_ranks(traces)
    assert found.backend == "host" and found.matched_by == "order" and found.collectives == 2 == found.waited
    assert found.waits_for == ((0, 80_000), (0, 0)) and found.waits_by_step == ((30_000, 50_000), (0, 0))
    assert [row.last for row in found.ranks] == [0, 2]
    times = found.ranks[0].exposure
    assert times.compute_ns == 2 * 35_000  # without the calls of the collectives
    assert (times.communication_ns, times.exposed_ns) == (100_000, 100_000 - 20_000 - 20_000)


def test_what_a_kernel_does_not_say_is_read_off_the_operator_around_its_launch():
    said = {"name": "allreduce", "group": "3", "ranks": "[0, 1]", "size": 2, "in_elements": 8, "out_elements": 8, "dtype": "Float",
            "sequence": 41}
    trace = make(device=[Row(10, 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", device=0, stream=1, correlation=1)],
                 runtime=[Row(4, 5, "cudaLaunchKernelExC", correlation=1)], steps=[Row(0, 100, "kernelwright.step")],
                 operators=[Row(1, 9, "c10d::allreduce_"), Row(3, 6, "record_param_comms"), Row(7, 8, "record_param_comms")])
    operators = replace(trace.operators, args=({}, {"collective": said}, {"collective": {**said, "sequence": 42}}))
    found = collectives(replace(trace, operators=operators))
    assert found.sequence.tolist() == [41] and (found.whats[0].group, found.whats[0].bytes) == ("3 [0, 1]", 32)
    kernel = {"collective": {"name": "allreduce", "sequence": 7, "group": None}}
    own = collectives(replace(trace, operators=operators, device=replace(trace.device, args=(kernel,))))
    assert own.sequence.tolist() == [7] and own.whats[0].group == "3 [0, 1]"


def test_work_of_the_step_that_is_left_out_is_nobodys_idle_time():
    trace = make(device=[Row(10, 150, "gemm", device=0, stream=7, correlation=1), Row(150, 180, "gemm", device=0, stream=7, correlation=2)],
                 runtime=[Row(1, 2, "cudaLaunchKernel", correlation=1), Row(101, 102, "cudaLaunchKernel", correlation=2)],
                 steps=[Row(0, 100, "kernelwright.step"), Row(100, 200, "kernelwright.step")])
    times = compare_ranks([(0, trace)], leave_out=1).ranks[0].exposure
    assert (times.span_ns, times.compute_ns, times.idle_ns) == (50, 30, 20)


def test_missing_ranks_and_unequal_steps_are_told():
    run = Run(3, 2, 300, (Talk("all_reduce", 0, 0, (5, 9, 7), 20),), (), (0, 0, 0), numbered=True)
    found = compare_ranks([one for one in recordings(run) if one[0] != 1])
    assert found.world_size == 3 and found.missing == (1,) and "1 of 3 ranks have no recording" in " ".join(found.warnings)
    short = without_first_steps(recording(run, 1), 1)
    assert any("1 to 2 steps" in warning for warning in compare_ranks([(0, recording(run, 0)), (1, short)]).warnings)


def test_one_rank_alone_or_no_collectives_wait_for_nobody():
    run = Run(2, 1, 300, (Talk("all_reduce", 0, 0, (5, 9), 20),), (), (0, 0), numbered=True)
    alone = compare_ranks(recordings(run)[:1])
    assert alone.collectives == 0 and alone.unmatched == 1 and alone.waits_for == ((0,),) and alone.matched_by == "nothing"
    silent = compare_ranks(recordings(replace(run, talks=())))
    assert silent.kinds == () and any("no collective was recorded" in warning for warning in silent.warnings)


def test_of_several_short_waits_nobody_is_called_the_last():
    run = Run(2, 1, 30_000, (Talk("all_reduce", 0, 0, (5, 4000), 6000),), (), (0, 0), numbered=True)
    assert [row.last for row in compare_ranks(recordings(run)).ranks] == [0, 0]
    assert [row.last for row in compare_ranks(recordings(run), notable_ns=100).ranks] == [0, 1]


@pytest.mark.parametrize(("name", "said", "kind", "size"), [
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", {}, "all_reduce", None),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", {}, "send_recv", None),
    ("ncclDevKernel_AllGather_RING_LL", {"name": "_allgather_base", "in_elements": 4, "out_elements": 8, "dtype": "Half"},
     "all_gather", 16),
    ("ncclDevKernel_ReduceScatter", {"name": "reduce_scatter_tensor_coalesced", "in_elements": 8, "dtype": "Float8_e4m3fn"},
     "reduce_scatter", None),
    ("nccl_anything", {"name": "all_to_allv"}, "all_to_all", None), ("ncclDevKernel_Generic_4", {}, "collective", None),
    ("nccl_x", {"name": "|<b>", "group": "`" * 500}, "b", None)])
def test_kinds_and_sizes_of_collectives(name, said, kind, size):
    trace = make(device=[Row(10, 20, name, device=0, stream=1, correlation=1)], runtime=[Row(1, 2, "cudaLaunchKernel", correlation=1)],
                 steps=[Row(0, 100, "kernelwright.step")])
    found = collectives(replace(trace, device=replace(trace.device, args=({"collective": said},))))
    assert [(what.kind, what.bytes) for what in found.whats] == [(kind, size)] and len(found.whats[0].group) <= 80


@given(runs())
@examples(30)
def test_cutting_intervals_out_of_others(run):
    first, second = ([(start, end) for owner, _, start, end in run.compute if owner == rank] for rank in (0, 1))
    columns = [np.array([one[side] for one in spans], dtype=np.int64) for spans in (first, second) for side in (0, 1)]
    starts, ends = outside(*columns)
    assert covered(list(zip(starts.tolist(), ends.tolist(), strict=True))) == covered(first) - covered(second)
    assert int((ends - starts).sum()) == len(covered(first) - covered(second))


def test_many_collectives_are_matched_at_once():
    count, ranks = 50_000, 8
    random = np.random.default_rng(1)
    arrive = random.integers(0, 500, (ranks, count)) + np.arange(count) * 1000
    end = arrive.max(axis=0) + 100
    base = collectives(recording(Run(2, 1, 300, (Talk("all_reduce", 0, 0, (5, 9), 20),), (), (0, 0), numbered=True), 0))
    parts = [replace(base, start_ns=arrive[rank], end_ns=end, step=np.zeros(count, dtype=np.int64), sequence=np.arange(count),
                     what=np.zeros(count, dtype=np.int64)) for rank in range(ranks)]
    matched: Matched = match(parts)
    found = waits(matched)
    assert int(matched.collective.max()) == count - 1
    assert int(found.wait_ns.sum()) == int((arrive.max(axis=0) - arrive).sum()) and bool((found.last == arrive.argmax(axis=0)).all())
