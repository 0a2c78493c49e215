"""Warm-up until stable, and timing of one call: CUDA events on the GPU, perf_counter on the CPU."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns  # by name: a workload may replace those of the module (freezegun does)
from typing import Any

import torch

from .environment import l2_bytes

WARMUP_AGREEMENT = 0.05
"""Warm-up ends when the medians of two successive windows differ by less than this share."""
WARMUP_WINDOW = 5
"""Calls in a window; 3 when a call takes longer than WARMUP_LONG_S, one when longer than WARMUP_SLOW_S."""
WARMUP_LONG_S, WARMUP_SLOW_S = 0.05, 0.3
WARMUP_CAP_S = 1.0
"""Longest warm-up after the first call (which may compile)."""
WARMUP_FLOOR_S = {"cuda": 0.1, "cpu": 0.02}
"""Shortest warm-up: an idle H200 runs at 345 MHz and needs some load to reach its clock of 1980 MHz."""
PRECISION = 0.01
"""Sampling ends when the 95% interval of the median lies within this share of it."""
TIMING_FLOOR_S = 0.1
"""... but not before this long, so that one lucky stretch of a noisy machine does not decide."""
TIMING_CAP_S = 0.8
"""... or after this long: with the warm-up, event mode stays below 2 s on top of the workload's own time."""
MIN_SAMPLES, MIN_SAMPLES_SLOW, MAX_SAMPLES = 10, 5, 1000
SLOW_CALL_S = 1.0
SHORTEST_SAMPLE_S = {"cuda": 50e-6, "cpu": 20e-6}
"""CUDA events resolve 0.5 us, perf_counter with its loop about 0.1 us: 1% and 0.5% of one sample."""
MAX_CALLS_PER_SAMPLE = 200


@dataclass(frozen=True)
class Warmup:
    """How a warm-up went."""

    calls: int
    seconds: float
    call_s: float
    """Wall time of one call in the last window, the device idle before and after, in s."""
    stable: bool


@dataclass(frozen=True)
class Timing:
    """Raw samples of one call, in ns."""

    samples_ns: list[float]
    host_ns: list[float]
    """Host time of the same samples up to the last launch returning; empty on the CPU."""
    wall_ns: list[float]
    """Host time of the same samples until the whole device was idle again."""
    timer: str
    calls_per_sample: int
    flushed_l2: bool
    peak_memory_bytes: int | None

    @property
    def median_ns(self) -> float:
        return statistics.median(self.samples_ns)

    def outlasts(self) -> bool:
        """True when work went on elsewhere on the device after the events: by over a quarter of the time and over 50 us a sample."""
        excess = statistics.median(self.wall_ns) - self.median_ns
        return self.timer == "cuda_events" and excess > 0.25 * self.median_ns and excess * self.calls_per_sample > 50_000


def synchronize(device: str) -> None:
    """Wait until the device is idle."""
    if device == "cuda":
        torch.cuda.synchronize()


def warm_up(call: Callable[[], Any], device: str, fixed: int | None = None) -> Warmup:
    """Call until successive windows agree (at least 3 calls, at most WARMUP_CAP_S after the first), or `fixed` times."""
    start = perf_counter()
    if fixed is not None:
        durations = [_timed(call, device) for _ in range(fixed)]
        return Warmup(fixed, perf_counter() - start, statistics.median(durations[-WARMUP_WINDOW:]) if durations else 0.0, True)
    _timed(call, device)
    begin, calls, previous, stable = perf_counter(), 1, math.inf, False
    while True:
        window = [_timed(call, device)]
        size = 1 if window[0] > WARMUP_SLOW_S else 3 if window[0] > WARMUP_LONG_S else WARMUP_WINDOW
        window += [_timed(call, device) for _ in range(size - 1)]
        calls += len(window)
        current, spent = statistics.median(window), perf_counter() - begin
        stable = abs(current - previous) <= WARMUP_AGREEMENT * previous
        enough = calls >= 3 and previous < math.inf
        if enough and (spent > WARMUP_CAP_S or (stable and spent > WARMUP_FLOOR_S[device])):
            return Warmup(calls, perf_counter() - start, current, stable)
        previous = current


