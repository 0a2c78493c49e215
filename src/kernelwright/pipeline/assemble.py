"""Reads what one capture left and composes the profile from it. Needs no GPU and no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError

from ..attribute import attribute
from ..attribute.cpu import outside_times
from ..diagnose import diagnose
from ..model.base import Evidence
from ..model.capture import OpRecord, ProbeEnvironment, ProbePeak, ProbeResult
from ..model.compiled import CompiledIndex
from ..model.counters import Counters, NoCounters
from ..model.errors import BadInput, WorkloadFailed
from ..model.measurement import Measurement
from ..model.profile import Bottleneck, CaptureMetadata, ClockReading, Mode, Profile, TimelineSummary
from ..model.trace import Trace
from ..model.workload import WorkloadFacts, WorkloadRef
from ..readers.kineto import read_kineto
from ..readers.lines import read_lines
from ..roofline import roof, stages, with_product_work, with_roofline, work_summary
from ..timeline import on_call_clock, summarize, unprofiled
from ..timeline.call_clock import NOTABLE_SLOWDOWN
from .compiled import plan, python_names, read_index, rows, with_python_names
from .counters import CounterCapture, with_counters
from .script import heaviest_dtype, script_steps

MAX_OPS_BYTES = 256 << 20
_OPS = TypeAdapter(list[OpRecord])


@dataclass(frozen=True)
class Run:
    """Everything that one capture left."""

    workload: WorkloadRef
    mode: str
    raw: Path
    result: ProbeResult
    peaks: tuple[ProbePeak, ...]
    clocks: ClockReading
    compile_mode: str
    device_name: str | None
    version: str
    counters: CounterCapture | NoCounters | None = None
    """What the counter process left, or why there is nothing; None where counters have no place (event mode)."""
    warnings: tuple[str, ...] = ()
    """What the capture itself has to say, beside the probe's and the clocks'."""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    """Wall time of each part of the capture."""


def assemble(run: Run) -> Profile:
    """The diagnosed profile. Raises BadInput for traces that can't be read, WorkloadFailed for an empty result."""
    facts, environment, timing = run.result.facts, run.result.environment, run.result.timing
    may_lack_timing = run.result.script is not None and run.result.trace_file is not None
    if facts is None or environment is None or not (may_lack_timing or (timing is not None and timing.samples_ns)):
        raise WorkloadFailed("empty_result", "the capture holds no timing", where=str(run.workload.path), fix="profile again")
    measurement = Measurement.of(timing.samples_ns, timer=timing.timer) if timing is not None else None
    ops = read_ops(run.raw, run.result)
    ceiling = roof(run.peaks, environment, facts, ops=ops)
    draft = Profile(
        capture_metadata=_metadata(run, facts, environment), parameters=facts.params, inputs=facts.inputs, timing=measurement,
        host_timing=Measurement.of(timing.host_ns, timer="perf_counter") if timing is not None and timing.host_ns else None,
        peak_memory_bytes=timing.peak_memory_bytes if timing is not None else None,
        work=work_summary(run.result.work, measurement, ceiling) if run.result.work and measurement is not None else None,
        script=script_steps(run.result) if run.result.script is not None else None,
        roofline=ceiling, bottleneck=Bottleneck(kind=None, root_cause=""),
        warnings=run.result.warnings + run.warnings + run.clocks.warnings,
        evidence=_evidence(run),
    )
    index, warnings = read_index(run.raw, run.result.compiled_file)
    whole = _with_timeline(draft, run, ops, index) if run.result.trace_file else draft
    return diagnose(with_roofline(_with_compiled(whole.model_copy(update={"warnings": whole.warnings + warnings}), run, index)))


def _with_compiled(draft: Profile, run: Run, index: CompiledIndex | None) -> Profile:
    """Adds what Triton and Inductor compiled, and the Python names of the workload's own Triton kernels."""
    if index is None:
        return draft
    stages = plan(index, run.raw, draft.operators, draft.unattributed_kernels, None if draft.timeline else run.workload.name)
    compiled = rows(stages)
    evidence: dict[str, Evidence] = {**draft.evidence, "compiled": "compiler"}
    if any(row.best_ns is not None for row in compiled):
        evidence["autotuning"] = "autotuner"
    named = with_python_names(draft, python_names(index))
    return named.model_copy(update={"compiled_kernels": compiled, "evidence": evidence})


