"""The figures of an optimisation's report, from its ledger and profiles, and report.html, which holds them all in one file.

matplotlib takes half a second to import, so it is imported where something is drawn, not before.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from ..model.errors import MachineLacks
from ..model.files import write_bytes_atomic, write_text_atomic
from ..model.profile import Profile
from ..model.resources import resource
from ..model.verdict import Experiment
from ..report.optimize_marks import Bar, Guess, Part, Step
from ..report.text import plain
from . import remains
from .claims import is_ladder_row
from .confirm import ROLE
from .ending import Ending
from .predicted import realised

FOLDER = "figures"
REPORT_HTML = "report.html"
MINUTES = (1, 3, 8)
"""What so many minutes buy is told of every run that lasted that long."""


@dataclass(frozen=True)
class Picture:
    """One figure."""

    name: str
    """File name below the report's folder."""
    title: str
    words: str
    """What it shows, for those who do not see it."""
    svg: bytes


def draw(end: Ending) -> list[Picture]:
    """The figures that the run has data for. Raises MachineLacks without a matplotlib that works."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache and of missing fonts
    try:
        from ..report import optimize_figure as figure
    except (ImportError, AttributeError, OSError, RuntimeError, ValueError) as error:  # ValueError: MPLBACKEND=nonsense
        raise MachineLacks("no_matplotlib", f"matplotlib can't be loaded: {error}", where=sys.executable,
                           fix="install matplotlib there, or remove kernelwright's environment: the next run makes it anew") from error
    # What was kept counts among the figures by its confirmation, so that they agree with the report's first line.
    rows, guesses = bars(end), realised([*end.rows, *end.ablation])
    kept = remains.as_kept(end)
    before, after = parts(end.baseline), parts(kept) if kept is not None else []
    wanted: list[tuple[bool, str, str, str, Callable[[], bytes]]] = [
        (bool(rows), "gains.svg", "Gains", "speed-up of each candidate over the original, with its interval", lambda: figure.gains(rows)),
        (bool(steps(end)), "progress.svg", "What the time bought", "best candidate so far over the seconds of the search",
         lambda: figure.progress(steps(end), last_s(end))),
        (bool(before), "where.svg", "Where a call's time goes", "time of a call by stage, at its roof and above it, before and after",
         lambda: figure.where(before, after)),
        (bool(guesses), "predictions.svg", "Predicted against measured", "predicted against measured speed-up, where one was predicted",
         lambda: figure.predictions([Guess(one.name, *one.predicted, one.realised) for one in guesses])),
    ]
    try:
        return [Picture(f"{FOLDER}/{name}", title, words, make()) for there, name, title, words, make in wanted if there]
    except (ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise MachineLacks("figure_failed", f"matplotlib could not draw the report's figures: {type(error).__name__}: {error}",
                           where=FOLDER, fix="the report is complete without them; their numbers are in report.json") from error


def bars(end: Ending) -> list[Bar]:
    """One a candidate that was timed."""
    found = []
    for row in end.rows:
        kept = end.kept is not None and row.name == end.kept.row.name
        verdict = end.kept.verdict if kept and end.kept is not None else row.verdict
        if verdict is not None and verdict.speedup is not None and verdict.speedup > 0:
            found.append(Bar(row.name, verdict.speedup, verdict.interval, row.precision, True, is_ladder_row(row), kept))
        elif verdict is None and row.screen is not None and row.screen.speedup is not None and row.screen.speedup > 0:
            found.append(Bar(row.name, row.screen.speedup, row.screen.interval, row.precision, False, is_ladder_row(row)))
    return found


def steps(end: Ending) -> list[Step]:
    """When each candidate that gains was known, in seconds after the baseline's profile: by its screen, and as FASTER by the judge. A
    resumed run counts the time between its parts."""
    found = []
    for row in end.history or end.rows:
        seconds = _seconds(row, end.state.started_utc)
        if row.tags.get(ROLE) or seconds is None:
            continue
        if row.verdict is not None and row.verdict.verdict == "FASTER" and row.verdict.speedup is not None:
            found.append(Step(seconds, row.verdict.speedup, row.precision, True))
        elif row.verdict is None and row.screen is not None and row.screen.speedup is not None and row.screen.speedup > 1:
            found.append(Step(seconds, row.screen.speedup, row.precision, False))
    return found


def last_s(end: Ending) -> float:
    """Seconds from the baseline's profile to the end of the last candidate."""
    return max((seconds for row in end.rows if (seconds := _seconds(row, end.state.started_utc)) is not None), default=0.0)


def bought(end: Ending, *, judged: bool) -> dict[int, float]:
    """Minutes -> speed-up of the best candidate known by then, of those that were judged FASTER or (judged: False) by the screens' word
    too; 1.0 where none was."""
    known = [step for step in steps(end) if step.judged or not judged]
    return {minutes: max([1.0, *(step.speedup for step in known if step.seconds <= 60 * minutes)]) for minutes in MINUTES}


def parts(profile: Profile) -> list[Part]:
    """A call's time by stage, and the device's waiting."""
    return [Part(place.name, place.time_ns / 1e3, None if place.roof_ns is None else place.roof_ns / 1e3)
            for place in remains.places(profile)]


def write(folder: Path, pictures: Sequence[Picture]) -> None:
    """Write the figures as files. Raises NotWritable."""
    if pictures:
        (folder / FOLDER).mkdir(exist_ok=True)
    for picture in pictures:
        write_bytes_atomic(folder / picture.name, picture.svg)


def write_html(folder: Path, view: dict[str, Any], pictures: Sequence[Picture]) -> Path:
    """report.html: one file that loads nothing and runs nothing. `view`: the values of report.md. Raises NotWritable."""
    return write_text_atomic(folder / REPORT_HTML, render_html(view, pictures))


def render_html(view: dict[str, Any], pictures: Sequence[Picture]) -> str:
    """The page's text. Every value is escaped; figures are pictures in data URLs, in which no script can run."""
    style = resource("templates/optimize_report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    images = [{"title": one.title, "words": one.words, "data": base64.b64encode(one.svg).decode("ascii")} for one in pictures]
    return _environment().get_template("optimize_report.html.j2").render(**view, style=style, style_hash=f"sha256-{digest}", images=images)


def _seconds(row: Experiment, started_utc: str) -> float | None:
    try:
        begun = datetime.fromisoformat(row.started_utc) - datetime.fromisoformat(started_utc)
    except ValueError:
        return None
    return max(0.0, begun.total_seconds()) + row.elapsed_s


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    return jinja2.Environment(loader=jinja2.FileSystemLoader(str(resource("templates"))), undefined=jinja2.StrictUndefined, autoescape=True,
                              trim_blocks=True, lstrip_blocks=True, finalize=_shown)


def _shown(value: Any) -> Any:
    """Text that we did not write: one printable line. Markup that the template marks safe, and numbers, as they are."""
    return plain(value, 400) if isinstance(value, str) and not hasattr(value, "__html__") else value
