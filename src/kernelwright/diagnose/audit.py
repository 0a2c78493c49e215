"""Conservation: what the counters of an operator's launches add up to, against the least that its shapes demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..model.base import Abstained
from ..model.profile import Operator, Profile
from ..roofline.knowledge import Rule
from ..roofline.stages import is_marked, stage_name
from ..roofline.use import Counted, Counting, Use, binding, shares
from .common import NO_COUNTERS, NO_TIMELINE, bounded, call_share_pct, heaviest_source, time_of

MOST_NAMED = 3


@dataclass(frozen=True)
class Seen:
    """What one operator call's counters say: a bound from above and one from below, in the audit's unit."""

    most: float
    """All that any level counted: less than this is not possible."""
    least: float
    """What it took at least, with every doubt in its favour (later launches of the call could have found their input in L2)."""
    level: str
    """Roof in words that `least` weighs on."""


@dataclass
class Audited:
    """Calls of one operator with equal shapes."""

    operators: list[Operator] = field(default_factory=list)
    minimum: float = 0.0
    most: float = 0.0
    least: float = 0.0
    level: str = ""

    def add(self, operator: Operator, minimum: float, seen: Seen) -> None:
        """One call."""
        self.operators.append(operator)
        self.minimum += minimum
        self.most += seen.most
        self.least += seen.least
        self.level = seen.level

    @property
    def name(self) -> str:
        """"aten::mm 512x768, 768x768"."""
        first = self.operators[0]
        shapes = ", ".join("x".join(map(str, shape)) for shape in first.input_shapes if shape)
        return f"{first.operator_name} {shapes}".strip()


Look = Callable[[Operator, Sequence[Counted]], Seen | None]


@dataclass(frozen=True)
class Violation:
    """The worst that an audit found, in words and figures."""

    case: Literal["below", "above"]
    operator: str
    what: str
    """Operator and shapes."""
    calls: int
    amount: float
    minimum: float
    """Both over all calls."""
    level: str
    gain_pct: float
    stage: str | None
    where: str | None
    others: tuple[str, ...]
    """Operators of the further violations."""
    others_count: int

    @property
    def ratio(self) -> float:
        """Counted over least."""
        return self.amount / self.minimum

    def words(self, rule: Rule, say: Callable[[float], str]) -> dict[str, Any]:
        """The fields of a Finding that both audits fill alike. say: an amount in words."""
        detail = rule.texts[self.case].format(operator=self.what, measured=say(self.amount / self.calls),
                                              minimum=say(self.minimum / self.calls), ratio=self.ratio)
        if self.others_count:
            detail += rule.texts["others"].format(count=self.others_count, names=", ".join(self.others))
        return {"name": rule.texts[f"{self.case}_name"].format(operator=self.operator), "detail": detail, "stage": self.stage,
                "where": self.where, "estimated_gain_pct": self.gain_pct, "evidence": "counters", "hint": rule.texts[f"{self.case}_hint"]}


def audit(
    name: str, profile: Profile, rule: Rule, least_of: Callable[[Operator], float | None], look: Look,
) -> Violation | Abstained | None:
    """The most costly violation: fewer than the least is impossible and comes first; then far more than it, by its gain.

    least_of: the operator's analytic minimum. look: what its launches' counters say, None where they do not say it. Thresholds: below
    (most / minimum), above (least / minimum), share_pct (of measured time, smaller is passed over).
    """
    line = profile.timeline
    if line is None:
        return Abstained(name=name, reason=NO_TIMELINE)
    counting = Counting.for_profile(profile)
    groups, has_counters = _groups(profile.operators, counting, least_of, look)
    if not groups:
        return Abstained(name=name, reason=rule.texts["nothing"] if has_counters else NO_COUNTERS)
    heavy = [group for group in groups if 100.0 * time_of(group.operators) >= rule.thresholds["share_pct"] * line.measured_ns]
    below = [group for group in heavy if group.most < rule.thresholds["below"] * group.minimum]
    if below:
        worst = min(below, key=lambda group: (group.most / group.minimum, group.name))
        return _violation(profile, "below", worst, worst.most, 0.0, below)
    above = [group for group in heavy if group.least > rule.thresholds["above"] * group.minimum]
    if not above:
        return None
    gain, _ratio, _name, worst = max(((_gain(profile, counting, group), group.least / group.minimum, group.name, group) for group in above),
                                     key=lambda row: row[:3])
    return _violation(profile, "above", worst, worst.least, gain, above)


def _groups(
    operators: Iterable[Operator], counting: Counting, least_of: Callable[[Operator], float | None], look: Look,
) -> tuple[list[Audited], bool]:
    """Calls whose launches all have counters and whose minimum is known; and whether anything has counters at all."""
    found: dict[tuple[str, tuple[tuple[int, ...], ...]], Audited] = {}
    has_counters = False
    for operator in operators:
        launches = [counting.of(kernel) for kernel in operator.kernels if kernel.category != "memset"]
        counted = [each for each in launches if each is not None]
        has_counters = has_counters or bool(counted)
        minimum = least_of(operator)
        if not minimum or not counted or len(counted) != len(launches):
            continue
        seen = look(operator, counted)
        if seen is not None:
            found.setdefault((operator.operator_name, operator.input_shapes), Audited()).add(operator, minimum, seen)
    return list(found.values()), has_counters


def _gain(profile: Profile, counting: Counting, group: Audited) -> float:
    """Share of the call that would be saved if only the minimum were spent, until the next roof binds."""
    share = call_share_pct(profile, time_of(group.operators))
    if share is None or profile.roofline is None:
        return 0.0
    use: Use = counting.use(kernel for operator in group.operators for kernel in operator.kernels)
    reached = shares(use, profile.roofline)
    before = binding(reached)
    if before is None or group.level not in reached:
        return 0.0
    after = max(part * group.minimum / group.least if name == group.level else part for name, part in reached.items())
    return bounded(share * (1 - min(after / max(reached.values()), 1.0)))


def _violation(
    profile: Profile, case: Literal["below", "above"], group: Audited, amount: float, gain: float, all_of: Sequence[Audited],
) -> Violation:
    stages = {stage_name(each, marked=is_marked(profile.operators)) for each in group.operators}
    names = sorted({other.operators[0].operator_name for other in all_of if other is not group})[:MOST_NAMED]
    return Violation(
        case=case, operator=group.operators[0].operator_name, what=group.name, calls=len(group.operators), amount=amount,
        minimum=group.minimum, level=group.level, gain_pct=gain, stage=next(iter(stages)) if len(stages) == 1 else None,
        where=heaviest_source(group.operators), others=tuple(names), others_count=len(all_of) - 1)
