"""What running a row of small operators as one could save of the call."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.profile import Operator, Profile, TimelineSummary
from ..timeline.call_clock import call_time_ns
from .common import bounded, is_cpu_timeline, ns_share_pct, operators_share_pct


def fusion_gain_pct(profile: Profile, operators: Sequence[Operator], call_us: float) -> float | None:
    """At most this share of the call goes when these operators become one a step, %; None without a timeline.

    One pass of the n of a step must remain: (n - 1)/n. On the CPU fusion takes away each operator's traffic and its dispatch, not its
    arithmetic: no call saves more than its least bytes at the measured bandwidth plus call_us, nor more than it takes without the
    profiler's overhead. On a GPU an operator's whole kernel goes: arithmetic hides behind the traffic that remains.
    """
    timeline = profile.timeline
    if timeline is None or not operators:
        return None
    share, remains = operators_share_pct(profile, operators), min(1.0, timeline.steps / len(operators))
    peak = profile.roofline.peak_bandwidth if profile.roofline is not None else None
    if share is not None and is_cpu_timeline(profile) and peak is not None and peak.value > 0:
        saved = sum(min(call_time_ns(timeline, (operator,)), 1e3 * call_us + operator.min_bytes / peak.value)  # B / (GB/s) = ns
                    if operator.min_bytes is not None else call_time_ns(timeline, (operator,)) for operator in operators)
        share = min(share, _bound_pct(profile, timeline, saved))
    return None if share is None else bounded(share * (1 - remains))


def _bound_pct(profile: Profile, timeline: TimelineSummary, saved_ns: float) -> float:
    """Traffic and dispatch are times without a profiler: so is the call that they are a share of, whatever slowed the recorded steps."""
    if timeline.operator_overhead_ns is None and profile.timing is not None and profile.timing.median_ns > 0:
        return bounded(100.0 * saved_ns / (profile.timing.median_ns * timeline.steps))
    return ns_share_pct(timeline, saved_ns)
