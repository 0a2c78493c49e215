"""The critical path against a slow, obvious walk, and against programs that were simulated with known causes."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.model.trace import Trace
from kernelwright.timeline.critical_path import bounds, critical_path, walk
from kernelwright.timeline.owners import Owners
from kernelwright.timeline.path_edges import DeviceEdges, HostEdges
from kernelwright.timeline.work import Work
from property_examples import examples
from random_traces import AUTOGRAD, HOME, PROCESS, Made, traces

Parts = list[tuple[str, int, int, str]]
"""(kind, start, end, name), from the end backwards."""
SYNC = "cudaStreamSynchronize"


class Slow:
    """The definitions of docs/timeline-structure.md, looked up by going through everything each time."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.work = trace, Work(trace)
        work = self.work
        self.places = range(len(work))
        self.start, self.end, self.called = work.start.tolist(), work.end.tolist(), work.called.tolist()
        self.stream = work.stream.tolist()
        self.blocking = [work.name(p).startswith("Memcpy") and work.launch[p] >= 0 and work.returned[p] >= work.end[p] for p in self.places]
        self.arrival = [self.called[p] if self.blocking[p] else min(int(work.returned[p]), self.start[p]) for p in self.places]
        self.calls = [(trace.runtime.name(r), int(trace.runtime.start_ns[r]), int(trace.runtime.end_ns[r]), int(trace.runtime.thread[r]))
                      for r in range(len(trace.runtime))]

    def order(self, place: int) -> tuple[int, int, int]:
        return self.end[place], self.start[place], place

    def cause(self, place: int) -> tuple[str, int]:
        """(why, place or -1) of what arrived last before work began."""
        ended = [p for p in self.places if self.end[p] <= self.start[place] and self.order(p) < self.order(place)]
        own = max((p for p in ended if self.stream[p] == self.stream[place]), key=self.order, default=-1)
        other = max(ended, key=self.order, default=-1)
        if other >= 0 and self.stream[other] != self.stream[place] and self.called[other] < self.called[place]:
            before = [(self.called[p], self.start[p], p) for p in self.places if self.stream[p] == self.stream[place]]
            position = sorted(before).index((self.called[place], self.start[place], place))
            since = sorted(before)[position - 1][0] if position else -10**9
            waits = any(name == "cudaStreamWaitEvent" and since <= start < self.called[place] for name, start, _, _ in self.calls)
            if waits and self.end[other] > self.arrival[place] and (own < 0 or self.end[other] > self.end[own]):
                return "event wait", other
        if own >= 0 and self.end[own] >= self.arrival[place]:
            return "stream gap", own
        return "launch latency", -1

    def waits(self, thread: int) -> list[tuple[int, int, int]]:
        """(returned, end of the work waited for, place) of a thread's calls."""
        found = []
        for name, start, until, on in self.calls:
            if name != SYNC or on != thread:
                continue
            ended = []
            for stream in set(self.stream):
                rows = sorted((p for p in self.places if self.stream[p] == stream), key=self.order)
                leading = []
                for place in rows:
                    if self.called[place] >= start:
                        break
                    leading.append(place)
                done = [p for p in leading if self.end[p] <= until]
                ended += done[-1:]
            last = max(ended, key=self.order, default=-1)
            if last >= 0 and self.end[last] > start:
                found.append((until, self.end[last], last))
        for place in self.places:
            row = int(self.work.launch[place])
            if self.blocking[place] and self.trace.runtime.thread[row] == thread and self.end[place] > self.called[place]:
                found.append((int(self.work.returned[place]), self.end[place], place))
        return sorted(found)

    def handovers(self, thread: int, threads: list[int]) -> list[tuple[int, int]]:
        """(moment, other thread)."""
        def events(of: int) -> list[tuple[int, int]]:
            tables = (self.trace.runtime, self.trace.operators)
            return sorted((int(t.start_ns[r]), max(int(t.end_ns[r]), int(t.start_ns[r]) + 1)) for t in tables for r in range(len(t))
                          if t.thread[r] == of)

        merged: list[list[int]] = []
        for start, end in events(thread):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        found = []
        for index, (start, _) in enumerate(merged):
            since = merged[index - 1][1] if index else -10**9
            best = (-10**9, -1)
            for other in threads:
                starts = [begun for begun, _ in events(other) if begun < start] if other != thread else []
                if starts and max(starts) >= since and max(starts) > best[0]:
                    best = (max(starts), other)
            if best[1] >= 0:
                found.append((start, best[1]))
        return found

    def path(self) -> tuple[Parts, int]:
        """(the parts, how many edges were inferred)."""
        low, high = bounds(self.trace, self.work)
        launching = [int(self.trace.runtime.thread[row]) for row in self.work.launch.tolist() if row >= 0]
        threads = [HOME, *sorted(set(launching) - {HOME})]
        waits = {thread: self.waits(thread) for thread in threads}
        handovers = {thread: self.handovers(thread, threads) for thread in threads}
        parts: Parts = []
        inferred = 0
        place = max(self.places, key=self.order, default=-1)
        place = place if place >= 0 and self.end[place] == high else -1
        thread, now, strict, passed = HOME, high, False, (high + 1, 0, 0)
        while now > low:
            if place >= 0:
                name, passed = self.work.name(place), self.order(place)
                begun = max(self.start[place], low)
                parts.append(("work", begun, now, name))
                why, before = self.cause(place)
                since = max(min(self.end[before] if before >= 0 else self.arrival[place], begun), low)
                parts.append((why, since, begun, name))
                inferred += why == "event wait"
                now = since
                row = int(self.work.launch[place])
                if before < 0:
                    thread = int(self.trace.runtime.thread[row]) if row >= 0 else thread
                    strict = False
                place = before
                continue
            wait = max((one for one in waits[thread] if one[0] <= now and self.order(one[2]) < passed), default=None)
            handover = max((one for one in handovers[thread] if one[0] < now or (one[0] == now and not strict)), default=None)
            if wait is not None and (handover is None or wait[0] >= handover[0]):
                since = max(wait[0], low)
                parts += [("host", since, now, str(thread)), ("sync return", max(min(wait[1], since), low), since, "")]
                now, place, strict = max(wait[1], low), wait[2], False
            else:
                since = max(handover[0], low) if handover is not None else low
                parts.append(("host", since, now, str(thread)))
                now = since
                if handover is not None:
                    thread, strict, inferred = handover[1], True, inferred + 1
        return [part for part in parts if part[2] > part[1]], inferred


