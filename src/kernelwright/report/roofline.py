"""The roofline as tables and as a picture.

matplotlib takes half a second to import, so it is imported where something is drawn, not before.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path

from ..model.base import Figure
from ..model.errors import MachineLacks
from ..model.files import write_bytes_atomic
from ..model.profile import Profile
from ..model.roofline import Ceiling, RooflinePoint

SVG, PNG = "roofline.svg", "roofline.png"
MOST_SHOWN = 8
"""Stages in the picture, the heaviest."""
LEVEL_NAMES: dict[str, str] = {"dram": "DRAM", "l2": "L2", "l1": "L1"}
PIPES = {"tensor": "tensor pipe", "plain": "plain pipe", "matmul": "matrix products"}
LEAST_INTENSITY = 1e-3
"""FLOP/B below which a stage is not drawn: a copy with a few stray additions says nothing about arithmetic."""


@dataclass(frozen=True)
class Shown:
    """One stage of the picture: its number there and its points, one a memory level."""

    number: int
    points: tuple[RooflinePoint, ...]


@dataclass(frozen=True)
class CeilingRow:
    """One row of the report's table of roofs."""

    name: str
    measured: Figure | None
    datasheet: Figure | None


@dataclass(frozen=True)
class PointRow:
    """One row of the report's table of points."""

    level: str
    point: RooflinePoint


def ceiling_rows(profile: Profile) -> list[CeilingRow]:
    """Every roof, in words."""
    return [CeilingRow(ceiling_name(ceiling), ceiling.measured, ceiling.datasheet)
            for ceiling in (profile.roofline.ceilings if profile.roofline else ())]


def ceiling_name(ceiling: Ceiling) -> str:
    """"L2 bandwidth"; "tensor pipe, bfloat16"; on a CPU "matrix products, float32"."""
    if ceiling.kind == "bandwidth":
        return f"{LEVEL_NAMES.get(ceiling.name, ceiling.name)} bandwidth"
    kind, _, dtype = ceiling.name.partition(":")
    return f"{PIPES.get(kind, kind)}, {dtype}"


def point_rows(profile: Profile) -> list[PointRow]:
    """The points of the heaviest stages."""
    return [PointRow(LEVEL_NAMES.get(point.level, point.level), point) for stage in shown(profile) for point in stage.points]


def shown(profile: Profile) -> tuple[Shown, ...]:
    """The heaviest stages with points, in order of their time; () where nothing can be drawn."""
    roof = profile.roofline
    if roof is None or not any(ceiling.kind == "bandwidth" for ceiling in roof.ceilings):
        return ()
    by_name: dict[str, list[RooflinePoint]] = {}
    for point in profile.roofline_points:
        if point.scope == "stage" and point.intensity >= LEAST_INTENSITY and point.tflops > 0:
            by_name.setdefault(point.name, []).append(point)
    heaviest = sorted(by_name.values(), key=lambda points: (-points[0].share_pct, points[0].name))[:MOST_SHOWN]
    return tuple(Shown(number, tuple(points)) for number, points in enumerate(heaviest, start=1))


def draw(profile: Profile) -> dict[str, bytes]:
    """File name -> content of the pictures; {} where neither a roof nor a stage's work is known.

    Raises MachineLacks without a matplotlib that works.
    """
    stages = shown(profile)
    if not stages:
        return {}
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache and of missing fonts
    try:
        from .roofline_figure import svg_and_png
    except (ImportError, AttributeError, OSError, RuntimeError, ValueError) as error:  # ValueError: MPLBACKEND=nonsense
        raise MachineLacks("no_matplotlib", f"matplotlib can't be loaded: {error}", where=sys.executable,
                           fix="install matplotlib there, or remove kernelwright's environment: the next run makes it anew") from error
    try:
        svg, png = svg_and_png(profile, stages)
    except (ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise MachineLacks("figure_failed", f"matplotlib could not draw the roofline: {type(error).__name__}: {error}",
                           where=PNG, fix="everything else of the profile is complete; the points are in profile.json") from error
    return {SVG: svg, PNG: png}


def write_roofline(profile: Profile, folder: Path) -> tuple[Path, ...]:
    """Draw into `folder`; an earlier run's pictures are taken away where there is nothing to draw. Raises MachineLacks, NotWritable."""
    for name in (SVG, PNG):
        (folder / name).unlink(missing_ok=True)
    return tuple(write_bytes_atomic(folder / name, content) for name, content in draw(profile).items())
