"""Draws a sweep: time of a call against a parameter, one line a version, with 95% intervals. Imports matplotlib."""

from __future__ import annotations

import io
import warnings
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from .sweep import Sweep
from .text import plain

_STYLE: Any = {"svg.hashsalt": "kernelwright", "svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
               "font.size": 9}
_DPI = 120


def svg_and_png(sweep: Sweep, name: str) -> tuple[bytes, bytes]:
    """The picture as SVG and as PNG; equal sweeps give equal bytes."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that the font lacks
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = _figure(sweep, name)
        return _saved(figure, "svg", {"Date": None, "Creator": None}), _saved(figure, "png", {"Software": None})


def _saved(figure: Figure, kind: str, metadata: dict[str, None]) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format=kind, dpi=_DPI, metadata=metadata, facecolor="white")
    return target.getvalue()


def _figure(sweep: Sweep, name: str) -> Figure:
    values = [point.value for point in sweep.points]
    numbers = _numbers(values)
    places: list[float] = numbers if numbers is not None else [float(place) for place in range(len(values))]
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rows = sweep.rows()
    for label in sweep.labels:
        own = [(place, row) for place, row in zip(places, (row for row in rows if row["label"] == label), strict=True)
               if row["duration_us"] is not None]
        if not own:
            continue
        times = [row["duration_us"] for _, row in own]
        errors = [[row["duration_us"] - row["interval_us"][0] if row["interval_us"] else 0.0 for _, row in own],
                  [row["interval_us"][1] - row["duration_us"] if row["interval_us"] else 0.0 for _, row in own]]
        axes.errorbar([place for place, _ in own], times, yerr=errors, marker="o", capsize=3, label=_text(label))
    axes.set_yscale("log")
    for axis in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.4)))
    if numbers is not None and min(numbers) > 0 and max(numbers) > 4 * min(numbers):
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(places, [_text(value) for value in values])
    axes.set(xlabel=_text(sweep.parameter), ylabel="time of a call (us), 95% interval", title=_text(name))
    axes.grid(visible=True, alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    return figure


def _numbers(values: list[str]) -> list[float] | None:
    """The values as numbers, None where one is none (a dtype)."""
    try:
        return [float(value) for value in values]
    except ValueError:
        return None


def _text(value: str) -> str:
    return plain(value, 60).replace("$", r"\$")