@given(traces())
@examples(80)
def test_the_path_is_that_of_the_definitions(trace: Trace) -> None:
    work = Work(trace)
    low, high = bounds(trace, work)
    edges = DeviceEdges(trace, work)
    found = walk(trace, work, edges, HostEdges(trace, work, edges), low, high)
    slow, inferred = Slow(trace).path()
    names = {0: "launch latency", 1: "stream gap", 2: "event wait"}
    parts = [("work", start, end, work.name(place)) for place, start, end in found.work]
    parts += [(names[why], start, end, work.name(place)) for why, place, start, end in found.before]
    parts += [("sync return", start, end, "") for _, start, end in found.returns]
    parts += [("host", start, end, str(thread)) for (_, thread), spans in found.host.items() for start, end in spans]
    parts = [part for part in parts if part[2] > part[1]]
    assert Counter(parts) == Counter(slow) and found.inferred == inferred
    tiled = sorted((start, end) for _, start, end, _ in parts)
    assert sum(end - start for start, end in tiled) == high - low
    assert not tiled or (tiled[0][0] == low and tiled[-1][1] == high)
    assert all(first[1] == second[0] for first, second in itertools.pairwise(tiled))


@given(traces())
@examples(80)
def test_categories_add_up_and_host_time_is_told_apart(trace: Trace) -> None:
    work = Work(trace)
    if not trace.is_cuda:
        return
    found = critical_path(trace, work, Owners(trace, work))
    assert sum(found.by_category.values()) == found.end_ns - found.start_ns
    parts, _ = Slow(trace).path()
    slow: Counter[str] = Counter()
    for kind, start, end, name in parts:
        if kind == "host":
            for point in range(start, end):
                slow[what_the_host_did(trace, int(name), point)] += 1
        elif kind == "work":
            copied = "copy" if name.startswith("Memcpy") else "memset" if name.startswith("Memset") else "kernel"
            slow["communication" if name.startswith("nccl") else copied] += end - start
        else:
            slow[kind] += end - start
    assert {key: value for key, value in found.by_category.items() if value} == dict(slow)


def what_the_host_did(trace: Trace, thread: int, point: int) -> str:
    if not any(start <= point < end for start, end in zip(trace.steps.start_ns, trace.steps.end_ns, strict=True)):
        return "between steps"
    best: tuple[int, int, str] | None = None
    for kind, table in (("runtime call", trace.runtime), ("operator", trace.operators)):
        for row in range(len(table)):
            if table.thread[row] == thread and table.start_ns[row] <= point < table.end_ns[row]:
                key = (int(table.start_ns[row]), -int(table.end_ns[row]), kind)
                # The last one opened; of those opened together the shorter; of equal ones the operator, which comes second.
                if best is None or (key[0], key[1]) >= (best[0], best[1]):
                    best = key
    return best[2] if best else "host"


