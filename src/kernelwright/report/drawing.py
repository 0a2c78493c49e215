"""How a chart of times becomes bytes: one style, equal input gives equal bytes. Imports matplotlib."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any, Literal

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .text import plain

_STYLE: Any = {"svg.hashsalt": "kernelwright", "svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
               "font.size": 9}
_DPI = 120
_METADATA: dict[str, dict[str, str | None]] = {"svg": {"Date": None, "Creator": "kernelwright"}, "png": {"Software": None}}


def drawn(make: Callable[[], Figure], *kinds: Literal["svg", "png"]) -> list[bytes]:
    """The picture that `make` draws, in each of these forms. `make` runs under our style."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that the font lacks
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = make()
        return [_saved(figure, kind) for kind in kinds]


def _saved(figure: Figure, kind: str) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format=kind, dpi=_DPI, metadata=_METADATA[kind], facecolor="white")
    return target.getvalue()


def new_figure() -> tuple[Figure, Any]:
    """A figure and its axes."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def label(value: object) -> str:
    """Text that we did not write, without a meaning to matplotlib."""
    return plain(value, 60).replace("$", r"\$")
