"""Draws the hierarchical roofline by matplotlib: the one module that imports it.

Colours are Okabe and Ito's eight, told apart with every common colour blindness; levels differ by marker, evidence by fill and dash. Names
are written as they are (no mathtext). The picture has a white ground of its own, so it reads in light and dark viewers alike. Equal
profiles give equal bytes (svg.hashsalt, no date).
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import matplotlib
import matplotlib.backends.backend_svg
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..model.profile import Profile, Roof
from ..model.roofline import Ceiling, RooflinePoint
from ..roofline.ceilings import value_of
from .figures import title
from .numbers import percent, two
from .roofline import LEVEL_NAMES, Shown, ceiling_name
from .text import plain

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#444444")
MARKERS = {"dram": "o", "l2": "s", "l1": "^"}
ROOF_SHADES = {"dram": "#222222", "l2": "#666666", "l1": "#999999"}
MOST_NAME = 44
"""Characters of a stage's name."""
_INK, _FAINT = "#222222", "#e4e4e4"
_STYLE: Any = {
    "svg.hashsalt": "kernelwright", "svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9,
    "axes.edgecolor": _INK, "axes.linewidth": 0.8, "text.color": _INK, "axes.labelcolor": _INK, "xtick.color": _INK, "ytick.color": _INK}
_DPI = 150
_SVG_METADATA: dict[str, None] = {"Date": None, "Creator": None}
_WORDS_PT = 110.0
"""Length of the words along a slope."""
_LEAST_GAP_PT = 12.0
"""Between the numbers beside points."""


def svg_and_png(profile: Profile, stages: Sequence[Shown]) -> tuple[bytes, bytes]:
    """The picture as SVG and as PNG. profile.roofline is known and `stages` is not empty."""
    return drawn(lambda: _figure(profile, stages))


def drawn(make: Callable[[], Figure]) -> tuple[bytes, bytes]:
    """What `make` draws as SVG and as PNG, in the style of all pictures; equal drawings give equal bytes."""
    with _styled():
        figure = make()
        return _saved(figure, "svg", _SVG_METADATA), _saved(figure, "png", {"Software": None})


def drawn_svg(make: Callable[[], Figure]) -> bytes:
    """The SVG alone."""
    with _styled():
        return _saved(make(), "svg", _SVG_METADATA)


@contextlib.contextmanager
def _styled() -> Iterator[None]:
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that the font lacks
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def _saved(figure: Figure, kind: str, metadata: dict[str, None]) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format=kind, dpi=_DPI, metadata=metadata, facecolor="white")
    return target.getvalue()


def _figure(profile: Profile, stages: Sequence[Shown]) -> Figure:
    roof = profile.roofline
    assert roof is not None
    figure = Figure(figsize=(11.4, 6.0))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.065, 0.105, 0.575, 0.775))
    _scale(axes, roof, stages)
    _roofs(axes, roof, [point for stage in stages for point in stage.points])
    for stage in stages:
        _stage(axes, stage)
    _numbers(axes, stages)
    head = f"Roofline of {plain(title(profile), 60)}"
    figure.text(0.065, 0.945, head, fontsize=13, fontweight="bold", parse_math=False)
    figure.text(0.065, 0.91, _subtitle(profile), fontsize=9, color="#555555", parse_math=False)
    _table(figure, profile, stages)
    _key(figure, roof, stages)
    return figure


def _subtitle(profile: Profile) -> str:
    meta = profile.capture_metadata
    pipes = profile.roofline.dtype if profile.roofline is not None else meta.dtype
    return f"{plain(meta.device_name, 50)} · arithmetic in use: {pipes} · {plain(meta.compile_mode, 30)}"


