"""Timelines side by side: recordings (torch.profiler's, Nsight Systems') or profiles that hold one, each against the first.

For recordings the figures are the time of a step with its noise, the work in it, and how busy the device was; the gate holds the time of
a step. For profiles the figures and the gate are report/compare.py's, and what changed is shown below them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..attribute.cpu import OUTSIDE
from ..attribute.uses import breakdown
from ..model.measurement import Measurement
from ..model.profile import Kernel, Profile
from ..model.trace import Trace
from ..timeline.difference import Breakdown, Changed, Difference, Renamed, Use, difference, named_alike
from ..timeline.intervals import union_length
from ..timeline.pace import step_times
from ..timeline.steps import device_work
from ..timeline.summary import operator_intervals
from .compare import ChangeWord, Gate, gate_groups, letter
from .numbers import change_pct
from .templates import render

MOST_ROWS = 200
"""Of each list in the JSON answer; the document shows fewer."""
SHOWN = 12
"""Rows of each table of the document."""
WORTH_SHOWING = 0.001
"""Of the longer step's work: a smaller difference is left out of the document."""


@dataclass(frozen=True)
class Recorded:
    """One recording. Times in us; None: not known."""

    letter: str
    label: str
    recorder: str
    steps_from: str
    """What the steps are, as model.trace names it; "whole": there are none."""
    steps: int
    device: str
    rank: int | None
    step_us: float | None
    """Median time of a step; None without steps."""
    interval_us: tuple[float, float] | None
    """95%; None with fewer than five steps."""
    work_us: float
    """Device work of a step, all streams added (CPU: operators' self time)."""
    launches: float
    """A step."""
    busy_pct: float | None
    """Share of the steps' time in which the device (CPU: an operator) ran."""
    change: ChangeWord
    change_pct: float | None
    """Of the time of a step against A's; without steps None."""
    warning: str | None


@dataclass(frozen=True)
class Against:
    """What changed from A to one other. Each list is cut at MOST_ROWS, the largest difference first; `counts` tells of all."""

    letter: str
    before_us: float
    after_us: float
    change_pct: float | None
    """Of all work of a step."""
    operators: tuple[dict[str, Any], ...]
    families: tuple[dict[str, Any], ...]
    renamed: tuple[dict[str, Any], ...]
    kernels: tuple[dict[str, Any], ...]
    counts: dict[str, int]
    on_cpu: bool


@dataclass(frozen=True)
class TimelineComparison:
    """Everything that compare.py shows of recordings."""

    rows: tuple[Recorded, ...]
    against: tuple[Against, ...]
    warnings: tuple[str, ...]
    gate: Gate | None

    def as_dict(self) -> dict[str, Any]:
        """The JSON answer."""
        return asdict(self)


def compare_recordings(recordings: Sequence[tuple[str, Trace]], limit_pct: float | None = None) -> TimelineComparison:
    """Compare (label, trace) pairs with the first. Raises ValueError with fewer than two.

    limit_pct: a recording fails the gate when its step takes more than that longer than A's and the 95% intervals do not overlap; where one
    has no interval, the medians alone decide.
    """
    if len(recordings) < 2:
        raise ValueError("a comparison needs at least two recordings")
    times = [_timing(trace) for _, trace in recordings]
    parts = [breakdown(trace) for _, trace in recordings]
    rows = [_row(place, label, trace, times[place], parts[place], times[0], recordings[0][1])
            for place, (label, trace) in enumerate(recordings)]
    gate = None
    if limit_pct is not None:
        gate = Gate(limit_pct, tuple(row.letter for row, own in zip(rows[1:], times[1:], strict=True) if _fails(times[0], own, limit_pct)))
    against = tuple(_against(letter(place), parts[0], part, on_cpu=not recordings[0][1].is_cuda)
                    for place, part in enumerate(parts[1:], start=1) if recordings[0][1].is_cuda == recordings[place][1].is_cuda)
    return TimelineComparison(tuple(rows), against, _warnings(rows, [trace for _, trace in recordings], parts), gate)


def gate_refusal(first: Trace, other: Trace) -> str | None:
    """Why the time of a step can't be held against the first's; None when it can."""
    for trace in (first, other):
        if trace.steps_from == "whole":
            return f"{trace.source} has no steps, so nothing says how much work it recorded"
    return _mismatch(first, other)


