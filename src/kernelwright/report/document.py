"""report.md: one profile for people, at most about 180 lines, with the evidence of every figure."""

from __future__ import annotations

from dataclasses import replace

from ..attribute.inductor import is_compiled_region
from ..diagnose.common import stage_stretch
from ..model.profile import Profile
from ..roofline.peaks import binding_peaks
from .compiled import compiled_section
from .contract import ROOMS, stage_rows
from .figures import configuration, title
from .hotspots import hotspots
from .memory import memory_views
from .roofline import ceiling_rows, point_rows
from .stacks import stack_rows
from .templates import render
from .text import Safe, cell, first_sentences
from .top import render_top

MOST_STAGES = 20
MOST_KERNELS = 15
MOST_STACKS = 6
MOST_ROWS = 10
"""Findings, undecided rules and warnings: the first of each; profile.json has them all."""
MOST_PARAMETERS = 24


def render_report(profile: Profile, *, picture: str | None = None, no_picture: str | None = None) -> str:
    """report.md of one profile. picture: file name of the roofline beside it; no_picture: why it could not be drawn."""
    rows, left = stage_rows(profile, replace(ROOMS[0], stages=MOST_STAGES))
    shown = sorted(profile.stages, key=lambda stage: -stage.duration_ns)[: len(rows)]
    kernels, kernels_left = hotspots(profile, MOST_KERNELS)
    stacks, stacks_left_pct = stack_rows(profile, MOST_STACKS)
    line, work, roof, meta = profile.timeline, profile.work, profile.roofline, profile.capture_metadata
    walls = sorted(line.step_wall_ns) if line else []
    ceilings = binding_peaks(roof) if roof else (None, None)
    shares = [] if work is None else [
        ("Share of peak compute", work.compute_pct, work.achieved_compute, ceilings[0]),
        ("Share of peak bandwidth", work.bandwidth_pct, work.achieved_bandwidth, ceilings[1])]
    return render(
        "report.md.j2", profile=profile, title=cell(title(profile), 120), configuration=_configuration(profile),
        root_cause=first_sentences(profile.bottleneck.root_cause), shares=shares,
        ceilings=ceiling_rows(profile), roofline_rows=point_rows(profile), picture=Safe(picture) if picture else None,
        no_picture=no_picture,
        stages=list(zip(rows, shown, strict=True)), left=left, stretch=stage_stretch(profile),
        has_counters=any(value is not None for s in profile.stages for value in (s.tc_pct, s.dram_pct, s.occupancy_pct)),
        step_wall_ns=walls[len(walls) // 2] if walls else None,
        attributed_pct=100 * line.attributed_ns / line.measured_ns if line and line.measured_ns else None,
        kernels=kernels, kernels_left=kernels_left, compiled=compiled_section(profile),
        stacks=stacks, stacks_left_pct=stacks_left_pct, memory=memory_views(profile),
        definitions=sum(operator.source_kind == "definition" for operator in profile.operators),
        findings=sorted(profile.findings, key=lambda finding: -finding.estimated_gain_pct)[:MOST_ROWS],
        findings_left=max(0, len(profile.findings) - MOST_ROWS), most=MOST_ROWS, undecided=_undecided(profile),
        compiles_itself=meta.compile_mode == "eager" and any(is_compiled_region(operator.operator_name) for operator in profile.operators),
        script=profile.script, top_table=Safe(render_top(profile)) if profile.script is not None else "",
    )


def _undecided(profile: Profile) -> list[tuple[str, str]]:
    """(rules, reason), one row a reason."""
    by_reason: dict[str, list[str]] = {}
    for entry in profile.abstained:
        by_reason.setdefault(entry.reason, []).append(entry.name)
    return [(", ".join(names), reason) for reason, names in by_reason.items()][:MOST_ROWS]


def _configuration(profile: Profile) -> Safe:
    pairs = configuration(profile)
    shown = [f"{name}={value}" for name, value in pairs[:MOST_PARAMETERS]]
    if len(pairs) > MOST_PARAMETERS:
        shown.append(f"{len(pairs) - MOST_PARAMETERS} more")
    return cell(", ".join(shown), 400)
