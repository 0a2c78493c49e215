"""This device's measured peaks for one profile: kept from an earlier run, measured in this one, and doubted where the call beats them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..capture.calibration import forget_peaks, load_peaks, store_peaks
from ..capture.interpreter import Interpreter, gpu_visible
from ..model.capture import OpRecord, ProbePeak, ProbeResult
from ..model.measurement import Measurement
from ..model.profile import Profile
from ..model.saying import Say
from ..roofline import roof, work_summary

SUSPECT_PEAK_PCT = 110.0
"""A compute share above this: the ceiling was measured too low (a busy machine), or fewer FLOPs are done than are counted."""
MIXED = ("the call ran faster than float32's measured compute peak: convolutions may use TF32, whose peak is higher, so the compute share "
         "is too large")
AGAIN = "the call ran faster than the measured compute peak: the peaks are measured again"
UNKNOWN = ("the call ran faster than the measured compute peak{again}: the peaks count as unknown (the machine was busy while they were "
           "measured, or the call does fewer FLOPs than are counted); profile again when the machine is quiet")


def peaks_key(python: Interpreter, device: str, version: str) -> str:
    """What the peaks kept from an earlier run depend on, before the probe has told the device's name."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = os.environ.get("OMP_NUM_THREADS") or cores
    where = "cpu" if device == "cpu" or not gpu_visible() else f"cuda {os.environ.get('CUDA_VISIBLE_DEVICES', '')} {_gpu_names()}"
    return f"{where}|{python.torch_version}|{threads}|{version}"


def measured_peaks(
    result: ProbeResult, ops: Sequence[OpRecord], key: str, calibrate: Callable[[], ProbeResult], say: Say,
) -> tuple[tuple[ProbePeak, ...], tuple[str, ...]]:
    """(peaks, warnings): measured in this run, else the kept ones, measured now where those are another device's or too low for what the
    call reached. Peaks that it beats after that too are not known: there are none then."""
    assert result.environment is not None
    name, peaks, calibrated = result.environment.device_name, result.peaks, bool(result.peaks)
    if not peaks:
        peaks = load_peaks(key, name)
    if not peaks:
        peaks, calibrated = calibrate().peaks, True
    if beaten(result, ops, peaks):
        say(AGAIN)
        peaks, calibrated = best_of_both(peaks, calibrate().peaks), True
        if beaten(result, ops, peaks):
            forget_peaks(key)
            return (), (UNKNOWN.format(again=", measured twice"),)
    if calibrated:
        store_peaks(key, name, peaks)
    return peaks, (MIXED,) if beaten(result, ops, peaks, tf32=False) else ()


def beaten(result: ProbeResult, ops: Sequence[OpRecord], peaks: Sequence[ProbePeak], *, tf32: bool = True) -> bool:
    """Whether the timed call did more FLOPs a second than the measured peak allows. tf32: where its float32 convolutions may use TF32,
    that peak counts (float32's own is no ceiling for them)."""
    environment = result.environment
    if result.work is None or result.timing is None or result.facts is None or environment is None or not result.timing.samples_ns:
        return False
    ceiling = roof(peaks, environment, result.facts, ops=ops, work=result.work)
    achieved = work_summary(result.work, Measurement.of(result.timing.samples_ns, timer=result.timing.timer), ceiling).achieved_compute
    if ceiling.peak_compute is None or achieved is None:
        return False
    names = {f"matmul:{ceiling.dtype}"}
    if tf32 and ceiling.dtype == "float32" and environment.device == "cuda" and environment.cudnn_tf32:
        names.add("matmul:tf32")
    return achieved.value > SUSPECT_PEAK_PCT / 100 * max(peak.value for peak in peaks if peak.name in names)


def beaten_by_stages(profile: Profile) -> bool:
    """The same of a profile without the call's own work (a script): all its counted operators together."""
    counted = [stage for stage in profile.stages if stage.flops is not None and stage.duration_ns > 0]
    peak = profile.roofline.peak_compute if profile.roofline is not None else None
    time_ns = sum(stage.duration_ns for stage in counted)
    if peak is None or not time_ns:
        return False
    return 1e-3 * sum(stage.flops or 0.0 for stage in counted) / time_ns > SUSPECT_PEAK_PCT / 100 * peak.value


def best_of_both(one: Iterable[ProbePeak], other: Iterable[ProbePeak]) -> tuple[ProbePeak, ...]:
    """The higher of two measurements of each ceiling: other work on the machine only ever lowers one."""
    best: dict[str, ProbePeak] = {}
    for peak in (*one, *other):
        if peak.name not in best or peak.value > best[peak.name].value:
            best[peak.name] = peak
    return tuple(best.values())


def _gpu_names() -> str:
    folder = Path("/proc/driver/nvidia/gpus")
    return ",".join(sorted(part.name for part in folder.iterdir())) if folder.is_dir() else ""
