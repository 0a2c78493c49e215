"""The hierarchical roofline: ceilings of each memory level and pipe, and where stages, operators and kernels stand below them."""

from __future__ import annotations

from typing import Literal

from .base import Evidence, Figure, Record

Level = Literal["dram", "l2", "l1"]
Scope = Literal["stage", "operator", "kernel"]


class Ceiling(Record):
    """One roof, measured beside the datasheet's. At least one of the two is known."""

    kind: Literal["bandwidth", "compute"]
    name: str
    """Bandwidth: "dram", "l2" or "l1". Compute: "tensor:<dtype>" or "plain:<dtype>"; on a CPU, where the two are not told apart,
    "matmul:<dtype>"."""
    measured: Figure | None = None
    datasheet: Figure | None = None


class RooflinePoint(Record):
    """One stage, operator name or kernel name at one memory level. Work and time are of one step."""

    scope: Scope
    name: str
    level: Level
    flops: float
    """FLOPs a step."""
    bytes: float
    """Bytes a step through this level; analytic: the least that the operators must move."""
    duration_ns: float
    """Device time a step (CPU: self time) of the kernels counted here, from the timeline."""
    share_pct: float
    """Of all measured time."""
    intensity: float
    """FLOP/B: flops / bytes."""
    tflops: float
    """Achieved TFLOP/s: flops / duration_ns * 1e-3."""
    pipe: str | None = None
    """The compute ceiling that applies: the pipe that takes most of its time; None where no compute ceiling is known."""
    roof_pct: float | None = None
    """tflops as a share of what the lower of this level's slope and that pipe allows at this intensity."""
    evidence: Evidence
    """"counters" or "analytic"; of flops and bytes. Times are always the timeline's."""
