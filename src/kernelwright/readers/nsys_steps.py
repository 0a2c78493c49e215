"""Which ranges of an Nsight Systems recording are its steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.errors import BadInput
from ..model.trace import STEP_NAME, StepsFrom
from .nsys_file import NsysFile
from .nsys_rows import Rows, joined, make_rows

_PROFILER_STEP = re.compile(r"^ProfilerStep#\d+$")
WHOLE = "whole recording"


@dataclass(frozen=True)
class Steps:
    """The steps in time order, none overlapping another."""

    rows: Rows
    source: StepsFrom

    @property
    def names(self) -> frozenset[str]:
        """Annotations of these names are steps and nothing else."""
        return frozenset() if self.source == "whole" else frozenset(self.rows.names[number] for number in np.unique(self.rows.name_id))


def named_like(rows: Rows, chosen: Callable[[str], bool]) -> Any:
    """Which rows have a chosen name; shape (n,), of truth values."""
    return np.array([chosen(name) for name in rows.names], dtype=bool)[rows.name_id] if len(rows) else np.zeros(0, dtype=bool)


def choose_steps(file: NsysFile, operators: Rows, annotations: Rows, free: Rows, work: Sequence[Rows], steps_range: str | None) -> Steps:
    """The ranges of that name; without one the probe's, torch.profiler's, or everything as one. Ranges without an end are no steps, of
    ranges that overlap the earlier counts, and where several processes have them those of the process that begins. work: device rows and
    API calls.

    Raises BadInput where no range has the name.
    """
    everything = joined([operators_like(operators), operators_like(annotations), operators_like(free)])
    if steps_range is not None:
        rows = _apart(everything, steps_range.__eq__)
        if not len(rows):
            raise BadInput("no_steps", f"the recording holds no finished NVTX range named {steps_range!r}", where=file.name,
                           fix="name one of its ranges (they are in Nsight Systems' NVTX rows), or leave the name out")
        return Steps(rows, "range")
    for chosen, source in _USUAL:
        rows = _apart(everything, chosen)
        if len(rows):
            return Steps(rows, source)
    return Steps(_whole(file, everything, work), "whole")


def operators_like(rows: Rows) -> Rows:
    """The rows with the one detail that steps need."""
    return Rows(rows.start, rows.end, rows.name_id, rows.names, rows.process, rows.thread, rows.correlation, rows.stream, rows.device,
                rows.opened, np.zeros(len(rows), dtype=np.int64), columns={"ended": rows.columns["ended"]})


_USUAL: tuple[tuple[Callable[[str], bool], StepsFrom], ...] = (
    (STEP_NAME.__eq__, "kernelwright"), (lambda name: _PROFILER_STEP.match(name) is not None, "ProfilerStep"))


def _apart(rows: Rows, chosen: Callable[[str], bool]) -> Rows:
    found = rows.take(named_like(rows, chosen) & (rows.columns["ended"] == 1))
    found = found.take(np.lexsort((-found.end, found.start)))
    found = found.take(found.process == found.process[:1])
    kept: list[int] = []
    reach = -(1 << 63)
    for place, (start, end) in enumerate(zip(found.start.tolist(), found.end.tolist(), strict=True)):
        if start >= reach and end > start:
            kept.append(place)
            reach = end
    return found.take(np.array(kept, dtype=np.int64))


def _whole(file: NsysFile, ranges: Rows, work: Sequence[Rows]) -> Rows:
    tables = [rows for rows in (*work, ranges) if len(rows)]
    start, end = min(int(rows.start.min()) for rows in tables), max(int(rows.end.max()) for rows in tables)
    # The step's own thread: the one with the most API calls, or else with the most ranges.
    busiest = next((rows for rows in (*reversed(work), ranges) if len(rows) and (rows.thread >= 0).any()), None)
    process = thread = -1
    if busiest is not None:
        pairs, counts = np.unique(np.stack((busiest.process, busiest.thread)), axis=1, return_counts=True)
        process, thread = (int(number) for number in pairs[:, int(np.argmax(counts))])
    one = [np.array([number], dtype=np.int64) for number in (start, max(end, start + 1), process, thread)]
    return make_rows(file, "steps", one[0], one[1], np.zeros(1, dtype=np.int64), (WHOLE,), process=one[2], thread=one[3])
