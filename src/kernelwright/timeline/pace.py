"""How long each step took, the work that it launched included."""

from __future__ import annotations

import numpy as np

from ..model.table import Int64
from ..model.trace import Trace
from .steps import device_work


def step_times(trace: Trace) -> Int64:
    """Time of each step, ns, shape (steps,): from its start, or the end of the step before, to the end of its work on host and device.

    A host that runs ahead of the device ends its steps early; their work then ends them. The sum is the time in which steps ran.
    """
    work = device_work(trace)
    ends = trace.steps.end_ns.copy()
    np.maximum.at(ends, work.step, trace.device.end_ns[work.rows])
    ends = np.maximum.accumulate(ends)
    before = np.concatenate((trace.steps.start_ns[:1], ends[:-1]))
    times: Int64 = ends - np.maximum(trace.steps.start_ns, before)
    return times
