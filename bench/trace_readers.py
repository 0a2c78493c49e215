"""Reading a Kineto trace: our reader beside the standard library's json and HTA (HolisticTraceAnalysis), by time and peak memory.

Traces of 0.1, 1 and 3 million events, as Kineto writes them, are made here (seeded) in a temporary folder. Each reading is a process of
its own, the readers in turn, so that a busy machine slows them alike. HTA is given by --hta (a Python that has it), else it is installed
into an environment of its own in the temporary folder; without it its rows are left out, and the reason is printed. Those of 3 and
10 million events are read by ours alone as well, three times in turn, where the disk has room for them (5 GB): of a machine whose speed
changes in between, single readings would tell nothing of growth. "again" is ours once more, from its cache.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SIZES = (100_000, 1_000_000, 3_000_000)
ALONE = (3_000_000, 10_000_000)
"""Read by ours alone, in turn."""
TURNS = 3
EVENT_BYTES = 340
"""About; the cache's entry is a tenth of it."""
SEED = 1
HTA = ("HolisticTraceAnalysis==0.5.0", "pandas<3")
"""This version fails with pandas 3."""
CHECKED, CPU_TIMES, MEMORY_TIMES = 3_000_000, 12, 6
"""At so many events HTA must take at least so many times our CPU time, and so many times our memory."""
BASE_NS = 4377300821121851
MEASURE = """
import json, resource, sys, time
def seconds():
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
path = sys.argv[1]
{prepare}
wall, cpu = time.perf_counter(), seconds()
{read}
wall, cpu = time.perf_counter() - wall, seconds() - cpu
peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print("\\n" + json.dumps({{"wall_s": wall, "cpu_s": cpu, "peak_bytes": peak * (1 if sys.platform == "darwin" else 1024),
                           "events": {count}}}))
"""
"""Imports are not timed; the peak is the largest process's, imports included. HTA's own processes count."""
READERS = {
    "kernelwright": MEASURE.format(
        prepare="from pathlib import Path\nfrom kernelwright.readers.kineto import read_kineto", read="trace = read_kineto(Path(path))",
        count="len(trace.operators) + len(trace.device) + len(trace.runtime) + len(trace.ranges) + len(trace.steps)"),
    "again": MEASURE.format(
        prepare="from pathlib import Path\nfrom kernelwright.readers.cache import cached_kineto", read="trace = cached_kineto(Path(path))",
        count="len(trace.operators) + len(trace.device) + len(trace.runtime) + len(trace.ranges) + len(trace.steps)"),
    "json": MEASURE.format(
        prepare="", read="with open(path) as file:\n    document = json.load(file)", count="len(document['traceEvents'])"),
    "hta": MEASURE.format(
        prepare="from hta.trace_analysis import TraceAnalysis", read="analysis = TraceAnalysis(trace_files={0: path}, trace_dir='')",
        count="len(analysis.t.traces[0])"),
}
"""`events`: those that the reader keeps; json keeps all, ours and HTA leave out flows and metadata."""
EVENT = """  {{
    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},
    "ts": {ts}, "dur": {dur},
    "args": {{
      {args}
    }}
  }}"""
FLOW = """  {{
    "ph": "{ph}", "id": {id}, "pid": {pid}, "tid": {tid}, "ts": {ts},
    "cat": "ac2g", "name": "ac2g"{more}
  }}"""
HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
  ],
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 0,
  "traceEvents": [
"""
TAIL = '\n  ],\n  "traceName": "synthetic"\n}\n'
CALLS_PER_STEP = 2000
WIDTHS = (256, 512, 768, 1024, 3072, 4096)
OPERATORS = ("aten::linear", "aten::matmul", "aten::add", "aten::gelu", "aten::layer_norm", "aten::softmax")


def main(argv: list[str] | None = None) -> int:
    """Run, print a table and how time grew, write them as JSON and markdown beside it.

    Exit 1 where a reader failed; with --check also when HTA's figures are too near to ours, or HTA could not be run.
    """
    args = _arguments(argv)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERNELWRIGHT_CACHE"] = str(Path(folder) / "cache")
        pythons = {"kernelwright": sys.executable, "again": sys.executable}
        hta = (args.hta or install_hta(Path(folder) / "hta")) if args.sizes else None
        peers = {"json": sys.executable, **({"hta": hta} if hta is not None else {})}
        rows = [row for size in args.sizes for row in measure(size, args.rounds, pythons | peers, Path(folder) / f"{size}.json")]
        alone = in_turn(args.alone, Path(folder)) if has_room(Path(folder), sum(args.alone)) else []
    table = markdown(rows + alone) + "\n" + "".join(f"{line}\n" for line in [*growth(rows), *growth(alone)])
    rows += alone
    print(f"\n{table}")
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        document = {"benchmark": "trace_readers", "rounds": args.rounds, "seed": SEED, "hta": hta is not None, "rows": rows}
        args.out.write_text(json.dumps(document, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(table)
    missed = misses(rows) if args.check else []
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed or any(row["error"] for row in rows) else 0


def misses(rows: list[dict[str, Any]]) -> list[str]:
    """What is not as it should be beside HTA, in words."""
    row = next((row for row in rows if row["reader"] == "hta" and not row["error"] and row["trace_events"] // CHECKED == 1), {})
    ratios = [row.get(key) for key in ("cpu_s_ratio", "peak_bytes_ratio")]
    if None in ratios:
        return [f"nothing to compare with HTA at {CHECKED} events"]
    return [f"HTA took {ratio:.1f} times our {what} at {CHECKED} events, not {least}"
            for ratio, what, least in zip(ratios, ("CPU time", "memory"), (CPU_TIMES, MEMORY_TIMES), strict=True)
            if ratio is not None and ratio < least]


def in_turn(sizes: list[int], folder: Path) -> list[dict[str, Any]]:
    """One row a size of ours alone: medians over TURNS readings of each, the sizes in turn."""
    paths = [folder / f"{size}.json" for size in sizes]
    counts = [write_trace(path, size) for path, size in zip(paths, sizes, strict=True)]
    runs: list[list[dict[str, Any]]] = [[] for _ in sizes]
    for _ in range(TURNS):
        for path, found in zip(paths, runs, strict=True):
            shutil.rmtree(os.environ["KERNELWRIGHT_CACHE"], ignore_errors=True)
            found.append(read("kernelwright", sys.executable, path))
            print(f"  {path.name}: {found[-1]}", file=sys.stderr, flush=True)
    return [row_of("kernelwright", count, path.stat().st_size, found) for count, path, found in zip(counts, paths, runs, strict=True)]


def row_of(name: str, count: int, size_bytes: int, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over a reader's runs."""
    error = next((run["error"] for run in found if "error" in run), None)
    row: dict[str, Any] = {"reader": name, "trace_events": count, "trace_bytes": size_bytes, "error": error, "runs": found}
    if error is None:
        row |= {key: statistics.median(run[key] for run in found) for key in ("wall_s", "cpu_s", "peak_bytes", "events")}
    return row


def measure(size: int, rounds: int, pythons: dict[str, str], path: Path) -> list[dict[str, Any]]:
    """One row a reader: medians over the rounds, and ratios to ours."""
    count = write_trace(path, size)
    print(f"{count} events, {path.stat().st_size / 1e6:.0f} MB", file=sys.stderr)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in pythons}
    for _ in range(rounds):
        for name, python in pythons.items():
            if name == "again":
                read(name, python, path)
            runs[name].append(read(name, python, path))
            print(f"  {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
    size_bytes = path.stat().st_size
    path.unlink()
    rows: list[dict[str, Any]] = []
    for name, found in runs.items():
        row = row_of(name, count, size_bytes, found)
        if row["error"] is None and rows and rows[0]["error"] is None:
            row |= {f"{key}_ratio": row[key] / rows[0][key] for key in ("wall_s", "cpu_s", "peak_bytes")}
        rows.append(row)
    return rows


def read(name: str, python: str, path: Path) -> dict[str, Any]:
    """One reading in a process of its own."""
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths} if name in ("kernelwright", "again") else None
    done = subprocess.run([python, "-c", READERS[name], str(path)], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env=environment, cwd=path.parent)
    if done.returncode != 0:
        return {"error": f"exit {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"}
    measured: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return measured


def has_room(folder: Path, events: int) -> bool:
    """True where a trace of so many events and its cache entry fit twice; else the reason is printed."""
    free, needed = shutil.disk_usage(folder).free, 2 * events * EVENT_BYTES
    if free < needed:
        print(f"without {events} events: they take {needed / 1e9:.0f} GB with some to spare, and {free / 1e9:.0f} are free in {folder}",
              file=sys.stderr)
    return free >= needed


def growth(rows: list[dict[str, Any]]) -> list[str]:
    """From each size to the next, how our time grew beside n log n."""
    ours = [row for row in rows if row["reader"] == "kernelwright" and not row["error"]]
    lines = []
    for small, large in itertools.pairwise(ours):
        few, many = small["trace_events"], large["trace_events"]
        expected = many * math.log(many) / (few * math.log(few))
        lines.append(f"{few} to {many} events: {many / few:.1f} times the events, {large['wall_s'] / small['wall_s']:.1f} times the wall "
                     f"time, {large['cpu_s'] / small['cpu_s']:.1f} times the CPU time (n log n: {expected:.1f}), "
                     f"{large['peak_bytes'] / small['peak_bytes']:.1f} times the memory")
    return lines


