"""The output contract: one page of fixed form that an agent reads after every profile (docs/contract.md)."""

from __future__ import annotations

from dataclasses import dataclass

from ..diagnose.bottleneck import binding_roof
from ..model.profile import Finding, Profile, Stage
from .baseline import baseline_rows
from .figures import configuration, headline, title
from .numbers import gain, pct, two, us, usable
from .templates import render
from .text import NA, Safe, cell, first_sentences, named

CHARACTERS_A_TOKEN = 4
TOKEN_LIMIT = 1500
"""The contract stays under this many tokens, however large the workload."""


@dataclass(frozen=True)
class Room:
    """How much of a workload is shown: rows, columns and the length of names."""

    stages: int
    columns: int
    name: int
    root_cause: int


ROOMS = (Room(12, 24, 60, 400), Room(10, 20, 40, 320), Room(8, 14, 28, 280), Room(5, 8, 20, 200), Room(3, 5, 12, 120))
"""Tried in this order until the contract fits; the last fits whatever the names are (tests/golden/test_contract.py)."""


@dataclass(frozen=True)
class StageRow:
    """One row of the stage table, already written."""

    name: Safe
    duration: str
    tc: str
    dram: str
    occupancy: str
    bottleneck: str
    issue: Safe


@dataclass(frozen=True)
class Opportunity:
    """One line of the opportunities, already written."""

    name: Safe
    gain: str
    trigger: Safe


def token_count(text: str) -> int:
    """A token is counted as four characters, rounded up."""
    return -(-len(text) // CHARACTERS_A_TOKEN)


def render_contract(profile: Profile, baseline: Profile | None = None) -> str:
    """The contract of one profile, under TOKEN_LIMIT tokens; `vs Baseline` only with a baseline."""
    text = ""
    for room in ROOMS:
        text = _render(profile, baseline, room)
        if token_count(text) < TOKEN_LIMIT:
            break
    return text


def _render(profile: Profile, baseline: Profile | None, room: Room) -> str:
    kind = profile.bottleneck.kind
    rows, left = stage_rows(profile, room)
    return render(
        "contract.md.j2",
        title=named(title(profile), 2 * room.name),
        configuration=_configuration(profile, room),
        stages=rows, left=left,
        bottleneck=f"{kind}-bound" if kind else NA,
        root_cause=named(first_sentences(profile.bottleneck.root_cause, 2, room.root_cause), room.root_cause),
        whole_call=None if profile.stages else _whole_call(profile, room),
        opportunities=opportunities(profile, room), distance=_distance(profile),
        comparison=baseline_rows(profile, baseline) if baseline is not None else [],
    )


def _configuration(profile: Profile, room: Room) -> list[tuple[Safe, Safe]]:
    pairs = configuration(profile)
    shown = pairs if len(pairs) <= room.columns else pairs[: room.columns - 1]
    cells = [(named(name, room.name), named(value, room.name)) for name, value in shown]
    if len(shown) < len(pairs):
        cells.append((cell("..."), cell(f"{len(pairs) - len(shown)} more")))
    return cells


def stage_rows(profile: Profile, room: Room = ROOMS[0]) -> tuple[list[StageRow], list[Stage]]:
    """The heaviest stages, written, and the stages that are left for one summed row. Empty without stages."""
    ordered = sorted(profile.stages, key=lambda stage: -stage.duration_ns)
    kept = len(ordered) if len(ordered) <= room.stages else room.stages - 1
    return [_row(stage, room) for stage in ordered[:kept]], ordered[kept:]


def _row(stage: Stage, room: Room) -> StageRow:
    issue = stage.key_issue or ("none" if stage.bottleneck else NA)
    return StageRow(named(stage.name, room.name), us(stage.duration_ns), pct(stage.tc_pct), pct(stage.dram_pct),
                    pct(stage.occupancy_pct), stage.bottleneck or NA, named(issue, room.name))


def _whole_call(profile: Profile, room: Room) -> StageRow:
    """The one row of a profile without stages (event mode); its name is the template's."""
    figures = headline(profile)
    issue = profile.findings[0].name if profile.findings else NA
    return StageRow(cell(""), us(figures.duration_ns), pct(figures.tc_pct), pct(figures.dram_pct),
                    pct(figures.occupancy_pct), profile.bottleneck.kind or NA, named(issue, room.name))


def opportunities(profile: Profile, room: Room = ROOMS[0]) -> list[Opportunity]:
    """The three findings of the largest estimated gain, written."""
    ranked = sorted(profile.findings, key=lambda finding: -finding.estimated_gain_pct)[:3]
    return [_opportunity(finding, room) for finding in ranked]


def _opportunity(finding: Finding, room: Room) -> Opportunity:
    metric, _, value = finding.trigger.partition("=")
    if not value.strip():
        metric, value = finding.rule, finding.trigger
    trigger = Safe(f"{_field(metric, 3 * room.name // 2)}={_field(value, room.name // 2)}")
    return Opportunity(_field(finding.name, 2 * room.name), gain(finding.estimated_gain_pct), trigger)


def _field(text: str, limit: int) -> Safe:
    """An em dash parts the fields of an opportunity, so none may stand inside one."""
    return named(text.replace("—", "-"), limit)


def _distance(profile: Profile) -> Opportunity:
    """100% minus the share of the binding roof that the call reaches; n/a where it is not known which roof binds, or no work is.

    Stands in where there is no finding; its name is the template's.
    """
    work = profile.work
    found = binding_roof(usable(work.compute_pct), usable(work.bandwidth_pct)) if work else None
    if found is None:
        return Opportunity(cell(""), NA, cell(f"roof_share={NA}"))
    share, roof = found
    metric = "compute_pct" if roof == "compute" else "bandwidth_pct"
    return Opportunity(cell(""), gain(100 - share), cell(f"{metric}={two(share) if share < 1 else pct(share)}%"))
