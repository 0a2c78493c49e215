"""The few figures of a Profile that the contract, the development log and comparisons all quote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..model.base import Evidence, Figure
from ..model.measurement import PAIRED, Measurement
from ..model.profile import Profile, Stage
from .numbers import us, usable

DurationOf = Literal["call", "recorded step", "stages"]
UNSTABLE = "the call was not stable"
"""How the warning of a capture starts whose warm-up ended before the call's time had settled."""


@dataclass(frozen=True)
class Headline:
    """Headline figures of one profile; None where not measured."""

    duration_ns: float | None
    """Time of one call: the median of its timing; of a recording made elsewhere, the median time of its steps; else the sum of the stages
    of one step."""
    duration_evidence: Evidence | None
    low_ns: float | None
    """95% interval of the duration; None where there is none (stage sums, fewer than five samples)."""
    high_ns: float | None
    kernel_ns: float | None
    """Sum of the stages of one step (device time; CPU: operator time); None without a timeline."""
    tflops: float | None
    """Achieved TFLOP/s."""
    gbps: float | None
    """Achieved GB/s."""
    tc_pct: float | None
    dram_pct: float | None
    occupancy_pct: float | None
    """These three are means over the stages that have counters, weighted by duration."""
    launches: float | None
    """Launches a step; None on a CPU, which launches nothing."""
    idle_pct: float | None
    profiled_idle_pct: float | None
    """The same of the profiled steps, before the profiler's overhead was taken out."""
    duration_of: DurationOf | None
    """What the duration is the time of; two of different things are not compared."""


def headline(profile: Profile) -> Headline:
    """The headline figures of a profile."""
    timeline, work = profile.timeline, profile.work
    kernel_ns = sum(stage.duration_ns for stage in profile.stages) if profile.stages and timeline is not None else None
    duration, evidence, duration_of = _duration(profile, kernel_ns)
    timed = duration_timing(profile)
    interval = timed.interval_ns if timed else None
    return Headline(
        duration_ns=duration,
        duration_evidence=evidence,
        low_ns=interval[0] if interval else None,
        high_ns=interval[1] if interval else None,
        kernel_ns=kernel_ns,
        tflops=in_unit(work.achieved_compute if work else None, "TFLOP/s"),
        gbps=in_unit(work.achieved_bandwidth if work else None, "GB/s"),
        tc_pct=weighted(profile.stages, lambda stage: stage.tc_pct),
        dram_pct=weighted(profile.stages, lambda stage: stage.dram_pct),
        occupancy_pct=weighted(profile.stages, lambda stage: stage.occupancy_pct),
        launches=timeline.launches / timeline.steps if timeline and timeline.steps and profile.capture_metadata.device == "cuda" else None,
        idle_pct=usable(timeline.idle_share_pct) if timeline else None,
        profiled_idle_pct=usable(timeline.profiled_idle_share_pct) if timeline else None,
        duration_of=duration_of,
    )


def duration_timing(profile: Profile) -> Measurement | None:
    """The timing of calls; of a recording made elsewhere, that of its steps (each to the end of its device work). None where there is
    neither: a sum of device time is no duration of a step."""
    if profile.timing is not None:
        return profile.timing
    if profile.recording is None or profile.structure is None or profile.recording.steps_from == "whole":
        return None
    times = [row.time_ns for row in profile.structure.iterations if row.time_ns is not None]
    if not times or len(times) < len(profile.structure.iterations):
        return None
    return Measurement.of([float(time) for time in times], timer="timeline", evidence="timeline")


def _duration(profile: Profile, kernel_ns: float | None) -> tuple[float | None, Evidence | None, DurationOf | None]:
    timed = duration_timing(profile)
    if timed is not None:
        return timed.median_ns, timed.evidence, "call" if profile.timing is not None else "recorded step"
    if profile.recording is not None:
        return None, None, None
    if kernel_ns is not None:
        return kernel_ns, "timeline", "stages"
    if profile.stages:
        return sum(stage.duration_ns for stage in profile.stages), profile.evidence.get("duration", "timeline"), "stages"
    return None, None, None


def in_unit(figure: Figure | None, unit: str) -> float | None:
    """The figure's value when it has the expected unit, else None: a wrong unit is never printed as the right one."""
    return usable(figure.value) if figure is not None and figure.unit == unit else None


def weighted(stages: tuple[Stage, ...], read: Callable[[Stage], float | None]) -> float | None:
    """Duration-weighted mean over the stages where the figure was measured; None where it never was."""
    pairs = [(value, stage.duration_ns) for stage in stages if (value := usable(read(stage))) is not None]
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total > 0 else None


def intervals_overlap(a: Headline, b: Headline) -> bool | None:
    """Whether the 95% intervals of two durations overlap; None where either has no interval."""
    if a.low_ns is None or a.high_ns is None or b.low_ns is None or b.high_ns is None:
        return None
    return a.low_ns <= b.high_ns and b.low_ns <= a.high_ns


