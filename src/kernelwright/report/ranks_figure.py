"""Draws who waited when, and for whom: two heat maps of one scale. Imports matplotlib. Equal comparisons give equal bytes."""

from __future__ import annotations

import io
import warnings
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..model.ranks import Ranks
from .text import plain

MOST_RANKS = 64
"""Rows that are drawn: of more ranks, those with most waiting."""
MOST_COLUMNS = 120
"""Steps side by side; of more, equal numbers of neighbours are added up."""
_STYLE: Any = {"svg.hashsalt": "kernelwright", "svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
               "font.size": 9}
_DPI = 120
_NUMBERS_UP_TO = 12
"""Tables no larger than this have their numbers in the cells."""


def svg_and_png(ranks: Ranks, name: str) -> tuple[bytes, bytes]:
    """The picture as SVG and as PNG; at least one rank."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that the font lacks
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = _figure(ranks, name)
        return _saved(figure, "svg", {"Date": None, "Creator": None}), _saved(figure, "png", {"Software": None})


def _saved(figure: Figure, kind: str, metadata: dict[str, None]) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format=kind, dpi=_DPI, metadata=metadata, facecolor="white")
    return target.getvalue()


def _figure(ranks: Ranks, name: str) -> Figure:
    numbers = [row.rank for row in ranks.ranks]
    waits_for, by_step = (np.array(table, dtype=np.float64).reshape(len(numbers), -1) / 1e6
                          for table in (ranks.waits_for, ranks.waits_by_step))
    chosen = np.sort(np.argsort(-waits_for.sum(axis=1) - waits_for.sum(axis=0), kind="stable")[:MOST_RANKS])
    labels = [str(numbers[place]) for place in chosen.tolist()]
    height = 1.8 + 0.32 * len(labels)
    figure = Figure(figsize=(11, min(14.0, max(3.0, height))), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    steps, each = _binned(by_step[chosen])
    _heat(figure, left, steps, labels, [str(step * each) for step in range(steps.shape[1])])
    left.set(xlabel="step" if each == 1 else f"step ({each} in a column)", ylabel="rank", title="Waiting for later ranks, by step")
    _heat(figure, right, waits_for[np.ix_(chosen, chosen)], labels, labels)
    right.set(xlabel="rank that came last", ylabel="rank that waited", title="Who waited for whom, in all")
    left_out = "" if len(labels) == len(numbers) else f", the {len(labels)} of {len(numbers)} ranks with most waiting"
    title = f"{plain(name, 60)}: time in collectives before the last rank arrived{left_out}"
    figure.suptitle(title.replace("$", r"\$"), fontsize=10)
    return figure


def _binned(table: np.ndarray) -> tuple[np.ndarray, int]:
    """(the table with at most MOST_COLUMNS columns, how many steps each of them adds up)."""
    each = -(-max(1, table.shape[1]) // MOST_COLUMNS)
    starts = np.arange(0, max(1, table.shape[1]), each)
    return (np.add.reduceat(table, starts, axis=1) if table.shape[1] else np.zeros((table.shape[0], 1))), each


def _heat(figure: Figure, axes: Any, table: np.ndarray, rows: list[str], columns: list[str]) -> None:
    top = max(float(table.max(initial=0.0)), 1e-6)
    image = axes.imshow(table, cmap="cividis", vmin=0.0, vmax=top, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(rows)), rows)
    every = max(1, len(columns) // 16)
    axes.set_xticks(range(0, len(columns), every), columns[::every])
    figure.colorbar(image, ax=axes, label="ms", shrink=0.9)
    if len(rows) <= _NUMBERS_UP_TO and len(columns) <= _NUMBERS_UP_TO:
        for row in range(len(rows)):
            for column in range(len(columns)):
                value = float(table[row, column])
                axes.text(column, row, f"{value:.2f}" if value else "0", ha="center", va="center", fontsize=7,
                          color="black" if value > top / 2 else "white")