def compare_documents(profiles: Sequence[Profile]) -> tuple[Against, ...]:
    """What changed from the first profile to each other one, by the timelines that they hold; empty where the first has none."""
    parts = [_of_profile(profile) for profile in profiles]
    first = parts[0]
    if first is None:
        return ()
    return tuple(_against(letter(place), first, part, on_cpu=profiles[0].capture_metadata.device == "cpu")
                 for place, part in enumerate(parts) if place and part is not None
                 and profiles[place].capture_metadata.device == profiles[0].capture_metadata.device)


def render_recordings(comparison: TimelineComparison) -> str:
    """The comparison of recordings as Markdown."""
    words = {"first": "-", "not comparable": "not comparable", "within noise": "within noise"}
    return render("compare_recordings.md.j2", rows=comparison.rows, warnings=comparison.warnings, gate=comparison.gate,
                  gated=gate_groups(comparison.gate, comparison.rows), words=words) + render_changes(comparison.against)


def render_changes(against: Sequence[Against]) -> str:
    """What changed, as Markdown; "" where there is nothing to say."""
    return "".join("\n" + render("compare_changes.md.j2", part=part, tables=_tables(part), renamed=part.renamed[:SHOWN],
                                 renamed_left=part.counts["renamed"] - min(SHOWN, len(part.renamed))) for part in against)


def _tables(part: Against) -> list[dict[str, Any]]:
    """The tables of the document: rows that differ, and how many of them are not shown."""
    least = WORTH_SHOWING * max(part.before_us, part.after_us)
    tables = []
    for title, rows in (("Operator", part.operators), ("Kernel family", part.families), ("Kernel", () if part.on_cpu else part.kernels)):
        different = [row for row in rows if row["state"] in ("appeared", "vanished")
                     or (row["state"] != "same" and abs(row["change_us"]) >= least)]
        tables.append({"title": title, "rows": different[:SHOWN], "left": max(0, len(different) - SHOWN)})
    return [table for table in tables if table["rows"]]


def _timing(trace: Trace) -> Measurement | None:
    if trace.steps_from == "whole":
        return None
    return Measurement.of([float(time) for time in step_times(trace).tolist()], timer="timeline", evidence="timeline")


def _row(place: int, label: str, trace: Trace, own: Measurement | None, part: Breakdown, first: Measurement | None,
         first_trace: Trace) -> Recorded:
    change = change_pct(first.median_ns, own.median_ns) if place and first is not None and own is not None else None
    between = own.interval_ns if own is not None else None
    return Recorded(
        letter=letter(place), label=label, recorder=trace.recorder, steps_from=trace.steps_from, steps=len(trace.steps),
        device=_device(trace), rank=trace.rank, step_us=own.median_ns / 1000 if own is not None else None,
        interval_us=(between[0] / 1000, between[1] / 1000) if between is not None else None,
        work_us=sum(use.total_ns for use in part.uses) / part.steps / 1000, launches=sum(use.count for use in part.uses) / part.steps,
        busy_pct=_busy_pct(trace), change="first" if place == 0 else _word(first_trace, trace, first, own, change), change_pct=change,
        warning=own.warning if own is not None else None)


def _word(first_trace: Trace, trace: Trace, first: Measurement | None, own: Measurement | None, change: float | None) -> ChangeWord:
    if first is None or own is None or change is None or _mismatch(first_trace, trace) is not None:
        return "not comparable"
    apart = _apart(first, own)
    if apart is None:
        return "no interval"
    return "within noise" if not apart else "slower" if change > 0 else "faster"


def _apart(first: Measurement, own: Measurement) -> bool | None:
    a, b = first.interval_ns, own.interval_ns
    return None if a is None or b is None else a[1] < b[0] or b[1] < a[0]


def _fails(first: Measurement | None, own: Measurement | None, limit_pct: float) -> bool:
    change = change_pct(first.median_ns, own.median_ns) if first is not None and own is not None else None
    return change is not None and first is not None and own is not None and change > limit_pct and _apart(first, own) is not False


def _device(trace: Trace) -> str:
    return ", ".join(dict.fromkeys(name for name in trace.device_names if name)) if trace.is_cuda else "CPU"


def _mismatch(first: Trace, other: Trace) -> str | None:
    if first.is_cuda != other.is_cuda:
        return "one recording has device work, the other has none"
    a, b = _device(first), _device(other)
    if a and b and a != b:
        return f"{other.source} was recorded on {b}, {first.source} on {a}"
    return None


def _busy_pct(trace: Trace) -> float | None:
    whole = int(step_times(trace).sum())
    if trace.is_cuda:
        rows = device_work(trace).rows
        busy = union_length(np.maximum(trace.device.start_ns[rows], int(trace.steps.start_ns.min())), trace.device.end_ns[rows])
    else:
        _, starts, ends = operator_intervals(trace)
        busy = union_length(starts, ends)
    return min(100.0, 100.0 * busy / whole) if whole > 0 else None


