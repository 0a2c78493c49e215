"""Time of each analysis of timeline/structure.py on synthetic recordings: growth with the number of launches.

    PYTHONPATH=src python bench/timeline_structure.py [100000 1000000 ...]

A recording: training steps of about 1,000 launches (48 equal layers, a backward pass on a thread of its own, a loss read back each step),
each launch in two nested operators, a range a layer, and an allocation and a free for each second launch. One step in fifty differs.
Prints seconds of CPU time (so that a busy machine says the same), and the growth of the time over the growth of the launches.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernelwright.model.table import EventTable, MemoryEvents, RowDetails
from kernelwright.model.trace import Trace
from kernelwright.timeline.critical_path import critical_path
from kernelwright.timeline.graph_candidates import graph_candidates
from kernelwright.timeline.iteration_compare import compare_iterations
from kernelwright.timeline.iterations import iterations, with_found_steps
from kernelwright.timeline.memory_peaks import memory_peaks
from kernelwright.timeline.nesting import Nesting
from kernelwright.timeline.owners import Owners
from kernelwright.timeline.regions import RangePlaces, region_tree
from kernelwright.timeline.sequences import sequences
from kernelwright.timeline.transfers import transfers
from kernelwright.timeline.work import Work

LAYERS, PER_LAYER = 48, 10
PITCH_NS = 10_000
HOME, BACKWARD = 1, 2


def table(start: Any, end: Any, names: tuple[str, ...], name_id: Any, *, thread: Any = -1, stream: int = -1, correlation: Any = -1,
          args: Any = ()) -> EventTable:
    size = np.size(start)
    order = np.lexsort((-end, start))

    def column(value: Any) -> Any:
        return np.broadcast_to(np.asarray(value, dtype=np.int64), (size,))[order]

    return EventTable(start_ns=start[order], end_ns=end[order], name_id=column(name_id), stream=column(stream),
                      device=column(0 if stream >= 0 else -1), process=column(7), thread=column(thread), correlation=column(correlation),
                      names=names, args=args or RowDetails(size))


def recording(launches: int) -> Trace:
    rng = np.random.default_rng(1)
    layer = rng.integers(1, 20, PER_LAYER)
    forward, backward = np.tile(layer, LAYERS), np.tile(layer[::-1] + 20, LAYERS)
    step = np.concatenate((np.arange(41, 61), forward, [62, 63], backward, np.arange(64, 100), [0]))
    steps = max(launches // step.size, 3)
    kernel = np.tile(step, steps).reshape(steps, -1)
    odd = np.arange(0, steps, 50)
    kernel[odd, rng.integers(100, 400, odd.size)] = 39
    kernel = kernel.ravel()
    size = kernel.size
    position = np.tile(np.arange(step.size), steps)
    thread = np.where((position >= 22 + forward.size) & (position < 22 + forward.size + backward.size), BACKWARD, HOME)
    called = np.arange(size, dtype=np.int64) * PITCH_NS
    returned = called + 4_000
    duration = rng.integers(2_000, 14_000, size)
    # A stream in order: start = max(called + 3 us, end of the one before), and a wait for all at each step's end.
    total = np.cumsum(duration)
    start = np.maximum.accumulate(called + 3_000 - (total - duration)) + (total - duration)
    last = position == step.size - 1
    behind = start + duration
    synced = np.flatnonzero(last)
    shift = np.zeros(size, dtype=np.int64)
    shift[synced[:-1] + 1] = np.maximum(behind[synced[:-1]] - returned[synced[:-1]], 0)
    # The host waits; later calls and work move along.
    moved = np.cumsum(shift - np.concatenate(([0], shift[:-1])) * 0)
    called, returned = called + moved, returned + moved
    start = np.maximum.accumulate(called + 3_000 - (total - duration)) + (total - duration)
    end = start + duration
    ids = np.arange(size)
    names = ("Memcpy DtoH (Device -> Pageable)", *(f"void kernel_{number}" for number in range(1, 100)))
    kinds = [{"category": "memcpy" if number == 0 else "kernel", "grid": [number + 1, 1, 1], "block": [128, 1, 1], "graph": False,
              "bytes": 4 if number == 0 else -1} for number in range(100)]
    sync_at = returned[synced] + 500
    sync_end = np.maximum(end[synced] + 1_000, sync_at + 500)
    runtime = table(np.concatenate((called, sync_at)), np.concatenate((returned, sync_end)), ("cudaLaunchKernel", "cudaStreamSynchronize"),
                    np.concatenate((np.zeros(size, dtype=np.int64), np.ones(steps, dtype=np.int64))),
                    thread=np.concatenate((thread, np.full(steps, HOME))), correlation=np.concatenate((ids, np.full(steps, -1))))
    operators = table(np.concatenate((called - 1_500, called - 800)), np.concatenate((returned + 900, returned + 400)),
                      ("aten::linear", "aten::addmm"), np.repeat([0, 1], size), thread=np.concatenate((thread, thread)))
    details = RowDetails(size, which=kernel[np.lexsort((-end, start))], shared=kinds)
    device = table(start, end, names, kernel, stream=7, correlation=ids, args=details)
    heads = np.flatnonzero((position >= 20) & (position < 20 + forward.size) & ((position - 20) % PER_LAYER == 0))
    ranges = table(called[heads] - 2_000, returned[heads + PER_LAYER - 1] + 1_500, tuple(f"layer{index}" for index in range(LAYERS)),
                   (position[heads] - 20) // PER_LAYER, thread=HOME)
    first = np.flatnonzero(position == 0)
    marked = table(called[first] - 3_000, np.maximum(sync_end, returned[synced]) + 600, ("kernelwright.step",), 0, thread=HOME)
    made = np.arange(0, size - 4, 2)
    times = np.concatenate((called[made], returned[made + 3]))
    order = np.argsort(times, kind="stable")
    change = np.repeat([1024, -1024], made.size)[order]
    zeros = np.zeros(times.size, dtype=np.int64)
    memory = MemoryEvents(times[order], change, np.cumsum(change), np.concatenate((made, made))[order], zeros + 1, zeros, zeros + 7,
                          zeros + HOME)
    empty = table(*(np.zeros(0, dtype=np.int64),) * 2, (), np.zeros(0, dtype=np.int64))
    return Trace(device=device, runtime=runtime, operators=operators, ranges=ranges, python=empty, lines=empty, steps=marked,
                 overheads=empty, memory=memory, device_names=("NVIDIA H200",), sm_counts=(132,), is_cuda=True, source="synthetic")


def unmarked(trace: Trace) -> Trace:
    """All steps as one."""
    one = np.full(1, -1, dtype=np.int64)
    steps = replace(trace.steps, start_ns=trace.steps.start_ns[:1], end_ns=trace.steps.end_ns[-1:], name_id=one + 1, stream=one, device=one,
                    process=one + 8, thread=one + 1 + HOME, correlation=one, args=())
    return replace(trace, steps_from="whole", steps=steps)


def analyses(trace: Trace) -> dict[str, Callable[[], Any]]:
    """Name -> the analysis, with what all share made before."""
    work = Work(trace)
    owners, places, whole = Owners(trace, work), RangePlaces(trace), unmarked(trace)

    def nowhere(place: int) -> None:
        return None

    def launch_order() -> Any:
        fresh = Work(trace)
        return fresh.symbol, fresh.size, fresh.in_graph, fresh.busy, fresh.stream

    launch_order()
    return {
        "launches in call order, symbols": launch_order,
        "nesting of the operators": lambda: Nesting(trace.operators).parent,
        "iterations": lambda: iterations(trace, work),
        "iterations found": lambda: with_found_steps(whole)[1],
        "comparison of two iterations": lambda: compare_iterations(trace, work, 1, min(50, len(trace.steps) - 1)),
        "sequences": lambda: sequences(work, nowhere, fusible=False),
        "fusion candidates": lambda: sequences(work, nowhere, fusible=True),
        "graph candidates": lambda: graph_candidates(trace, work, nowhere),
        "transfers": lambda: transfers(trace, work),
        "regions": lambda: region_tree(trace, work, owners),
        "memory peaks": lambda: memory_peaks(trace, owners, places),
        "critical path": lambda: critical_path(trace, work, owners)}


def main() -> None:
    sizes = [int(size) for size in sys.argv[1:]] or [100_000, 1_000_000]
    before: dict[str, tuple[float, int]] = {}
    for size in sizes:
        trace = recording(size)
        count = len(trace.device)
        print(f"\n{count} launches, {len(trace.operators)} operators, {len(trace.ranges)} ranges, {len(trace.memory)} memory events, "
              f"{len(trace.steps)} steps")
        for name, analysis in analyses(trace).items():
            begun = time.process_time()
            found = analysis()
            taken = time.process_time() - begun
            last = before.get(name)
            growth = f"{taken / last[0] / (count / last[1]):5.2f}x linear" if last else ""
            print(f"{name:34s} {taken:8.2f} s  {growth:14s}  {_brief(found)}", flush=True)
            before[name] = (max(taken, 1e-3), count)


def _brief(found: Any) -> str:
    if hasattr(found, "by_category"):
        return f"{found.segments} parts, {next(iter(found.by_category))} first"
    if hasattr(found, "confidence"):
        return f"{found.count} x {found.launches_each}, {found.confidence}, {found.launches_left_out} left out"
    if hasattr(found, "nodes"):
        return f"{len(found.nodes)} nodes"
    return f"{len(found)} rows" if isinstance(found, tuple) and not hasattr(found, "model_dump") else ""


if __name__ == "__main__":
    main()
