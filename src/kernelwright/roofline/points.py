"""Where stages, operators and kernels stand below the hierarchical roofline: by counters where there are any, else analytic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..model.profile import Kernel, Operator, Profile, Roof, Stage, TimelineSummary
from ..model.roofline import Level, RooflinePoint, Scope
from ..timeline.call_clock import LEAST_KEPT, call_time_ns
from .ceilings import LEVELS, bandwidth_ceiling, compute_ceiling
from .stages import is_marked, is_real, loose_stage_name, stage_name
from .use import Counting, Use, binding, shares

MOST_POINTS = 40
"""Names of one scope that get points, the heaviest."""
LEAST_COVERED = 0.9
"""Share of a group's time that a level must be known for: with less, its levels would speak of different launches."""


@dataclass
class _Group:
    """Launches of one name, and the analytic work of the operators in it whose FLOPs and bytes are both known."""

    kernels: list[Kernel] = field(default_factory=list)
    duration_ns: int = 0
    flops: float = 0.0
    min_bytes: float = 0.0
    recorded_ns: int = 0
    analytic_ns: float = 0.0
    """Of those operators, on the clock of the unprofiled call where that is known."""

    def add(self, kernels: Sequence[Kernel]) -> None:
        self.kernels += kernels
        self.duration_ns += sum(kernel.duration_ns for kernel in kernels)

    def add_operator(self, operator: Operator, line: TimelineSummary) -> None:
        self.add(operator.kernels)
        if operator.flops and operator.min_bytes:
            self.flops += operator.flops
            self.min_bytes += operator.min_bytes
            self.recorded_ns += operator.aggregated.total_duration_ns
            self.analytic_ns += call_time_ns(line, (operator,))


def with_roofline(draft: Profile) -> Profile:
    """The profile with its points, and with the binding roof of each stage. As it is where there are no roofs or no timeline."""
    roof, line = draft.roofline, draft.timeline
    if roof is None or line is None or line.steps < 1:
        return draft
    counting = Counting.for_profile(draft)
    groups = _groups(draft.operators, draft.unattributed_kernels, line)
    points = [point for scope, named in groups.items() for point in _points(scope, named, roof, line.steps, line.measured_ns, counting)]
    stages = tuple(_with_roof(stage, groups["stage"].get(stage.name), roof, counting) for stage in draft.stages)
    return draft.model_copy(update={"roofline_points": tuple(points), "stages": stages})


def _groups(operators: Sequence[Operator], loose: Sequence[Kernel], line: TimelineSummary) -> dict[Scope, dict[str, _Group]]:
    marked = is_marked(operators)
    found: dict[Scope, dict[str, _Group]] = {"stage": {}, "operator": {}, "kernel": {}}
    for operator in operators:
        found["stage"].setdefault(stage_name(operator, marked=marked), _Group()).add_operator(operator, line)
        if marked:  # else the stages are the operators
            found["operator"].setdefault(operator.operator_name, _Group()).add_operator(operator, line)
        for kernel in operator.kernels:
            if kernel.category == "kernel":
                found["kernel"].setdefault(kernel.kernel_name, _Group()).add((kernel,))
    for kernel in loose:
        found["stage"].setdefault(loose_stage_name(kernel), _Group()).add((kernel,))
        if kernel.category == "kernel":
            found["kernel"].setdefault(kernel.kernel_name, _Group()).add((kernel,))
    return found


def _points(scope: Scope, groups: dict[str, _Group], roof: Roof, steps: int, measured_ns: int, counting: Counting) -> list[RooflinePoint]:
    heaviest = sorted(groups.items(), key=lambda item: (-item[1].duration_ns, item[0]))[:MOST_POINTS]
    made: list[RooflinePoint] = []
    for name, group in heaviest:
        use = counting.use(group.kernels)
        share = 100.0 * group.duration_ns / measured_ns if measured_ns > 0 else 0.0
        counted = [point for level in LEVELS if (point := _counted_point(scope, name, level, group, share, roof, steps, counting))] \
            if use.covered else []
        made += counted
        if not counted and group.analytic_ns > 0 and group.analytic_ns >= LEAST_KEPT * group.recorded_ns:
            pipe = _analytic_pipe(roof)
            made.append(_point(scope, name, "dram", group.flops / steps, group.min_bytes / steps, group.analytic_ns / steps, share, roof,
                               pipe, "analytic"))
    return made


def _counted_point(
    scope: Scope, name: str, level: Level, group: _Group, share: float, roof: Roof, steps: int, counting: Counting,
) -> RooflinePoint | None:
    """Over the launches whose FLOPs and bytes at this level are both known; None without any work there."""
    use = Use()
    for kernel in group.kernels:
        counted = counting.of(kernel)
        if counted is not None and counted.flops is not None and level in counted.bytes:
            use.add(kernel, counted)
    flops, size = sum(use.flops.values()), use.bytes.get(level, 0.0)
    if flops <= 0 or size <= 0 or use.duration_ns < LEAST_COVERED * group.duration_ns:
        return None
    return _point(scope, name, level, flops / steps, size / steps, use.duration_ns / steps, share, roof, _pipe(use, roof), "counters")


def _point(
    scope: Scope, name: str, level: Level, flops: float, size: float, duration_ns: float, share: float, roof: Roof, pipe: str | None,
    evidence: str,
) -> RooflinePoint:
    intensity, tflops = flops / size, flops / duration_ns * 1e-3
    slope, flat = bandwidth_ceiling(roof, level), compute_ceiling(roof, pipe) if pipe is not None else None
    allowed = [limit for limit in (slope.value * intensity * 1e-3 if slope else None, flat.value if flat else None) if limit]
    return RooflinePoint.model_validate({
        "scope": scope, "name": name, "level": level, "flops": flops, "bytes": size, "duration_ns": duration_ns, "share_pct": share,
        "intensity": intensity, "tflops": tflops, "pipe": pipe, "roof_pct": 100.0 * tflops / min(allowed) if allowed else None,
        "evidence": evidence})


def _pipe(use: Use, roof: Roof) -> str | None:
    """The pipe that the FLOPs keep busy longest at its ceiling."""
    times = {pipe: flops / peak.value for pipe, flops in use.flops.items() if (peak := compute_ceiling(roof, pipe)) is not None}
    return max(times, key=lambda pipe: (times[pipe], pipe)) if times else None


def _analytic_pipe(roof: Roof) -> str | None:
    """The ceiling of the arithmetic in use."""
    wanted = (f"matmul:{roof.dtype}", f"tensor:{roof.dtype}", f"plain:{roof.dtype}")
    return next((ceiling.name for name in wanted for ceiling in roof.ceilings if ceiling.name == name), None)


def _with_roof(stage: Stage, group: _Group | None, roof: Roof, counting: Counting) -> Stage:
    use = counting.use(group.kernels) if group is not None else Use()
    nearest = binding(shares(use, roof)) if use.covered else None
    if nearest is not None:
        return stage.model_copy(update={"roof_pct": nearest[0], "binding_roof": nearest[1], "roof_evidence": "counters"})
    analytic = binding({name: share for name, share in (("compute", stage.compute_pct), ("memory", stage.bandwidth_pct))
                        if share is not None})
    if analytic is None or not is_real(stage):
        return stage
    return stage.model_copy(update={"roof_pct": analytic[0], "binding_roof": analytic[1], "roof_evidence": "analytic"})