def _warnings(rows: Sequence[Recorded], traces: Sequence[Trace], parts: Sequence[Breakdown]) -> tuple[str, ...]:
    found = []
    for row, trace, part in zip(rows, traces, parts, strict=True):
        reason = _mismatch(traces[0], trace)
        if reason:
            found.append(f"{row.letter} is not comparable with A: {reason}")
        if trace.steps_from == "whole":
            found.append(f"{row.letter} has no steps: its figures are those of the whole recording")
        if row.warning:
            found.append(f"{row.letter}: {row.warning}")
        if row.recorder != rows[0].recorder:
            found.append(f"{row.letter} was recorded by {row.recorder}, A by {rows[0].recorder}: each slows the host in its own way")
        if part.has_shapes != parts[0].has_shapes:
            found.append(f"only one of A and {row.letter} holds input shapes: renamed kernels are matched by operator alone")
        if trace.rank != traces[0].rank and trace.rank is not None and traces[0].rank is not None:
            found.append(f"{row.letter} is of rank {trace.rank}, A of rank {traces[0].rank}")
    return tuple(found)


def _of_profile(profile: Profile) -> Breakdown | None:
    """The uses of a stored profile's steps; None where it holds no timeline."""
    if profile.timeline is None or not profile.operators or not profile.timeline.steps:
        return None
    steps = profile.timeline.steps
    cells: dict[tuple[str, tuple[tuple[int, ...], ...], str], list[int]] = {}
    counts: dict[tuple[str, tuple[tuple[int, ...], ...], str], int] = {}

    def add(operator: str, shapes: tuple[tuple[int, ...], ...], kernel: Kernel, step: int | None) -> None:
        key = (named_alike(operator), shapes, kernel.kernel_name)
        times = cells.setdefault(key, [0] * (steps + 1))
        times[step if step is not None and 0 <= step < steps else steps] += kernel.duration_ns
        counts[key] = counts.get(key, 0) + 1

    for operator in profile.operators:
        for kernel in operator.kernels:
            add(operator.operator_name, operator.input_shapes, kernel, operator.step)
    for kernel in profile.unattributed_kernels:
        if kernel.kernel_name != OUTSIDE:
            add("", (), kernel, None)
    uses = tuple(Use(*key, sum(times), counts[key]) for key, times in cells.items())
    table = np.array(list(cells.values()), dtype=np.int64).reshape(len(cells), steps + 1)
    by_step = np.where(table[:, -1:] > 0, -1, table[:, :-1])  # work that is in no known step: its scatter is not known
    return Breakdown(uses, steps, by_step, any(use.shapes for use in uses))


def _against(name: str, before: Breakdown, after: Breakdown, *, on_cpu: bool) -> Against:
    found: Difference = difference(before, after)
    return Against(
        letter=name, before_us=found.before_ns / 1000, after_us=found.after_ns / 1000, change_pct=found.change_pct,
        operators=_cut(found.operators), families=_cut(found.families), renamed=tuple(map(_renamed, found.renamed[:MOST_ROWS])),
        kernels=_cut(found.kernels), on_cpu=on_cpu,
        counts={"operators": len(found.operators), "families": len(found.families), "renamed": len(found.renamed),
                "kernels": len(found.kernels)})


def _cut(rows: Sequence[Changed]) -> tuple[dict[str, Any], ...]:
    return tuple(map(_changed, rows[:MOST_ROWS]))


def _us(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / 1000


def _changed(row: Changed) -> dict[str, Any]:
    return {"name": row.name, "state": row.state, "sure": row.sure, "before_us": _us(row.before_ns), "after_us": _us(row.after_ns),
            "change_us": row.change_ns / 1000, "change_pct": row.change_pct, "before_count": row.before_count,
            "after_count": row.after_count}


def _renamed(row: Renamed) -> dict[str, Any]:
    return {"operator": row.operator, "shapes": [list(shape) for shape in row.shapes], "before": row.before, "after": row.after,
            "matched_by": row.matched_by, "before_us": row.before_ns / 1000, "after_us": row.after_ns / 1000, "change_pct": row.change_pct,
            "before_count": row.before_count, "after_count": row.after_count}


def label_of(named: str, trace: Trace) -> str:
    """How a recording is called in tables: as the user named it, with its rank."""
    return f"{named} (rank {trace.rank})" if trace.rank is not None else named
