"""All tables of one Kineto trace while it is read, and the trace at its end."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..model.errors import BadInput
from ..model.table import EventTable, Int64, MemoryEvents
from ..model.trace import RECORD_AGAIN, STEP_NAME, StepsFrom, Trace
from .clocks import check_clocks
from .kineto_columns import KINDS, Columns, as_array, numbers
from .kineto_events import TABLES, Event, Heading, Routes
from .kineto_rocm import LaunchDetails
from .steps import found_steps

MAX_EVENTS = 60_000_000
"""Rows that are kept, about 130 bytes each while they are sorted."""
MAX_TEXT_BYTES = 1 << 30
"""Of distinct names and shapes. Real recordings have a few MB."""


@dataclass(frozen=True)
class StepsWanted:
    """Which ranges are the steps, and what to do without them."""

    name: str = STEP_NAME
    needed: bool = True
    """False: torch.profiler's own steps, or the whole recording as one, where no range has that name."""


class Collector:
    """The tables of one trace, growing."""

    def __init__(self, file_name: str, wanted: StepsWanted | None = None) -> None:
        self.file_name = file_name
        self.wanted = wanted or StepsWanted()
        self.routes = Routes(self.wanted.name)
        self._tables = {name: Columns(KINDS.get(name)) for name in TABLES}
        self._memory = tuple(array("q") for _ in range(9))
        self._launches = LaunchDetails()

    def add(self, table: str, events: Sequence[Event], start: Int64, end: Int64) -> None:
        """More rows of one table, in the file's order. Raises OverflowError for an id beyond 64 bits, msgspec.DecodeError for lists
        that are none, BadInput for more than a machine can hold."""
        self._tables[table].add(events, start, end)
        if table == "runtime":
            self._launches.add(events)
        self._check_size()

    def add_memory(self, events: Sequence[Event], time: Int64) -> None:
        """More allocations and frees (with a change); raises as add."""
        rows = [(at, event.args.index, event.args.change, event.args.total, event.args.address, event.args.device_type,
                 event.args.device_id, *numbers([event.pid, event.tid]))
                for at, event in zip(time.tolist(), events, strict=True)]
        for column, values in zip(self._memory, zip(*rows, strict=True), strict=False):
            column.extend(values)
        self._check_size()

    def _check_size(self) -> None:
        if sum(columns.count for columns in self._tables.values()) + len(self._memory[0]) > MAX_EVENTS:
            raise BadInput("trace_too_large", f"the trace has more than {MAX_EVENTS:,} events that count", where=self.file_name,
                           fix="profile fewer steps (--steps), or without stacks")
        if sum(columns.text_bytes for columns in self._tables.values()) > MAX_TEXT_BYTES:
            raise BadInput("trace_too_large", f"the trace's distinct names and shapes take more than {MAX_TEXT_BYTES >> 20} MiB",
                           where=self.file_name, fix=RECORD_AGAIN)

    def trace(self, heading: Heading) -> Trace:
        """The finished tables; this object is used up. Raises BadInput without a step, or where a clock jumped."""
        if not self._tables["steps"].count and self.wanted.needed:
            raise BadInput("no_steps", f"the trace holds no profiled step (a range named {self.wanted.name!r})", where=self.file_name,
                           fix="record it with profile_kernel.py, or wrap each step in torch.profiler.record_function"
                               f"({self.wanted.name!r})")
        tables = {name: self._tables.pop(name).table() for name in TABLES}
        tables["device"] = self._launches.join(tables["device"])
        steps_from = self._steps(tables)
        memory = self._memory_events()
        check_clocks(tables, memory, self.file_name)
        origin = int(tables["steps"].start_ns[0])
        for table in tables.values():
            np.subtract(table.start_ns, origin, out=table.start_ns)
            np.subtract(table.end_ns, origin, out=table.end_ns)
        np.subtract(memory.time_ns, origin, out=memory.time_ns)
        return Trace(device=tables["device"], runtime=tables["runtime"], operators=tables["operators"], ranges=tables["ranges"],
                     python=tables["python"], lines=tables["lines"], steps=tables["steps"], overheads=tables["overheads"],
                     memory=memory, device_names=tuple(device.name for device in heading.devices),
                     sm_counts=tuple(device.sm_count for device in heading.devices), is_cuda=len(tables["device"]) > 0,
                     source=self.file_name, steps_from=steps_from, rank=heading.rank, world_size=heading.world_size)

    def _steps(self, tables: dict[str, EventTable]) -> StepsFrom:
        if len(tables["steps"]):
            return "kernelwright" if self.wanted.name == STEP_NAME else "range"
        found = found_steps(tables)
        if found is None:
            raise BadInput("empty_trace", "the trace holds no work: no operator, call, kernel or range", where=self.file_name,
                           fix=RECORD_AGAIN)
        tables["steps"], tables["ranges"], steps_from = found
        return steps_from

    def _memory_events(self) -> MemoryEvents:
        time, index, *columns = (as_array(column) for column in self._memory)
        order = np.lexsort((index, time))
        return MemoryEvents(time[order], *(column[order] for column in columns))
