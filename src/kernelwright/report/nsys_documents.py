"""report.md of mode nsys: is the device busy, if not why, what overlaps, what could be launched at once. At most TOKEN_LIMIT tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ..diagnose.idle import recorded_steps
from ..model.profile import Finding, Profile
from ..model.structure import MemoryPeak
from .contract import TOKEN_LIMIT, token_count
from .figures import title
from .nsys_views import (
    busy,
    candidate_pct,
    cause_rows,
    function_name,
    fusions,
    graphs,
    launch_bound,
    missing_overlap,
    overlap_rows,
    pace,
    path_shares,
    synchronizations,
    transfers,
)
from .templates import render
from .text import Safe, cell, first_sentences, named


@dataclass(frozen=True)
class Room:
    """How much report.md shows: rows and the length of names and texts."""

    causes: int
    rows: int
    stages: int
    findings: int
    warnings: int
    name: int
    text: int


ROOMS = (Room(8, 4, 8, 4, 4, 48, 320), Room(8, 4, 7, 4, 4, 44, 200),
         Room(7, 4, 6, 4, 3, 36, 160), Room(6, 3, 5, 3, 3, 30, 120), Room(5, 2, 4, 3, 2, 24, 90),
         Room(4, 2, 3, 2, 2, 18, 60), Room(3, 1, 2, 1, 1, 12, 40))
"""Tried in this order until the report fits TOKEN_LIMIT; the last fits whatever the names are."""


def render_nsys_report(profile: Profile, files: Sequence[str] = ()) -> str:
    """report.md. files: names of what was written beside it."""
    text = ""
    for room in ROOMS:
        text = _report(profile, files, room)
        if token_count(text) <= TOKEN_LIMIT:
            break
    return text


def _report(profile: Profile, files: Sequence[str], room: Room) -> str:
    flow, timeline = profile.flow, profile.timeline
    causes = cause_rows(profile)
    syncs, syncs_left = synchronizations(profile, room.rows)
    walls = sorted(timeline.step_wall_ns) if timeline is not None else []
    stages = sorted(profile.stages, key=lambda stage: -stage.duration_ns)
    return render(
        "nsys_report.md.j2", profile=profile, title=named(title(profile), 2 * room.name), recording=profile.recording, room=room,
        steps=recorded_steps(profile), listed=max(1, timeline.steps) if timeline is not None else 1,
        wall_ns=median(walls) if walls else None, flow=flow, line=timeline,
        busy=busy(flow) if flow is not None and flow.devices else None,
        causes=[(row, cell(row.what, room.name)) for row in causes[:room.causes]], causes_left=causes[room.causes:],
        launch_bound=launch_bound(profile), overlaps=overlap_rows(flow)[:room.rows] if flow is not None else [],
        missing=missing_overlap(profile), syncs=[(row, cell(_sync_what(row.operators), room.name)) for row in syncs], syncs_left=syncs_left,
        corrected=timeline is not None and timeline.profiled_idle_share_pct is not None, transfers=transfers(profile, room.rows),
        stages=[(named(stage.name, room.name), stage) for stage in stages[:room.stages]], stages_left=stages[room.stages:],
        graphs=[(row, *candidate_pct(profile, row)) for row in graphs(profile, min(2, room.rows))],
        fusions=[(cell(" + ".join(function_name(name) for name in row.kernels), room.text), row)
                 for row in fusions(profile, min(2, room.rows))],
        pace=pace(profile), path=path_shares(profile, 5), peak=_peak(profile),
        root_cause=first_sentences(profile.bottleneck.root_cause, 2, 300),
        findings=_findings(profile, room), findings_left=max(0, len(profile.findings) - room.findings),
        warnings=_warnings(profile)[:room.warnings], warnings_left=max(0, len(_warnings(profile)) - room.warnings),
        files=[Safe(name) for name in files])


def _peak(profile: Profile) -> MemoryPeak | None:
    """The highest point of memory in the steps."""
    peaks = profile.structure.memory_peaks if profile.structure is not None else ()
    return next((peak for peak in peaks if peak.is_highest), None)


def _sync_what(operators: Sequence[str]) -> str:
    return operators[0] if operators else ""


def _findings(profile: Profile, room: Room) -> list[tuple[Finding, Safe]]:
    ranked = sorted(profile.findings, key=lambda finding: -finding.estimated_gain_pct)[:room.findings]
    return [(finding, cell(finding.detail, room.text)) for finding in ranked]


def _warnings(profile: Profile) -> list[str]:
    timing = profile.timing.warning if profile.timing is not None else None
    return [*([f"timing: {timing}"] if timing else []), *profile.warnings]
