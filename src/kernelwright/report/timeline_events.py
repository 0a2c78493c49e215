"""What the timeline page says about a recording's events: lanes, kinds of events with exact totals, and details of single ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..model.flow import Flow
from ..model.profile import Kernel, Operator
from ..model.table import EventTable, Int64
from ..model.trace import MODULE_PREFIX, STAGE_PREFIX, Trace
from ..roofline.counters import known
from ..timeline.gaps import GapTable
from ..timeline.names import COLLECTIVE
from .idle import IdleTable
from .launched import Launched, launched
from .text import plain
from .timeline_lanes import Lane

MOST_NAMES = 30_000
MOST_NAME = 500
"""Characters of a name."""
MOST_KINDS = 60_000
MOST_DETAILS = 100_000
MOST_TEXT = 6_000_000
"""Characters of all names, and of all details."""
MOST_LANES = 64
"""Threads, and streams, of one recording: the busiest; the others are counted."""
OTHER_NAMES = "(further names)"
_COUNTERS = {
    "tensor_pct": ("tensor pipe", "%"), "dram_pct": ("DRAM throughput", "%"), "occupancy_pct": ("achieved occupancy", "%"),
    "l1_hit_pct": ("L1 hits", "%"), "l2_hit_pct": ("L2 hits", "%"), "dram_read_bytes": ("DRAM read", "B"),
    "dram_write_bytes": ("DRAM written", "B"), "waves_per_sm": ("waves per SM", "")}
"""Role -> (label, unit) of the counters that a kernel shows."""
WITH_DETAILS = frozenset({"device", "operators", "gaps"})
"""Kinds of lanes whose events have details."""
Detail = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Recording:
    """One trace to draw, with what is known about it besides."""

    trace: Trace
    operators: Sequence[Operator] | None = None
    """The attributed operators; None: the innermost operator around each launch call is looked up in the trace."""
    flow: Flow | None = None
    """Its gaps are drawn, the longest of each device's; None: none are."""
    gaps: GapTable | None = None
    """All gaps of whole devices: with it every one is drawn, and those of the flow say more than their cause."""