def duration_warning(profile: Profile) -> str | None:
    """Why a profile's timing is no ground to call anything faster or slower (noisy, few samples, not stable); None when it is one.

    A timing that the judge took in pairs has no such doubt: the noise is in the interval of the pair.
    """
    timing = duration_timing(profile)
    if timing is None or timing.timer.endswith(PAIRED):
        return None
    unstable = next((warning for warning in profile.warnings if warning.startswith(UNSTABLE)), None)
    doubts = (timing.warning, unstable, _slower_unprofiled(profile))
    return "; ".join(doubt for doubt in doubts if doubt) or None


def _slower_unprofiled(profile: Profile) -> str | None:
    """A profiler only adds time: where a script's steps without it were the slower ones, something else slowed them."""
    script = profile.script
    free, profiled = (script.unprofiled_step, script.profiled_step) if script is not None else (None, None)
    if free is None or profiled is None or free.value <= profiled.value:
        return None
    return f"slower than the steps under the profiler ({us(profiled.value)} us), so other work or warming up slowed it"


def kernel_time_name(*, on_cpu: bool) -> str:
    """What the sum of the stages is called."""
    return "Operator time (us)" if on_cpu else "Kernel time (us)"


def title(profile: Profile) -> str:
    """"<kernel> <version>", or "<kernel>" where the workload has no versions."""
    meta = profile.capture_metadata
    return f"{meta.model_name} {meta.version}" if meta.version else meta.model_name


def shape(dims: tuple[int, ...]) -> str:
    """16x3x64x64, or "scalar"."""
    return "x".join(str(dim) for dim in dims) or "scalar"


def input_name(path: str) -> str:
    """How an input leaf is called in tables: "input" for a lone tensor, "input[0]" for the first of several."""
    if not path:
        return "input"
    return f"input[{path}]" if path.split(".")[0].isdigit() else path


def configuration(profile: Profile) -> list[tuple[str, str]]:
    """(name, value) of each parameter in the workload's order; without parameters, input shapes and the dtype; of a report of ncu the
    GPU, the tool and the number of launches."""
    if profile.script is not None:
        dtype = [] if "dtype" in profile.parameters else [("dtype", profile.capture_metadata.dtype)]
        none = [] if profile.parameters else [("arguments", "none")]
        return [*none, *((name, str(value) or '""') for name, value in profile.parameters.items()), *dtype]
    if profile.parameters:
        return [(name, '""' if value == "" else str(value)) for name, value in profile.parameters.items()]
    if profile.capture_metadata.mode == "ncu" and not profile.inputs:  # a report made elsewhere: what it is of is all that is known
        launches = len(profile.unattributed_kernels) + sum(len(operator.kernels) for operator in profile.operators)
        return [("gpu", profile.capture_metadata.device_name), ("tool", profile.capture_metadata.tool or "n/a"),
                ("launches", str(launches)), ("dtype", profile.capture_metadata.dtype)]
    inputs = [(input_name(spec.path), shape(spec.shape)) for spec in profile.inputs]
    return [*inputs, ("dtype", profile.capture_metadata.dtype)]


def mismatch(profile: Profile, other: Profile, names: tuple[str, str] = ("this one", "it")) -> str | None:
    """Why two profiles' durations are not those of the same work on the same device; None when they are.

    names: what the sentence calls `profile` and `other`.
    """
    own, name = names
    whose = "its" if name == "it" else f"{name}'s"
    mine, theirs = profile.capture_metadata, other.capture_metadata
    if (mine.device, mine.device_name) != (theirs.device, theirs.device_name):
        return f"{name} ran on {theirs.device_name} ({theirs.device}), {own} on {mine.device_name} ({mine.device})"
    if mine.dtype != theirs.dtype:
        return f"{whose} dtype is {theirs.dtype}, {own}'s is {mine.dtype}"
    if profile.parameters != other.parameters:
        return f"{whose} parameters are {_words(other.parameters)}, {own}'s are {_words(profile.parameters)}"
    if _cold(profile) != _cold(other):
        return "one was timed with --flush-l2, the other without"
    if mine.training != theirs.training:
        return "one is a training step, the other is inference"
    shapes, other_shapes = ([(spec.shape, spec.dtype) for spec in p.inputs] for p in (profile, other))
    if shapes != other_shapes:
        return f"{whose} input shapes or dtypes are others than {own}'s"
    return None


def _cold(profile: Profile) -> bool:
    return profile.timing is not None and profile.timing.cold


def _words(parameters: dict[str, object] | dict[str, int | float | bool | str | None]) -> str:
    return ", ".join(f"{name}={value}" for name, value in parameters.items()) or "none"
