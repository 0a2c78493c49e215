"""`timeline.html`: the timeline of one recording, or of several ranks, as one page that works offline and loads nothing.

Names are hostile text. They reach the page in one JSON block in which no "<" stands, are drawn or set as text alone, and the page's
policy lets nothing run but its one script, by its hash, and nothing load at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from ..model.files import write_text_atomic
from ..model.flow import Flow
from ..model.profile import Operator
from ..model.resources import resource
from ..model.table import Int64
from ..model.trace import Trace
from ..timeline.gaps import GapTable
from .text import plain
from .timeline_events import WITH_DETAILS, Details, Kinds, Recording, Source
from .timeline_lanes import MOST_EVENTS, Placed, place

__all__ = ["Recording", "write_ranks_html", "write_timeline_html"]

_COLUMNS = ("start_high", "start", "length_high", "length", "busy_high", "busy", "kind", "count", "detail", "launch")
"""int32 each, one after the other. start: from the entry before in its row (the first: from the base); busy: 0 for a single event; launch:
1 + the entry of the call that launched it, 0 for none."""


def write_timeline_html(
    path: Path, trace: Trace, *, operators: Sequence[Operator] | None = None, flow: Flow | None = None, gaps: GapTable | None = None,
    title: str,
) -> None:
    """One recording's page; what the arguments are, Recording says. Raises NotWritable."""
    write_ranks_html(path, [Recording(trace, operators, flow, gaps)], title=title)


def write_ranks_html(path: Path, recordings: Sequence[Recording], *, title: str, most: int = MOST_EVENTS) -> None:
    """A page of several recordings, one group of lanes each, on one axis: 0 is each one's first step. Raises NotWritable.

    most: events that are drawn one by one; the shortest of more are merged into blocks, which the page says.
    """
    write_text_atomic(path, render_page(recordings, title=title, most=most))


def render_page(recordings: Sequence[Recording], *, title: str, most: int = MOST_EVENTS) -> str:
    """The page's text."""
    head = plain(title, 120)
    script, style = _file("timeline.js"), _file("timeline.css")
    return _environment().get_template("timeline.html.j2").render(
        title=head, data=_embedded(page_data(recordings, title=head, most=most)), script=script, style=style,
        script_hash=_hash(script), style_hash=_hash(style))


def page_data(recordings: Sequence[Recording], *, title: str, most: int = MOST_EVENTS) -> dict[str, Any]:
    """What the page is given: names, kinds with totals, lanes, details, and the columns of all entries, packed."""
    kinds, details = Kinds(), Details()
    sources = [Source(recording, number, _group(recording.trace, number, len(recordings)), kinds)
               for number, recording in enumerate(recordings)]
    placed, merged_ns = place([lane for source in sources for lane in source.lanes], most)
    base = min((int(one.start_ns.min()) for one in placed), default=0)
    columns = [np.concatenate(parts) for parts in zip(*_columns(sources, placed, details, base), strict=True)]
    return {
        "title": title, "base": base, "names": kinds.words.list, "notes": _notes(sources, placed, merged_ns, kinds, details),
        "kinds": [[category, name, owner, *total] for (category, name, owner), total in zip(kinds.rows, kinds.totals, strict=True)],
        "details": details.list,
        "steps": [[int(start), int(end)] for source in sources[:1]
                  for start, end in zip(source.trace.steps.start_ns[:1000], source.trace.steps.end_ns[:1000], strict=True)],
        "lanes": [{"group": one.lane.group, "label": one.lane.label, "kind": one.lane.kind, "rows": one.rows} for one in placed],
        "columns": _COLUMNS, "entries": int(columns[0].size) if columns else 0,
        "packed": base64.b64encode(zlib.compress(b"".join(_int32(column) for column in columns), 6)).decode("ascii")}


def _columns(sources: Sequence[Source], placed: Sequence[Placed], details: Details, base: int) -> list[tuple[Int64, ...]]:
    """Each lane's columns, in the order of _COLUMNS."""
    calls = _call_entries(sources, placed)
    made: list[tuple[Int64, ...]] = []
    for one in placed:
        source, lane = sources[one.lane.recording], one.lane
        starts = np.diff(one.start_ns, prepend=base)
        firsts = np.cumsum((0, *one.rows[:-1]))
        starts[firsts] = one.start_ns[firsts] - base
        lengths = one.end_ns - one.start_ns
        busy = np.where(one.count > 1, one.busy_ns, 0)
        rows = lane.table_row[one.event]
        launch = np.zeros(rows.size, dtype=np.int64)
        if lane.kind == "device":
            call = source.launched.call[rows]
            launch = np.where((call >= 0) & (one.count == 1), calls[lane.recording][call] + 1, 0)
        detail = np.zeros(rows.size, dtype=np.int64)
        if lane.kind in WITH_DETAILS:
            single = np.flatnonzero(one.count == 1)
            detail[single] = [details.place(source.detail(lane.kind, row)) for row in rows[single].tolist()]
        made.append((starts >> 32, starts, lengths >> 32, lengths, busy >> 32, busy, one.kind_id, one.count, detail, launch))
    return made


def _call_entries(sources: Sequence[Source], placed: Sequence[Placed]) -> list[Int64]:
    """By recording: entry of each runtime call that is drawn by itself, -1 for others; one more entry (-1) for row -1."""
    entries = [np.full(len(source.trace.runtime) + 1, -1, dtype=np.int64) for source in sources]
    first = 0
    for one in placed:
        if one.lane.kind == "runtime":
            single = np.flatnonzero(one.count == 1)
            entries[one.lane.recording][one.lane.table_row[one.event[single]]] = first + single
        first += one.count.size
    return entries


def _notes(sources: Sequence[Source], placed: Sequence[Placed], merged_ns: int, kinds: Kinds, details: Details) -> list[str]:
    """What the page does not show, and whose clock it is."""
    notes = []
    if merged_ns >= 0:
        blocks = sum(int((one.count > 1).sum()) for one in placed)
        events = sum(int(one.count[one.count > 1].sum()) for one in placed)
        notes.append(f"{events:,} short events (none above {merged_ns / 1e3:,.3f} µs) are merged into {blocks:,} blocks, hatched, with "
                     "their number and summed time; totals count every event.")
    for count, words in ((sum(one.deeper for one in placed), "events are nested too deep to be shown"),
                         (sum(source.left_lanes for source in sources), "threads or streams with the fewest events are left out"),
                         (kinds.words.left, f"names beyond the first are called {kinds.words.list[0]}"),
                         (details.left, "events are shown without their details")):
        if count:
            notes.append(f"{count:,} {words}.")
    if len(sources) > 1:
        notes.append("0 is the start of each rank's own first step.")
    notes += [f"{source.group}: {source.gaps.left:,} gaps, the shortest, are not drawn." for source in sources if source.gaps.left]
    return notes


def _group(trace: Trace, number: int, count: int) -> str:
    rank = trace.rank if trace.rank is not None else number if count > 1 else None
    name = plain(trace.device_names[0], 60) if trace.device_names else ""
    return " · ".join(part for part in (f"rank {rank}" if rank is not None else "", name, trace.recorder) if part)


def _int32(column: Int64) -> bytes:
    """The low 32 bits, little-endian."""
    return (column & 0xFFFFFFFF).astype("<u4").tobytes()


def _embedded(data: dict[str, Any]) -> str:
    """JSON in which no tag, comment or entity can begin."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _file(name: str) -> str:
    return resource(f"templates/{name}").read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    return jinja2.Environment(loader=jinja2.FileSystemLoader(str(resource("templates"))), undefined=jinja2.StrictUndefined, autoescape=True)
