"""What the rules on hardware counters share: launches with counters, what each loses, and one finding about the worst kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..model.base import Abstained
from ..model.profile import Finding, Kernel, Operator, Profile
from ..roofline.counters import PIPES, known, value
from ..roofline.knowledge import Healthy, Rule, bottlenecks, counter_knowledge
from ..roofline.stages import is_marked, stage_name
from .common import NO_COUNTERS, NO_TIMELINE, Outcome, bounded, call_share_pct

LEAST_GAIN_PCT = 1.0
"""Of the call: less than this is no finding, whatever the counter says."""
MOST_NAME = 60


@dataclass(frozen=True)
class Launch:
    """One kernel launch with counters, its operator call and its row of the stage table."""

    kernel: Kernel
    operator: Operator | None
    stage: str | None
    memo: dict[str, float | None] = field(default_factory=dict, compare=False)
    """Figures already known, shared by all launches that inherit the same counters: there can be 100,000 of them."""

    def get(self, role: str) -> float | None:
        """A counter role of this launch; None when n/a."""
        if role not in self.memo:
            self.memo[role] = known(role, self.kernel.metrics.raw)
        return self.memo[role]

    @property
    def pipe_pct(self) -> float | None:
        """Its busiest arithmetic pipe."""
        pipes = [self.get(role) for role in PIPES]
        return None if None in pipes else max(pipe for pipe in pipes if pipe is not None)


@dataclass(frozen=True)
class Symptom:
    """What ails one launch."""

    value: float
    """The figure of the trigger."""
    lost: float
    """Part of its time that mending it could save at most, 0..1."""
    case: str = ""
    """Key of the hint in the rule's texts; "" for the rule's own hint."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Further figures of the detail."""


Measure = Callable[[Launch], "Symptom | Abstained | None"]
"""The symptom of a launch, why it is not known, or None: healthy."""


def check_launches(profile: Profile, rule: Rule, name: str, measure: Measure, *, trigger: str) -> Outcome:
    """One finding about all launches with the symptom, named after the kernel that loses most.

    Gain (Amdahl): the launches' lost time as a share of the call. trigger: "metric={value}"; value is the kernel's time-weighted mean.
    Abstains without counters, without a timeline, and when no launch has the counters that the rule needs.
    """
    rows = launches(profile)
    if not rows:
        return Abstained(name=name, reason=no_counters(profile))
    measured = [(row, measure(row)) for row in rows]
    if all(isinstance(symptom, Abstained) for _, symptom in measured):
        first = measured[0][1]
        return first.model_copy(update={"name": name}) if isinstance(first, Abstained) else None
    sick = [(row, symptom) for row, symptom in measured if isinstance(symptom, Symptom) and symptom.lost > 0]
    gain = call_share_pct(profile, round(sum(row.kernel.duration_ns * symptom.lost for row, symptom in sick)))
    share = call_share_pct(profile, sum(row.kernel.duration_ns for row, _ in sick))
    if gain is None or share is None:
        return Abstained(name=name, reason=NO_TIMELINE)
    return _finding(rule, name, sick, gain, share, trigger) if sick and gain >= LEAST_GAIN_PCT else None


def _finding(rule: Rule, name: str, sick: Sequence[tuple[Launch, Symptom]], gain: float, share: float, trigger: str) -> Finding:
    groups: dict[tuple[str | None, str], list[tuple[Launch, Symptom]]] = defaultdict(list)
    for row, symptom in sick:
        groups[row.stage, row.kernel.kernel_name].append((row, symptom))
    worst = groups[max(groups, key=lambda key: (sum(row.kernel.duration_ns * symptom.lost for row, symptom in groups[key]), str(key)))]
    time_ns = sum(row.kernel.duration_ns for row, _ in worst)
    figure = sum(row.kernel.duration_ns * symptom.value for row, symptom in worst) / time_ns
    heaviest, symptom = max(worst, key=lambda entry: entry[0].kernel.duration_ns)
    others = len({row.kernel.kernel_name for row, _ in sick}) - 1
    return Finding(
        rule=name, name=rule.name, stage=heaviest.stage, where=heaviest.operator.source if heaviest.operator else None,
        detail=rule.detail.format(kernel=heaviest.kernel.kernel_name[:MOST_NAME], share=share, value=figure, **symptom.words)
        + (f" Likewise {others} other kernels." if others > 1 else " Likewise another kernel." if others else ""),
        estimated_gain_pct=bounded(gain), trigger=trigger.format(value=figure), evidence="counters",
        kernel=heaviest.kernel.kernel_name, kernel_count=others + 1, hint=rule.texts.get(symptom.case, rule.hint))


def launches(profile: Profile) -> list[Launch]:
    """Every kernel launch that carries counters."""
    marked = is_marked(profile.operators)
    memos: dict[str, dict[str, float | None]] = defaultdict(dict)

    def row(kernel: Kernel, operator: Operator | None, stage: str | None) -> Launch:
        source = kernel.metrics.measured_kernel_id
        return Launch(kernel, operator, stage, memos[source] if source is not None else {})

    rows = [row(kernel, operator, stage_name(operator, marked=marked)) for operator in profile.operators for kernel in operator.kernels]
    rows += [row(kernel, None, None) for kernel in profile.unattributed_kernels]
    return [row for row in rows if row.kernel.category == "kernel" and row.kernel.metrics.raw and row.kernel.duration_ns > 0]


def no_counters(profile: Profile) -> str:
    """Why this profile has no counters, in the words of the capture where it has some."""
    return NO_COUNTERS if profile.no_counters is None else f"{NO_COUNTERS}: {profile.no_counters.reason}"


def missing(row: Launch, *roles: str) -> Abstained | None:
    """Why the first missing role is not known; None when all are."""
    for role in (role for role in roles if row.get(role) is None):
        figure = value(role, row.kernel.metrics.raw)
        if isinstance(figure, Abstained):
            return Abstained(name=role, reason=f"{role}: {figure.reason}")
    return None


def healthy(rule: Rule) -> Healthy:
    """The healthy range that a rule checks."""
    known = counter_knowledge().roles[rule.role].healthy
    assert known is not None, f"{rule.role} has no healthy range"
    return known


def room(row: Launch) -> float:
    """Part of a launch's time that its busiest pipe or DRAM leaves, 0..1; 0 once one of them counts as busy: it is at its roof."""
    compute, dram = row.pipe_pct or 0.0, row.get("dram_pct") or 0.0
    high = bottlenecks().high
    if compute >= high.compute_pct or dram >= high.bandwidth_pct:
        return 0.0
    return 1.0 - max(compute, dram) / 100.0


def memory_wait(row: Launch) -> float:
    """Part of its warps' time spent waiting for global or local memory, 0..1; 1 when that is not known (an upper bound)."""
    waits = known_of(row, ("stall_long_scoreboard_pct", "stall_lg_throttle_pct"))
    return min(sum(waits) / 100.0, 1.0) if waits else 1.0


def known_of(row: Launch, roles: Iterable[str]) -> list[float]:
    """The figures of those roles that are known."""
    return [figure for role in roles if (figure := row.get(role)) is not None]
