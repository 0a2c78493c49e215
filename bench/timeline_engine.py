"""The timeline engine on synthetic events: nesting, overlap and all of flow(), by time and peak memory, beside plain Python loops.

Nesting: the innermost of 1 M ranges for each of 1 M launches. Overlap: time with k streams at work over 1 M kernels. Both are done a second
time by a plain Python loop (a stack; a sorted sweep) in the same process, and the answers must be equal. flow(): everything of
docs/timeline.md on traces of 0.1, 1, 3 and 10 million events (operators, launches, waits, allocations, kernels and copies on two
streams), with the growth from size to size. Each measurement is a process of its own; the least of the rounds counts, since a busy machine
only adds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SIZES = (100_000, 1_000_000, 3_000_000, 10_000_000)
PART = 1_000_000
"""Launches, ranges and kernels of the two parts."""
SEED = 1
NESTING_BUDGET_S = 1.0
"""Of CPU time, on one core: wall time on a busy machine says less."""
GROWTH_TOLERANCE = 1.3
"""How much more than n log n CPU time may grow from one million events on: larger arrays leave the caches."""


def main(argv: list[str] | None = None) -> int:
    """Run, print tables, write JSON and markdown. Exit 1 when an answer is wrong, with --check also when a budget is missed."""
    args = _arguments(argv)
    if args.measure is not None:
        sys.path.insert(0, str(ROOT / "src"))
        print(json.dumps(MEASUREMENTS[args.measure](args.count)))
        return 0
    parts = [best([measure(name, args.part) for _ in range(args.rounds)]) | {"part": name} for name in ("nesting", "overlap")]
    flows = [best([measure("flow", size) for _ in range(args.rounds)]) for size in args.sizes]
    text = markdown(parts, flows)
    print(f"\n{text}")
    kept = all(part["equal"] for part in parts) and (parts[0]["cpu_s"] < NESTING_BUDGET_S or args.part > PART)
    kept = kept and all(excess <= GROWTH_TOLERANCE for _, _, _, excess in growth(flows))
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        document = {"benchmark": "timeline_engine", "rounds": args.rounds, "seed": SEED, "budgets_kept": kept,
                    "parts": parts, "flow": flows}
        args.out.write_text(json.dumps(document, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(text)
    return 1 if not all(part["equal"] for part in parts) or (args.check and not kept) else 0


def measure(name: str, count: int) -> dict[str, Any]:
    """One measurement in a process of its own."""
    done = subprocess.run([sys.executable, str(Path(__file__).resolve()), "--measure", name, "--count", str(count)], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    if done.returncode != 0:
        raise SystemExit(f"{name} of {count} failed: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"  {name} {count}: {found}", file=sys.stderr, flush=True)
    return found


def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The least of each time and memory; the rest is the same in all."""
    return {key: min(run[key] for run in runs) if key.endswith(("_s", "_bytes")) else runs[0][key] for key in runs[0]}


def growth(flows: list[dict[str, Any]]) -> list[tuple[int, int, float, float]]:
    """(from, to, exponent of CPU time, its growth over that of n log n) for sizes of a million events and more."""
    return [(one["events"], two["events"], math.log(two["cpu_s"] / one["cpu_s"]) / math.log(two["events"] / one["events"]),
             two["cpu_s"] / one["cpu_s"] / (two["events"] * math.log(two["events"]) / (one["events"] * math.log(one["events"]))))
            for one, two in pairwise([row for row in flows if row["events"] >= 900_000])]


