"""From what reports of Nsight Compute say to a Profile of mode ncu. Needs no GPU and no torch.

Durations are ncu's own: each launch is replayed alone, as a rule with its caches flushed. They order the kernels among themselves and are
no times of the program; start and end only put the launches in their order, one behind the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..attribute.inductor import fused_operators
from ..diagnose import diagnose
from ..diagnose.bottleneck import classify, counted_words
from ..model.profile import (
    Aggregated,
    Attribution,
    Bottleneck,
    CaptureMetadata,
    ClockReading,
    Finding,
    Kernel,
    Metrics,
    Operator,
    Profile,
    Stage,
)
from ..model.workload import ParamValue, TensorSpec
from ..readers.ncu import NvtxRange, parse_range
from ..readers.ncu_records import KernelDetails, NcuDetails
from ..roofline.counters import metric_names
from ..roofline.ncu_knowledge import busiest_pipe, counter, ncu_knowledge
from .ncu_cause import hot_action
from .ncu_rules import RankedRule, group_name, groups, metric_label, ranked_rules

MOST_RAW = 400
"""Counters of one kernel in profile.json; the report itself has them all."""
MOST_FINDINGS = 50
MOST_KERNEL = 48
"""Characters of a kernel in the name of a finding."""
NA = "n/a"
ELSEWHERE = "not known: captured elsewhere"
STEP = "kernelwright.step"
STAGE = "stage:"
_NO_OPERATOR = ("## Call CompiledFxGraph", "Torch-Compiled Region")


@dataclass(frozen=True)
class Setting:
    """What a report does not say about the run that it was made in; n/a for captures made elsewhere."""

    name: str
    version: str | None = None
    torch_version: str = NA
    python_version: str = ""
    kernelwright_version: str = ""
    compile_mode: str = NA
    device_name: str | None = None
    captured_utc: str = NA
    dtype: str = NA
    training: bool = False
    parameters: Mapping[str, ParamValue] = field(default_factory=dict)
    inputs: tuple[TensorSpec, ...] = ()
    clocks: ClockReading | None = None
    """None: not known."""
    warnings: tuple[str, ...] = ()


def all_launches(reports: Sequence[NcuDetails]) -> list[KernelDetails]:
    """Every launch of all reports, in order."""
    return [kernel for report in reports for kernel in report.kernels]


def build_profile(reports: Sequence[NcuDetails], setting: Setting) -> Profile:
    """The diagnosed profile. reports: at least one, with at least one launch."""
    launches = all_launches(reports)
    records = _records(launches)
    operators, loose = _attributed(launches, records)
    timed = all(kernel.duration_ns is not None for kernel in launches)
    untimed = () if timed else ("ncu collected no duration (gpu__time_duration.sum): how heavy the kernels are is not known",)
    draft = Profile(
        capture_metadata=_metadata(launches, setting, reports[0].tool), parameters=dict(setting.parameters), inputs=setting.inputs,
        stages=_stages(launches) if timed else (), operators=operators, unattributed_kernels=loose,
        bottleneck=Bottleneck(kind=None, root_cause=""), evidence={"duration": "counters", "counters": "counters"},
        warnings=(*setting.warnings, *(warning for report in reports for warning in report.warnings), *untimed, *_mixed(launches)))
    return _with_rules(diagnose(draft), launches, reports[0].tool) if timed else diagnose(draft)


def _metadata(launches: Sequence[KernelDetails], setting: Setting, tool: str) -> CaptureMetadata:
    names = list(dict.fromkeys(_device(kernel) for kernel in launches if kernel.metrics)) or [NA]
    return CaptureMetadata(
        model_name=setting.name, version=setting.version, mode="ncu", tool=tool, torch_version=setting.torch_version,
        compile_mode=setting.compile_mode,
        device_name=setting.device_name or ", ".join(names[:4]), device="cuda", capture_timestamp_utc=setting.captured_utc,
        python_version=setting.python_version, kernelwright_version=setting.kernelwright_version, dtype=setting.dtype,
        training=setting.training, clocks=setting.clocks or ClockReading(requested="none", locked=False, note=ELSEWHERE))


def _device(kernel: KernelDetails) -> str:
    return kernel.texts.get("device__attribute_display_name") or NA


def _mixed(launches: Sequence[KernelDetails]) -> tuple[str, ...]:
    names = {_device(kernel) for kernel in launches if kernel.texts}
    return (f"the reports come from {len(names)} device models: their times can't be set against each other",) if len(names) > 1 else ()


def _records(launches: Sequence[KernelDetails]) -> list[Kernel]:
    """One row a launch, one behind the other; the report's order."""
    rows: list[Kernel] = []
    start = 0
    for place, kernel in enumerate(launches):
        duration = round(kernel.duration_ns or 0.0)
        nvtx = _operator_range(kernel) is not None
        rows.append(Kernel(
            kernel_id=f"ncu{place}", kernel_name=kernel.name or kernel.function, stream_id=kernel.stream, device_id=kernel.device,
            start_ns=start, end_ns=start + duration, duration_ns=duration, grid=kernel.grid, block=kernel.block,
            metrics=_metrics(kernel, f"ncu{place}"),
            attribution=Attribution(method="nvtx", confidence="high") if nvtx else Attribution(method="none", confidence="none")))
        start += duration
    return rows


