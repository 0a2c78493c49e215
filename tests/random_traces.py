"""Small traces made of lists, and random ones, for tests of the timeline analyses against slow, obvious implementations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from kernelwright.model.table import EventTable, MemoryEvents
from kernelwright.model.trace import STEP_NAME, Trace
from kernelwright.timeline.intervals import nesting_order

HOME, AUTOGRAD = 1, 2
"""Threads."""
PROCESS = 7
KERNELS = ("gemm_kernel", "add", "mul", "reduce", "ncclDevKernel_AllReduce")
COPIES = ("Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)", "Memcpy DtoD (Device -> Device)", "Memset (Device)")


@dataclass
class Rows:
    """Rows of one table, in any order."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, start: int, end: int, **more: Any) -> None:
        self.rows.append({"name": name, "start": start, "end": end, **more})

    def table(self) -> EventTable:
        def column(key: str, missing: int = -1) -> np.ndarray:
            return np.array([row.get(key, missing) for row in self.rows], dtype=np.int64)

        order = nesting_order(column("start"), column("end"))
        names = tuple(dict.fromkeys(row["name"] for row in self.rows))
        return EventTable(
            start_ns=column("start")[order], end_ns=column("end")[order],
            name_id=np.array([names.index(row["name"]) for row in self.rows], dtype=np.int64)[order], stream=column("stream")[order],
            device=column("device")[order], process=column("process", PROCESS)[order], thread=column("thread")[order],
            correlation=column("correlation")[order], names=names,
            args=tuple(self.rows[row].get("args", {}) for row in order))


@dataclass
class Made:
    """A trace in the making. Times are ns from the first step's start."""

    device: Rows = field(default_factory=Rows)
    runtime: Rows = field(default_factory=Rows)
    operators: Rows = field(default_factory=Rows)
    ranges: Rows = field(default_factory=Rows)
    steps: Rows = field(default_factory=Rows)
    memory: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(time, change, total, address, thread)."""
    calls: int = 0

    def step(self, start: int, end: int) -> Made:
        self.steps.add(STEP_NAME, start, end, thread=HOME)
        return self

    def launch(self, name: str, called: int, returned: int, start: int, end: int, *, thread: int = HOME, stream: int = 7, device: int = 0,
               call: str = "cudaLaunchKernel", size: int = -1, grid: int = 1, orphan: bool = False) -> Made:
        """A launch call and its work."""
        self.calls += 1
        if not orphan:
            self.runtime.add(call, called, returned, thread=thread, correlation=self.calls)
        category = "memcpy" if name.startswith("Memcpy") else "memset" if name.startswith("Memset") else "kernel"
        self.device.add(name, start, end, stream=stream, device=device, correlation=self.calls, process=0,
                        args={"category": category, "grid": [grid, 1, 1], "block": [32, 1, 1], "bytes": size, "graph": False})
        return self

    def call(self, name: str, start: int, end: int, thread: int = HOME) -> Made:
        self.runtime.add(name, start, end, thread=thread)
        return self

    def trace(self, **more: Any) -> Trace:
        empty = Rows().table()
        memory = [np.array([event[index] for event in sorted(self.memory, key=lambda event: event[0])], dtype=np.int64)
                  for index in range(5)]
        ones, zeros = (np.full(len(self.memory), value, dtype=np.int64) for value in (1, 0))
        return Trace(
            device=self.device.table(), runtime=self.runtime.table(), operators=self.operators.table(), ranges=self.ranges.table(),
            python=empty, lines=empty, steps=self.steps.table(), overheads=empty,
            memory=MemoryEvents(memory[0], memory[1], memory[2], memory[3], ones, zeros, ones * PROCESS, memory[4]),
            device_names=("NVIDIA H200",), sm_counts=(132,), is_cuda=bool(self.device.rows), source="made", **more)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Two threads launch onto three streams of two devices, with waits, copies and ranges, in up to three steps. No physics: only order."""
    made = Made()
    steps = draw(st.integers(1, 3))
    end = 0
    for index in range(steps):
        start = end if index == 0 else end + draw(st.integers(0, 6))
        end = start + draw(st.integers(20, 60))
        made.step(start, end)
    now = {HOME: -5, AUTOGRAD: -5}
    free = {7: -5, 8: -5, 20: -5}
    for kind, thread, stream, name, wait, length, delay in draw(st.lists(st.tuples(
            st.sampled_from(("launch", "launch", "launch", "launch", "sync", "event", "malloc", "op")),
            st.sampled_from((HOME, HOME, AUTOGRAD)), st.sampled_from((7, 7, 8, 20)), st.sampled_from(KERNELS + COPIES),
            st.integers(0, 3), st.integers(0, 5), st.integers(0, 6)),
            min_size=draw(st.sampled_from((0, 10, 20))), max_size=30)):
        begun = now[thread] + wait
        ended = begun + length
        now[thread] = ended
        if kind == "launch":
            start = max(begun + draw(st.integers(0, 4)), free[stream])
            free[stream] = start + delay
            made.launch(name, begun, ended, start, start + delay, thread=thread, stream=stream % 10 if stream == 20 else stream,
                        device=1 if stream == 20 else 0, size=draw(st.sampled_from((-1, 4, 4096))), grid=draw(st.integers(1, 2)),
                        orphan=draw(st.integers(0, 15)) == 0)
        elif kind == "op":
            made.operators.add("aten::op", begun, begun + length + delay, thread=thread,
                               args={"dims": [], "types": [], "sequence": -1, "forward_thread": -1, "opened": -1})
        else:
            made.call({"sync": "cudaStreamSynchronize", "event": "cudaStreamWaitEvent", "malloc": "cudaMalloc"}[kind], begun, ended, thread)
    for name, thread, start, length in draw(st.lists(st.tuples(
            st.sampled_from(("stage:a", "stage:b", "c")), st.sampled_from((HOME, HOME, AUTOGRAD)), st.integers(0, 60), st.integers(0, 40)),
            min_size=draw(st.sampled_from((0, 3))), max_size=8)):
        made.ranges.add(name, start, start + length, thread=thread, args={"opened": -1})
    return made.trace()
