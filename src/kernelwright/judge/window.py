"""The timer against what torch.profiler recorded of the kernels (CUPTI). The recording is made in the worker's process, which can forge
it: it can raise a doubt, and clears nobody. The parent's own clock stays the one that is trusted."""

from __future__ import annotations

import statistics as order
from dataclasses import dataclass

import numpy as np

from ..model.table import Int64
from ..model.trace import Trace
from .exchange import Exchange

SAMPLES = 3
LONG_S = 1.0
"""Where a sample of both sides takes longer, one of each is recorded."""
TOLERANCE = 0.15
SLACK_NS = 3000.0
"""A call: kernels' times by CUPTI and by events differ by about a microsecond each."""


@dataclass(frozen=True)
class Seen:
    """Of one worker's window."""

    busy_ns: float
    """A call: time in which at least one kernel or copy ran on the device; the median sample."""
    trace: Trace


def record(who: Exchange, samples: int = SAMPLES) -> Seen:
    """Record a window of the worker's timed samples. Raises WorkerFailed, OutOfTime."""
    window, trace = who.record_window(samples)
    spans = busy_of_steps(trace)
    return Seen(order.median(spans) / window.ring, trace)


def busy_of_steps(trace: Trace) -> list[float]:
    """ns of each step in which the device did something: the union over all streams."""
    return [union_ns(trace.device.start_ns, trace.device.end_ns, int(start), int(end))
            for start, end in zip(trace.steps.start_ns, trace.steps.end_ns, strict=True)]


def union_ns(starts: Int64, ends: Int64, low: int, high: int) -> float:
    """Length of the union of intervals, each of shape (n,), cut to [low, high]."""
    starts, ends = np.clip(starts, low, high), np.clip(ends, low, high)
    order_ = np.argsort(starts, kind="stable")
    starts, ends = starts[order_], ends[order_]
    if not starts.size:
        return 0.0
    reach = np.concatenate(([low], np.maximum.accumulate(ends)[:-1]))
    return float(np.maximum(ends - np.maximum(starts, reach), 0).sum())


def doubt(reference: Seen, candidate: Seen, reference_ns: float, candidate_ns: float) -> str | None:
    """Why the candidate's time a call cannot be believed: its kernels ran for longer than that, and the reference's did not.

    reference_ns, candidate_ns: a call, by the timer that the verdict rests on. Both windows are held against each other, since a GPU
    whose clock fell makes both longer.
    """
    usual = max(reference.busy_ns / reference_ns, 1.0) if reference_ns > 0 else 1.0
    most = candidate_ns * usual * (1 + TOLERANCE) + SLACK_NS
    if candidate.busy_ns <= most:
        return None
    return (f"not confirmed by torch.profiler: its kernels ran for {candidate.busy_ns / 1e3:.3g} us a call, and its timer says "
            f"{candidate_ns / 1e3:.3g} us")
