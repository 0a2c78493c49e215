"""The stage table: marked ranges, else one stage an operator name. All figures are per step; the rows add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..model.profile import Kernel, Operator, Roof, Stage
from ..timeline.call_clock import LEAST_KEPT
from .counters import busiest_pipe_pct, mean, weighted
from .peaks import binding_peaks
from .work import share_pct

UNMARKED = "(unmarked)"
"""Operators outside every marked range."""
UNATTRIBUTED = "(unattributed)"
"""Device work without an operator."""


@dataclass
class _Sums:
    """Totals over all steps of one row to be."""

    name: str
    marked: bool
    calls: int = 0
    kernels: int = 0
    duration_ns: int = 0
    flops: float | None = None
    min_bytes: float | None = None
    by_source: Counter[str] = field(default_factory=Counter)
    by_kernel: Counter[str] = field(default_factory=Counter)
    launches: list[Kernel] = field(default_factory=list)
    overhead_ns: float | None = None
    call_ns: float = 0.0
    """Without the profiler's overhead on each operator call."""

    def add_operator(self, operator: Operator) -> None:
        self.calls += 1
        self.flops = _plus(self.flops, operator.flops)
        self.min_bytes = _plus(self.min_bytes, operator.min_bytes)
        self.add_kernels(operator.kernels)
        if operator.source:
            self.by_source[operator.source] += operator.aggregated.total_duration_ns

    def add_kernels(self, kernels: Iterable[Kernel]) -> None:
        for kernel in kernels:
            self.kernels += 1
            self.duration_ns += kernel.duration_ns
            self.call_ns += max(0.0, kernel.duration_ns - (self.overhead_ns or 0.0))
            self.by_kernel[kernel.kernel_name] += kernel.duration_ns
            self.launches.append(kernel)


def stages(
    operators: Sequence[Operator], unattributed: Sequence[Kernel], roof: Roof, steps: int, *, overhead_ns: float | None = None,
) -> tuple[Stage, ...]:
    """Rows of the stage table, heaviest first; their durations sum to the measured time of one step.

    With any marked range, operators outside all ranges share the row "(unmarked)". Time without an operator has a row of its
    own: "(unattributed)", or the name that CPU attribution gave it. steps: number of profiled steps, at least 1. overhead_ns: of the
    profiler on one operator call of a CPU; None: not known, or none.
    """
    if steps < 1:
        raise ValueError("stages need at least one step")
    marked = is_marked(operators)
    sums: dict[str, _Sums] = {}
    for operator in operators:
        name = stage_name(operator, marked=marked)
        sums.setdefault(name, _Sums(name, marked=marked and operator.stage is not None, overhead_ns=overhead_ns)).add_operator(operator)
    for kernel in unattributed:
        name = loose_stage_name(kernel)
        sums.setdefault(name, _Sums(name, marked=False)).add_kernels((kernel,))
    total = sum(row.duration_ns for row in sums.values())
    rows = [_stage(row, total, roof, steps) for row in sums.values()]
    return tuple(sorted(rows, key=lambda row: (-row.duration_ns, row.name)))


def is_marked(operators: Iterable[Operator]) -> bool:
    """True when the workload marks stages."""
    return any(operator.stage is not None for operator in operators)


def stage_name(operator: Operator, *, marked: bool) -> str:
    """The row of the stage table that an operator call belongs to. marked: see `is_marked`."""
    return (operator.stage or UNMARKED) if marked else operator.operator_name


def loose_stage_name(kernel: Kernel) -> str:
    """The row that a kernel without an operator belongs to."""
    return kernel.kernel_name if kernel.category == "cpu" else UNATTRIBUTED


def is_real(stage: Stage) -> bool:
    """False for the rows that only make the table add up."""
    return not (stage.name.startswith("(") and stage.name.endswith(")"))


def _stage(row: _Sums, total_ns: int, roof: Roof, steps: int) -> Stage:
    compute, bandwidth = binding_peaks(roof)
    duration = row.duration_ns
    clock = duration if row.overhead_ns is None else row.call_ns if row.call_ns >= LEAST_KEPT * duration else 0
    tflops = row.flops / clock * 1e-3 if row.flops is not None and clock else None
    gbs = row.min_bytes / clock if row.min_bytes is not None and clock else None
    return Stage(
        name=row.name, marked=row.marked, calls=row.calls / steps, kernel_count=row.kernels / steps, duration_ns=duration / steps,
        share_pct=100.0 * duration / total_ns if total_ns else 0.0, call_ns=None if row.overhead_ns is None else row.call_ns / steps,
        flops=None if row.flops is None else row.flops / steps,
        min_bytes=None if row.min_bytes is None else row.min_bytes / steps, compute_pct=share_pct(tflops, compute),
        bandwidth_pct=share_pct(gbs, bandwidth), tc_pct=mean("tensor_pct", row.launches), dram_pct=mean("dram_pct", row.launches),
        occupancy_pct=mean("occupancy_pct", row.launches), pipe_pct=weighted(busiest_pipe_pct, row.launches),
        source=_heaviest(row.by_source), dominant_kernel=_heaviest(row.by_kernel))


def _heaviest(times: Counter[str]) -> str | None:
    return max(times, key=lambda name: (times[name], name)) if times else None


def _plus(total: float | None, value: float | None) -> float | None:
    return total if value is None else (total or 0.0) + value