PROGRAM = st.lists(st.tuples(st.sampled_from(("launch", "launch", "launch", "sync")), st.integers(1, 9), st.integers(1, 30),
                             st.sampled_from((7, 8))), min_size=1, max_size=20)


@given(PROGRAM)
@examples(60)
def test_a_simulated_program_takes_as_long_as_its_longest_chain(program: list[tuple[str, int, int, int]]) -> None:
    """A host that launches and waits for everything, streams in order, no latency: the path is that chain, nothing is left over."""
    made, now, free = Made(), 0, {7: 0, 8: 0}
    # Longest chain to each node, and how much of it is device work.
    host, stream = (0, 0), {7: (0, 0), 8: (0, 0)}
    for kind, cost, length, where in program:
        if kind == "launch":
            begun, now = now, now + cost
            start = max(now, free[where])
            free[where] = start + length
            made.launch("add", begun, now, start, start + length, stream=where)
            host = (host[0] + cost, host[1])
            chain = max(stream[where], host)
            stream[where] = (chain[0] + length, chain[1] + length)
        else:
            begun, now = now, max(now + 1, *free.values())
            made.call("cudaDeviceSynchronize", begun, now)
            host = max((host[0] + 1, host[1]), *stream.values())
    made.step(0, max(now, 1))
    trace = made.trace()
    end = max(host, *stream.values())
    if not trace.is_cuda:
        return
    work = Work(trace)
    found = critical_path(trace, work, Owners(trace, work))
    assert found.end_ns == end[0] == sum(found.by_category.values())
    assert set(found.by_category) <= {"kernel", "runtime call", "host"} and found.inferred_edges == 0


def test_of_work_that_ended_together_the_last_began_last_and_was_launched_last() -> None:
    """Two streams of two devices end at 10, where a call that waited for both returns; the busier stream is not the later one."""
    made = Made().step(0, 20)
    made.launch("busy", 0, 1, 1, 2, stream=7).launch("busy", 1, 2, 2, 3, stream=7)
    made.launch("first", 4, 4, 6, 10, stream=7, thread=AUTOGRAD).launch("second", 5, 6, 6, 10, stream=8, device=1)
    made.call("cudaStreamSynchronize", 9, 10)
    found = critical_path(made.trace(), Work(made.trace()), Owners(made.trace(), Work(made.trace())))
    assert [share.name for share in found.largest if share.category == "kernel"] == ["second"]


def test_work_that_took_no_time_and_a_wait_inside_its_own_launch_end_the_walk() -> None:
    made = Made().step(0, 30).launch("none", 8, 14, 10, 10).call("cudaStreamSynchronize", 9, 10)
    trace = made.trace()
    found = critical_path(trace, Work(trace), Owners(trace, Work(trace)))
    assert sum(found.by_category.values()) == 30 and found.segments < 10


def test_backward_on_a_thread_of_its_own_and_a_stream_that_waits() -> None:
    made = Made().step(0, 200)
    made.operators.add("aten::linear", 0, 20, thread=HOME)
    made.launch("forward", 5, 10, 12, 30)
    made.operators.add("autograd::engine", 40, 70, thread=AUTOGRAD)
    made.launch("backward", 50, 55, 60, 90, thread=AUTOGRAD)
    made.call("cudaStreamWaitEvent", 100, 101).launch("other stream", 102, 103, 105, 150, stream=9)
    made.launch("first", 91, 92, 93, 104)
    made.call("cudaDeviceSynchronize", 110, 160)
    trace = made.trace()
    work = Work(trace)
    found = critical_path(trace, work, Owners(trace, work))
    # Back from the end: 40 after the wait, 10 return, 45 kernel, 1 event wait, 11 kernel, 1 latency, 22 host since autograd's last
    # event began the silence, 20 + 30 of the engine (less its launch call), and the rest before it.
    assert found.by_category["event wait"] == 1 and found.by_category["sync return"] == 10 and found.by_category["launch latency"] == 1
    assert found.by_category["kernel"] == 45 + 11 and found.inferred_edges == 3
    assert found.end_ns - found.start_ns == 200 == sum(found.by_category.values())
    assert PROCESS == 7
