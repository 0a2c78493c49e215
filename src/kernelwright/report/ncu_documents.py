"""report.md and report-verbose.md of mode ncu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..model.profile import Profile
from ..pipeline.ncu_profile import all_launches
from ..pipeline.ncu_rules import RankedRule, groups, metric_label, ranked_rules
from ..readers.ncu_records import KernelDetails, NcuDetails, Rule
from ..roofline.ncu_knowledge import ncu_knowledge
from .contract import TOKEN_LIMIT, token_count
from .figures import title
from .ncu_views import Hot, KernelRow, dominant_stall, hottest, kernel_rows, stall_totals, stall_words
from .numbers import quantity
from .templates import render
from .text import Safe, cell, code, first_sentences, named

HOTTEST = 10
MOST_VERBOSE_KERNELS = 64
MOST_VERBOSE_LINES = 40
MOST_VERBOSE_LAUNCHES = 500
MOST_SECTION_ROWS = 400
MOST_METRIC = 200
"""Longer than any counter's name: one that is cut can be asked of no tool."""


@dataclass(frozen=True)
class Room:
    """How much report.md shows: rows and the length of names and texts."""

    kernels: int
    rules: int
    lines: int
    name: int
    text: int


ROOMS = (Room(6, 8, HOTTEST, 36, 56), Room(5, 7, HOTTEST, 30, 44), Room(4, 6, HOTTEST, 24, 34), Room(3, 5, HOTTEST, 18, 22),
         Room(2, 3, HOTTEST, 12, 12), Room(1, 2, 5, 8, 8))
"""Tried in this order until the report fits TOKEN_LIMIT."""


@dataclass(frozen=True)
class RuleRow:
    """One rule of ncu in report.md."""

    action: str
    kernel: str
    estimate: float | None
    scope: str
    gain_pct: float | None
    sign: Safe
    note: str


def render_ncu_report(profile: Profile, reports: Sequence[NcuDetails], folders: Mapping[str, str]) -> str:
    """report.md: the diagnosis, ncu's rules by estimated speed-up, the hottest lines. At most TOKEN_LIMIT tokens.

    folders: kernel -> the folder or file name of its code below annotated/ and sass/.
    """
    launches = all_launches(reports)
    rows, rules, hot = kernel_rows(launches), ranked_rules(launches), hottest(launches, HOTTEST)
    text = ""
    for room in ROOMS:
        text = _report(profile, reports, rows, rules, hot, room, folders)
        if token_count(text) <= TOKEN_LIMIT:
            break
    return text


def _report(profile: Profile, reports: Sequence[NcuDetails], rows: Sequence[KernelRow], rules: Sequence[RankedRule], hot: Sequence[Hot],
            room: Room, folders: Mapping[str, str]) -> str:
    launches = all_launches(reports)
    ranks = {row.name: row.rank for row in rows}
    return render(
        "ncu_report.md.j2", title=named(title(profile), 2 * room.name), profile=profile, tool=reports[0].tool, launches=len(launches),
        reports=len(reports), passes=_passes(launches), root_cause=first_sentences(profile.bottleneck.root_cause, 2, 400),
        kernels=[(named(row.name, room.name), row) for row in rows[:room.kernels]], kernels_left=max(0, len(rows) - room.kernels),
        rules=[_rule_row(rule, ranks[rule.kernel], room) for rule in rules[:room.rules]], rules_left=max(0, len(rules) - room.rules),
        hot=[(named(one.where, room.name), named(f"{ranks[one.kernel]} {one.kernel}", room.name), one, code(one.text, room.text))
             for one in hot[:room.lines]],
        stalls=_stall_meanings(hot), sampled=bool(hot), has_code=bool(folders), warnings=profile.warnings[:2])


