"""Every roof of a device: bandwidth of DRAM, L2 and L1, and the pipes at the dtype in use, measured beside the datasheet's."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.base import Figure
from ..model.capture import ProbeEnvironment, ProbePeak
from ..model.profile import Roof
from ..model.roofline import Ceiling, Level
from .knowledge import datasheet, tensor_float64

LEVELS: tuple[Level, ...] = ("dram", "l2", "l1")
_MEASURED = {"dram": "bandwidth", "l2": "bandwidth:l2"}
"""Level -> name of its ProbePeak. torch alone cannot measure L1."""
_TENSOR = {"float32": "tf32", "tf32": "tf32", "bfloat16": "bfloat16", "float16": "float16"}
"""Dtype in use -> what the tensor cores would multiply."""
NARROW = ("tf32", "bfloat16", "float16")


def ceilings(peaks: Sequence[ProbePeak], environment: ProbeEnvironment, dtype: str) -> tuple[Ceiling, ...]:
    """Known roofs, those of memory first. dtype: the arithmetic in use (`arithmetic_key`); a roof that nothing tells is left out."""
    found = [_bandwidth(level, peaks, environment) for level in LEVELS]
    found += [_compute(pipe, peaks, environment) for pipe in _pipes(environment, dtype)]
    return tuple(ceiling for ceiling in found if ceiling.measured is not None or ceiling.datasheet is not None)


def other_pipes(peaks: Sequence[ProbePeak], environment: ProbeEnvironment, dtype: str) -> tuple[Ceiling, ...]:
    """The pipes of narrower arithmetic than the one in use (tensor cores; on a CPU matrix products), as far as they are known: what a
    program that computes the same at lower precision, or by several narrow products for one, is held against."""
    kind = "matmul" if environment.device == "cpu" else "tensor"
    pipes = (f"{kind}:{other}" for other in NARROW)
    found = [_compute(pipe, peaks, environment) for pipe in pipes if pipe not in _pipes(environment, dtype)]
    return tuple(ceiling for ceiling in found if ceiling.measured is not None or ceiling.datasheet is not None)


def value_of(ceiling: Ceiling) -> Figure:
    """The figure that shares are taken of: measured where there is one, else the datasheet's."""
    figure = ceiling.measured or ceiling.datasheet
    assert figure is not None
    return figure


def bandwidth_ceiling(roof: Roof, level: Level) -> Figure | None:
    """GB/s of one level; None where it is not known."""
    return next((value_of(ceiling) for ceiling in roof.ceilings if ceiling.kind == "bandwidth" and ceiling.name == level), None)


def compute_ceiling(roof: Roof, pipe: str) -> Figure | None:
    """TFLOP/s of one pipe ("tensor:bfloat16"); None where it is not known."""
    return next((value_of(ceiling) for ceiling in roof.ceilings if ceiling.kind == "compute" and ceiling.name == pipe), None)


def _pipes(environment: ProbeEnvironment, dtype: str) -> tuple[str, ...]:
    if environment.device == "cpu":
        return (f"matmul:{dtype}",)
    capability = environment.compute_capability
    if dtype == "float64":
        return (f"{'tensor' if tensor_float64(capability) else 'plain'}:float64", "plain:float32")
    return f"tensor:{_TENSOR[dtype]}", "plain:float32"


def _bandwidth(level: Level, peaks: Sequence[ProbePeak], environment: ProbeEnvironment) -> Ceiling:
    sheet = datasheet(environment.device_name) if environment.device == "cuda" else None
    printed = None
    if sheet is not None:
        value, source = {"dram": (sheet.bandwidth_gbs, f"{sheet.source}, {sheet.url}"), "l2": (sheet.l2_gbs, sheet.l2_source),
                         "l1": (sheet.l1_gbs, sheet.l1_source)}[level]
        printed = None if value is None else Figure(value=value, unit="GB/s", evidence="datasheet", source=source)
    return Ceiling(kind="bandwidth", name=level, measured=_measured(peaks, _MEASURED.get(level)), datasheet=printed)


def _compute(pipe: str, peaks: Sequence[ProbePeak], environment: ProbeEnvironment) -> Ceiling:
    dtype = pipe.partition(":")[2]
    sheet = datasheet(environment.device_name) if environment.device == "cuda" else None
    value = next((tflops for key, tflops in sheet.compute_tflops.items() if key == dtype), None) if sheet is not None else None
    printed = None
    if sheet is not None and value is not None:
        printed = Figure(value=value, unit="TFLOP/s", evidence="datasheet", source=f"{sheet.source}, {sheet.url}")
    return Ceiling(kind="compute", name=pipe, measured=_measured(peaks, f"matmul:{dtype}"), datasheet=printed)


def _measured(peaks: Sequence[ProbePeak], name: str | None) -> Figure | None:
    found = next((peak for peak in peaks if peak.name == name and peak.value > 0), None)
    return None if found is None else Figure(value=found.value, unit=found.unit, evidence="calibration", source=found.method)
