"""What is known of a recording beside itself: kernelwright's own result.json in its folder, else the ceilings that its operators tell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from ..model.capture import ProbeEnvironment, ProbeResult
from ..model.measurement import Measurement
from ..model.profile import Operator, Roof
from ..model.trace import Trace
from ..model.workload import WorkloadFacts
from ..roofline import roof
from ..roofline.knowledge import bottlenecks
from .script import heaviest_dtype
from .source import is_file

RESULT = "result.json"
MOST_RESULT_BYTES = 16 << 20
NO_ROOF = Roof(dtype="n/a", peak_compute=None, peak_bandwidth=None, datasheet_compute=None, datasheet_bandwidth=None, ridge_point=None)
_ARITHMETIC = ("float32", "bfloat16", "float16", "float64")


def own_result(recording: Path, trace: Trace) -> ProbeResult | None:
    """The probe's result of the run that made this recording; None where there is none, or none that fits it.

    It fits when the steps are marked as the probe marks them and are as many, on the same device, and the trace that it names, if any, is
    this file. A file of that name that is something else, broken or larger than MOST_RESULT_BYTES says nothing of the recording.
    """
    file = recording.parent / RESULT
    try:
        if trace.steps_from != "kernelwright" or not is_file(file) or file.stat().st_size > MOST_RESULT_BYTES:
            return None
        result = ProbeResult.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None
    environment = result.environment
    if result.status != "ok" or environment is None or result.facts is None or result.trace_steps != len(trace.steps):
        return None
    if (environment.device == "cuda") != trace.is_cuda or result.trace_file not in (None, recording.name):
        return None
    return result if not trace.device_names or environment.device_name in trace.device_names else None


def timing_of(result: ProbeResult | None) -> Measurement | None:
    """The call without a profiler; None where it was not timed, or with samples that no clock gives."""
    if result is None or result.timing is None:
        return None
    try:
        return Measurement.of(result.timing.samples_ns, timer=result.timing.timer)
    except ValueError:
        return None


def roof_of_result(result: ProbeResult) -> Roof:
    """Measured and printed ceilings, as a live run has them; none where the dtype is not known (a script's)."""
    assert result.environment is not None and result.facts is not None
    if not result.facts.dtype:
        return NO_ROOF
    return roof(result.peaks, result.environment, result.facts, work=result.work)


def roof_of_operators(operators: Sequence[Operator], trace: Trace) -> Roof:
    """The datasheet's ceilings of the device at the dtype that does most FLOPs; none where either is not known, or devices differ.

    float32 counts as TF32 where most time of its FLOPs is spent in kernels named after tensor cores: the flag itself is in no recording.
    """
    names, dtype = set(trace.device_names), _dtype(operators)
    if not trace.is_cuda or len(names) != 1 or dtype not in _ARITHMETIC:
        return NO_ROOF
    environment = ProbeEnvironment(
        device="cuda", device_name=names.pop(), torch_version="n/a", cuda_version=None, python_version="", triton_version=None,
        compute_capability=None, sm_count=None, l2_bytes=None, device_memory_bytes=None, cpu_threads=0,
        matmul_tf32=dtype == "float32" and _on_tensor_cores(operators), cudnn_tf32=False, cudnn_benchmark=False)
    facts = WorkloadFacts(form="script", version=None, params={}, inputs=(), outputs=(), training=False, dtype=dtype, parameter_count=0,
                          parameter_bytes=0, already_compiled=False)
    return roof((), environment, facts)


def _dtype(operators: Sequence[Operator]) -> str:
    flops: Counter[str] = Counter()
    for operator in operators:
        if operator.flops and operator.dtype:
            flops[operator.dtype] += round(operator.flops)
    return flops.most_common(1)[0][0] if flops else heaviest_dtype(tuple(operators))


def _on_tensor_cores(operators: Sequence[Operator]) -> bool:
    named = re.compile(bottlenecks().rules["tensor_cores_unused"].patterns["tensor_kernels"])
    times = {True: 0, False: 0}
    for operator in operators:
        if operator.flops and operator.dtype == "float32":
            for kernel in operator.kernels:
                times[named.search(kernel.kernel_name) is not None] += kernel.duration_ns
    return times[True] > times[False]
