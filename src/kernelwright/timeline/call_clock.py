"""CPU: operator times on the clock of the unprofiled call.

A profiler adds about the same to each operator call, whatever the call does, so tiny operators are inflated many times and large ones
hardly. Two totals are measured: the call with the profiler and without it. The overhead of one operator call is the amount that, taken
off each (a call cannot become shorter than nothing), leaves the unprofiled total. Where every call is longer than it, that is
(profiled - unprofiled) / number of calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..model.profile import Kernel, Operator, TimelineSummary

NOTABLE_SLOWDOWN = 1.2
"""Profiled over unprofiled time of a call: up to this the recorded times stand for the call's."""
LEAST_KEPT = 0.5
"""Calls of which less than this is left are mostly profiler: their own time is not known, so neither is a rate over it."""


def on_call_clock(summary: TimelineSummary, operators: Iterable[Operator], outside: Sequence[Kernel]) -> TimelineSummary:
    """The summary with the overhead of one operator call, and the share outside operators by the same clock.

    As it is on a GPU (the profiler does not stretch device time), without a timing, and below NOTABLE_SLOWDOWN. outside: one row a step;
    each is charged once for every stretch between operators that it sums.
    """
    slowdown = summary.profiler_slowdown
    if summary.cpu_bound_share_pct is not None or slowdown is None or slowdown <= NOTABLE_SLOWDOWN or summary.measured_ns <= 0:
        return summary
    stretches = summary.gap_count / len(outside) if outside else 0.0
    calls = [kernel.duration_ns for operator in operators for kernel in operator.kernels]
    times = np.array(calls + [row.duration_ns for row in outside], dtype=np.float64)
    charges = np.array([1.0] * len(calls) + [max(stretches, 1.0)] * len(outside), dtype=np.float64)
    target = summary.measured_ns / slowdown
    overhead = _overhead_ns(times, charges, target)
    left = float(np.maximum(0.0, times - charges * overhead)[len(calls):].sum())
    return summary.model_copy(update={"operator_overhead_ns": overhead, "idle_share_pct": min(100.0, 100.0 * left / target)})


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
    if summary.operator_overhead_ns is None or summary.profiler_slowdown is None:
        return float(summary.measured_ns)
    return summary.measured_ns / summary.profiler_slowdown
