"""Profiles side by side: the figures, the stages that appeared, vanished or grew, and a gate on slow-downs.

The runs were made apart, so a difference counts only where the 95% intervals do not overlap and neither timing carries
a warning; paired, interleaved timing is the judge's. Where a profile has no interval (a sum of stages) the difference is given,
without a judgement.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, get_args

from ..model.profile import Profile
from ..model.workload import CompileMode
from .figures import DurationOf, Headline, configuration, duration_warning, headline, intervals_overlap, kernel_time_name, mismatch
from .numbers import change_pct
from .templates import render

MOST_STAGES = 25
NOISE = {"within noise": "within noise", "too noisy": "too noisy to compare"}
"""Words for changes of the duration that show no difference."""
ChangeWord = Literal["first", "faster", "slower", "within noise", "too noisy", "not comparable", "no interval"]


@dataclass(frozen=True)
class Row:
    """One profile. Times in us; changes in percent of A's value, of time: negative is faster. None: not measured."""

    letter: str
    label: str
    mode: str
    device_name: str
    configuration: str
    duration_us: float | None
    interval_us: tuple[float, float] | None
    duration_change_pct: float | None
    change: ChangeWord
    tflops: float | None
    gbps: float | None
    kernel_us: float | None
    launches: float | None
    idle_pct: float | None
    tc_pct: float | None
    dram_pct: float | None
    occupancy_pct: float | None
    duration_of: DurationOf | None


@dataclass(frozen=True)
class StagePart:
    """One stage in one profile. change_pct: of its time against A's."""

    state: Literal["present", "absent", "appeared", "vanished", "unknown"]
    """unknown: that profile has no stages at all (event mode)."""
    duration_us: float | None
    change_pct: float | None


@dataclass(frozen=True)
class StageRow:
    """One stage in every profile, in the profiles' order."""

    name: str
    parts: tuple[StagePart, ...]


@dataclass(frozen=True)
class Gate:
    """The outcome of --fail-above: which profiles (by letter) were slower than A by more than the limit."""

    limit_pct: float
    failed: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Everything that compare.py shows."""

    rows: tuple[Row, ...]
    stages: tuple[StageRow, ...]
    warnings: tuple[str, ...]
    gate: Gate | None

    def as_dict(self) -> dict[str, Any]:
        """The JSON answer."""
        return asdict(self)


def compare(profiles: Sequence[tuple[str, Profile]], limit_pct: float | None = None) -> Comparison:
    """Compare (label, profile) pairs with the first. Raises ValueError with fewer than two.

    limit_pct: a profile fails the gate when its duration is above A's by more than that, and the 95% intervals of the two
    do not overlap; where one has no interval, the durations alone decide.
    """
    if len(profiles) < 2:
        raise ValueError("a comparison needs at least two profiles")
    figures = [headline(profile) for _, profile in profiles]
    first_profile, first = profiles[0][1], figures[0]
    rows = [_row(place, label, profile, figures[place], first_profile, first) for place, (label, profile) in enumerate(profiles)]
    gate = None
    if limit_pct is not None:
        gate = Gate(limit_pct, tuple(row.letter for row, own in zip(rows[1:], figures[1:], strict=True) if _fails(first, own, limit_pct)))
    documents = [profile for _, profile in profiles]
    return Comparison(tuple(rows), _stages(documents), _warnings(rows, documents, figures) + _doubts_of_gate(rows, gate), gate)


def letter(place: int) -> str:
    """A, B, ... Z, A2, B2, ..."""
    alphabet = string.ascii_uppercase
    turn = place // len(alphabet)
    return alphabet[place % len(alphabet)] + (str(turn + 1) if turn else "")


def _row(place: int, label: str, profile: Profile, own: Headline, first_profile: Profile, first: Headline) -> Row:
    meta = profile.capture_metadata
    change = change_pct(first.duration_ns, own.duration_ns) if place else None
    return Row(
        letter=letter(place), label=label, mode=meta.mode, device_name=meta.device_name,
        configuration=", ".join(f"{name}={value}" for name, value in configuration(profile)),
        duration_us=_us(own.duration_ns), interval_us=_interval(own), duration_change_pct=change,
        change="first" if place == 0 else _word(first_profile, profile, first, own, change),
        tflops=own.tflops, gbps=own.gbps, kernel_us=_us(own.kernel_ns), launches=own.launches, idle_pct=own.idle_pct,
        tc_pct=own.tc_pct, dram_pct=own.dram_pct, occupancy_pct=own.occupancy_pct,
        duration_of=own.duration_of,
    )


def change_of(first: Profile, profile: Profile) -> tuple[ChangeWord, float | None]:
    """How a duration stands to the first's: (in a word, change of time in percent)."""
    before, own = headline(first), headline(profile)
    change = change_pct(before.duration_ns, own.duration_ns)
    return _word(first, profile, before, own, change), change


def _word(first_profile: Profile, profile: Profile, first: Headline, own: Headline, change: float | None) -> ChangeWord:
    if change is None or mismatch(profile, first_profile) is not None or _taken(first) != _taken(own):
        return "not comparable"
    overlap = intervals_overlap(first, own)
    if duration_warning(first_profile) or duration_warning(profile):
        return "too noisy"
    if overlap:
        return "within noise"
    if overlap is None:
        return "no interval"
    return "slower" if change > 0 else "faster"


def _taken(own: Headline) -> tuple[str | None, str | None]:
    return own.duration_evidence, own.duration_of