def _metrics(kernel: KernelDetails, kernel_id: str) -> Metrics:
    if not kernel.metrics:
        return Metrics()
    return Metrics(raw=bounded_metrics(kernel), origin="measured", measured_kernel_id=kernel_id)


def capability(kernel: KernelDetails) -> str | None:
    """Compute capability of the device, "9.0"; None where the report does not say."""
    parts = [kernel.metrics.get(f"device__attribute_compute_capability_{part}") for part in ("major", "minor")]
    return None if None in parts else ".".join(str(int(part or 0)) for part in parts)


def bounded_metrics(kernel: KernelDetails) -> dict[str, float]:
    """The counters that reports and rules read, then those that the report's sections show, at most MOST_RAW."""
    table = ncu_knowledge()
    wanted = [name for shown in table.counters.values() for name in shown.names]
    wanted += metric_names(capability(kernel), "full")
    small = len(kernel.metrics) <= MOST_RAW
    wanted += [name for name in kernel.metrics if not name.startswith(("device__", "numa__", "nvlink__"))] if small else [
        name for section in kernel.sections if "Roofline" not in section.identifier for _label, name in section.metrics]
    return {name: kernel.metrics[name] for name in list(dict.fromkeys(name for name in wanted if name in kernel.metrics))[:MOST_RAW]}


def _ranges(kernel: KernelDetails) -> tuple[NvtxRange, ...]:
    return tuple(parse_range(text) for text in kernel.nvtx)


def _operator_range(kernel: KernelDetails) -> NvtxRange | None:
    """The innermost range that is an operator or one of the user's; None without one."""
    return next((one for one in reversed(_ranges(kernel)) if one.name != STEP and not one.name.startswith((STAGE, *_NO_OPERATOR))), None)


def _attributed(launches: Sequence[KernelDetails], records: Sequence[Kernel]) -> tuple[tuple[Operator, ...], tuple[Kernel, ...]]:
    """Operators by NVTX range (one a range that op_id names, else one a run of launches in it), and the kernels outside any."""
    held: dict[tuple[str, object], list[int]] = {}
    loose: list[Kernel] = []
    run, before = 0, None
    for place, (kernel, record) in enumerate(zip(launches, records, strict=True)):
        found = _operator_range(kernel)
        if found is None:
            loose.append(record)
            before = None
            continue
        run += before != found.name
        before = found.name
        held.setdefault((found.name, (kernel.report, found.op_id) if found.op_id is not None else ("run", run)), []).append(place)
    calls: dict[str, int] = {}
    operators = []
    for (name, _key), places in held.items():
        index = calls[name] = calls.get(name, -1) + 1
        operators.append(_operator(name, index, [launches[place] for place in places], [records[place] for place in places]))
    return tuple(operators), tuple(loose)


def _operator(name: str, index: int, launches: Sequence[KernelDetails], kernels: Sequence[Kernel]) -> Operator:
    ranges = _ranges(launches[0])
    own = _operator_range(launches[0])
    fused = fused_operators(launches[0].function)
    stage = next((one.name.removeprefix(STAGE) for one in reversed(ranges) if one.name.startswith(STAGE)), None)
    return Operator(
        operator_id=f"{name}_{index}", operator_name=name, call_index=index, step=0, is_fused=bool(fused), fused_ops=fused, stage=stage,
        input_shapes=(own.sizes or ()) if own is not None else (),
        parents=tuple(one.name for one in ranges if one != own and one.name != STEP and not one.name.startswith(STAGE)),
        kernels=tuple(kernels), aggregated=_aggregated(launches, kernels))


def _aggregated(launches: Sequence[KernelDetails], kernels: Sequence[Kernel]) -> Aggregated:
    heaviest = max(kernels, key=lambda kernel: kernel.duration_ns)
    return Aggregated(
        total_duration_ns=sum(kernel.duration_ns for kernel in kernels), kernel_count=len(kernels), dominant_kernel_id=heaviest.kernel_id,
        total_dram_bytes_read=_total(launches, "dram_read"), total_dram_bytes_written=_total(launches, "dram_write"),
        achieved_occupancy=weighted(launches, "occupancy"), tensor_core_active_pct=weighted(launches, "tensor"),
        l1_hit_rate=weighted(launches, "l1_hit"), l2_hit_rate=weighted(launches, "l2_hit"))


def _total(launches: Sequence[KernelDetails], key: str) -> float | None:
    values = [counter(key, kernel.metrics) for kernel in launches]
    return None if None in values else sum(value for value in values if value is not None)


def weighted(launches: Sequence[KernelDetails], key: str) -> float | None:
    """Mean of a counter weighted by ncu's time; None where a launch lacks it or nothing took time."""
    return _weighted([(counter(key, kernel.metrics), kernel.duration_ns) for kernel in launches])


