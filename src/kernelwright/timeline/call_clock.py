"""CPU: operator times on the clock of the unprofiled call.

A profiler adds about the same to each operator call, whatever the call does, so tiny operators are inflated many times and large ones
hardly. Two totals are measured: the call with the profiler and without it. The overhead of one operator call is the amount that, taken
off each (a call cannot become shorter than nothing), leaves the unprofiled total. Where every call is longer than it, that is
(profiled - unprofiled) / number of calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

import numpy as np

from ..model.profile import Operator, TimelineSummary

NOTABLE_SLOWDOWN = 1.2
"""Profiled over unprofiled time of a call: up to this the recorded times stand for the call's."""
MOST_OVERHEAD_NS = 20_000.0
"""On one operator call; seen: 1.8 to 3.3 us (torch 2.13 with shapes and memory, two cores of a Xeon). What would need more is no profiler's
doing, but a machine that other work slowed down."""
LEAST_KEPT = 0.5
"""Calls of which less than this is left are mostly profiler: their own time is not known, so neither is a rate over it."""


def on_call_clock(summary: TimelineSummary, operators: Iterable[Operator], outside: Mapping[int, int]) -> TimelineSummary:
    """The summary with the overhead of one operator call, and the share outside operators by the same clock.

    As it is on a GPU (the profiler does not stretch device time), without a timing, below NOTABLE_SLOWDOWN, and where the overhead would be
    more than any profiler adds. outside: step -> time outside operators, ns, charged once for every stretch between operators. The step of
    median wall time tells the overhead: one that something else slowed down does not.
    """
    slowdown = summary.profiler_slowdown
    if summary.cpu_bound_share_pct is not None or slowdown is None or slowdown <= NOTABLE_SLOWDOWN or summary.measured_ns <= 0:
        return summary
    walls = summary.step_wall_ns
    middle = sorted(range(len(walls)), key=lambda step: walls[step])[(len(walls) - 1) // 2]
    calls: list[int] = []
    inside: list[int] = []
    for operator in operators:
        times = [kernel.duration_ns for kernel in operator.kernels]
        calls += times
        inside += times if operator.step == middle else []
    stretches = max(summary.gap_count / summary.steps, 1.0)
    rest = [outside[middle]] if middle in outside else []
    total = sum(inside) + sum(rest)
    target = total * median(walls) / slowdown / walls[middle] if walls[middle] > 0 else 0.0
    if not 0 < target < total:
        return summary
    overhead = _overhead_ns(np.array(inside + rest, dtype=np.float64), np.array([1.0] * len(inside) + [stretches] * len(rest)), target)
    if overhead > MOST_OVERHEAD_NS:
        return summary
    left = sum(max(0.0, time - stretches * overhead) for time in outside.values())
    whole = float(np.maximum(0.0, np.array(calls, dtype=np.float64) - overhead).sum()) + left
    return summary.model_copy(update={"operator_overhead_ns": overhead, "unprofiled_ns": whole,
                                      "idle_share_pct": min(100.0, 100.0 * left / whole) if whole > 0 else None})


def _overhead_ns(times: np.ndarray, charges: np.ndarray, target: float) -> float:
    """The c with sum(max(0, times - charges * c)) = target; times, charges: shape (n,), 0 < target < sum(times)."""
    limits = times / charges
    order = np.argsort(limits)
    rest, count = times[order][::-1].cumsum()[::-1], charges[order][::-1].cumsum()[::-1]  # of the rows from here on
    candidates = (rest - target) / count
    fits = np.flatnonzero(candidates <= limits[order])
    return max(0.0, float(candidates[fits[0]]))


def call_time_ns(summary: TimelineSummary, operators: Iterable[Operator]) -> float:
    """Time of those operator calls over all steps, ns, on the clock that `call_whole_ns` is on."""
    overhead = summary.operator_overhead_ns or 0.0
    return float(sum(max(0.0, kernel.duration_ns - overhead) for operator in operators for kernel in operator.kernels))


def call_whole_ns(summary: TimelineSummary) -> float:
    """All operator time and time outside operators over all steps, ns; where the overhead is known, without it."""
    return float(summary.measured_ns) if summary.unprofiled_ns is None else summary.unprofiled_ns
