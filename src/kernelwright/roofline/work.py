"""What one call must do, and how fast it did that."""

from __future__ import annotations

from ..model.base import Figure
from ..model.capture import ProbeWork
from ..model.measurement import Measurement
from ..model.profile import Roof, WorkSummary
from .peaks import binding_peaks


def work_summary(work: ProbeWork, timing: Measurement, roof: Roof) -> WorkSummary:
    """Achieved TFLOP/s and GB/s at the median time, and their shares of the ceilings.

    1 FLOP/ns = 1e-3 TFLOP/s; 1 B/ns = 1 GB/s. Bytes are the analytic minimum, so GB/s is a lower bound of the traffic. Work of 0 (a
    transpose has no FLOPs) is known: it has no rate and no intensity, and takes 0% of its roof.
    """
    compute, bandwidth = binding_peaks(roof)
    flops, min_bytes = _known(work.flops), _known(work.min_bytes)
    time_ns = timing.median_ns if timing.median_ns > 0 else None
    tflops = flops / time_ns * 1e-3 if flops and time_ns else None
    gbs = min_bytes / time_ns if min_bytes and time_ns else None
    intensity = flops / min_bytes if flops and min_bytes else None
    return WorkSummary(
        flops=_figure(flops, "FLOP", work.flops_source), min_bytes=_figure(min_bytes, "B", work.bytes_source),
        achieved_compute=_figure(tflops, "TFLOP/s", work.flops_source), achieved_bandwidth=_figure(gbs, "GB/s", work.bytes_source),
        arithmetic_intensity=_figure(intensity, "FLOP/B", f"{work.flops_source} / {work.bytes_source}"),
        compute_pct=0.0 if flops == 0 else share_pct(tflops, compute),
        bandwidth_pct=0.0 if min_bytes == 0 else share_pct(gbs, bandwidth))


def share_pct(achieved: float | None, peak: Figure | None) -> float | None:
    """Achieved as a share of a peak in the same unit, %; None when either is unknown."""
    return 100.0 * achieved / peak.value if achieved is not None and peak is not None and peak.value > 0 else None


def _known(value: float | None) -> float | None:
    return value if value is not None and value >= 0 else None


def _figure(value: float | None, unit: str, source: str) -> Figure | None:
    return None if value is None else Figure(value=value, unit=unit, evidence="analytic", source=source)