def _timed(call: Callable[[], Any], device: str) -> float:
    start = perf_counter()
    call()
    synchronize(device)
    return perf_counter() - start


def time_calls(call: Callable[[], Any], device: str, call_s: float, *, samples: int | None = None, flush_l2: bool = False) -> Timing:
    """Time a warm call. call_s: about how long it takes, in s. samples: their number; None: until precise enough.

    Every sample starts on an idle device, so a sample of one call is its latency, launches included. Calls too short for the
    timer are repeated back to back inside one sample (then the GPU may hide host time; calls_per_sample says so).
    With flush_l2, twice the last shared cache is written before each sample, outside of it, and a sample is one call.
    """
    if call_s <= 0:  # no warm-up was asked for: this call is not timed
        call_s = _timed(call, device)
    repeats = 1 if flush_l2 else min(MAX_CALLS_PER_SAMPLE, max(1, math.ceil(round(SHORTEST_SAMPLE_S[device] / max(call_s, 1e-7), 6))))
    flush = _flusher(device) if flush_l2 else None
    sample = _cuda_sample if device == "cuda" else _cpu_sample
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    taken: list[tuple[float, float, float]] = []
    least = MIN_SAMPLES_SLOW if call_s > SLOW_CALL_S else MIN_SAMPLES
    begin, check = perf_counter(), least
    while True:
        if flush is not None:
            flush()
        taken.append(sample(call, repeats))
        if samples is not None:
            if len(taken) >= samples:
                break
        elif len(taken) >= least:
            spent = perf_counter() - begin
            if spent > TIMING_CAP_S or len(taken) >= MAX_SAMPLES:
                break
            if len(taken) >= check and spent >= TIMING_FLOOR_S:
                if _is_precise([row[0] for row in taken]):
                    break
                check = math.ceil(1.2 * len(taken))
    return Timing([row[0] for row in taken], [row[1] for row in taken] if device == "cuda" else [], [row[2] for row in taken],
                  "cuda_events" if device == "cuda" else "perf_counter", repeats, flush is not None,
                  torch.cuda.max_memory_allocated() if device == "cuda" else None)


def _is_precise(samples: list[float]) -> bool:
    low, high = median_interval(sorted(samples))
    return (high - low) / 2 <= PRECISION * statistics.median(samples)


def _cuda_sample(call: Callable[[], Any], repeats: int) -> tuple[float, float, float]:
    """(by events, host until the last launch, host until idle), each in ns a call."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    first.record()
    start = perf_counter_ns()
    for _ in range(repeats):
        call()
    launched = perf_counter_ns()
    last.record()
    torch.cuda.synchronize()
    idle = perf_counter_ns()
    return first.elapsed_time(last) * 1e6 / repeats, (launched - start) / repeats, (idle - start) / repeats


def _cpu_sample(call: Callable[[], Any], repeats: int) -> tuple[float, float, float]:
    start = perf_counter_ns()
    for _ in range(repeats):
        call()
    spent = (perf_counter_ns() - start) / repeats
    return spent, spent, spent


def _flusher(device: str) -> Callable[[], None]:
    size = 2 * (l2_bytes(device) or 64 * 1024**2)
    buffer = torch.empty(min(size, 1024**3), dtype=torch.uint8, device=device)

    def flush() -> None:
        buffer.zero_()
        synchronize(device)

    return flush


def median_interval(ordered: list[float], confidence: float = 0.95) -> tuple[float, float]:
    """Distribution-free interval of the median: symmetric order statistics of ascending samples (binomial; Conover 1999, 3.2)."""
    n = len(ordered)
    tail, k = 0.0, 0
    while k < n // 2:
        step = math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2))
        if 2 * (tail + step) > 1 - confidence:
            break
        tail, k = tail + step, k + 1
    index = max(k - 1, 0)
    return ordered[index], ordered[n - 1 - index]
