"""The event action: warm-up and timing of one call, as ProbeTiming."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import streams, timers
from .timers import Warmup


def timing(call: Callable[[], Any], device: str, warmup: Warmup, *, samples: int | None,
           flush_l2: bool) -> tuple[dict[str, Any], list[str]]:
    """(ProbeTiming, warnings) of a warm call."""
    timed = timers.time_calls(call, device, warmup.call_s, samples=samples, flush_l2=flush_l2)
    warnings = []
    if not warmup.stable:
        warnings.append(f"the call was not stable after {warmup.calls} warm-up calls ({warmup.seconds:.1f} s)")
    if timed.outlasts():
        warnings.append("GPU work went on after the timed stream was done (other streams): the event times are too short, since two events "
                        f"on one stream don't wait for the others; {streams.INSTEAD}")
    beside = streams.entered(call) if device == "cuda" else 0
    if beside:
        warnings.append(f"the call issues work on {beside} stream{'' if beside == 1 else 's'} beside the timed one: one duration can't say "
                        f"what ran at the same time, or which stream the others waited for; {streams.INSTEAD}")
    return {
        "samples_ns": timed.samples_ns, "host_ns": timed.host_ns, "timer": timed.timer, "calls_per_sample": timed.calls_per_sample,
        "warmup_calls": warmup.calls, "warmup_s": warmup.seconds, "flushed_l2": timed.flushed_l2,
        "peak_memory_bytes": timed.peak_memory_bytes,
    }, warnings
