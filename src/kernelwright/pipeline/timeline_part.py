"""The part of a profile that comes from a recorded timeline: operators, stages, activity, memory; in mode nsys the engine's answers too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..attribute import attribute
from ..attribute.cpu import outside_times
from ..model.base import Evidence
from ..model.capture import OpRecord
from ..model.counters import Counters, NoCounters
from ..model.profile import Operator, Profile, Roof, TimelineSummary
from ..roofline import stages, with_product_work
from ..timeline import on_call_clock, summarize, unprofiled
from ..timeline.call_clock import NOTABLE_SLOWDOWN
from ..timeline.gaps import idle_of_calls
from .counters import CounterCapture, with_counters
from .engine import with_engine
from .recorded import Recorded


def with_timeline(draft: Profile, recorded: Recorded, *, ops: Sequence[OpRecord] = (), own: Mapping[str, str] | None = None,
                  counters: CounterCapture | NoCounters | None = None,
                  roof_of: Callable[[Sequence[Operator]], Roof] | None = None) -> Profile:
    """The draft with all that one recording tells. ops, own: see `attribute`.

    draft.roofline is known, or roof_of finds it from the operators.
    """
    trace = recorded.trace
    # Where the profile has a flow, both tell of a wait's idle time by the same causes.
    idle = idle_of_calls(trace) if recorded.recording is not None and trace.is_cuda else None
    attributed = attribute(trace, ops=ops, stacks=recorded.stacks, lines=recorded.lines, own=own, idle_of_calls=idle)
    operators, unattributed = with_product_work(attributed.operators), attributed.unattributed
    if roof_of is not None:
        draft = draft.model_copy(update={"roofline": roof_of(operators)})
    assert draft.roofline is not None
    counted: Counters | NoCounters | None = None
    if isinstance(counters, CounterCapture):
        operators, unattributed, counted = with_counters(counters, operators, unattributed)
    else:
        counted = counters
    attributed_ns = sum(operator.aggregated.total_duration_ns for operator in operators)
    unattributed_ns = sum(kernel.duration_ns for kernel in unattributed)
    summary = summarize(trace, attributed_ns=attributed_ns, unattributed_ns=unattributed_ns)
    summary = summary.model_copy(update={"activity": attributed.activity})
    if draft.timing is not None and draft.timing.median_ns > 0:
        summary = on_call_clock(unprofiled(summary, draft.timing.median_ns), operators, outside_times(unattributed))
    memory_from: dict[str, Evidence] = {"memory": "timeline"} if attributed.memory else {}
    counters_from: dict[str, Evidence] = {"counters": "counters"} if isinstance(counted, Counters) else {}
    whole = draft.model_copy(update={
        "timeline": summary, "operators": operators, "stacks": attributed.stacks, "memory": attributed.memory,
        "unattributed_kernels": unattributed,
        "counters": counted if isinstance(counted, Counters) else None,
        "no_counters": counted if isinstance(counted, NoCounters) else None,
        "stages": stages(operators, unattributed, draft.roofline, summary.steps, overhead_ns=summary.operator_overhead_ns),
        "evidence": {**draft.evidence, **memory_from, **counters_from},
        "warnings": draft.warnings + tuple(attributed.warnings) + recorded.warnings + _overhead(summary),
    })
    return whole if recorded.recording is None else with_engine(whole, recorded, attributed)


def _overhead(summary: TimelineSummary) -> tuple[str, ...]:
    if summary.profiler_slowdown is None or summary.profiler_slowdown <= NOTABLE_SLOWDOWN:
        return ()
    taken = "" if summary.operator_overhead_ns is None else (
        f", roof shares and gains too ({summary.operator_overhead_ns / 1000:.2g} us taken off each operator call)")
    if summary.cpu_bound_share_pct is None and summary.operator_overhead_ns is None:
        return (f"profiled steps took {summary.profiler_slowdown:.1f} times the unprofiled call, more than a profiler adds to so few "
                "operators: other work slowed them, so shares and gains are those of a busy machine; profile again when it is quiet",)
    return (f"profiled steps took {summary.profiler_slowdown:.1f} times the unprofiled call: idle shares are corrected for that{taken}; "
            "the durations of small operators are rather too large",)
