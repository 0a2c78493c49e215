"""What one `.ncu-rep` says in depth: launches with all metrics, rules, sections, and what happened at each instruction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Scope = Literal["global", "local"]
"""Of an estimated speed-up: of the whole kernel, or of the part that the rule looks at."""


@dataclass(frozen=True)
class Rule:
    """One result of one of ncu's rules about one launch."""

    identifier: str
    name: str
    section: str
    title: str
    message: str
    """Plain text; links are their words."""
    kind: Literal["none", "ok", "optimization", "warning", "error"]
    speedup_pct: float | None
    """ncu's own estimate: how much of the time would go, 0..100. None: it gave none."""
    scope: Scope | None
    focus: tuple[tuple[str, float, str], ...]
    """(metric, value, what to do with it)."""


@dataclass(frozen=True)
class Section:
    """A section of the report and the metrics that it shows: (label, metric name)."""

    identifier: str
    name: str
    metrics: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Instruction:
    """One machine instruction. counters: instanced metrics of this address by their ncu names (zeros left out)."""

    offset: int
    """Bytes from the start of the function."""
    sass: str
    ptx: str
    file: str
    """Source file as the compiler wrote it; "" when the code has no line information."""
    line: int
    samples: int
    stalls: Mapping[str, int]
    """Stall reason -> samples, e.g. {"long_scoreboard": 120}."""
    counters: Mapping[str, float]


@dataclass(frozen=True)
class Line:
    """Sums over the instructions of one source line."""

    file: str
    line: int
    samples: int
    stalls: Mapping[str, int]
    executed: float
    counters: Mapping[str, float]


@dataclass(frozen=True)
class KernelDetails:
    """One launch that ncu replayed."""

    report: str
    """Name of the report's file."""
    index: int
    """Place in the report, as ncu numbers it (its ID)."""
    name: str
    """Demangled, with parameters."""
    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    stream: int | None
    device: int | None
    duration_ns: float | None
    """ncu's own: this launch alone, replayed. None: not collected."""
    nvtx: tuple[str, ...]
    """Push/pop ranges around the launch, outermost first."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    """Metrics that are words, e.g. the device's name."""
    sections: tuple[Section, ...] = ()
    rules: tuple[Rule, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    """In the order of addresses; empty without source metrics, or where only heavier launches were read that far."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Source file -> its text, where the report imported it (--import-source yes)."""

    @property
    def samples(self) -> int:
        """Warp samples over all instructions."""
        return sum(one.samples for one in self.instructions)

    def lines(self) -> tuple[Line, ...]:
        """Source lines with their sums, in the order of file and line; empty without line information."""
        rows: dict[tuple[str, int], list[Instruction]] = {}
        for one in self.instructions:
            if one.file:
                rows.setdefault((one.file, one.line), []).append(one)
        return tuple(_line(file, line, rows[file, line]) for file, line in sorted(rows))


def _line(file: str, line: int, held: list[Instruction]) -> Line:
    stalls: Counter[str] = Counter()
    counters: dict[str, float] = {}
    for one in held:
        stalls.update(one.stalls)
        for name, value in one.counters.items():
            counters[name] = counters.get(name, 0.0) + value
    return Line(file, line, sum(one.samples for one in held), dict(stalls), counters.get("inst_executed", 0.0), counters)


@dataclass(frozen=True)
class NcuDetails:
    """One report file."""

    file: Path
    tool: str
    """"ncu 2025.3.1"."""
    kernels: tuple[KernelDetails, ...]
    warnings: tuple[str, ...] = ()
