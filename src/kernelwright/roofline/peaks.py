"""Ceilings at the dtype in use: measured by the calibration, beside the vendor's datasheet."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model.base import Figure
from ..model.capture import OpRecord, ProbeEnvironment, ProbePeak, ProbeWork
from ..model.profile import Roof
from ..model.workload import WorkloadFacts
from .ceilings import ceilings, other_pipes
from .knowledge import datasheet

_ARITHMETIC = ("float32", "bfloat16", "float16", "float64")
_CONVOLUTION = re.compile(r"^aten::.*(convolution|conv[123]d|_rnn|lstm|gru)")
"""Operators that cuDNN may run in TF32 by its own flag."""


def roof(peaks: Sequence[ProbePeak], environment: ProbeEnvironment, facts: WorkloadFacts, *, ops: Sequence[OpRecord] = (),
         work: ProbeWork | None = None) -> Roof:
    """Ceilings of this device at the dtype in use.

    ops: one step's counted operators, when known; work: what a call was counted to do, which stands for them where the call is compiled.
    Where convolutions hold most FLOPs, cuDNN's TF32 flag counts instead of matmul's. Measured peaks come from the calibration, in TFLOP/s
    and GB/s; what was not measured or printed is None.
    """
    counted = [(op.name, op.flops or 0.0) for op in ops] or [*(work.counted.items() if work is not None else ())]
    dtype, note = arithmetic_key(environment, facts, counted)
    sheet = datasheet(environment.device_name) if environment.device == "cuda" else None
    compute = _measured(peaks, f"matmul:{dtype}", note)
    bandwidth = _measured(peaks, "bandwidth", "")
    source = f"{sheet.source}, {sheet.url}" if sheet else ""
    sheet_compute = next((value for key, value in sheet.compute_tflops.items() if key == dtype), None) if sheet else None
    sheet_bandwidth = sheet.bandwidth_gbs if sheet else None
    printed_compute = None if sheet_compute is None else Figure(value=sheet_compute, unit="TFLOP/s", evidence="datasheet", source=source)
    printed_bandwidth = None if sheet_bandwidth is None else Figure(value=sheet_bandwidth, unit="GB/s", evidence="datasheet", source=source)
    return Roof(
        dtype=dtype, peak_compute=compute, peak_bandwidth=bandwidth, datasheet_compute=printed_compute,
        datasheet_bandwidth=printed_bandwidth, ridge_point=ridge(compute, bandwidth) or ridge(printed_compute, printed_bandwidth),
        ceilings=ceilings(peaks, environment, dtype), other_pipes=other_pipes(peaks, environment, dtype))


def arithmetic_key(environment: ProbeEnvironment, facts: WorkloadFacts, counted: Sequence[tuple[str, float]] = ()) -> tuple[str, str]:
    """(key of the arithmetic peak, note). float32 on CUDA means TF32 where the flag that governs most FLOPs allows it. counted: (operator,
    its FLOPs)."""
    dtype = facts.dtype if facts.dtype in _ARITHMETIC else "float32"
    if dtype != "float32" or environment.device != "cuda":
        return dtype, ""
    total = sum(flops for _, flops in counted)
    by_cudnn = sum(flops for name, flops in counted if _CONVOLUTION.match(name))
    if total > 0 and 2 * by_cudnn > total:
        return ("tf32", "cuDNN may use TF32") if environment.cudnn_tf32 else ("float32", "")
    if environment.matmul_tf32:
        return "tf32", "matmul may use TF32"
    return "float32", "convolutions may use TF32 and exceed it" if environment.cudnn_tf32 and by_cudnn > 0 else ""


def ridge(compute: Figure | None, bandwidth: Figure | None) -> Figure | None:
    """Ridge point in FLOP/B = TFLOP/s / GB/s * 1000: from which arithmetic intensity on compute binds (Williams et al. 2009)."""
    if compute is None or bandwidth is None or bandwidth.value <= 0:
        return None
    return Figure(value=compute.value / bandwidth.value * 1000, unit="FLOP/B", evidence=compute.evidence,
                  source=f"{compute.evidence} peaks")


def _measured(peaks: Sequence[ProbePeak], name: str, note: str) -> Figure | None:
    found = next((peak for peak in peaks if peak.name == name and peak.value > 0), None)
    if found is None:
        return None
    return Figure(value=found.value, unit=found.unit, evidence="calibration", source=f"{found.method}; {note}" if note else found.method)


def binding_peaks(ceilings: Roof) -> tuple[Figure | None, Figure | None]:
    """(compute, bandwidth) that shares are taken of: measured where present, else the datasheet's."""
    return ceilings.peak_compute or ceilings.datasheet_compute, ceilings.peak_bandwidth or ceilings.datasheet_bandwidth
