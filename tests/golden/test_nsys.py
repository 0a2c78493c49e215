"""Recorded Nsight Systems captures: what we read equals what nsys's own `stats` and `analyze` say of them, to the nanosecond."""

from __future__ import annotations

import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Iterable
from functools import cache

import pytest

from kernelwright.model.table import EventTable
from kernelwright.model.trace import STEP_NAME, Trace
from kernelwright.readers.nsys import read_nsys
from kernelwright.readers.nsys_names import api_name, range_name
from nsys_recordings import WITH_STATS, recording, stats

pytestmark = pytest.mark.parametrize("name", WITH_STATS)
MB = 1_000_000


@cache
def traces(name: str) -> tuple[Trace, ...]:
    """The timeline, and the step with stacks if there is one."""
    return tuple(trace for trace in read_nsys(recording(name) / "report.sqlite") if trace is not None)


@cache
def origin(name: str) -> int:
    """nsys's own time of the first step, read without any of our code."""
    with sqlite3.connect(recording(name) / "report.sqlite") as database:
        return int(database.execute("SELECT min(start) FROM NVTX_EVENTS WHERE text LIKE ?", (f"{STEP_NAME},%",)).fetchone()[0])


def tables(name: str, *which: str) -> list[EventTable]:
    return [getattr(trace, table) for trace in traces(name) for table in which]


def durations(found: Iterable[EventTable], prefix: str = "") -> dict[str, list[int]]:
    by_name = defaultdict(list)
    for table in found:
        for row, duration in enumerate(table.duration_ns.tolist()):
            if table.name(row).startswith(prefix):
                by_name[table.name(row)].append(duration)
    return by_name


def sums(by_name: dict[str, list[int]]) -> dict[str, tuple[int, int, float, int, int]]:
    """As nsys's tables have them: total, count, median, least, most."""
    return {name: (sum(one), len(one), statistics.median(one), min(one), max(one)) for name, one in by_name.items()}


def theirs(row: dict[str, str], count: str = "Instances") -> tuple[int, int, float, int, int]:
    return int(row["Total Time (ns)"]), int(row[count]), float(row["Med (ns)"]), int(row["Min (ns)"]), int(row["Max (ns)"])


def test_kernel_sums(name: str) -> None:
    kernels = defaultdict(list)
    for table in tables(name, "device"):
        for row, details in enumerate(table.args):
            if details["category"] == "kernel":
                kernels[table.name(row)].append(int(table.duration_ns[row]))
    assert sums(kernels) == {row["Name"]: theirs(row) for row in stats(name, "stats_cuda_gpu_kern_sum")}


def test_sums_of_api_calls(name: str) -> None:
    ours = {call: (sum(one), len(one)) for call, one in durations(tables(name, "runtime")).items()}
    assert ours == {api_name(row["Name"]): (int(row["Total Time (ns)"]), int(row["Num Calls"]))
                    for row in stats(name, "stats_cuda_api_sum")}


OPERATIONS = {"HtoD": "[CUDA memcpy Host-to-Device]", "DtoH": "[CUDA memcpy Device-to-Host]", "DtoD": "[CUDA memcpy Device-to-Device]"}


def operation(name: str) -> str:
    return "[CUDA memset]" if name.startswith("Memset") else OPERATIONS[name.split()[1]]


def test_sums_of_copies_and_fills(name: str) -> None:
    times, sizes = defaultdict(list), defaultdict(list)
    for table in tables(name, "device"):
        for row, details in enumerate(table.args):
            if details["category"] != "kernel":
                times[operation(table.name(row))].append(int(table.duration_ns[row]))
                sizes[operation(table.name(row))].append(details["bytes"])
    assert sums(times) == {row["Operation"]: theirs(row, "Count") for row in stats(name, "stats_cuda_gpu_mem_time_sum")}
    assert {key: (f"{sum(one) / MB:.3f}", str(len(one))) for key, one in sizes.items()} == {
        row["Operation"]: (row["Total (MB)"], row["Count"]) for row in stats(name, "stats_cuda_gpu_mem_size_sum")}


def test_sums_of_ranges(name: str) -> None:
    expected: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in stats(name, "stats_nvtx_sum"):
        parsed = range_name(row["Range"].removeprefix(":").encode()).name.decode()
        expected[parsed][0] += int(row["Total Time (ns)"])
        expected[parsed][1] += int(row["Instances"])
    ours = durations(tables(name, "operators", "ranges", "lines", "steps"))
    assert {key: [sum(one), len(one)] for key, one in ours.items()} == expected


def test_device_rows_one_by_one(name: str) -> None:
    ours = []
    for table in tables(name, "device"):
        for row, details in enumerate(table.args):
            grid, block = (details[key] or ("", "", "") for key in ("grid", "block"))
            is_kernel = details["category"] == "kernel"
            label = table.name(row) if is_kernel else operation(table.name(row))
            ours.append((int(table.start_ns[row]) + origin(name), int(table.duration_ns[row]), int(table.correlation[row]),
                         *map(str, grid), *map(str, block), "" if not is_kernel else str(details["registers"]),
                         f"{details['bytes'] / MB:.3f}" if not is_kernel else "", int(table.stream[row]), label))
    expected = [(int(row["Start (ns)"]), int(row["Duration (ns)"]), int(row["CorrId"]), row["GrdX"], row["GrdY"], row["GrdZ"],
                 row["BlkX"], row["BlkY"], row["BlkZ"], row["Reg/Trd"], row["Bytes (MB)"], int(row["Strm"]), row["Name"])
                for row in stats(name, "stats_cuda_gpu_trace")]
    assert sorted(ours) == sorted(expected)


def test_memory_kinds_of_copies(name: str) -> None:
    ours = sorted((int(table.start_ns[row]) + origin(name), table.name(row).partition("(")[2].rstrip(")"))
                  for table in tables(name, "device") for row in range(len(table)) if table.args[row]["category"] == "memcpy")
    assert ours == sorted((int(row["Start (ns)"]), f"{row['SrcMemKd']} -> {row['DstMemKd']}")
                          for row in stats(name, "stats_cuda_gpu_trace") if "memcpy" in row["Name"])


def test_each_kernel_has_the_launch_call_that_nsys_gives_it(name: str) -> None:
    ours = []
    for trace in traces(name):
        calls = {int(number): row for row, number in enumerate(trace.runtime.correlation) if number >= 0}
        for row, details in enumerate(trace.device.args):
            if details["category"] == "kernel":
                call = calls[int(trace.device.correlation[row])]
                assert trace.device.process[row] == trace.runtime.process[call]
                ours.append((int(trace.runtime.start_ns[call]) + origin(name), int(trace.runtime.duration_ns[call]),
                             int(trace.device.start_ns[row]) + origin(name), int(trace.runtime.process[call]),
                             int(trace.runtime.thread[call]), trace.runtime.name(call)))
    expected = [(int(row["API Start (ns)"]), int(row["API Dur (ns)"]), int(row["Kernel Start (ns)"]), int(row["PID"]), int(row["TID"]),
                 api_name(row["API Function"])) for row in stats(name, "stats_cuda_kern_exec_trace")]
    assert sorted(ours) == sorted(expected)


def test_waits_for_the_device(name: str) -> None:
    expected = {(int(row["Start (ns)"]), int(row["Duration (ns)"]), int(row["TID"]), api_name(row["API Name"]))
                for row in stats(name, "analyze_cuda_api_sync")}
    ours = {(int(table.start_ns[row]) + origin(name), int(table.duration_ns[row]), int(table.thread[row]), table.name(row))
            for table in tables(name, "runtime") for row in range(len(table))}
    assert expected and expected <= ours
