"""Gaps: stretches in which a device, or one stream of it, had nothing to run, and what each nanosecond of them passed in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..model.table import Int64
from ..model.trace import Trace


@dataclass(frozen=True)
class GapTable:
    """All gaps, by device (then stream) and start. Arrays have shape (n,); causes are indices into model.flow.GAP_CAUSES."""

    device: Int64
    stream: Int64
    """-1: the whole device."""
    start_ns: Int64
    end_ns: Int64
    cause: Int64
    parts_ns: Int64
    """Time by cause, shape (n, len(GAP_CAUSES)); each row's sum is the gap's length."""
    event_table: Int64
    """Where the host event behind the cause is: an index into EVENT_TABLES, -1 for none."""
    event: Int64
    """Its row there."""
    previous: Int64
    """Row of trace.device that ended last before the gap, -1 before the first."""
    next: Int64
    """Row of trace.device that ended the gap."""
    launch: Int64
    """Row of trace.runtime that launched it, -1 where the recording does not hold it."""
    after_stream: Int64
    event_wait: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return int(self.start_ns.size)


EVENT_TABLES = ("runtime", "operators", "ranges", "overheads")


def device_gaps(trace: Trace) -> GapTable:
    """Gaps of whole devices, from the first step's start to the end of the steps' last work on each."""
    raise NotImplementedError


def stream_gaps(trace: Trace) -> GapTable:
    """Gaps of each stream between its own works, on devices with several streams."""
    raise NotImplementedError