def _rule_row(one: RankedRule, rank: int, room: Room) -> RuleRow:
    focus = one.rule.focus[0] if one.rule.focus else None
    sign = named(f"{metric_label(focus[0])} {quantity(focus[1], one.launch.units.get(focus[0], ''))}", MOST_METRIC) if focus else cell("-")
    return RuleRow(action=named(one.action, 40), kernel=named(f"{rank} {one.kernel}", room.name), estimate=one.rule.speedup_pct,
                   scope=one.rule.scope or "", gain_pct=one.gain_pct, sign=sign, note=f"only for {one.needs}" if one.needs else "")


def _passes(launches: Sequence[KernelDetails]) -> int | None:
    found = [kernel.metrics["profiler__replayer_passes"] for kernel in launches if "profiler__replayer_passes" in kernel.metrics]
    return int(max(found)) if found else None


def _stall_meanings(hot: Sequence[Hot]) -> list[tuple[str, str]]:
    """The stall reasons that the hot lines name, in plain words."""
    named_there = {part.split(" ")[0] for one in hot for part in one.stalls.split(", ") if part}
    return [(reason, words) for reason, words in ncu_knowledge().stalls.items() if reason in named_there]


@dataclass(frozen=True)
class VerboseKernel:
    """One kernel in report-verbose.md."""

    launch: KernelDetails
    name: Safe
    count: int
    stalls: str
    dominant: str
    sections: list[tuple[Safe, list[tuple[Safe, Safe, Safe]]]]
    rules: list[tuple[Safe, Rule]]
    hot: list[Hot]


def render_ncu_verbose(profile: Profile, reports: Sequence[NcuDetails]) -> str:
    """report-verbose.md: every kernel with its launches, all rules with their whole text, all metrics of all sections."""
    launches = all_launches(reports)
    held = groups(launches)
    kernels = [_verbose(name, some) for name, some in list(held.items())[:MOST_VERBOSE_KERNELS]]
    return render("ncu_verbose.md.j2", title=named(title(profile), 120), profile=profile, reports=reports, kernels=kernels,
                  kernels_left=max(0, len(held) - MOST_VERBOSE_KERNELS), launches=launches[:MOST_VERBOSE_LAUNCHES],
                  launches_left=max(0, len(launches) - MOST_VERBOSE_LAUNCHES), stall_meanings=list(ncu_knowledge().stalls.items()))


def _verbose(name: str, some: Sequence[KernelDetails]) -> VerboseKernel:
    launch = next((kernel for kernel in some if kernel.instructions), some[0])
    totals = stall_totals(launch)
    reason = dominant_stall(totals)
    return VerboseKernel(
        launch=launch, name=named(name, 120), count=len(some), stalls=stall_words(totals, 6), dominant=reason or "",
        sections=_section_tables(launch), rules=[(cell(rule.message, 3000), rule) for rule in launch.rules],
        hot=hottest([launch], MOST_VERBOSE_LINES))


def _section_tables(launch: KernelDetails) -> list[tuple[Safe, list[tuple[Safe, Safe, Safe]]]]:
    """(section, [(label, value, metric name)]); a capture without sections (ncu --metrics) has one table of all but the machine's own."""
    tables = []
    for section in launch.sections:
        rows = [(label, name) for label, name in dict.fromkeys(section.metrics) if name in launch.metrics or name in launch.texts]
        if rows:
            tables.append((cell(section.name or section.identifier), _metric_rows(launch, rows)))
    rest = [(metric_label(name), name) for name in launch.metrics
            if not tables and not name.startswith(("device__", "numa__", "nvlink__", "c2clink__", "profiler__", "breakdown:", "group:"))
            and ".Triage" not in name and not name.startswith("pmsampling:")]
    if rest:
        tables.append((cell("Metrics"), _metric_rows(launch, rest)))
    return tables


def _metric_rows(launch: KernelDetails, rows: Sequence[tuple[str, str]]) -> list[tuple[Safe, Safe, Safe]]:
    return [(cell(label, MOST_METRIC), cell(launch.texts.get(name) or quantity(launch.metrics.get(name), launch.units.get(name, "")), 60),
             code(name, MOST_METRIC)) for label, name in rows[:MOST_SECTION_ROWS]]
