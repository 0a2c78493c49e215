"""Draws what an optimisation came to: gains, progress over the budget, predictions, and where a call's time goes. Imports matplotlib.

Names are hostile text: cut, printable, never read as mathematics. Equal figures give equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .optimize_marks import Bar, Guess, Part, Step
from .roofline_figure import COLOURS, drawn_svg
from .text import plain

PRECISIONS = {"equal": COLOURS[0], "tf32": COLOURS[4], "bf16": COLOURS[3]}
OTHER = COLOURS[7]
MOST_BARS = 28
"""Candidates in the figure of gains: of more, the fastest; ladder rows and what was kept are always there."""
_GRID = "#e4e4e4"


def gains(bars: Sequence[Bar]) -> bytes:
    """Speed-ups with their intervals, the fastest on top; SVG. `bars` is not empty."""
    return drawn_svg(lambda: _gains(bars))


def progress(steps: Sequence[Step], used_s: float) -> bytes:
    """The best so far over the seconds used, a line a precision; SVG."""
    return drawn_svg(lambda: _progress(steps, used_s))


def predictions(guesses: Sequence[Guess]) -> bytes:
    """Predicted against realised speed-up; SVG."""
    return drawn_svg(lambda: _predictions(guesses))


def where(before: Sequence[Part], after: Sequence[Part]) -> bytes:
    """One call's time before and after (empty: nothing was kept), by what the roofs need and what is above them; SVG."""
    return drawn_svg(lambda: _where(before, after))


def chosen(bars: Sequence[Bar]) -> list[Bar]:
    """Those that are drawn, the slowest first."""
    order = sorted(bars, key=lambda bar: (-bar.speedup, bar.name))
    always = [bar for bar in order if bar.ladder or bar.kept]
    rest = [bar for bar in order if not (bar.ladder or bar.kept)][: max(0, MOST_BARS - len(always))]
    return sorted([*always, *rest], key=lambda bar: (bar.speedup, bar.name))


def _gains(bars: Sequence[Bar]) -> Figure:
    rows = chosen(bars)
    figure, axes = _axes(9.6, 1.3 + 0.25 * len(rows), left=0.40)
    for place, bar in enumerate(rows):
        colour = PRECISIONS.get(bar.precision, OTHER)
        if bar.interval is not None:
            axes.plot(bar.interval, [place, place], color=colour, linewidth=2.0, solid_capstyle="butt", zorder=2)
        axes.plot(bar.speedup, place, marker="s" if bar.ladder else "o", markersize=6.5, color=colour, linestyle="none", zorder=3,
                  markerfacecolor=colour if bar.judged else "white", markeredgewidth=1.4)
        axes.annotate(f"{bar.speedup:.2f}x", (max(bar.speedup, *(bar.interval or (0.0,))), place), xytext=(7, 0),
                      textcoords="offset points", va="center", fontsize=7.5, fontweight="bold" if bar.kept else "normal")
    names = [f"{plain(bar.name, 52)}{' (kept)' if bar.kept else ''}" for bar in rows]
    _labels(axes, names, [bar.kept for bar in rows])
    axes.axvline(1.0, color="#222222", linewidth=0.9, zorder=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _place: f"{value:g}x")
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * (high / low) ** 0.08)
    axes.set_xlabel("Speed-up over the original")
    items = [Line2D([], [], color=colour, linewidth=3, label=name) for name, colour in PRECISIONS.items()
             if any(bar.precision == name for bar in rows)]
    items += [Line2D([], [], marker=mark, color=OTHER, markerfacecolor=fill, linestyle="none", label=words)
              for mark, fill, words, there in (
                  ("o", OTHER, "judged", True), ("o", "white", "screened only", any(not bar.judged for bar in rows)),
                  ("s", OTHER, "row of the ladder", any(bar.ladder for bar in rows))) if there]
    axes.legend(handles=items, loc="lower right", fontsize=7.5, frameon=True, edgecolor=_GRID)
    return figure


def _progress(steps: Sequence[Step], used_s: float) -> Figure:
    figure, axes = _axes(9.6, 3.2, left=0.08)
    for level, colour in PRECISIONS.items():
        for judged in (False, True):
            xs, ys = _best_so_far([step for step in steps if step.precision == level and step.judged == judged])
            if len(xs) > 1:
                axes.step([*xs, max(used_s, xs[-1])], [*ys, ys[-1]], where="post", color=colour, linewidth=1.8,
                          linestyle="-" if judged else (0, (2, 2)), label=f"{level}, {'judged' if judged else 'screened'}")
    axes.legend(loc="lower right", fontsize=7.5, edgecolor=_GRID)
    axes.set_xlabel("Seconds since the start")
    axes.set_ylabel("Best so far (x)")
    axes.set_ylim(bottom=0.9)
    return figure


