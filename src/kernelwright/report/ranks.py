"""The documents of a comparison of ranks: ranks.json, report.md, csv/, the heat map of waits, the timeline page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..model.errors import MachineLacks
from ..model.files import write_bytes_atomic, write_json_atomic, write_text_atomic
from ..model.ranks import RankRow, Ranks
from ..model.trace import Trace
from .templates import render
from .text import plain
from .timeline_html import Recording, write_ranks_html

HEAT_MAP, TIMELINE = "wait_heatmap", "timeline.html"
MOST_ROWS = 12
"""Ranks in the document; of more, those that stand out."""
MOST_DRAWN = 16
"""Ranks in the page; of more, those that stand out."""
MOST_KINDS, MOST_WAITS, MOST_WARNINGS = 6, 5, 5


@dataclass(frozen=True)
class RankView:
    """One rank's row, in percent of its span; times in us."""

    rank: int
    step_us: float
    compute_pct: float
    communication_pct: float
    exposed_pct: float
    waiting_pct: float
    idle_pct: float
    last: int
    caused_us: float
    """Time that others waited for it, a step."""


def write_ranks(ranks: Ranks, name: str, out_dir: Path, traces: Mapping[int, Trace], *, params_doc: Mapping[str, Any]) -> dict[str, Path]:
    """Write params.json, ranks.json, report.md, csv/, timeline.html and the heat map (with two ranks or more).

    traces: the recordings by rank. Returns absolute paths by "ranks", "report", "params", "csv", "timeline" and, where it could be drawn,
    "heat_map". Raises NotWritable.
    """
    folder = out_dir.resolve()
    paths = {"ranks": folder / "ranks.json", "report": folder / "report.md", "params": folder / "params.json", "csv": folder / "csv",
             "timeline": folder / TIMELINE}
    write_json_atomic(paths["params"], dict(params_doc))
    write_text_atomic(paths["ranks"], ranks.model_dump_json(indent=1) + "\n")
    for file, text in tables(ranks).items():
        write_text_atomic(paths["csv"] / file, text)
    _write_page(paths["timeline"], ranks, name, traces)
    no_picture = ""
    if len(ranks.ranks) > 1 and ranks.collectives:
        try:
            from .ranks_figure import svg_and_png
        except (ImportError, OSError) as error:
            no_picture = MachineLacks("no_matplotlib", f"matplotlib can't be loaded ({error})", where=HEAT_MAP,
                                      fix="install kernelwright's dependencies again").line()
        else:
            svg, png = svg_and_png(ranks, name)
            write_bytes_atomic(folder / f"{HEAT_MAP}.svg", svg)
            paths["heat_map"] = write_bytes_atomic(folder / f"{HEAT_MAP}.png", png)
    write_text_atomic(paths["report"], render_ranks(ranks, name, picture="heat_map" in paths, no_picture=no_picture))
    return paths


def render_ranks(ranks: Ranks, name: str, *, picture: bool = False, no_picture: str = "") -> str:
    """The comparison as Markdown: at most about 1,500 tokens whatever the number of ranks."""
    views = [_view(row) for row in ranks.ranks]
    shown = _standing_out(views)[:MOST_ROWS]
    worst = max(views, key=lambda view: view.waiting_pct, default=None)
    late = max(ranks.ranks, key=lambda row: (row.last, row.caused_ns), default=None)
    return render(
        "ranks_report.md.j2", name=name, ranks=ranks, views=sorted(shown, key=lambda view: view.rank), left=len(views) - len(shown),
        kinds=ranks.kinds[:MOST_KINDS], kinds_left=max(0, len(ranks.kinds) - MOST_KINDS), waits=ranks.worst[:MOST_WAITS], worst=worst,
        late=late if late is not None and late.last else None, steps=max((row.steps for row in ranks.ranks), default=0),
        devices=", ".join(dict.fromkeys(plain(row.device, 60) for row in ranks.ranks)), picture=f"{HEAT_MAP}.svg" if picture else None,
        no_picture=no_picture, timeline=TIMELINE, drawn=min(len(views), MOST_DRAWN),
        warnings=ranks.warnings[:MOST_WARNINGS], warnings_left=max(0, len(ranks.warnings) - MOST_WARNINGS))