class Words:
    """Names, each once, made inert and bounded."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {OTHER_NAMES: 0}
        self._room = MOST_TEXT
        self.left = 0
        """Names for which there was no room."""

    def place(self, name: str) -> int:
        """Its place in `list`; 0 once there are too many."""
        found = self._places.get(name)
        if found is None:
            if len(self._places) >= MOST_NAMES or self._room <= 0:
                self.left += 1
                return 0
            self._room -= min(len(name), MOST_NAME)
            found = self._places[name] = len(self._places)
        return found

    @property
    def list(self) -> list[str]:
        """All of them in order."""
        return [plain(name, MOST_NAME) or "(no name)" for name in self._places]


@dataclass
class Kinds:
    """Kinds of events: (category, name, operator). Totals are those of all events, merged or not."""

    words: Words = field(default_factory=Words)
    rows: list[tuple[str, int, int]] = field(default_factory=list)
    """(category, place of the name, place of the operator's name or -1)."""
    totals: list[tuple[int, int]] = field(default_factory=list)
    """(events, their summed ns)."""
    _places: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def place(self, category: Callable[[int], str], events: EventTable, operator: Int64 | None = None) -> Int64:
        """The kind of each event, shape (n,). category: of a row. operator: place of each one's operator's name, -1 for none."""
        if not len(events):
            return np.zeros(0, dtype=np.int64)
        owner = operator if operator is not None else np.full(len(events), -1, dtype=np.int64)
        span = int(owner.max()) + 2
        unique, first, inverse = np.unique(events.name_id * span + owner + 1, return_index=True, return_inverse=True)
        counts = np.bincount(inverse, minlength=unique.size)
        times = np.zeros(unique.size, dtype=np.int64)
        np.add.at(times, inverse, events.duration_ns)
        places = np.empty(unique.size, dtype=np.int64)
        for at in np.argsort(-times, kind="stable").tolist():  # the names with most time come first, should there be too many
            row = int(first[at])
            places[at] = self._add((category(row), self.words.place(events.name(row)), int(owner[row])), int(counts[at]), int(times[at]))
        found: Int64 = places[inverse.reshape(-1)]
        return found

    def one(self, category: str, name: str, duration_ns: int) -> int:
        """The kind of a single event."""
        return self._add((category, self.words.place(name), -1), 1, duration_ns)

    def _add(self, key: tuple[str, int, int], count: int, time_ns: int) -> int:
        if len(self.rows) >= MOST_KINDS and key not in self._places:
            key = (key[0], 0, -1)
        place = self._places.setdefault(key, len(self.rows))
        if place == len(self.rows):
            self.rows.append(key)
            self.totals.append((0, 0))
        self.totals[place] = (self.totals[place][0] + count, self.totals[place][1] + time_ns)
        return place


class Details:
    """Lists of (label, words), each once; 0 is the empty one."""

    def __init__(self) -> None:
        self._places: dict[Detail, int] = {(): 0}
        self._room = MOST_TEXT
        self.left = 0
        """Events whose details found no room."""

    def place(self, detail: Detail) -> int:
        """Its place in `list`; 0 once there are too many."""
        found = self._places.get(detail)
        if found is None:
            if len(self._places) >= MOST_DETAILS or self._room <= 0:
                self.left += 1
                return 0
            self._room -= sum(len(label) + min(len(words), MOST_NAME) for label, words in detail)
            found = self._places[detail] = len(self._places)
        return found

    @property
    def list(self) -> list[list[list[str]]]:
        """All of them in order, inert and bounded."""
        return [[[label, plain(words, MOST_NAME)] for label, words in detail] for detail in self._places]


class Source:
    """One recording's lanes and details."""

    def __init__(self, recording: Recording, number: int, group: str, kinds: Kinds) -> None:
        self.trace, self.group = recording.trace, group
        self.gaps = IdleTable(recording.flow, recording.gaps)
        self.number, self.kinds = number, kinds
        self.launched: Launched = launched(recording.trace, recording.operators)
        self.left_lanes = 0
        self.lanes = self._lanes()

    def detail(self, kind: str, row: int) -> Detail:
        """What is known about one event besides its name and times. row: of its table (gaps: of flow.gaps)."""
        if kind == "device":
            return self._device_detail(row)
        if kind == "operators":
            dims = self.trace.operators.args[row].get("dims") if self.trace.operators.args else None
            return (("input shapes", json.dumps(dims)),) if dims else ()
        return self.gaps.detail(row) if kind == "gaps" else ()

    # -- lanes ------------------------------------------------------------------------------------------------------------

    def _lanes(self) -> list[Lane]:
        trace, kinds = self.trace, self.kinds
        operator_names = np.array([kinds.words.place(name) for name in trace.operators.names], dtype=np.int64)
        device_kinds = kinds.place(self._category, trace.device, self._operator_names(operator_names))
        lanes = [self._lane("steps", "steps", trace.steps, np.arange(len(trace.steps)), self._step_kinds())]
        lanes += self._gap_lanes()
        for index, stream in sorted(self._busiest([(trace.device.device, trace.device.stream)])):
            rows = np.flatnonzero((trace.device.device == index) & (trace.device.stream == stream))
            label = f"GPU {index} stream {stream}" if stream >= 0 else f"GPU {index} (no stream)"
            lanes.append(self._lane("device", label, trace.device, rows, device_kinds[rows]))
        tables = (("ranges", "ranges", trace.ranges, kinds.place(self._range_category, trace.ranges)),
                  ("operators", "operators", trace.operators, kinds.place(lambda _: "operator", trace.operators)),
                  ("runtime", "CUDA calls", trace.runtime, kinds.place(lambda _: "runtime", trace.runtime)))
        main = {(int(process), int(thread)) for process, thread in zip(trace.steps.process, trace.steps.thread, strict=True)}
        everyone = self._busiest([(table.process, table.thread) for _, _, table, _ in tables])
        for process, thread in sorted(everyone, key=lambda one: one not in main):
            for kind, label, table, kind_ids in tables:
                rows = np.flatnonzero((table.process == process) & (table.thread == thread))
                if rows.size:
                    which = "main thread" if main == {(process, thread)} else f"thread {thread}"
                    lanes.append(self._lane(kind, f"{label}, {which}", table, rows, kind_ids[rows]))
        rows = np.arange(len(trace.overheads))
        lanes.append(self._lane("overheads", "profiler and driver", trace.overheads, rows,
                                kinds.place(lambda _: "overhead", trace.overheads)))
        return [lane for lane in lanes if lane.start_ns.size]

    def _lane(self, kind: str, label: str, table: EventTable, rows: Int64, kind_ids: Int64) -> Lane:
        return Lane(self.group, label, kind, self.number, table.start_ns[rows], table.end_ns[rows], kind_ids, rows)

    def _busiest(self, columns: Sequence[tuple[Int64, Int64]]) -> list[tuple[int, int]]:
        """The pairs of identities (process and thread, device and stream) with most events over all tables."""
        counts: Counter[tuple[int, int]] = Counter()
        for first, second in columns:
            one, ones = np.unique(first, return_inverse=True)
            two, twos = np.unique(second, return_inverse=True)
            pairs, sizes = np.unique(ones.reshape(-1) * two.size + twos.reshape(-1), return_counts=True)
            counts.update({(int(one[pair // two.size]), int(two[pair % two.size])): int(size)
                           for pair, size in zip(pairs, sizes, strict=True)})
        self.left_lanes += max(0, len(counts) - MOST_LANES)
        return [pair for pair, _ in counts.most_common(MOST_LANES)]

    def _step_kinds(self) -> Int64:
        steps = self.trace.steps
        return np.array([self.kinds.one("step", f"{plain(steps.name(row), 60)} {row}", int(steps.duration_ns[row]))
                         for row in range(len(steps))], dtype=np.int64)

    def _gap_lanes(self) -> list[Lane]:
        kind_ids = self.kinds.place(lambda _: "gap", self.gaps.table)
        return [self._lane("gaps", f"GPU {device} idle, by cause", self.gaps.table, rows, kind_ids[rows])
                for device in np.unique(self.gaps.table.device).tolist()
                for rows in (np.flatnonzero(self.gaps.table.device == device),)]

    def _operator_names(self, names: Int64) -> Int64:
        rows = self.launched.operator
        places = np.full(rows.size, -1, dtype=np.int64)
        if names.size:
            places = np.where(rows >= 0, names[self.trace.operators.name_id[rows]], -1)
        for row, (operator, _) in self.launched.attributed.items():
            places[row] = self.kinds.words.place(operator.operator_name)
        return places

    def _category(self, row: int) -> str:
        details = self.trace.device.args[row] if self.trace.device.args else {}
        category = str(details.get("category", "kernel"))
        if category == "kernel" and COLLECTIVE.search(self.trace.device.name(row)):
            return "communication"
        return category if category in ("kernel", "memcpy", "memset") else "kernel"

    def _range_category(self, row: int) -> str:
        name = self.trace.ranges.name(row)
        return "stage" if name.startswith(STAGE_PREFIX) else "module" if name.startswith(MODULE_PREFIX) else "range"

    # -- details ----------------------------------------------------------------------------------------------------------

    def _device_detail(self, row: int) -> Detail:
        details = self.trace.device.args[row] if self.trace.device.args else {}
        operator, kernel = self.launched.attributed.get(row, (None, None))
        made: list[tuple[str, str]] = [(name, " × ".join(map(str, sizes))) for name in ("grid", "block") if (sizes := details.get(name))]
        if details.get("registers") is not None:
            made.append(("registers per thread", str(details["registers"])))
        if details.get("shared_bytes") is not None:
            made.append(("shared memory per block", f"{details['shared_bytes']:,} B"))
        if isinstance(details.get("bytes"), int) and details["bytes"] >= 0:
            made.append(("size", f"{details['bytes']:,} B"))
        if details.get("graph"):
            made.append(("launched by", "a CUDA graph"))
        if operator is not None:
            shapes = ("input shapes", json.dumps(operator.input_shapes) if operator.input_shapes else None)
            made += [(label, words) for label, words in (shapes, ("module", operator.module), ("line", operator.source)) if words]
        return (*made, *(_counters(kernel) if kernel is not None else ()))


def _counters(kernel: Kernel) -> Detail:
    """Counters where they were collected, with their origin."""
    raw = kernel.metrics.raw
    if not raw:
        return ()
    origin = "counters" if kernel.metrics.origin == "measured" else "counters of a launch like it"
    shown = [(label, f"{figure:,.0f} B" if unit == "B" else f"{figure:.1f}{unit}")
             for role, (label, unit) in _COUNTERS.items() if (figure := known(role, raw)) is not None]
    return tuple((f"{label} ({origin})", words) for label, words in shown)
