"""What every document model shares: frozen, no unknown keys, evidence on figures."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Evidence = Literal["counters", "timeline", "events", "analytic", "calibration", "datasheet", "compiler", "autotuner"]
"""Where a figure came from: hardware counters; the profiler's timeline; events or host timers around a call;
counted or computed from shapes; peaks measured on this device; the vendor's datasheet; the compiler about the code it made;
timings that a compiler's own autotuner took, under its own conditions."""


class Record(BaseModel):
    """Base of all document models: immutable, strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Figure(Record):
    """One number with its unit and where it came from. A missing figure is None, shown as n/a."""

    value: float
    unit: str
    """E.g. "TFLOP/s", "GB/s", "FLOP/B", "%", "ns"."""
    evidence: Evidence
    source: str = ""
    """Short words on the method, e.g. "torch FlopCounterMode", "workload flops()", "matmul 4096^3 bf16"."""


class Abstained(Record):
    """A rule or figure that could not be decided, and why. Shown as n/a, never as 0."""

    name: str
    reason: str