def _write_page(path: Path, ranks: Ranks, name: str, traces: Mapping[int, Trace]) -> None:
    """One group of lanes a rank, in rank order."""
    drawn = sorted(view.rank for view in _standing_out([_view(row) for row in ranks.ranks])[:MOST_DRAWN])
    left = f" of {len(ranks.ranks)}" if len(drawn) < len(ranks.ranks) else ""
    write_ranks_html(path, [Recording(replace(traces[rank], rank=rank)) for rank in drawn],
                     title=f"{plain(name, 80)}: {len(drawn)}{left} ranks")


def _standing_out(views: Sequence[RankView]) -> list[RankView]:
    """Those that were waited for most first, then those that waited most."""
    return sorted(views, key=lambda view: (-view.caused_us, -view.waiting_pct, view.rank))


def tables(ranks: Ranks) -> dict[str, str]:
    """csv/: file name -> content. Times are ns."""
    numbers = [row.rank for row in ranks.ranks]
    steps = max((len(row) for row in ranks.waits_by_step), default=0)
    return {
        "ranks.csv": _text(
            ("rank", "recording", "device", "steps", "step_median_ns", "span_ns", "compute_ns", "communication_ns", "overlapped_ns",
             "exposed_ns", "waiting_ns", "exposed_waiting_ns", "copy_ns", "idle_ns", "collectives", "matched", "last", "caused_ns"),
            [(row.rank, row.source, row.device, row.steps, row.step_median_ns, row.exposure.span_ns, row.exposure.compute_ns,
              row.exposure.communication_ns, row.exposure.overlapped_ns, row.exposure.exposed_ns, row.exposure.waiting_ns,
              row.exposure.exposed_waiting_ns, row.exposure.copy_ns, row.exposure.idle_ns, row.collectives, row.matched, row.last,
              row.caused_ns) for row in ranks.ranks]),
        "rank_steps.csv": _text(("rank", "step", "step_ns"), [(row.rank, step, time) for row in ranks.ranks
                                                              for step, time in enumerate(row.step_ns)]),
        "collectives.csv": _text(
            ("kind", "group", "count", "aligned", "transfer_ns", "waiting_ns", "longest_wait_ns", "bytes", "last_rank", "last_count",
             "waited_count"),
            [(kind.kind, kind.group, kind.count, kind.aligned, kind.transfer_ns, kind.waiting_ns if kind.aligned else None,
              kind.longest_wait_ns if kind.aligned else None, kind.bytes, kind.last_rank, kind.last_count, kind.waited_count)
             for kind in ranks.kinds]),
        "waits_for.csv": _text(("rank", *(f"for_rank_{number}" for number in numbers)),
                               [(number, *row) for number, row in zip(numbers, ranks.waits_for, strict=True)]),
        "waits_by_step.csv": _text(("rank", *(f"step_{step}" for step in range(steps))),
                                   [(number, *row) for number, row in zip(numbers, ranks.waits_by_step, strict=True)]),
        "longest_waits.csv": _text(
            ("kind", "group", "step", "sequence", "last_rank", "waiting_rank", "longest_wait_ns", "transfer_ns", "bytes"),
            [(one.kind, one.group, one.step, one.sequence, one.last_rank, one.waiting_rank, one.longest_wait_ns, one.transfer_ns, one.bytes)
             for one in ranks.worst]),
    }


def _text(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """No cell that a spreadsheet would run as a formula; a name may hold anything. None: empty."""
    if not isinstance(value, str):
        return value
    text = plain(value, 400)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _view(row: RankRow) -> RankView:
    times = row.exposure

    def share(value: int) -> float:
        return 100.0 * value / times.span_ns if times.span_ns > 0 else 0.0

    return RankView(
        rank=row.rank, step_us=row.step_median_ns / 1000, compute_pct=share(times.compute_ns),
        communication_pct=share(times.communication_ns), exposed_pct=share(times.exposed_ns),
        waiting_pct=share(times.exposed_waiting_ns), idle_pct=share(times.idle_ns), last=row.last,
        caused_us=row.caused_ns / 1000 / max(1, row.steps))
