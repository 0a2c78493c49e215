"""One entry of a development log, and its exact Markdown form (docs/devlog.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from pydantic import Field

from ..model.base import Evidence, Record
from ..model.profile import BottleneckKind, Mode, Profile
from ..model.workload import ParamValue
from ..report.figures import duration_warning, headline, input_name, shape
from ..report.numbers import change_pct, faster_or_slower, gain, signed
from ..report.templates import render
from ..report.text import Safe, cell, plain

NOTE_LIMIT = 2000
"""Longest note, in characters; what is beyond it is cut and ends in "…"."""
RULE_ISSUES = 3
NOTHING_BEFORE = "--"
"""The `vs Previous` column where nothing can be compared."""


class DevlogFigures(Record):
    """The figures of one entry. None: not measured."""

    duration_ns: float | None
    duration_evidence: Evidence | None
    low_ns: float | None
    high_ns: float | None
    """95% interval of the duration, where there is one."""
    tflops: float | None
    gbps: float | None
    occupancy_pct: float | None
    tc_pct: float | None
    duration_warning: str | None = None
    """Why the duration is not compared: noisy, few samples, not stable; None where it is sound (and in logs older than this)."""
    l2_flushed: bool = False
    """Whether the L2 cache was emptied before each timed call."""


class DevlogChange(Record):
    """Against the last comparable entry, in percent of its value."""

    previous_captured_utc: str
    previous_version: str | None
    duration_pct: float | None
    tflops_pct: float | None
    gbps_pct: float | None
    within_noise: bool | None
    """Whether the two durations' 95% intervals overlap; None where one has none."""
    too_noisy: str | None = None
    """Why nothing is compared: whose timing carries which warning; the changes are then None."""


class DevlogEntry(Record):
    """One line of the .jsonl file."""

    schema_version: str = "1.0"
    added_utc: str
    captured_utc: str
    kernel: str
    version: str | None
    mode: Mode
    compile_mode: str
    device_name: str
    clocks_locked: bool
    dtype: str
    training: bool
    parameters: dict[str, ParamValue]
    inputs: tuple[tuple[str, str], ...]
    """(name, shape) of each input leaf, e.g. ("input", "32x512")."""
    figures: DevlogFigures
    change: DevlogChange | None
    bottleneck: BottleneckKind | None
    issues: tuple[str, ...]
    insights: tuple[str, ...]
    extra: dict[str, Any] = Field(default_factory=dict)
    """Whatever the caller wants kept for programs; not rendered."""

    @property
    def key(self) -> tuple[object, ...]:
        """What two entries must share to be compared."""
        return (self.kernel, self.device_name, self.dtype, self.training, self.compile_mode, tuple(self.parameters.items()),
                tuple(dims for _, dims in self.inputs), self.figures.duration_evidence, self.figures.l2_flushed)

    @property
    def run(self) -> tuple[object, ...]:
        """Two entries of the same run are not compared with each other."""
        return (self.captured_utc, self.kernel, self.version, self.mode)


def make_entry(profile: Profile, earlier: Iterable[DevlogEntry], *, issues: Sequence[str] = (), insights: Sequence[str] = (),
               extra: dict[str, Any] | None = None) -> DevlogEntry:
    """The entry of one profile, compared with the last comparable one of `earlier`.

    Without `issues` the three findings of the largest estimated gain are the issues.
    """
    meta, figures = profile.capture_metadata, headline(profile)
    entry = DevlogEntry(
        added_utc=datetime.now(timezone.utc).isoformat(timespec="seconds"), captured_utc=meta.capture_timestamp_utc,
        kernel=meta.model_name, version=meta.version, mode=meta.mode, compile_mode=meta.compile_mode, device_name=meta.device_name,
        clocks_locked=meta.clocks.locked, dtype=meta.dtype, training=meta.training, parameters=profile.parameters,
        inputs=tuple((input_name(spec.path), shape(spec.shape)) for spec in profile.inputs),
        figures=DevlogFigures(
            duration_ns=figures.duration_ns, duration_evidence=figures.duration_evidence, low_ns=figures.low_ns, high_ns=figures.high_ns,
            tflops=figures.tflops, gbps=figures.gbps, occupancy_pct=figures.occupancy_pct, tc_pct=figures.tc_pct,
            duration_warning=duration_warning(profile), l2_flushed=profile.timing is not None and profile.timing.cold),
        change=None, bottleneck=profile.bottleneck.kind,
        issues=tuple(plain(note, NOTE_LIMIT) for note in issues or _rule_issues(profile)),
        insights=tuple(plain(note, NOTE_LIMIT) for note in insights), extra=extra or {},
    )
    before = [other for other in earlier if other.key == entry.key and other.run != entry.run]
    return entry.model_copy(update={"change": change_between(before[-1], entry)}) if before else entry


def _rule_issues(profile: Profile) -> list[str]:
    ranked = sorted(profile.findings, key=lambda finding: -finding.estimated_gain_pct)[:RULE_ISSUES]
    return [f"{item.name} ({item.trigger}, est. {gain(item.estimated_gain_pct)} gain)" for item in ranked]


def change_between(before: DevlogEntry, now: DevlogEntry) -> DevlogChange:
    """What became of `before`'s figures in `now`; None's where they can't be compared."""
    old, new = before.figures, now.figures
    doubts = [f"{whose}: {figures.duration_warning}" for whose, figures in (("this entry", new), ("the previous one", old))
              if figures.duration_warning]
    if doubts:
        return DevlogChange(previous_captured_utc=before.captured_utc, previous_version=before.version, duration_pct=None, tflops_pct=None,
                            gbps_pct=None, within_noise=None, too_noisy=plain("; ".join(doubts), NOTE_LIMIT))
    overlap = None
    if old.low_ns is not None and old.high_ns is not None and new.low_ns is not None and new.high_ns is not None:
        overlap = old.low_ns <= new.high_ns and new.low_ns <= old.high_ns
    return DevlogChange(
        previous_captured_utc=before.captured_utc, previous_version=before.version,
        duration_pct=change_pct(old.duration_ns, new.duration_ns), tflops_pct=change_pct(old.tflops, new.tflops),
        gbps_pct=change_pct(old.gbps, new.gbps), within_noise=overlap)


def render_entry(entry: DevlogEntry) -> str:
    """The exact Markdown of one entry."""
    change = entry.change
    durations = change.duration_pct if change else None
    return render(
        "devlog_entry.md.j2", entry=entry, figures=entry.figures, configuration=_configuration(entry),
        duration_change=NOTHING_BEFORE if durations is None else faster_or_slower(durations),
        tflops_change=_signed(change.tflops_pct if change else None), gbps_change=_signed(change.gbps_pct if change else None),
        within_noise=bool(change and change.within_noise), too_noisy=change.too_noisy if change else None,
    )


def _signed(change: float | None) -> str:
    return NOTHING_BEFORE if change is None else signed(change)


def _configuration(entry: DevlogEntry) -> list[tuple[Safe, Safe]]:
    """The parameters in their order (without a dtype that the line names already), else the input shapes."""
    pairs: list[tuple[str, object]] = [(name, value) for name, value in entry.parameters.items()
                                       if not (name == "dtype" and value == entry.dtype)]
    return [(cell(name, 60), cell(value, 60)) for name, value in pairs or (() if entry.parameters else entry.inputs)]
