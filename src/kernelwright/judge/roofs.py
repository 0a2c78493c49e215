"""Speed that cannot be: a call's time against what the device can do at most. Pure numbers.

Two levels. Below what any program needs that leaves such outputs in memory of their own, the candidate is a CHEAT: its timer or its work
is not what it says. Below what the reference's own bytes and operations need, it is only not believed: an algorithm with fewer
operations, or one that needs only part of its inputs, may be honest, and a person should look.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model.workload import Precision
from ..roofline.knowledge import Device

LAUNCH_NS = 500.0
"""A call that leaves new values on a GPU launches at least one kernel or graph: more than 1 us of host time, and kernels of one graph
follow each other by about as much."""
CPU_STORE_BYTES_PER_NS = 400.0
"""One core's widest store: 64 bytes a clock at 6.2 GHz."""
STORE_MARGIN = 0.5
"""An accusation needs less than half of the least time: clocks above the datasheet's, and timers, are then no excuse."""
DOUBT_MARGIN = 0.95


@dataclass(frozen=True)
class Need:
    """What one call of the workload needs, as the reference's process counts it. None: not known."""

    output_bytes: float
    """Of outputs in memory of their own: views of inputs and parameters, and expanded dimensions, do not count."""
    input_bytes: float
    min_bytes: float | None
    """Inputs, parameters and outputs once; of an embedding's table only the rows that are read."""
    flops: float | None


@dataclass(frozen=True)
class Roofs:
    """The device."""

    sheet: Device | None
    """None: a CPU, or a GPU without a datasheet."""
    cores: int
    """CPU cores that the candidate may use; 0 on a GPU."""
    cache_bytes: int | None
    """The GPU's L2."""


@dataclass(frozen=True)
class Finding:
    """At most one of both."""

    cheat: str | None = None
    doubt: str | None = None


def examine(
    need: Need, roofs: Roofs, *, candidate_ns: float, reference_ns: float, own_output_bytes: float, ring: int, precision: Precision,
    all_float32: bool,
) -> Finding:
    """Times are of one call. own_output_bytes: as Need.output_bytes, by the candidate's own word: it can only turn an accusation into
    a doubt. ring: input sets that the timed calls went through in turn. all_float32: the outputs have no other floating dtype."""
    floor_ns, why = _write_floor(need.output_bytes, roofs)
    if candidate_ns < STORE_MARGIN * floor_ns <= STORE_MARGIN * reference_ns:
        words = f"{_us(candidate_ns)} a call, and {why} takes at least {_us(floor_ns)}"
        if own_output_bytes >= need.output_bytes:
            return Finding(cheat=f"impossible speed: {words}")
        return Finding(doubt=f"not believed: {words}; its outputs are said to be views of other tensors")
    for least_ns, why in (_bytes_floor(need, roofs, ring), _flops_floor(need, roofs, precision, all_float32)):
        if candidate_ns < DOUBT_MARGIN * least_ns <= DOUBT_MARGIN * reference_ns:  # below the reference's own time, or it is no floor
            return Finding(doubt=f"not believed: {_us(candidate_ns)} a call, and {why} takes at least {_us(least_ns)} on this device; "
                                 "only a program that needs less of its inputs, or fewer operations, can be that fast: look at it")
    return Finding()


def _write_floor(output_bytes: float, roofs: Roofs) -> tuple[float, str]:
    """Outputs through the stores of all cores: 0 where that is not known."""
    if output_bytes <= 0:
        return 0.0, ""
    writing = f"writing {_size(output_bytes)} of outputs"
    if roofs.cores:
        return output_bytes / (roofs.cores * CPU_STORE_BYTES_PER_NS), f"{writing} with the stores of {roofs.cores} cores"
    stores = roofs.sheet.l1_gbs if roofs.sheet is not None else None
    through = output_bytes / stores if stores else 0.0  # GB/s are bytes a ns
    if through > LAUNCH_NS:
        return through, f"{writing} with the stores of all multiprocessors"
    return LAUNCH_NS, "one launch"


def _bytes_floor(need: Need, roofs: Roofs, ring: int) -> tuple[float, str]:
    """What a pass over the ring must fetch from or bring to memory beyond twice the cache (it may hold what was refilled, and the last
    outputs): 0 where all of it may lie in the cache, whose bandwidth is not known."""
    bandwidth = roofs.sheet.bandwidth_gbs if roofs.sheet is not None else None
    if not bandwidth or need.min_bytes is None or roofs.cache_bytes is None:
        return 0.0, ""
    once = need.min_bytes + (ring - 1) * min(need.input_bytes, need.min_bytes)  # the parameters once: they may stay in the cache
    beyond = max(0.0, once - 2 * roofs.cache_bytes)
    return beyond / ring / bandwidth, f"moving {_size(beyond / ring)} to and from memory at {bandwidth:g} GB/s"


def _flops_floor(need: Need, roofs: Roofs, precision: Precision, all_float32: bool) -> tuple[float, str]:
    if roofs.sheet is None or not need.flops:
        return 0.0, ""
    peaks = dict(roofs.sheet.compute_tflops.items())
    exact = [value for key, value in peaks.items() if key in ("float32", "tf32")]
    as_exact = all_float32 and precision == "equal" and bool(exact)
    # Sums of several products in TF32 or bf16 reach float32 at no higher rate than TF32's; 8-bit floats and structured sparsity double
    # the dense 16-bit rate.
    peak = max(exact) if as_exact else 2 * max(peaks.values(), default=0.0)
    if not peak:
        return 0.0, ""
    return need.flops / (peak * 1e3), f"{need.flops / 1e9:.3g} GFLOP at {peak:g} TFLOP/s"


def _us(ns: float) -> str:
    return f"{ns / 1e3:.3g} us"


def _size(size: float) -> str:
    return f"{size / 2**20:.3g} MiB"