def _fails(first: Headline, own: Headline, limit_pct: float) -> bool:
    change = change_pct(first.duration_ns, own.duration_ns)
    return change is not None and change > limit_pct and not intervals_overlap(first, own)


def _us(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / 1000


def _interval(own: Headline) -> tuple[float, float] | None:
    return None if own.low_ns is None or own.high_ns is None else (own.low_ns / 1000, own.high_ns / 1000)


def _stages(profiles: Sequence[Profile]) -> tuple[StageRow, ...]:
    """Heaviest first, by the longest time that a stage takes anywhere."""
    times: list[dict[str, float]] = []
    for profile in profiles:
        own: dict[str, float] = {}
        for stage in profile.stages:
            own[stage.name] = own.get(stage.name, 0.0) + stage.duration_ns / 1000
        times.append(own)
    names = sorted({name for own in times for name in own}, key=lambda name: (-max(own.get(name, 0.0) for own in times), name))
    return tuple(StageRow(name, tuple(_part(times[0].get(name), own.get(name), bool(times[0]), place) if own else
                                      StagePart("unknown", None, None) for place, own in enumerate(times))) for name in names)


def _part(first_us: float | None, own_us: float | None, first_has_stages: bool, place: int) -> StagePart:
    if own_us is None:
        return StagePart("absent" if first_us is None or place == 0 else "vanished", None, None)
    if first_us is None:
        return StagePart("appeared" if first_has_stages else "present", own_us, None)
    return StagePart("present", own_us, change_pct(first_us, own_us) if place else None)


def _warnings(rows: Sequence[Row], profiles: Sequence[Profile], figures: Sequence[Headline]) -> tuple[str, ...]:
    found: list[str] = []
    for row, profile, own in zip(rows[1:], profiles[1:], figures[1:], strict=True):
        reason = mismatch(profiles[0], profile, ("A", row.letter))
        if reason:
            found.append(f"{row.letter} is not comparable with A: {reason}")
        modes = [each.capture_metadata.compile_mode for each in (profiles[0], profile)]
        if modes[0] != modes[1] and all(mode in get_args(CompileMode) for mode in modes):
            found.append(f"{row.letter} ran with --compile-mode {modes[1]}, A with {modes[0]}")
        if _taken(figures[0]) != _taken(own):
            place = 0 if figures[0].duration_evidence != own.duration_evidence else 1
            ways = f"{_taken(own)[place]}, {_taken(figures[0])[place]}"
            found.append(f"{row.letter} and A took their durations in different ways ({ways})")
    for row, profile in zip(rows, profiles, strict=True):
        if doubt := (profile.timing.warning if profile.timing else None) or duration_warning(profile):
            found.append(f"{row.letter}: {doubt}")
        if row.change in NOISE and row.kernel_us is not None and profile.capture_metadata.device == "cpu":
            found.append(f"{row.letter}: its rates, operators and stages are no surer than its duration, which is {NOISE[row.change]}")
        if profile.capture_metadata.clocks.throttle_reasons:
            found.append(f"{row.letter}: the clocks were throttled ({', '.join(profile.capture_metadata.clocks.throttle_reasons)})")
    if len({profile.capture_metadata.clocks.locked for profile in profiles}) > 1:
        found.append("some ran at locked clocks, others not")
    return tuple(found)


def _doubts_of_gate(rows: Sequence[Row], gate: Gate | None) -> tuple[str, ...]:
    """The gate goes by limit and intervals alone; where a timing is in doubt, that is said beside its outcome."""
    if gate is None:
        return ()
    return tuple(f"{row.letter} {'failed' if row.letter in gate.failed else 'passed'} the gate, but the timing of A or of {row.letter} "
                 "carries a warning: profile both again on a quiet machine" for row in rows if row.change == "too noisy")


class Bounded(Protocol):
    """A row of a comparison."""

    @property
    def letter(self) -> str: ...

    @property
    def interval_us(self) -> tuple[float, float] | None: ...

    @property
    def change(self) -> ChangeWord: ...


def gate_groups(gate: Gate | None, rows: Sequence[Bounded]) -> dict[str, list[str]]:
    """Letters beyond noise, and those whose failure or pass is less sure, with the reason: what the gate's sentence may claim."""
    unknown = {row.letter for row in rows[1:] if row.interval_us is None or rows[0].interval_us is None}
    doubtful = {row.letter for row in rows[1:] if row.change == "too noisy"} - unknown
    failed = gate.failed if gate is not None else ()
    passed = [row.letter for row in rows[1:] if row.letter not in failed]

    def unsure(letters: Sequence[str]) -> list[str]:
        return [f"{reason}: {', '.join(found)}" for reason, group in (("noise not known", unknown), ("timing in doubt", doubtful))
                if (found := [name for name in letters if name in group])]

    return {"beyond_noise": [name for name in failed if name not in unknown | doubtful], "unsure": unsure(failed),
            "passed_unsure": unsure(passed)}


def render_comparison(comparison: Comparison) -> str:
    """The comparison as Markdown."""
    on_cpu = all(row.launches is None for row in comparison.rows if row.kernel_us is not None)
    return render("compare.md.j2", kernel_time=kernel_time_name(on_cpu=on_cpu), rows=comparison.rows,
                  stages=comparison.stages[:MOST_STAGES],
                  stages_left=max(0, len(comparison.stages) - MOST_STAGES), warnings=comparison.warnings, gate=comparison.gate,
                  gated=gate_groups(comparison.gate, comparison.rows),
                  words={"first": "-", "not comparable": "not comparable", **NOISE})
