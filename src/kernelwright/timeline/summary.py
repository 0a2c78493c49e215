"""The profiled steps in a few sums: busy, idle, gaps, and how much of the idle time the host caused."""

from __future__ import annotations

from statistics import median

import numpy as np

from ..model.profile import TimelineSummary
from ..model.table import Int64
from ..model.trace import Trace
from .intervals import gaps, union_length
from .nesting import threads
from .steps import DeviceWork, device_work, step_of


def measured_ns(trace: Trace) -> int:
    """All time that attribution has to account for, ns, straight from the trace's intervals.

    CUDA: the sum of the durations of the steps' device work. CPU: per step, the time each thread spent in operators plus
    the time in which no thread was in one; with operators on one thread at a time that is the step's wall time.
    """
    if trace.is_cuda:
        return int(trace.device.duration_ns[device_work(trace).rows].sum())
    rows, starts, ends = operator_intervals(trace)
    total = sum(int((high - low).sum()) for low, high in outside_operators(trace))
    for process, thread in threads(trace.operators, rows):
        mine = (trace.operators.process[rows] == process) & (trace.operators.thread[rows] == thread)
        total += union_length(starts[mine], ends[mine])
    return total


def operator_intervals(trace: Trace) -> tuple[Int64, Int64, Int64]:
    """Rows of trace.operators that start in a step, with starts and ends; an end beyond the step is cut there."""
    step = step_of(trace, trace.operators.start_ns)
    rows = np.flatnonzero(step >= 0)
    ends = np.minimum(trace.operators.end_ns[rows], trace.steps.end_ns[step[rows]])
    return rows, trace.operators.start_ns[rows], ends


def outside_operators(trace: Trace) -> list[tuple[Int64, Int64]]:
    """Per step, the stretches in which no thread was in an operator: (starts, ends)."""
    _, starts, ends = operator_intervals(trace)
    return [gaps(starts, ends, int(low), int(high))
            for low, high in zip(trace.steps.start_ns, trace.steps.end_ns, strict=True)]


def summarize(trace: Trace, *, attributed_ns: int, unattributed_ns: int) -> TimelineSummary:
    """Sums over all steps. The two times come from attribution; measured_ns is computed here on its own."""
    shares = _cuda_shares(trace) if trace.is_cuda else _cpu_shares(trace)
    return TimelineSummary.model_validate({
        "steps": len(trace.steps), "step_wall_ns": tuple(int(d) for d in trace.steps.duration_ns), "measured_ns": measured_ns(trace),
        "attributed_ns": attributed_ns, "unattributed_ns": unattributed_ns, **shares})


def unprofiled(summary: TimelineSummary, median_ns: float) -> TimelineSummary:
    """The summary with the profiler's overhead taken out of its idle shares. median_ns: of the call without a profiler.

    Device (CPU: operator) time is known from the timeline, a call's time from the events, so a call idles for at most
    1 - busy / call. The profiler stretches the host's part only: on an H200 it showed 36% idle where 11% were left without it.
    """
    per_step = summary.busy_ns / summary.steps
    stretch = (summary.span_ns / summary.steps if summary.cpu_bound_share_pct is not None else median(summary.step_wall_ns)) / median_ns
    shown = summary.idle_share_pct
    idle = shown if shown is None else min(shown, 100.0 * max(0.0, 1.0 - per_step / median_ns))
    host = summary.cpu_bound_share_pct
    if host is not None and idle is not None and shown:
        host *= idle / shown
    return summary.model_copy(update={"idle_share_pct": idle, "profiled_idle_share_pct": shown, "cpu_bound_share_pct": host,
                                      "profiler_slowdown": stretch})


def _cuda_shares(trace: Trace) -> dict[str, int | float | None]:
    work = device_work(trace)
    starts, ends = trace.device.start_ns[work.rows], trace.device.end_ns[work.rows]
    low = int(trace.steps.start_ns.min())
    high = int(ends.max()) if ends.size else int(trace.steps.end_ns.max())
    span, busy = high - low, union_length(np.maximum(starts, low), ends)
    idle = device_idle(trace, work)
    late_starts, late_ends = late_launches(trace, work, idle)
    waited = int((late_ends - late_starts).sum())
    return {
        "busy_ns": busy, "span_ns": span, "idle_share_pct": _share(span - busy, span),
        "launches": int(np.unique(work.launch[work.launch >= 0]).size), "kernels_total": int(work.rows.size),
        "cpu_bound_share_pct": _share(waited, span), **_gap_figures(idle),
    }


def device_idle(trace: Trace, work: DeviceWork) -> tuple[Int64, Int64]:
    """Stretches without device work, from the first step's start to the end of the last work: (starts, ends)."""
    starts, ends = trace.device.start_ns[work.rows], trace.device.end_ns[work.rows]
    return gaps(starts, ends, int(trace.steps.start_ns.min()), int(ends.max()) if ends.size else int(trace.steps.end_ns.max()))


def late_launches(trace: Trace, work: DeviceWork, idle: tuple[Int64, Int64]) -> tuple[Int64, Int64]:
    """Idle stretches until the call that launched the next work had returned, disjoint: (starts, ends).

    Of a gap [g0, g1) before work launched by a call that ended at L, [g0, min(g1, L)) is the host's, if not empty; the rest
    is launch latency. Later nodes of one graph launch wait for each other, not for the host.
    """
    starts = trace.device.start_ns[work.rows]
    order = np.argsort(starts, kind="stable")
    launch = work.launch[order]
    first_of_launch = np.zeros(order.size, dtype=bool)
    _, first = np.unique(launch, return_index=True)
    first_of_launch[first] = True
    next_row = np.searchsorted(starts[order], idle[1])
    usable = next_row < order.size
    gap_start, gap_end, next_row = idle[0][usable], idle[1][usable], next_row[usable]
    counts = (launch[next_row] >= 0) & first_of_launch[next_row]
    returned = trace.runtime.end_ns[launch[next_row][counts]]
    gap_start, gap_end = gap_start[counts], np.minimum(gap_end[counts], returned)
    late = gap_end > gap_start
    return gap_start[late], gap_end[late]


def _cpu_shares(trace: Trace) -> dict[str, int | float | None]:
    rows, starts, ends = operator_intervals(trace)
    outside = outside_operators(trace)
    idle = (np.concatenate([low for low, _ in outside]), np.concatenate([high for _, high in outside]))
    wall = int(trace.steps.duration_ns.sum())
    # Time between two steps is the profiler's own, so the idle share counts step time only.
    return {
        "busy_ns": union_length(starts, ends), "span_ns": int(trace.steps.end_ns.max() - trace.steps.start_ns.min()),
        "idle_share_pct": _share(int((idle[1] - idle[0]).sum()), wall), "launches": 0, "kernels_total": int(rows.size),
        "cpu_bound_share_pct": None, **_gap_figures(idle),
    }


def _gap_figures(idle: tuple[Int64, Int64]) -> dict[str, int | float | None]:
    lengths = idle[1] - idle[0]
    return {"gap_count": int(lengths.size), "gap_total_ns": int(lengths.sum()),
            "gap_median_ns": float(np.median(lengths)) if lengths.size else None}


def _share(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole > 0 else None