def markdown(rows: list[dict[str, Any]]) -> str:
    """The rows as a table; ratios are the reader's figure over ours."""
    lines = ["| events | MB | reader | wall s | CPU s | peak MB | wall / ours | CPU / ours | peak / ours |",
             "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in rows:
        begin = f"| {row['trace_events']} | {row['trace_bytes'] / 1e6:.0f} | {row['reader']} |"
        if row["error"]:
            lines.append(f"{begin} failed | | | | | |")
            continue
        ratios = [f"{row[key]:.1f}" if key in row else "" for key in ("wall_s_ratio", "cpu_s_ratio", "peak_bytes_ratio")]
        lines.append(f"{begin} {row['wall_s']:.2f} | {row['cpu_s']:.2f} | {row['peak_bytes'] / 1e6:.0f} | {' | '.join(ratios)} |")
    return "\n".join(lines) + "\n"


def install_hta(folder: Path) -> str | None:
    """The Python of a new environment with HTA; None, and a printed reason, where pip can't."""
    print("installing HolisticTraceAnalysis", file=sys.stderr)
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", *HTA], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        print(f"without HTA, pip can't install it: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    return str(python)


def write_trace(path: Path, count: int) -> int:
    """A trace of about `count` events as Kineto lays it out; the number of events."""
    written = 0
    with path.open("w") as file:
        file.write(HEAD)
        for event in events(count):
            file.write(",\n" if written else "")
            file.write(event)
            written += 1
        file.write(TAIL)
    return written


def events(count: int) -> Iterator[str]:
    """Steps of operator calls: an operator, one inside it, its launch, its kernel, and the launch's two flow events."""
    draw = random.Random(SEED)
    clock_ns, made, index, correlation, step = BASE_NS, 0, 0, 0, 0
    while made < count:
        calls = min(CALLS_PER_STEP, max(1, (count - made) // 6))
        begin_ns, body = clock_ns + 1000, []
        for _ in range(calls):
            clock_ns += draw.randrange(2_000, 9_000)
            correlation += 1
            body += call(draw, clock_ns, index, correlation)
            index += 2
            clock_ns += 30_000
        for name, margin_ns in ((f"ProfilerStep#{step}", 500), ("kernelwright.step", 0)):
            yield complete("user_annotation", name, begin_ns - margin_ns, clock_ns + margin_ns,
                           f'"External id": {index}, "Ev Idx": {index}')
            index += 1
        yield from body
        made += len(body) + 2
        step += 1
        clock_ns += 10_000


def call(draw: random.Random, start_ns: int, index: int, correlation: int) -> list[str]:
    """The six events of one operator call."""
    name, rows, columns = draw.choice(OPERATORS), 32 * draw.randrange(1, 9), draw.choice(WIDTHS)
    inner_ns = start_ns + draw.randrange(500, 2_000)
    launch_ns = inner_ns + draw.randrange(1_000, 4_000)
    kernel_ns = launch_ns + draw.randrange(3_000, 20_000)
    shapes = (f'"Concrete Inputs": ["", "", ""], "Input type": ["float", "float", "float"], '
              f'"Input Strides": [[{columns}, 1], [{columns}, 1], [1]], '
              f'"Input Dims": [[{rows}, {columns}], [{columns}, {columns}], [{columns}]]')
    operator = f'"External id": {{index}},"Record function id": 0, {shapes}, "Ev Idx": {{index}}'
    flow = {"id": correlation, "pid": 530}
    return [
        complete("cpu_op", name, start_ns, start_ns + 28_000, operator.format(index=index)),
        complete("cpu_op", f"{name}_impl", inner_ns, start_ns + 25_000, operator.format(index=index + 1)),
        complete("cuda_runtime", "cudaLaunchKernel", launch_ns, launch_ns + draw.randrange(1_000, 3_000),
                 f'"External id": {index + 1}, "cbid": 211, "correlation": {correlation}'),
        FLOW.format(ph="s", tid=530, ts=microseconds(launch_ns), more="", **flow),
        complete("kernel", f"void at::native::vectorized_elementwise_kernel<4, {name[6:]}_functor<float>, {columns}>(int)", kernel_ns,
                 kernel_ns + draw.randrange(900, 25_000),
                 f'"External id": {index + 1}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {correlation}, '
                 f'"registers per thread": 32, "shared memory": 0, "blocks per SM": {rows / 132:.6f}, "warps per SM": {rows / 33:.6f}, '
                 f'"grid": [{rows}, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 41', pid=0, tid=7),
        FLOW.format(ph="f", tid=7, ts=microseconds(kernel_ns), more=', "bp": "e"', id=correlation, pid=0),
    ]


def complete(category: str, name: str, start_ns: int, end_ns: int, args: str, *, pid: int = 530, tid: int = 530) -> str:
    """One complete event as Kineto writes it."""
    return EVENT.format(cat=category, name=name, pid=pid, tid=tid, ts=microseconds(start_ns), dur=microseconds(end_ns - start_ns),
                        args=args)


def microseconds(time_ns: int) -> str:
    """Kineto's decimal microseconds."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), metavar="EVENTS")
    parser.add_argument("--alone", type=int, nargs="*", default=list(ALONE), metavar="EVENTS", help="sizes that ours alone reads")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--hta", metavar="PYTHON", help="an interpreter that has HolisticTraceAnalysis (default: install it for this run)")
    parser.add_argument("--check", action="store_true", help=f"exit 1 unless HTA takes {CPU_TIMES} times our CPU time and {MEMORY_TIMES} "
                        f"times our memory at {CHECKED} events")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures there as JSON, and as markdown beside it")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
