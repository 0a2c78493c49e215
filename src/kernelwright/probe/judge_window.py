"""A recording of a few timed samples by torch.profiler (CUPTI on a GPU), made in the program's own process: second evidence only."""

from __future__ import annotations

from typing import Any

from torch.profiler import ProfilerActivity, record_function

from .annotation import STEP
from .judge_program import Timer
from .recording import Recorder

WARM_S = 0.1


def record(timer: Timer, device: str, file: str, samples: int) -> dict[str, Any]:
    """Samples of the timer's ring, each in a range STEP that ends when the device is idle, as a Kineto trace (plain JSON) in `file`.

    Inputs are refilled between the ranges. Returns what the timer says of the same samples: {"ring", "events_ns", "host_ns"}.
    """
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with Recorder(activities=activities):  # thrown away: the process's first recording starts CUPTI inside its first sample
        timer.lead_in()
    timer.warm(WARM_S if device == "cuda" else 0.0, 1)  # the GPU was idle meanwhile, and its clock fell
    events: list[float] = []
    hosts: list[float] = []
    with Recorder(activities=activities) as profiler:
        for sample in range(samples):
            timer.refill_for(sample * timer.ring_size)
            with record_function(STEP):
                event_ns, host_ns = timer.sample()
            hosts.append(host_ns)
            events += [event_ns] if event_ns is not None else []
    profiler.export_chrome_trace(file)
    return {"ring": timer.ring_size, "events_ns": events, "host_ns": hosts}