def _best_so_far(steps: Sequence[Step]) -> tuple[list[float], list[float]]:
    """(seconds, best speed-up from then on), from 1x at the start."""
    xs, ys = [0.0], [1.0]
    for step in sorted(steps, key=lambda one: one.seconds):
        if step.speedup > ys[-1]:
            xs.append(step.seconds)
            ys.append(step.speedup)
    return xs, ys


def _predictions(guesses: Sequence[Guess]) -> Figure:
    figure, axes = _axes(5.6, 4.6, left=0.13)
    values = [value for guess in guesses for value in (guess.low, guess.high, guess.realised)]
    low, high = min([0.9, *values]) / 1.1, max([2.0, *values]) * 1.1
    axes.plot([low, high], [low, high], color="#999999", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    for guess in guesses:
        axes.plot([guess.low, guess.high], [guess.realised] * 2, color=COLOURS[0], linewidth=2.0, alpha=0.7, zorder=2)
        axes.plot((guess.low * guess.high) ** 0.5, guess.realised, marker="o", markersize=5, color=COLOURS[0], zorder=3)
        if len(guesses) <= 12:
            axes.annotate(plain(guess.name, 40), (guess.high, guess.realised), xytext=(0, 4), textcoords="offset points", fontsize=7,
                          ha="right" if guess.high > (low * high) ** 0.5 else "left", parse_math=False)
    for scale in (axes.set_xscale, axes.set_yscale):
        scale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _place: f"{value:g}")
        axis.set_minor_formatter(lambda _value, _place: "")
    axes.set(xlim=(low, high), ylim=(low, high), xlabel="Predicted speed-up", ylabel="Measured speed-up")
    return figure


def _where(before: Sequence[Part], after: Sequence[Part]) -> Figure:
    sides = [("original", before)] + ([("optimized.py", after)] if after else [])
    figure, axes = _axes(9.6, 2.0 + 0.6 * len(sides), left=0.12, bottom_in=1.35)
    names = sorted({part.name for _side, parts in sides for part in parts},
                   key=lambda name: -max(part.time_us for _side, parts in sides for part in parts if part.name == name))[:8]
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    for place, (_side, parts) in enumerate(reversed(sides)):
        start = 0.0
        for part in parts:
            colour = colours.get(part.name, "#bbbbbb")
            roof = min(part.roof_us, part.time_us) if part.roof_us is not None else 0.0
            axes.barh(place, roof, left=start, height=0.6, color=colour, linewidth=0)
            axes.barh(place, part.time_us - roof, left=start + roof, height=0.6, color=colour, alpha=0.35, linewidth=0,
                      hatch="///" if part.roof_us is None else None, edgecolor="white")
            start += part.time_us
    _labels(axes, [side for side, _parts in reversed(sides)], [False] * len(sides))
    axes.set_xlabel("Time of one call (us): full colour is what the nearest roof needs, pale is above it, hatched: no roof known")
    handles = [Patch(color=colour, label=plain(name, 34)) for name, colour in colours.items()]
    if any(part.name not in colours for _side, parts in sides for part in parts):
        handles.append(Patch(color="#bbbbbb", label="others"))
    below = -0.5 / (0.05 + 0.6 * len(sides))
    legend = axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.45, below), ncol=3, fontsize=7.5, frameon=False)
    for words in legend.get_texts():
        words.set_parse_math(False)
    return figure


def _axes(width: float, height: float, *, left: float, bottom_in: float = 0.55) -> tuple[Figure, Any]:
    """Axes whose lower edge is `bottom_in` inches above the figure's; `left` is a share of its width."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    bottom = bottom_in / height
    axes = figure.add_axes((left, bottom, 0.97 - left, 0.97 - bottom))
    axes.grid(True, axis="x", which="major", color=_GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _labels(axes: Any, names: Sequence[str], bold: Sequence[bool]) -> None:
    axes.set_yticks(range(len(names)), names, fontsize=8)
    for tick, heavy in zip(axes.get_yticklabels(), bold, strict=True):
        tick.set_parse_math(False)
        tick.set_fontweight("bold" if heavy else "normal")
    axes.set_ylim(-0.6, len(names) - 0.4)
