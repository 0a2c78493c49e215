"""The least time that a call can take.

The bound of a call is the larger of two least times: its counted FLOPs over a pipe's peak, and inputs, parameters and outputs once over
the bandwidth of DRAM (Williams, Waterman & Patterson 2009, Roofline). Nothing that computes the same FLOPs on that pipe can be faster.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model.base import Figure
from ...model.profile import Profile
from ...report.figures import in_unit


@dataclass(frozen=True)
class Bound:
    """One least time of a call."""

    name: str
    peak: Figure
    least_ns: float


def in_use(profile: Profile) -> tuple[Bound | None, Bound | None]:
    """(products, DRAM): the bounds at the arithmetic in use, by the peaks that the profile's own shares are taken of; None: not known."""
    roof = profile.roofline
    if roof is None:
        return None, None
    flops, moved = work_of(profile)
    return (bound_of(f"{roof.dtype} arithmetic", roof.peak_compute or roof.datasheet_compute, "TFLOP/s", flops, 1e3),
            bound_of("DRAM bandwidth", roof.peak_bandwidth or roof.datasheet_bandwidth, "GB/s", moved, 1.0))


def work_of(profile: Profile) -> tuple[float, float]:
    """(FLOPs, least bytes) of one call; 0 where not known."""
    work = profile.work
    flops, moved = (work.flops, work.min_bytes) if work is not None else (None, None)
    return flops.value if flops is not None else 0.0, moved.value if moved is not None else 0.0


def bound_of(name: str, peak: Figure | None, unit: str, amount: float, scale: float) -> Bound | None:
    """amount over a peak in this unit; scale: amount that the unit's number does in a nanosecond. None: not known."""
    value = in_unit(peak, unit)
    return Bound(name, peak, amount / (value * scale)) if peak is not None and value and amount > 0 else None