def _scale(axes: Any, roof: Roof, stages: Sequence[Shown]) -> None:
    """Log axes that hold every point, and the ridge of the slowest memory with each pipe."""
    points = [point for stage in stages for point in stage.points]
    slopes, flats = _split(roof)
    ridges = [1e3 * flat / slope for flat in flats for slope in slopes]
    x = [point.intensity for point in points] + [min(ridges), max(ridges)] if ridges else [point.intensity for point in points]
    low, high = _decade(min(x) / 5), _up(max(x) * 5)
    tops = flats or [max(slopes) * high * 1e-3]
    y = [point.tflops for point in points]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(min(_decade(min(y) / 2), _decade(min(tops) / 30)), max([*tops, *y]) * 2.6)
    axes.set_xlabel("Arithmetic intensity (FLOP per byte moved at the level)")
    axes.set_ylabel("Performance (TFLOP/s)")
    axes.grid(True, which="major", color=_FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _place: f"{value:g}")


def _split(roof: Roof) -> tuple[list[float], list[float]]:
    """(GB/s of every slope, TFLOP/s of every flat roof), measured or else printed."""
    both = [(ceiling.kind, value_of(ceiling).value) for ceiling in roof.ceilings]
    return [value for kind, value in both if kind == "bandwidth"], [value for kind, value in both if kind == "compute"]


def _decade(value: float) -> float:
    return float(10.0 ** math.floor(math.log10(value)))


def _up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    base = _decade(value)
    return next(step * base for step in (1, 2, 5, 10) if step * base >= value * (1 - 1e-9))


def _roofs(axes: Any, roof: Roof, points: Sequence[RooflinePoint]) -> None:
    low, high = axes.get_xlim()
    flats = [ceiling for ceiling in roof.ceilings if ceiling.kind == "compute"]
    slopes = [ceiling for ceiling in roof.ceilings if ceiling.kind == "bandwidth"]
    top = max((value_of(flat).value for flat in flats), default=axes.get_ylim()[1])
    bottom = axes.get_ylim()[0]
    for ceiling in slopes:
        for origin, figure in (("measured", ceiling.measured), ("datasheet", ceiling.datasheet)):
            if figure is None:
                continue
            end = min(high, 1e3 * max(top, _printed_top(flats)) / figure.value)
            axes.plot([low, end], [low * figure.value * 1e-3, end * figure.value * 1e-3], color=ROOF_SHADES[ceiling.name], linewidth=1.5,
                      linestyle="-" if origin == "measured" else (0, (4, 3)), zorder=1.5)
        _slope_label(axes, ceiling, max(low, bottom * 1e3 / value_of(ceiling).value), 1e3 * top / value_of(ceiling).value, points,
                     [value_of(flat).value for flat in flats])
    widest = max((value_of(slope).value for slope in slopes), default=None)
    for ceiling in flats:
        for origin, figure in (("measured", ceiling.measured), ("datasheet", ceiling.datasheet)):
            if figure is None:
                continue
            start = low if widest is None else max(low, 1e3 * figure.value / widest)
            axes.plot([start, high], [figure.value] * 2, color=_INK, linewidth=1.5, linestyle="-" if origin == "measured" else (0, (4, 3)),
                      zorder=1.5)
    _flat_labels(axes, flats, high)


def _printed_top(flats: Sequence[Ceiling]) -> float:
    return max((figure.value for flat in flats for figure in (flat.measured, flat.datasheet) if figure is not None), default=0.0)


def _slope_label(
    axes: Any, ceiling: Ceiling, start: float, ridge: float, points: Sequence[RooflinePoint], flats: Sequence[float],
) -> None:
    """Along the visible part of the line (from `start` to its ridge, FLOP/B), where the fewest points and flat roofs lie."""
    figures = [figure for figure in (ceiling.measured, ceiling.datasheet) if figure is not None]
    # DRAM's words below its lower line, those of the caches above their upper one: L2 and DRAM lie close together.
    below = ceiling.name == "dram"
    value = (min if below else max)(figure.value for figure in figures)
    (x0, y0), (x1, y1) = axes.transData.transform([(1.0, 1.0), (10.0, 10.0)])
    angle = math.atan2(y1 - y0, x1 - x0)
    places = [start * (ridge / start) ** part for part in (0.05, 0.15, 0.25, 0.35, 0.45, 0.55)] if ridge > start else [start]
    x = min(places, key=lambda place: _crowd(axes, (place, place * value * 1e-3), angle, points, flats))
    words = f"{LEVEL_NAMES[ceiling.name]} {_speeds([figure.value for figure in figures])}"
    axes.annotate(words, (x, x * value * 1e-3), xytext=(3, -3) if below else (-2, 3), textcoords="offset points",
        rotation=math.degrees(angle), rotation_mode="anchor", fontsize=8, color=ROOF_SHADES[ceiling.name], va="top" if below else "bottom",
        ha="left", zorder=1.8, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3})


