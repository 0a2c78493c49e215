"""What several rules need: shares of the call's time, the best known fraction of a roof."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from ..model.base import Abstained
from ..model.profile import Finding, Kernel, Operator, Profile, Stage, TimelineSummary
from ..roofline.knowledge import Rule
from ..roofline.peaks import binding_peaks
from ..timeline.call_clock import call_time_ns, call_whole_ns

Outcome = Finding | Abstained | None
"""A finding; why the rule could not be decided; or None: decided, and healthy."""
NOTABLE_STRETCH = 1.25
"""Operators of a CPU are slowed by the profiler and by whatever else ran; above this factor their times are no times of the call."""
NO_TIMELINE = "no timeline in this capture"
NO_COUNTERS = "no hardware counters in this capture"


def all_kernels(profile: Profile) -> Iterable[Kernel]:
    """Every measured row of the profile, attributed or not."""
    for operator in profile.operators:
        yield from operator.kernels
    yield from profile.unattributed_kernels


def is_cpu_timeline(profile: Profile) -> bool:
    """True when the timeline holds operator self times instead of device work."""
    return profile.timeline is not None and profile.timeline.cpu_bound_share_pct is None


def call_share_pct(profile: Profile, duration_ns: int) -> float | None:
    """Share of the whole call's time that some device (CPU: operator) time is, 0..100.

    duration_ns: over all steps. The whole: on CUDA the unprofiled call's median where there is one (the profiler stretches the
    host's part, not the device's), else the span of the steps, idle time included; on the CPU the measured time. In mode ncu all
    replayed time: the call's is not known there.
    """
    timeline = profile.timeline
    if timeline is None and profile.capture_metadata.mode == "ncu":
        replayed = sum(kernel.duration_ns for kernel in all_kernels(profile))
        return min(100.0 * duration_ns / replayed, 100.0) if replayed > 0 else None
    if timeline is None:
        return None
    if is_cpu_timeline(profile):
        whole: float = timeline.measured_ns
    else:
        whole = profile.timing.median_ns * timeline.steps if profile.timing is not None else timeline.span_ns
    return min(100.0 * duration_ns / whole, 100.0) if whole > 0 else None


def stage_stretch(profile: Profile) -> float | None:
    """How many times the unprofiled call a CPU's stages add up to, where that is so much that their times mislead; else None."""
    if not is_cpu_timeline(profile) or profile.timing is None or profile.timing.median_ns <= 0:
        return None
    times = sum(stage.duration_ns for stage in profile.stages) / profile.timing.median_ns
    return times if times > NOTABLE_STRETCH else None


def operators_share_pct(profile: Profile, operators: Sequence[Operator]) -> float | None:
    """Share of the whole call's time that these operators are, 0..100; on the CPU both without the profiler's overhead."""
    timeline = profile.timeline
    if timeline is None or timeline.operator_overhead_ns is None:
        return call_share_pct(profile, time_of(operators))
    return ns_share_pct(timeline, call_time_ns(timeline, operators))


def stage_share_pct(profile: Profile, stage: Stage) -> float | None:
    """The same of a stage."""
    timeline = profile.timeline
    if timeline is None or stage.call_ns is None:
        return call_share_pct(profile, round(stage.duration_ns * timeline.steps)) if timeline is not None else None
    return ns_share_pct(timeline, stage.call_ns * timeline.steps)


def ns_share_pct(timeline: TimelineSummary, call_ns: float) -> float:
    """Share of the whole call's time that some time on its clock over all steps (`call_time_ns`) is, 0..100; CPU only."""
    whole = call_whole_ns(timeline)
    return bounded(100.0 * call_ns / whole) if whole > 0 else 0.0


def matching(operators: Iterable[Operator], pattern: str) -> list[Operator]:
    """Operators whose name matches."""
    compiled = re.compile(pattern)
    return [operator for operator in operators if compiled.search(operator.operator_name)]


def time_of(operators: Iterable[Operator]) -> int:
    """Their device time over all steps, ns."""
    return sum(operator.aggregated.total_duration_ns for operator in operators)


def heaviest_source(operators: Iterable[Operator]) -> str | None:
    """The source line that holds most of their time."""
    times: dict[str, int] = {}
    for operator in operators:
        if operator.source:
            times[operator.source] = times.get(operator.source, 0) + operator.aggregated.total_duration_ns
    return max(times, key=lambda source: times[source]) if times else None


def best_of(compute_pct: float | None, bandwidth_pct: float | None) -> tuple[float, str] | None:
    """(share of the binding roof in %, at most 100; "compute" or "memory"); None when neither is known.

    The roof that is nearer is the one that binds: performance can't exceed either.
    """
    known = [(value, name) for value, name in ((compute_pct, "compute"), (bandwidth_pct, "memory")) if value is not None]
    if not known:
        return None
    value, name = max(known)
    return min(value, 100.0), name


def share_words(pct: float) -> str:
    """"55%"; below one percent two significant digits, so that a small share never reads as none."""
    if not 0 < pct < 1:
        return f"{pct:.0f}%"
    return f"{pct:.{min(9, 1 - math.floor(math.log10(pct)))}f}%"


def stage_roof(stage: Stage) -> tuple[float, str] | None:
    """(share of the binding roof in %, the roof in words) of a stage: by counters where it has them, else analytic; None: not known."""
    if stage.roof_pct is not None and stage.binding_roof is not None:
        return stage.roof_pct, stage.binding_roof
    return best_of(stage.compute_pct, stage.bandwidth_pct)


def peak_origin(profile: Profile) -> str:
    """"measured", "datasheet" or "measured and datasheet": where the ceilings that shares are taken of come from."""
    used = binding_peaks(profile.roofline) if profile.roofline is not None else ()
    origins = {"datasheet" if peak.evidence == "datasheet" else "measured" for peak in used if peak is not None}
    return " and ".join(sorted(origins, reverse=True))


def page(rule: Rule, case: str = "") -> str:
    """The playbook of a rule, or of one of its cases, as a path below the plugin's folder."""
    return f"knowledge/playbooks/{rule.playbooks.get(case, rule.playbook)}"


def bounded(gain_pct: float) -> float:
    """A gain inside 0..100."""
    return min(max(gain_pct, 0.0), 100.0)
