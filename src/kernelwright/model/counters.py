"""Hardware counters of a profile: what was asked for, what came, and for how much of the kernel time."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import Record

CounterOrigin = Literal["measured", "propagated"]
CounterSet = Literal["default", "full"]


class Disagreement(Record):
    """Where the counter run and the timeline tell different things about one launch. Reported, never guessed away."""

    kernel_name: str
    what: Literal["operator", "shapes", "kernel", "order", "not_seen"]
    timeline: str
    """What the timeline says; "" when it has no such launch."""
    counters: str
    """What the counter run's NVTX state says; "" when it has no such launch."""


class Counters(Record):
    """Counters of unique launches, and which launches inherited them. A signature is (kernel, grid, block, shared memory, operator,
    input shapes)."""

    tool: str
    """"ncu 2025.3.1"."""
    set: CounterSet
    budget_s: float | None = None
    """--ncu-budget; None: enough launches for the default share of kernel time."""
    launches: int
    """Kernel launches of the profiled steps, copies and memsets left out."""
    launches_with_counters: int
    """Of these, measured or inheriting."""
    launches_measured: int
    """Launches that ncu replayed."""
    signatures: int
    signatures_measured: int
    passes: int | None = None
    """Replays of one launch; None where ncu did not tell."""
    time_share_pct: float
    """Share of kernel time whose launches carry counters."""
    seconds: float
    """Wall time of the counter process, from when it had the device to itself (its import of torch may lie before)."""
    disagreements: tuple[Disagreement, ...] = ()
    excluded: dict[str, str] = Field(default_factory=dict)
    """Kernel name -> why it was not measured, e.g. NCCL kernels."""
    unavailable: dict[str, str] = Field(default_factory=dict)
    """Counter role -> why this device or ncu has no such counter."""
    notes: tuple[str, ...] = ()


class NoCounters(Record):
    """Why a profile has no counters, and what would give them."""

    code: str
    """E.g. "counters_denied", "no_ncu", "ncu_too_old", "cpu", "not_asked"."""
    reason: str
    fix: str = ""
    """One command line to paste, or one sentence; "" when nothing can be done."""
    advice: str = ""
    """In words: what the fix needs or does not do, or what else would help."""
