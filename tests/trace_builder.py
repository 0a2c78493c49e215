"""Kineto traces made by hand, event by event, for tests of the analysis. Times are in ns and written as Kineto writes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

BASE_NS = 1750356536285711731
"""Nanoseconds since 1970, as some Kineto versions write: in microseconds a float64 is 125 ns apart there."""


class TraceBuilder:
    """Collects events; write() makes the file. All times are relative to BASE_NS."""

    def __init__(self, device: str = "NVIDIA H200", sms: int | None = None) -> None:
        self.events: list[str] = []
        self.device = device
        self.sms = sms

    def event(self, category: str, name: str, start: int, end: int, *, pid: int = 100, tid: int = 100, **args: Any) -> TraceBuilder:
        """One complete event. Arguments are named as in Kineto, with _ for a space."""
        begin, duration = BASE_NS + start, end - start
        sign = "-" if duration < 0 else ""
        times = f'"ts": {begin // 1000}.{begin % 1000:03d}, "dur": {sign}{abs(duration) // 1000}.{abs(duration) % 1000:03d}'
        named = {key.replace("_", " "): value for key, value in args.items()}
        named["Ev Idx"] = len(self.events)
        self.events.append(f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, "pid": {pid}, "tid": {tid}, {times}, '
                           f'"args": {json.dumps(named)}}}')
        return self

    def step(self, start: int, end: int, **where: int) -> TraceBuilder:
        return self.event("user_annotation", "kernelwright.step", start, end, **where)

    def range(self, name: str, start: int, end: int, **where: int) -> TraceBuilder:
        return self.event("user_annotation", name, start, end, **where)

    def op(self, name: str, start: int, end: int, **args: Any) -> TraceBuilder:
        return self.event("cpu_op", name, start, end, **args)

    def launch(self, correlation: int, start: int, end: int, name: str = "cudaLaunchKernel", category: str = "cuda_runtime",
               **where: int) -> TraceBuilder:
        return self.event(category, name, start, end, correlation=correlation, **where)

    def kernel(self, name: str, start: int, end: int, correlation: int, category: str = "kernel", stream: int = 7,
               grid: tuple[int, int, int] = (4, 32, 2)) -> TraceBuilder:
        return self.event(category, name, start, end, pid=0, tid=stream, device=0, stream=stream, correlation=correlation,
                          grid=list(grid), block=[128, 1, 1])

    def copy(self, name: str, start: int, end: int, correlation: int, size: int | None = None, stream: int = 7) -> TraceBuilder:
        """A copy by its Kineto name, e.g. "Memcpy HtoD (Pinned -> Device)"."""
        known = {} if size is None else {"bytes": size}
        return self.event("gpu_memcpy", name, start, end, pid=0, tid=stream, device=0, stream=stream, correlation=correlation, **known)

    def frame(self, file: str, line: int, function: str, start: int, end: int) -> TraceBuilder:
        """A Python frame, as recordings with stacks have them."""
        return self.event("python_function", f"{file}({line}): {function}", start, end)

    def memory(self, time: int, change: int, total: int, address: int, *, kind: int = 1, device: int = 0, tid: int = 100) -> TraceBuilder:
        """One allocation (change > 0) or free."""
        begin = BASE_NS + time
        args = {"Total Reserved": 0, "Total Allocated": total, "Bytes": change, "Device Id": device, "Device Type": kind, "Addr": address,
                "Ev Idx": len(self.events)}
        self.events.append(f'{{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100, "tid": {tid}, '
                           f'"ts": {begin // 1000}.{begin % 1000:03d}, "args": {json.dumps(args)}}}')
        return self

    def text(self) -> str:
        properties = json.dumps([{"id": 0, "name": self.device, **({"numSms": self.sms} if self.sms else {})}] if self.device else [])
        return f'{{"schemaVersion": 1, "deviceProperties": {properties}, "traceEvents": [{", ".join(self.events)}], "traceName": "t"}}'

    def write(self, path: Path) -> Path:
        """The trace as a file; gzip'd when its name ends in .gz."""
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path
