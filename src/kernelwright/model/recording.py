"""Who recorded a timeline, and why it was not Nsight Systems where that was asked for."""

from __future__ import annotations

from .base import Record
from .trace import Recorder, StepsFrom


class NotNsys(Record):
    """Why Nsight Systems did not record, so that torch.profiler did."""

    code: str
    """E.g. "no_nsys", "nsys_failed", "cpu", "script"."""
    reason: str
    fix: str = ""
    """One command line to paste, or one sentence; "" when nothing can be done."""
    advice: str = ""
    """In words: what the fix needs, or what else would help."""


class Recording(Record):
    """Where a profile of mode nsys has its timeline from."""

    recorder: Recorder
    tool: str
    """"Nsight Systems 2025.3.2"; "torch.profiler of torch 2.11.0"; the bare name where the recording does not say."""
    not_nsys: NotNsys | None = None
    """Set where torch.profiler stood in for Nsight Systems; None also for trace files that were named."""
    file: str | None = None
    """The recording in raw/; None where it was left where it lay, or removed."""
    steps_from: StepsFrom
    rank: int | None = None
    world_size: int | None = None
    seconds: float | None = None
    """Wall time of the recorded process, start to end; None for files made elsewhere."""
    alone: bool | None = None
    """Nsight Systems could see no other processes than its own (a process namespace of its own). None: not recorded here."""
    notes: tuple[str, ...] = ()
