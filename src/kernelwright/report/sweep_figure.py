"""Draws a sweep: time of a call against a parameter, one line a version, with 95% intervals. Imports matplotlib."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, NullLocator

from .drawing import drawn, label, new_figure
from .sweep import Sweep


def svg_and_png(sweep: Sweep, name: str) -> tuple[bytes, bytes]:
    """The picture as SVG and as PNG; equal sweeps give equal bytes."""
    svg, png = drawn(lambda: _figure(sweep, name), "svg", "png")
    return svg, png


def _figure(sweep: Sweep, name: str) -> Figure:
    values = [point.value for point in sweep.points]
    numbers = _numbers(values)
    places: list[float] = numbers if numbers is not None else [float(place) for place in range(len(values))]
    figure, axes = new_figure()
    rows = sweep.rows()
    for version in sweep.labels:
        own = [(place, row) for place, row in zip(places, (row for row in rows if row["label"] == version), strict=True)
               if row["duration_us"] is not None]
        if not own:
            continue
        times = [row["duration_us"] for _, row in own]
        errors = [[row["duration_us"] - row["interval_us"][0] if row["interval_us"] else 0.0 for _, row in own],
                  [row["interval_us"][1] - row["duration_us"] if row["interval_us"] else 0.0 for _, row in own]]
        axes.errorbar([place for place, _ in own], times, yerr=errors, marker="o", capsize=3, label=label(version))
    axes.set_yscale("log")
    for axis in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.4)))
    if numbers is not None and min(numbers) > 0 and max(numbers) > 4 * min(numbers):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())  # of time's axis they have the labels between 100 and 1000
    axes.set_xticks(places, [label(value) for value in values])
    axes.set(xlabel=label(sweep.parameter), ylabel="time of a call (us), 95% interval", title=label(name))
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