def _weighted(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    total = sum(weight or 0.0 for _value, weight in pairs)
    if total <= 0 or any(value is None for value, _weight in pairs):
        return None
    return sum((value or 0.0) * (weight or 0.0) for value, weight in pairs) / total


def _stages(launches: Sequence[KernelDetails]) -> tuple[Stage, ...]:
    """One row a kernel: this mode looks at kernels, whatever stages the workload marks."""
    whole = sum(kernel.duration_ns or 0.0 for kernel in launches)
    rows = []
    for name, held in groups(launches).items():
        duration = sum(kernel.duration_ns or 0.0 for kernel in held)
        pipes = [busiest_pipe(kernel.metrics) for kernel in held]
        rows.append(Stage(
            name=name, marked=False, calls=len(held), kernel_count=len(held), duration_ns=duration,
            share_pct=100 * duration / whole if whole > 0 else 0.0,
            pipe_pct=_weighted([(pipe[1] if pipe else None, kernel.duration_ns) for pipe, kernel in zip(pipes, held, strict=True)]),
            tc_pct=weighted(held, "tensor"), dram_pct=weighted(held, "dram"), occupancy_pct=weighted(held, "occupancy"),
            dominant_kernel=held[0].name))
    return tuple(rows)


def _with_rules(profile: Profile, launches: Sequence[KernelDetails], tool: str) -> Profile:
    """Adds ncu's rules to the findings, each kernel's key issue, and whose durations these are."""
    ranked = ranked_rules(launches)
    findings = [_finding(one) for one in ranked if one.order == 0][:MOST_FINDINGS]
    first = _key_issues(ranked, launches)
    functions = {kernel.name or kernel.function: group_name(kernel) for kernel in launches}
    stages = tuple(stage.model_copy(update={"key_issue": first.get(stage.name, stage.key_issue),
                                            "bottleneck": stage.bottleneck or classify(stage.pipe_pct, stage.dram_pct)})
                   for stage in profile.stages)
    merged = sorted([*(_with_kernel(one, functions) for one in profile.findings), *findings],
                    key=lambda one: (-one.estimated_gain_pct, one.rule))
    judged = _bottleneck(profile)
    durations = ncu_knowledge().durations.format(launches=f"{len(launches)} launch{'' if len(launches) == 1 else 'es'}", tool=tool,
                                                 device=profile.capture_metadata.device_name)
    words = f"{judged.root_cause.strip()} {durations}".strip()
    return profile.model_copy(update={"findings": tuple(merged), "stages": stages,
                                      "bottleneck": judged.model_copy(update={"root_cause": words})})


def _key_issues(ranked: Sequence[RankedRule], launches: Sequence[KernelDetails]) -> dict[str, str]:
    """Kernel -> what to do first: what mends its hottest line, where one of ncu's rules says so too; else the largest estimate."""
    first: dict[str, str] = {}
    for name, held in groups(launches).items():
        mine = [one for one in ranked if one.kernel == name]
        hot = hot_action(held)
        for one in [*(one for one in mine if one.action == hot), *(one for one in mine if one.order == 0)][:1]:
            first[name] = one.action
    return first


def _with_kernel(one: Finding, functions: Mapping[str, str]) -> Finding:
    """The finding, its name with the kernel that it is about."""
    if one.kernel is None:
        return one
    others = (one.kernel_count or 1) - 1
    more = f" and {others} more" if others else ""
    return one.model_copy(update={"name": f"{one.name} ({functions.get(one.kernel, one.kernel)[:MOST_KERNEL]}{more})"})


def _bottleneck(profile: Profile) -> Bottleneck:
    """As diagnosed; where that was undecided, by the busiest pipe and DRAM of all kernels, time-weighted."""
    if profile.bottleneck.kind is not None:
        return profile.bottleneck
    compute, dram = (_weighted([(value, stage.duration_ns) for stage, value in zip(profile.stages, values, strict=True)])
                     for values in ([stage.pipe_pct for stage in profile.stages], [stage.dram_pct for stage in profile.stages]))
    if compute is None or dram is None:
        return profile.bottleneck
    return Bottleneck(kind=classify(compute, dram), root_cause=counted_words(profile, compute, dram))


def _finding(one: RankedRule) -> Finding:
    focus = one.rule.focus[0] if one.rule.focus else None
    trigger = f"{metric_label(focus[0])}={focus[1]:.4g}" if focus is not None else f"{one.rule.identifier}={one.rule.speedup_pct:.3g}%"
    return Finding(
        rule=f"ncu_{one.rule.identifier}"[:100], name=f"{one.action} ({one.kernel})", detail=one.rule.message, stage=one.kernel,
        estimated_gain_pct=min(max(one.gain_pct or 0.0, 0.0), 100.0), trigger=trigger, evidence="counters",
        hint=focus[2] if focus is not None else "", playbook=one.playbook)


def facts(profile: Profile) -> dict[str, Any]:
    """Counts for params.json."""
    kernels = [kernel for operator in profile.operators for kernel in operator.kernels] + list(profile.unattributed_kernels)
    return {"kernels": len({kernel.kernel_name for kernel in kernels}), "launches": len(kernels)}