def _crowd(axes: Any, place: tuple[float, float], angle: float, points: Sequence[RooflinePoint], flats: Sequence[float]) -> int:
    """Points and flat roofs that words along a line from `place` would lie on."""
    unit = axes.figure.dpi / 72.0
    x, y = axes.transData.transform(place)
    hit = 0
    for point in points:
        px, py = axes.transData.transform((point.intensity, point.tflops))
        along = ((px - x) * math.cos(angle) + (py - y) * math.sin(angle)) / unit
        across = ((py - y) * math.cos(angle) - (px - x) * math.sin(angle)) / unit
        hit += -8 < along < _WORDS_PT and abs(across) < 18
    for flat in flats:
        height = (axes.transData.transform((place[0], flat))[1] - y) / unit
        hit += 2 * (-20 < height < _WORDS_PT * math.sin(angle) + 8)
    return hit


def _speeds(values: Sequence[float]) -> str:
    """GB/s in words, measured | datasheet."""
    unit, factor = ("TB/s", 1e-3) if min(values) >= 1e3 else ("GB/s", 1.0)
    return " | ".join(f"{value * factor:.3g}" for value in values) + f" {unit}"


def _flat_labels(axes: Any, flats: Sequence[Ceiling], high: float) -> None:
    """At the right end, above the higher of a pipe's two lines."""
    for ceiling in flats:
        values = [figure.value for figure in (ceiling.measured, ceiling.datasheet) if figure is not None]
        words = f"{ceiling_name(ceiling)}: {' | '.join(f'{value:.3g}' for value in values)} TFLOP/s"
        axes.annotate(words, (high, max(values)), xytext=(0, 3), textcoords="offset points", ha="right", va="bottom", fontsize=8, zorder=4,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3})


def _stage(axes: Any, stage: Shown) -> None:
    """One stage's points, joined: its levels lie side by side at (nearly) one height."""
    colour = COLOURS[(stage.number - 1) % len(COLOURS)]
    ordered = sorted(stage.points, key=lambda point: point.intensity)
    axes.plot([point.intensity for point in ordered], [point.tflops for point in ordered], color=colour, linewidth=0.9, alpha=0.7, zorder=2)
    for point in ordered:
        axes.plot(point.intensity, point.tflops, marker=MARKERS[point.level], markersize=_size(point), color=colour,
                  markerfacecolor=colour if point.evidence == "counters" else "white", markeredgecolor=colour, markeredgewidth=1.4,
                  linestyle="none", zorder=3)


def _size(point: RooflinePoint) -> float:
    """In points; its area grows with the share of time."""
    return 5.5 + 7.0 * math.sqrt(min(max(point.share_pct, 0.0), 100.0) / 100.0)


