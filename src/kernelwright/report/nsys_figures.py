"""Pictures of mode nsys by matplotlib: streams at once over time, and idle time by cause. Equal profiles give equal bytes."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.errors import MachineLacks
from ..model.files import write_bytes_atomic
from ..model.flow import GapCause
from ..model.profile import Profile
from ..model.table import Int64
from ..model.trace import Trace
from ..timeline.intervals import covered
from ..timeline.steps import device_work
from .figures import title
from .nsys_views import CauseRow, cause_rows
from .text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CONCURRENCY, GAPS = "concurrency", "gaps"
NAMES = (f"{CONCURRENCY}.svg", f"{CONCURRENCY}.png", f"{GAPS}.svg", f"{GAPS}.png")
MOST_BINS = 600
"""Points of the curve over time: means of as many equal stretches."""
MOST_NAME = 40
COLOURS: dict[GapCause, str] = {
    "host_bound": "#0072B2", "launch_latency": "#56B4E9", "synchronization": "#D55E00", "data_loader": "#E69F00", "copy": "#CC79A7",
    "allocator": "#8C6D1F", "dependency": "#009E73", "first_use": "#444444", "profiler": "#999999", "outside": "#cccccc",
    "unknown": "#e4e4e4"}
"""Okabe and Ito's, told apart with every common colour blindness."""


def write_pictures(profile: Profile, trace: Trace, folder: Path) -> tuple[str, ...]:
    """Draw into `folder`; names of what was written: () without device work. Raises MachineLacks, NotWritable."""
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)
    if profile.flow is None or not profile.flow.devices:
        return ()
    try:
        from .roofline_figure import drawn
    except (ImportError, AttributeError, OSError, RuntimeError, ValueError) as error:  # ValueError: MPLBACKEND=nonsense
        raise MachineLacks("no_matplotlib", f"matplotlib can't be loaded: {error}", where=sys.executable,
                           fix="install matplotlib there, or remove kernelwright's environment: the next run makes it anew") from error
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    pictures: dict[str, bytes] = {}
    try:
        for name, draw in ((CONCURRENCY, lambda: _concurrency(profile, trace)), (GAPS, lambda: _gaps(profile))):
            pictures[f"{name}.svg"], pictures[f"{name}.png"] = drawn(draw)
    except (ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise MachineLacks("figure_failed", f"matplotlib could not draw the timeline's pictures: {type(error).__name__}: {error}",
                           where=str(folder), fix="everything else of the profile is complete; the figures are in csv/") from error
    return tuple(write_bytes_atomic(folder / name, content).name for name, content in pictures.items())


def concurrency_curve(trace: Trace, bins: int = MOST_BINS) -> tuple[Int64, Any]:
    """(edges in ns, shape (bins + 1,); mean number of streams at work in each stretch, shape (bins,))."""
    work = device_work(trace)
    device = trace.device
    starts, ends = device.start_ns[work.rows], device.end_ns[work.rows]
    low, high = int(trace.steps.start_ns.min()), max(int(ends.max(initial=0)), int(trace.steps.start_ns.min()) + 1)
    bins = max(1, min(bins, high - low))
    edges = (low + (np.arange(bins + 1, dtype=np.int64) * (high - low)) // bins).astype(np.int64)
    total = np.zeros(bins)
    for key in np.unique(np.stack((device.device[work.rows], device.stream[work.rows])), axis=1).T:
        mine = (device.device[work.rows] == key[0]) & (device.stream[work.rows] == key[1])
        total += covered(starts[mine], ends[mine], edges[:-1], edges[1:])
    return edges, total / np.diff(edges)


def _new(width: float, height: float, *, left_in: float) -> tuple[Figure, Axes]:
    """left_in: inches for the words beside the vertical axis."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as New

    figure = New(figsize=(width, height))
    figure.subplots_adjust(left=left_in / width, right=0.98, top=1 - 0.36 / height, bottom=0.52 / height)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _concurrency(profile: Profile, trace: Trace) -> Figure:
    edges, mean = concurrency_curve(trace)
    figure, axes = _new(8.0, 3.0, left_in=0.55)
    unit, factor = ("ms", 1e6) if edges[-1] - edges[0] > 2e6 else ("us", 1e3)
    axes.stairs(mean, edges / factor, fill=True, color="#0072B2")
    for start in trace.steps.start_ns[:50].tolist():
        axes.axvline(start / factor, color="#D55E00", linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xlim(edges[0] / factor, edges[-1] / factor)
    axes.set_ylim(0, max(1.0, float(mean.max(initial=0.0))) * 1.05)
    axes.set_xlabel(f"time from the first step ({unit}); dashed: a step begins")
    axes.set_ylabel("streams at work")
    axes.set_title(_plain(f"{title(profile)}: streams at work at once"), fontsize=10, loc="left")
    return figure


def _gaps(profile: Profile) -> Figure:
    rows = cause_rows(profile)
    figure, axes = _new(8.0, 1.2 + 0.32 * max(1, len(rows)), left_in=2.3)
    places = range(len(rows))
    axes.barh(list(places), [row.per_step_ns / 1e3 for row in rows], color=[COLOURS[row.cause] for row in rows], edgecolor="#222222",
              linewidth=0.4)
    axes.set_yticks(list(places), [row.words for row in rows])
    axes.invert_yaxis()
    for place, row in enumerate(rows):
        axes.annotate(_plain(_words(row)), (row.per_step_ns / 1e3, place), xytext=(4, 0), textcoords="offset points", va="center",
                      fontsize=8)
    axes.set_xlim(0, 1.75 * max((row.per_step_ns / 1e3 for row in rows), default=1.0))
    axes.set_xlabel("idle time a step (us)" if rows else "the device was never idle")
    axes.set_title(_plain(f"{title(profile)}: why the device was idle"), fontsize=10, loc="left")
    return figure


def _words(row: CauseRow) -> str:
    return f"{row.share_pct:.1f}% of the recorded time{f', {plain(row.where, MOST_NAME)}' if row.where else ''}"


def _plain(text: str) -> str:
    """No mathtext: a name may hold dollar signs."""
    return plain(text, 100).replace("$", r"\$")