def markdown(parts: list[dict[str, Any]], flows: list[dict[str, Any]]) -> str:
    """The tables."""
    lines = ["| part | n | wall s | CPU s | plain Python: CPU s | plain / ours | equal |",
             "| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    lines += [f"| {row['part']} | {row['count']} | {row['wall_s']:.2f} | {row['cpu_s']:.2f} | {row['plain_cpu_s']:.2f} | "
              f"{row['plain_cpu_s'] / row['cpu_s']:.1f} | {'yes' if row['equal'] else 'NO'} |" for row in parts]
    lines += ["", "| events | kernels and copies | wall s | CPU s | CPU us / event | peak MB over the trace's | MB of the trace |",
              "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in flows:
        lines.append(f"| {row['events']} | {row['device_rows']} | {row['wall_s']:.2f} | {row['cpu_s']:.2f} | "
                     f"{1e6 * row['cpu_s'] / row['events']:.2f} | {row['peak_bytes'] / 1e6:.0f} | {row['trace_bytes'] / 1e6:.0f} |")
    lines += ["", *(f"From {one} to {two} events CPU time grows as n^{exponent:.2f}, {excess:.2f} times as much as n log n does."
                    for one, two, exponent, excess in growth(flows))]
    return "\n".join(lines) + "\n"


def _timed(action: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    return result, time.perf_counter() - wall, time.process_time() - cpu


# -- parts ------------------------------------------------------------------------------------------------------------------


def measure_nesting(count: int) -> dict[str, Any]:
    """Innermost range of each launch, all on one thread."""
    import numpy as np

    from kernelwright.timeline.nesting import Nesting

    draw = np.random.default_rng(SEED)
    ranges = table(*nested(count, draw))
    points = np.sort(draw.integers(0, int(ranges.end_ns.max()), count))
    same = np.full(count, 530, dtype=np.int64)
    found, wall_s, cpu_s = _timed(lambda: Nesting(ranges).innermost(same, same, points))
    begin, end, at = ranges.start_ns.tolist(), ranges.end_ns.tolist(), points.tolist()
    plain, _, plain_cpu_s = _timed(lambda: plain_innermost(begin, end, at))
    return {"count": count, "wall_s": wall_s, "cpu_s": cpu_s, "plain_cpu_s": plain_cpu_s, "equal": plain == found.tolist()}


def nested(count: int, draw: Any) -> tuple[Any, Any]:
    """Ranges as a program opens them: each begins inside the last one, or after it, or after some of those around it."""
    import numpy as np

    closing = draw.choice((0, 1, 1, 2, 3, 8), count).tolist()
    ticks = draw.integers(100, 3_000, 2 * count).tolist()
    starts, ends, stack, clock = [0] * count, [0] * count, [], 0
    for row in range(count):
        for _ in range(min(closing[row], len(stack)) if len(stack) < 12 else 6):
            ends[stack.pop()] = clock
            clock += ticks[count + row]
        starts[row] = clock
        stack.append(row)
        clock += ticks[row]
    for row in reversed(stack):
        ends[row] = clock
        clock += 100
    return np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)


def plain_innermost(starts: list[int], ends: list[int], points: list[int]) -> list[int]:
    """The same by a stack: of the ranges that are open, the one opened last."""
    found, stack, row = [], [], 0
    for point in points:
        while row < len(starts) and starts[row] <= point:
            while stack and ends[stack[-1]] <= starts[row]:
                stack.pop()
            stack.append(row)
            row += 1
        while stack and ends[stack[-1]] <= point:
            stack.pop()
        found.append(stack[-1] if stack else -1)
    return found


def measure_overlap(count: int) -> dict[str, Any]:
    """Time with k of four streams at work."""
    import numpy as np

    from kernelwright.timeline.concurrency import histogram
    from kernelwright.timeline.intervals import union_by

    draw = np.random.default_rng(SEED)
    starts = np.sort(draw.integers(0, 10_000 * count, count))
    ends = starts + draw.integers(500, 60_000, count)
    streams = draw.integers(0, 4, count)
    high = int(ends.max())

    def ours() -> tuple[int, ...]:
        _, first, last = union_by(streams, starts, ends)
        return histogram(first, last, 0, high)

    found, wall_s, cpu_s = _timed(ours)
    rows = list(zip(starts.tolist(), ends.tolist(), streams.tolist(), strict=True))
    plain, _, plain_cpu_s = _timed(lambda: plain_histogram(rows, high))
    return {"count": count, "wall_s": wall_s, "cpu_s": cpu_s, "plain_cpu_s": plain_cpu_s, "equal": plain == found}


def plain_histogram(rows: list[tuple[int, int, int]], high: int) -> tuple[int, ...]:
    """The same by a sweep over sorted edges, with a count of open works by stream."""
    edges = sorted([(start, 1, stream) for start, _, stream in rows] + [(end, -1, stream) for _, end, stream in rows])
    open_works: dict[int, int] = {}
    times: dict[int, int] = {}
    before = active = 0
    for at, change, stream in edges:
        times[active] = times.get(active, 0) + at - before
        works = open_works.get(stream, 0)
        open_works[stream] = works + change
        active += (works + change > 0) - (works > 0)
        before = at
    times[active] = times.get(active, 0) + high - before
    return tuple(times.get(level, 0) for level in range(max(level for level, length in times.items() if length) + 1))


# -- flow -------------------------------------------------------------------------------------------------------------------


def measure_flow(count: int) -> dict[str, Any]:
    """All of flow() on a trace of about `count` events."""
    import resource

    from kernelwright.timeline.flow import flow

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    flow(synthetic(2_000))  # Imports are not timed.
    trace = synthetic(count)
    before = peak()
    found, wall_s, cpu_s = _timed(lambda: flow(trace))
    tables = (trace.device, trace.runtime, trace.operators, trace.steps)
    (device,) = found.devices
    assert device.idle_ns == sum(cause.idle_ns for cause in device.causes) and device.busy_ns + device.idle_ns == device.span_ns
    return {"events": sum(map(len, tables)), "device_rows": len(trace.device), "wall_s": wall_s, "cpu_s": cpu_s,
            "peak_bytes": peak() - before, "trace_bytes": sum(8 * 8 * len(one) for one in tables), "gaps": device.gap_count}


def synthetic(count: int) -> Any:
    """A trace in memory: per call two operators, a launch and a work on one of two streams; waits, allocations and steps between."""
    import numpy as np

    from kernelwright.model.table import MemoryEvents
    from kernelwright.model.trace import Trace

    draw = np.random.default_rng(SEED)
    calls = max(1, count // 4)
    outer = np.cumsum(draw.integers(22_000, 29_000, calls))
    inner = outer + draw.integers(500, 2_000, calls)
    launch = inner + draw.integers(1_000, 4_000, calls)
    returned = launch + draw.integers(1_000, 3_000, calls)
    stream, length = draw.choice((7, 7, 7, 13), calls), draw.integers(900, 35_000, calls)
    begun = launch + draw.integers(2_000, 6_000, calls)
    for one in (7, 13):  # Each stream runs its work in order.
        mine = np.flatnonzero(stream == one)
        done = np.cumsum(length[mine])
        begun[mine] = np.maximum.accumulate(begun[mine] - (done - length[mine])) + done - length[mine]
    work = draw.choice(5, calls, p=(0.9, 0.04, 0.02, 0.02, 0.02))
    works = ("gemm", "Memcpy HtoD (Pageable -> Device)", "Memset (Device)", "ncclDevKernel_AllReduce", "Memcpy DtoH (Device -> Pageable)")
    extra = np.flatnonzero(draw.random(calls) < 0.02)
    numbers = np.arange(calls, dtype=np.int64)
    edges = np.linspace(int(outer[0]) - 10, int(outer[-1]) + 30_000, max(1, calls // 2000) + 1).astype(np.int64)
    nothing = table(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    return Trace(
        device=table(begun, begun + length, name=work, names=works, stream=stream, device=np.zeros(calls), correlation=numbers),
        runtime=table(np.concatenate((launch, returned[extra] + 100)),
                      np.concatenate((returned, returned[extra] + 100 + draw.integers(2_000, 9_000, extra.size))),
                      name=np.concatenate((np.zeros(calls), draw.integers(1, 4, extra.size))),
                      names=("cudaLaunchKernel", "cudaStreamSynchronize", "cudaMalloc", "cudaStreamWaitEvent"),
                      correlation=np.concatenate((numbers, calls + np.arange(extra.size)))),
        operators=table(np.concatenate((outer, inner)), np.concatenate((outer + 18_000, outer + 16_000)),
                        name=draw.integers(0, 6, 2 * calls), names=tuple(f"aten::op{number}" for number in range(6))),
        ranges=nothing, python=nothing, lines=nothing, overheads=nothing,
        steps=table(edges[:-1] + 5, edges[1:], names=("kernelwright.step",)),
        memory=MemoryEvents(*(np.zeros(0, dtype=np.int64) for _ in range(8))), device_names=("synthetic",), sm_counts=(132,), is_cuda=True,
        source="synthetic")


def table(start: Any, end: Any, *, name: Any = None, names: tuple[str, ...] = ("range",), stream: Any = None, device: Any = None,
          correlation: Any = None) -> Any:
    """Events of one thread in nesting order."""
    import numpy as np

    from kernelwright.model.table import EventTable, RowDetails

    order = np.lexsort((-end, start))

    def column(values: Any, otherwise: int) -> Any:
        return np.full(start.size, otherwise, dtype=np.int64) if values is None else np.asarray(values, dtype=np.int64)[order]

    return EventTable(start[order], end[order], column(name, 0), column(stream, -1), column(device, -1), column(None, 530),
                      column(None, 530), column(correlation, -1), names, RowDetails(start.size))


MEASUREMENTS: dict[str, Callable[[int], dict[str, Any]]] = {"nesting": measure_nesting, "overlap": measure_overlap, "flow": measure_flow}


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="EVENTS")
    parser.add_argument("--part", type=int, default=PART, metavar="N",
                        help="launches, ranges and kernels of the two parts (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="exit 1 when nesting takes longer than 1 s or growth is worse than n log n")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures there as JSON, and as markdown beside it")
    parser.add_argument("--measure", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=PART, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
