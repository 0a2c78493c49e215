"""Several profiles of one command in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..model.profile import Profile
from .figures import configuration, duration_warning, headline
from .numbers import pct, two, us
from .templates import render
from .text import NA


@dataclass(frozen=True)
class SeveralRow:
    """One workload of the command. error: why it has no profile."""

    kernel: str
    version: str | None
    profile: Profile | None
    report: str
    error: str = ""


def render_several(rows: Sequence[SeveralRow]) -> str:
    """The table as Markdown; below it what failed, what is in doubt and where the reports are."""
    return render("several.md.j2", rows=[_cells(row) for row in rows])


def _cells(row: SeveralRow) -> dict[str, Any]:
    if row.profile is None:
        return {"kernel": row.kernel, "version": row.version or NA, "error": row.error}
    own, profile = headline(row.profile), row.profile
    interval = f"{us(own.low_ns)} to {us(own.high_ns)}" if own.low_ns is not None and own.high_ns is not None else NA
    return {
        "kernel": row.kernel, "version": profile.capture_metadata.version or row.version or NA, "error": "",
        "configuration": ", ".join(f"{name}={value}" for name, value in configuration(profile)),
        "duration": us(own.duration_ns), "interval": interval, "tflops": two(own.tflops), "gbps": two(own.gbps), "tc": pct(own.tc_pct),
        "dram": pct(own.dram_pct), "occupancy": pct(own.occupancy_pct), "bottleneck": profile.bottleneck.kind or NA,
        "report": row.report, "warning": duration_warning(profile),
    }
