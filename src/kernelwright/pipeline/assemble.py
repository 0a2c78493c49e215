"""Reads what one capture left and composes the profile from it. Needs no GPU and no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError

from ..diagnose import diagnose
from ..model.base import Evidence
from ..model.capture import OpRecord, ProbeEnvironment, ProbePeak, ProbeResult, ProbeTiming
from ..model.compiled import CompiledIndex
from ..model.counters import NoCounters
from ..model.errors import BadInput, WorkloadFailed
from ..model.measurement import COLD, Measurement
from ..model.profile import Bottleneck, CaptureMetadata, ClockReading, Mode, Profile
from ..model.workload import WorkloadFacts, WorkloadRef
from ..roofline import roof, with_roofline, work_summary
from .compiled import plan, python_names, read_index, rows, with_python_names
from .counters import CounterCapture
from .recorded import Recorded, kineto_recorded
from .script import heaviest_dtype, script_steps
from .timeline_part import with_timeline

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
    recorded: Recorded | None = None
    """Its timeline; None: it is read from raw/."""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    """Wall time of each part of the capture."""

    @property
    def has_timeline(self) -> bool:
        """Whether steps were recorded."""
        return self.recorded is not None or self.result.trace_file is not None


def with_recording(run: Run) -> Run:
    """The run with its timeline read, where it has one. Raises BadInput for traces that can't be read."""
    if run.recorded is not None or run.result.trace_file is None:
        return run
    read = run.counters.trace if isinstance(run.counters, CounterCapture) else None
    return replace(run, recorded=kineto_recorded(run.raw, run.result, read))


def _timer(timing: ProbeTiming) -> str:
    return f"{timing.timer}, {COLD}" if timing.flushed_l2 else timing.timer


def assemble(run: Run) -> Profile:
    """The diagnosed profile. Raises BadInput for traces that can't be read, WorkloadFailed for an empty result."""
    facts, environment, timing = run.result.facts, run.result.environment, run.result.timing
    may_lack_timing = run.result.script is not None and run.has_timeline
    if facts is None or environment is None or not (may_lack_timing or (timing is not None and timing.samples_ns)):
        raise WorkloadFailed("empty_result", "the capture holds no timing", where=str(run.workload.path), fix="profile again")
    measurement = Measurement.of(timing.samples_ns, timer=_timer(timing)) if timing is not None else None
    ops = read_ops(run.raw, run.result)
    ceiling = roof(run.peaks, environment, facts, ops=ops, work=run.result.work)
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
    whole = _with_timeline(draft, run, ops, index) if run.has_timeline else draft
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
    own = {name: function for name, (function, _) in python_names(index).items()} if index is not None else {}
    recorded = with_recording(run).recorded
    assert recorded is not None
    whole = with_timeline(draft, recorded, ops=ops, own=own, counters=run.counters)
    if whole.capture_metadata.dtype or whole.script is None:
        return whole
    metadata = whole.capture_metadata.model_copy(update={"dtype": heaviest_dtype(whole.operators)})
    return whole.model_copy(update={"capture_metadata": metadata})


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
    if run.has_timeline:
        evidence["duration"] = "timeline"
    return evidence