def _numbers(axes: Any, stages: Sequence[Shown]) -> None:
    """Each stage's number right of its rightmost point, moved up or down until it lies on no other number and no other stage's point."""
    at: list[tuple[float, float, Shown]] = []
    scale = 72.0 / axes.figure.dpi
    for stage in stages:
        last = max(stage.points, key=lambda point: point.intensity)
        x, y = (float(part) * scale for part in axes.transData.transform((last.intensity, last.tflops)))
        at.append((x + _size(last) / 2 + 4.0, y, stage))
    marks = {stage.number: [tuple(float(part) * scale for part in axes.transData.transform((point.intensity, point.tflops)))
                            for point in stage.points] for stage in stages}
    placed: list[tuple[float, float]] = []
    for x, y, stage in sorted(at, key=lambda row: (row[1], row[0], row[2].number)):
        taken = [*placed, *((mark[0] - 4.0, mark[1]) for number, others in marks.items() if number != stage.number for mark in others)]
        moved = min((y + step for step in range(-90, 91) if not any(
            abs(y + step - other_y) < _LEAST_GAP_PT and abs(x - other_x) < _LEAST_GAP_PT for other_x, other_y in taken)),
            key=lambda height: (abs(height - y), height), default=y)
        placed.append((x, moved))
        colour = COLOURS[(stage.number - 1) % len(COLOURS)]
        last = max(stage.points, key=lambda point: point.intensity)
        axes.annotate(str(stage.number), (last.intensity, last.tflops), xytext=(_size(last) / 2 + 4.0, moved - y),
                      arrowprops={"arrowstyle": "-", "linewidth": 0.6, "color": colour} if abs(moved - y) > 4 else None,
                      textcoords="offset points", color=colour, fontsize=9.5, fontweight="bold", va="center", ha="left", zorder=5)


def _table(figure: Figure, profile: Profile, stages: Sequence[Shown]) -> None:
    """Right of the axes: number, name, share of time, what it reaches and of which roof."""
    left, y = 0.665, 0.945
    figure.text(left, y, "Heaviest stages", fontsize=10, fontweight="bold")
    rows = {stage.name: stage for stage in profile.stages}
    for stage in stages:
        y -= 0.068
        point = stage.points[0]
        colour = COLOURS[(stage.number - 1) % len(COLOURS)]
        figure.text(left, y + 0.026, str(stage.number), fontsize=9.5, fontweight="bold", color=colour)
        figure.text(left + 0.017, y + 0.026, plain(point.name, MOST_NAME), fontsize=8.5, parse_math=False)
        row = rows.get(point.name)
        roof = "" if row is None or row.roof_pct is None else f" · {percent(row.roof_pct)} of its {row.binding_roof} roof"
        words = f"{percent(point.share_pct)} of time · {two(point.tflops)} TFLOP/s{roof}"
        figure.text(left + 0.017, y, words, fontsize=7.8, color="#555555", parse_math=False)
    left_out = len(profile.stages) - len(stages)
    if left_out > 0:
        figure.text(left, y - 0.045, f"{left_out} more: lighter, or their work is not known", fontsize=7.8, color="#555555")


def _key(figure: Figure, roof: Roof, stages: Sequence[Shown]) -> None:
    """What markers, fills and lines mean; only what is in the picture."""
    points = [point for stage in stages for point in stage.points]
    items = [Line2D([], [], marker=MARKERS[level], color=_INK, markerfacecolor="#bbbbbb", linestyle="none", markersize=7,
                    label=f"{words} bytes") for level, words in LEVEL_NAMES.items() if any(point.level == level for point in points)]
    for evidence, fill, words in (("counters", _INK, "filled: by counters"), ("analytic", "white", "hollow: analytic")):
        if any(point.evidence == evidence for point in points):
            items.append(Line2D([], [], marker="D", color=_INK, markerfacecolor=fill, linestyle="none", markersize=6, label=words))
    lines: tuple[tuple[bool, Any, str], ...] = (
        (any(ceiling.measured for ceiling in roof.ceilings), "-", "roof measured on this device"),
        (any(ceiling.datasheet for ceiling in roof.ceilings), (0, (4, 3)), "roof by the datasheet"))
    for known, style, words in lines:
        if known:
            items.append(Line2D([], [], color=_INK, linewidth=1.5, linestyle=style, label=words))
    figure.legend(handles=items, loc="lower left", bbox_to_anchor=(0.658, 0.09), frameon=False, fontsize=8, ncols=2, handlelength=2.2,
                  columnspacing=1.2, labelspacing=0.7)
    if any(ceiling.measured and ceiling.datasheet for ceiling in roof.ceilings):
        figure.text(0.665, 0.065, "Two figures at a roof: measured | datasheet.", fontsize=7.8, color="#555555")
    figure.text(0.665, 0.038, "Larger marker: more of the time. Times: timeline.", fontsize=7.8, color="#555555")