def _with_timeline(draft: Profile, run: Run, ops: list[OpRecord], index: CompiledIndex | None) -> Profile:
    assert run.result.trace_file is not None and draft.roofline is not None
    trace = run.counters.trace if isinstance(run.counters, CounterCapture) else read_kineto(run.raw / run.result.trace_file)
    stacks, unread = _stacks(run)
    lines = read_lines(run.raw / run.result.lines_file) if stacks and run.result.lines_file else ()
    own = {name: function for name, (function, _) in python_names(index).items()} if index is not None else {}
    attributed = attribute(trace, ops=ops, stacks=stacks, lines=lines, own=own)
    operators, unattributed = with_product_work(attributed.operators), attributed.unattributed
    counters: Counters | NoCounters | None = None
    if isinstance(run.counters, CounterCapture):
        operators, unattributed, counters = with_counters(run.counters, operators, unattributed)
    else:
        counters = run.counters
    attributed_ns = sum(operator.aggregated.total_duration_ns for operator in operators)
    unattributed_ns = sum(kernel.duration_ns for kernel in unattributed)
    summary = summarize(trace, attributed_ns=attributed_ns, unattributed_ns=unattributed_ns)
    summary = summary.model_copy(update={"activity": attributed.activity})
    if draft.timing is not None and draft.timing.median_ns > 0:
        summary = on_call_clock(unprofiled(summary, draft.timing.median_ns), operators, outside_times(unattributed))
    memory_from: dict[str, Evidence] = {"memory": "timeline"} if attributed.memory else {}
    counters_from: dict[str, Evidence] = {"counters": "counters"} if isinstance(counters, Counters) else {}
    metadata = draft.capture_metadata
    if not metadata.dtype and draft.script is not None:
        metadata = metadata.model_copy(update={"dtype": heaviest_dtype(operators)})
    return draft.model_copy(update={
        "capture_metadata": metadata, "timeline": summary, "operators": operators, "stacks": attributed.stacks,
        "memory": attributed.memory,
        "unattributed_kernels": unattributed,
        "counters": counters if isinstance(counters, Counters) else None,
        "no_counters": counters if isinstance(counters, NoCounters) else None,
        "stages": stages(operators, unattributed, draft.roofline, summary.steps, overhead_ns=summary.operator_overhead_ns),
        "evidence": {**draft.evidence, **memory_from, **counters_from},
        "warnings": draft.warnings + tuple(attributed.warnings) + unread + _overhead(summary),
    })


def _stacks(run: Run) -> tuple[Trace | None, tuple[str, ...]]:
    """The recording with stacks and warnings; None where it can't be read: it costs modules and lines, not the profile.

    Seen: torch writes Python function names unescaped, and torch.compile makes code whose name holds quotes.
    """
    if run.result.stacks_file is None:
        return None, ()
    try:
        return read_kineto(run.raw / run.result.stacks_file), ()
    except BadInput as error:
        return None, (f"modules and source lines are not known: {run.result.stacks_file}: {error.message}",)


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


def read_ops(raw: Path, result: ProbeResult) -> list[OpRecord]:
    """One step's counted operators; none where the capture has none. Raises BadInput."""
    if result.ops_file is None:
        return []
    file = raw / result.ops_file
    try:
        if file.stat().st_size > MAX_OPS_BYTES:
            raise BadInput("ops_too_large", f"is larger than {MAX_OPS_BYTES >> 20} MiB", where=str(file),
                           fix="make the workload smaller, or use --mode event")
        return _OPS.validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise BadInput("broken_ops", "is not a list of operator records", where=str(file), fix="profile again") from error


def _metadata(run: Run, facts: WorkloadFacts, environment: ProbeEnvironment) -> CaptureMetadata:
    return CaptureMetadata(
        model_name=run.workload.name, version=facts.version, mode=cast(Mode, run.mode), torch_version=environment.torch_version,
        compile_mode=run.compile_mode, device_name=run.device_name or environment.device_name, device=environment.device,
        compute_capability=environment.compute_capability, l2_bytes=environment.l2_bytes,
        capture_timestamp_utc=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        python_version=environment.python_version, kernelwright_version=run.version, dtype=facts.dtype,
        training=facts.training, clocks=run.clocks,
    )


def _evidence(run: Run) -> dict[str, Evidence]:
    evidence: dict[str, Evidence] = {"work": "analytic"} if run.result.work else {}
    if run.result.timing is not None:
        evidence["timing"] = "events"
    if run.peaks:
        evidence["peaks"] = "calibration"
    if run.result.trace_file:
        evidence["duration"] = "timeline"
    return evidence
