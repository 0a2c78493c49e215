"""The timeline engine's answers as a part of a profile of mode nsys: how the steps flowed, what their work is made of."""

from __future__ import annotations

from functools import cached_property

from ..attribute import Attributed
from ..attribute.moments import Moments
from ..model.base import Figure
from ..model.profile import Profile
from ..model.structure import HostLink
from ..model.trace import Trace
from ..roofline.knowledge import datasheet
from ..roofline.peaks import binding_peaks
from ..timeline.causes import TableName
from ..timeline.flow import flow
from ..timeline.names import is_compiler, is_loader
from ..timeline.structure import structure
from .recorded import Recorded

LENGTHENED = "the recorder lengthens gaps, and what a call takes without it is not known here: idle shares and gains are of recorded steps"


def with_engine(profile: Profile, recorded: Recorded, attributed: Attributed) -> Profile:
    """The profile with recording, flow and structure. The trace is the whole one, also where operators are those of its beginning."""
    trace = recorded.trace_whole
    lines = Lines(recorded, attributed)
    flowed = flow(trace, line_of=lines.line_of) if trace.is_cuda else None
    made = structure(trace, operators=profile.operators, peak=_peak(profile), links=_links(trace), found=recorded.found)
    return profile.model_copy(update={
        "recording": recorded.recording, "flow": flowed, "structure": made, "warnings": _lengthened(profile, trace) + profile.warnings,
        "evidence": {**profile.evidence, "flow": "timeline", "structure": "timeline"}})


def _lengthened(profile: Profile, trace: Trace) -> tuple[str, ...]:
    known = profile.timeline is not None and profile.timeline.profiled_idle_share_pct is not None
    return () if known or not trace.is_cuda else (LENGTHENED,)


class Lines:
    """The user's lines of events of a trace."""

    def __init__(self, recorded: Recorded, attributed: Attributed) -> None:
        self._places = attributed.places
        self._trace = recorded.trace
        self._calls: dict[str, dict[int, str]] = {}
        self._moments = Moments(recorded.trace, recorded.stacks, recorded.lines)

    def line_of(self, table: TableName, row: int) -> str | None:
        """Line of one event, "file.py:12"; None where it is not known."""
        if row >= len(getattr(self._trace, table)):  # beyond the part that operators were attributed in
            return None
        if table == "operators":
            return self._places.of(row).source
        if table == "runtime":
            return self._places.of_runtime(row).source or self._of_call(row)
        return self._ranges.get(row) if table == "ranges" else None

    def _of_call(self, row: int) -> str | None:
        """Line of a call outside any operator, such as torch.cuda.empty_cache()'s cudaFree: that of its twin in the step with stacks."""
        name = self._trace.runtime.name(row)
        if name not in self._calls:
            self._calls[name] = self._moments.lines(lambda trace: trace.runtime, name.__eq__)
        return self._calls[name].get(row)

    @cached_property
    def _ranges(self) -> dict[int, str]:
        return {row: line for chosen in (is_loader, is_compiler)
                for row, line in self._moments.lines(lambda trace: trace.ranges, chosen).items()}


def _links(trace: Trace) -> dict[str, HostLink]:
    """Device name -> its link to the host, where the datasheet prints one."""
    links = {}
    for name in dict.fromkeys(trace.device_names):
        sheet = datasheet(name)
        if sheet is not None and sheet.host_link is not None and sheet.host_gbs is not None:
            links[name] = HostLink(name=sheet.host_link, bandwidth=Figure(
                value=sheet.host_gbs, unit="GB/s", evidence="datasheet", source=f"{sheet.source}, {sheet.url}"))
    return links


def _peak(profile: Profile) -> Figure | None:
    return binding_peaks(profile.roofline)[0] if profile.roofline is not None else None

