"""Several profiles of one command in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..model.profile import Profile
from .compare import NOISE, change_of
from .figures import configuration, duration_warning, headline
from .numbers import faster_or_slower, pct, two, us
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
    first: dict[str, Profile] = {}
    cells = []
    for row in rows:
        cells.append({**_cells(row), "change": _change(first.get(row.kernel), row.profile)})
        if row.profile is not None:
            first.setdefault(row.kernel, row.profile)
    return render("several.md.j2", rows=cells)


def _change(first: Profile | None, profile: Profile | None) -> str:
    """Against the first profile of the same kernel, in the words of a comparison."""
    if first is None or profile is None:
        return "-"
    word, change = change_of(first, profile)
    if word in ("within noise", "too noisy"):
        return NOISE[word]
    return word if word == "not comparable" else faster_or_slower(change)


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
