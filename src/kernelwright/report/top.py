"""The table of the heaviest kernels of a script's profiled steps, in a fixed form (docs/workloads.md)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..model.profile import Profile
from .numbers import two
from .templates import render

MOST_ROWS = 15


@dataclass(frozen=True)
class TopRow:
    """One kernel (CPU: operator) over all profiled steps, already written."""

    name: str
    time_ms: str
    share: str
    calls: int


def top_rows(profile: Profile, most: int = MOST_ROWS) -> list[TopRow]:
    """The heaviest names over all profiled steps; their shares are of the timeline's measured time. Empty without a timeline."""
    if profile.timeline is None:
        return []
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    rows = [kernel for operator in profile.operators for kernel in operator.kernels]
    for kernel in (*rows, *profile.unattributed_kernels):
        times[kernel.kernel_name] += kernel.duration_ns
        calls[kernel.kernel_name] += 1
    total = profile.timeline.measured_ns
    ordered = sorted(times.items(), key=lambda item: (-item[1], item[0]))[:most]
    return [TopRow(name, two(time / 1e6), f"{100 * time / total:.1f}%" if total else "n/a", calls[name]) for name, time in ordered]


def render_top(profile: Profile) -> str:
    """The table with its heading and its total; "" without a timeline."""
    if profile.timeline is None:
        return ""
    on_cpu = profile.capture_metadata.device == "cpu"
    return render("top.md.j2", rows=top_rows(profile), most=MOST_ROWS, on_cpu=on_cpu, steps=profile.timeline.steps,
                  total=_seconds(profile.timeline.measured_ns))


def _seconds(time_ns: int) -> str:
    """Three decimals as in 4.823s; below 0.1 s in ms or us, so that three figures are left."""
    if time_ns >= 100_000_000:
        return f"{time_ns / 1e9:.3f}s"
    return f"{time_ns / 1e6:.3f}ms" if time_ns >= 100_000 else f"{time_ns / 1e3:.3f}us"
