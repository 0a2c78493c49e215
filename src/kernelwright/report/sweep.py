"""Versions of a kernel over the values of one parameter: a table, and a picture of the times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..model.files import write_bytes_atomic
from ..model.profile import Profile
from .compare import Comparison, compare
from .templates import render

WORDS = {"first": "-", "not comparable": "not comparable", "within noise": "within noise", "too noisy": "too noisy to compare"}


@dataclass(frozen=True)
class Point:
    """All versions at one value of the parameter, in the order of the versions. None: that version failed there."""

    value: str
    profiles: tuple[Profile | None, ...]


@dataclass(frozen=True)
class Sweep:
    """What `compare --sweep` measured."""

    parameter: str
    labels: tuple[str, ...]
    points: tuple[Point, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One row a value and version: times in us, change in percent of the first version's time at that value."""
        found: list[dict[str, Any]] = []
        for point in self.points:
            there = [(label, profile) for label, profile in zip(self.labels, point.profiles, strict=True) if profile is not None]
            # Alone, a profile is compared with itself: its own figures, and no change.
            result: Comparison | None = compare(there if len(there) > 1 else there * 2) if there else None
            measured = dict(zip((label for label, _ in there), result.rows, strict=False)) if result is not None else {}
            has_first = point.profiles[0] is not None
            for label in self.labels:
                row = measured.get(label)
                found.append({
                    "value": point.value, "label": label, "duration_us": row.duration_us if row else None,
                    "interval_us": list(row.interval_us) if row and row.interval_us else None,
                    "change": row.change if row and has_first else None,
                    "change_pct": row.duration_change_pct if row and has_first else None,
                    "tflops": row.tflops if row else None, "gbps": row.gbps if row else None})
        return found


def render_sweep(sweep: Sweep, doubts: Sequence[str]) -> str:
    """The table as Markdown."""
    return render("sweep.md.j2", parameter=sweep.parameter, rows=sweep.rows(), words=WORDS, doubts=doubts, first=sweep.labels[0])


def write_sweep_figure(sweep: Sweep, name: str, folder: Path) -> list[Path]:
    """sweep.svg and sweep.png in `folder`. Raises NotWritable."""
    from .sweep_figure import svg_and_png  # matplotlib takes 0.5 s to import

    return [write_bytes_atomic(folder / f"sweep.{kind}", data) for kind, data in zip(("svg", "png"), svg_and_png(sweep, name), strict=True)]
