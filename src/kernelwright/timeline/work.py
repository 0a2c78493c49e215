"""The steps' device work in the order of its launch calls, with what makes two launches the same."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..model.table import Int64, RowDetails
from ..model.trace import Trace
from .intervals import union
from .kernel_names import GRAPH_LAUNCHES, chosen, copy_kind
from .names import Mask, is_collective, plain
from .ordering import dense, grouped
from .steps import device_work


class Work:
    """Columns of shape (m,), one row a piece of device work, by step and launch call; pieces of one call by their own start."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        found = device_work(trace)
        known = found.launch >= 0
        own = trace.device.start_ns[found.rows]
        called = np.where(known, _at(trace.runtime.start_ns, found.launch), own)
        order = np.lexsort((own, called, found.step))
        self.rows: Int64 = found.rows[order]
        """Rows of trace.device."""
        self.launch: Int64 = found.launch[order]
        """Rows of trace.runtime, -1 where the recording does not hold the call."""
        self.step: Int64 = found.step[order]
        self.called: Int64 = called[order].astype(np.int64)
        """Start of the launch call; the work's own start without one."""
        self.returned: Int64 = np.where(self.launch >= 0, _at(trace.runtime.end_ns, self.launch), own[order]).astype(np.int64)

    def __len__(self) -> int:
        return int(self.rows.size)

    @cached_property
    def start(self) -> Int64:
        """On the device."""
        return self.trace.device.start_ns[self.rows]

    @cached_property
    def end(self) -> Int64:
        """On the device."""
        return self.trace.device.end_ns[self.rows]

    @cached_property
    def duration(self) -> Int64:
        """On the device."""
        return self.end - self.start

    @cached_property
    def device(self) -> Int64:
        """Device index."""
        return self.trace.device.device[self.rows]

    @cached_property
    def stream(self) -> Int64:
        """Stream, numbered anew from 0 over all devices."""
        return codes(self.device, self.trace.device.stream[self.rows])

    @cached_property
    def name_id(self) -> Int64:
        """Index into trace.device.names."""
        return self.trace.device.name_id[self.rows]

    def name(self, place: int) -> str:
        """Name of one piece of work."""
        return self.trace.device.name(int(self.rows[place]))

    @cached_property
    def _kinds(self) -> tuple[Int64, list[dict[str, object]]]:
        args = self.trace.device.args
        if isinstance(args, RowDetails):
            number, first = args.kinds()
            return number[self.rows], [args[row] for row in first.tolist()]
        seen: dict[str, int] = {}
        kinds: list[dict[str, object]] = []
        number = np.zeros(len(self), dtype=np.int64)
        for place, row in enumerate(self.rows.tolist()):
            details = args[row] if len(args) else {}
            number[place] = seen.setdefault(repr(sorted(details.items())), len(seen))
            if len(seen) > len(kinds):
                kinds.append(details)
        return number, kinds

    def detail(self, key: str, missing: object) -> npt.NDArray[np.object_]:
        """One of the readers' details of every row, shape (m,), dtype object; `missing` where the reader does not know it."""
        number, kinds = self._kinds
        values = np.empty(len(kinds), dtype=object)
        for index, details in enumerate(kinds):
            value = details.get(key, missing)
            values[index] = missing if value is None else value
        return values[number]

    @cached_property
    def symbol(self) -> Int64:
        """Equal for launches of the same kernel (or copy) with the same configuration on the same stream."""
        return codes(self.name_id, self._kinds[0], self.stream)

    @cached_property
    def size(self) -> Int64:
        """Bytes of copies and memsets, -1 where not known."""
        return self.detail("bytes", -1).astype(np.int64)

    @cached_property
    def in_graph(self) -> Mask:
        """Nodes of a CUDA graph that was launched as one. Older recordings tell by the launch call only."""
        runtime = self.trace.runtime
        calls = chosen(runtime.names, lambda name: plain(name) in GRAPH_LAUNCHES, runtime.name_id)
        launched = np.zeros(len(self), dtype=bool)
        launched[self.launch >= 0] = calls[self.launch[self.launch >= 0]]
        return np.asarray(launched | self.detail("graph", False).astype(bool), dtype=bool)

    @cached_property
    def is_kernel(self) -> Mask:
        """Kernels; neither copies nor memsets."""
        return np.asarray(self.detail("category", "kernel") == "kernel", dtype=bool)

    @cached_property
    def is_copy(self) -> Mask:
        """Copies of any direction."""
        return ~self.is_kernel & chosen(self.trace.device.names, lambda name: copy_kind(name) is not None, self.name_id)

    @cached_property
    def is_collective(self) -> Mask:
        """Kernels that talk to other devices."""
        return self.is_kernel & chosen(self.trace.device.names, is_collective, self.name_id)

    @cached_property
    def bounds(self) -> Int64:
        """Step i has the rows bounds[i] to bounds[i + 1]; shape (steps + 1,)."""
        return np.searchsorted(self.step, np.arange(len(self.trace.steps) + 1)).astype(np.int64)

    def of_step(self, step: int) -> slice:
        """The rows of one step."""
        return slice(int(self.bounds[step]), int(self.bounds[step + 1]))

    @cached_property
    def busy(self) -> dict[int, tuple[Int64, Int64]]:
        """Device -> disjoint stretches in which anything ran on it, whoever launched it."""
        table = self.trace.device
        return {device: union(table.start_ns[rows], table.end_ns[rows]) for device, rows in grouped(table.device)}

    @cached_property
    def by_device(self) -> list[tuple[int, Int64]]:
        """(device, places of its work)."""
        return grouped(self.device)


def _at(column: Int64, rows: Int64) -> Int64:
    """column[rows]; 0 where there is no row."""
    return column[rows] if column.size else np.zeros(rows.size, dtype=np.int64)


def codes(*columns: Int64) -> Int64:
    """Numbers from 0 that are equal where all columns are; in the columns' lexicographic order. All of shape (n,)."""
    number = np.zeros(columns[0].size, dtype=np.int64)
    for column in columns:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        place = dense(column - low) if high - low < 1 << 62 else np.unique(column, return_inverse=True)[1].astype(np.int64)
        number = dense(number * (int(place.max(initial=0)) + 1) + place)
    return number


def summed(values: Int64, groups: Int64, count: int) -> Int64:
    """Exact int64 sums by group, shape (count,); groups within 0 .. count - 1."""
    result = np.zeros(count, dtype=np.int64)
    np.add.at(result, groups, values)
    return result
