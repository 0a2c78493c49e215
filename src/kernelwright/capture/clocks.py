"""Watches the GPU's clocks during a run. Clocks are read here, never changed."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Any

from ..model.profile import ClockReading

SAMPLE_EVERY_S = 0.1
# Names of NVML's nvmlClocksEventReason* bits (nvml.h). Idle (bit 0) and application clocks (bit 1) are no throttling.
THROTTLE_REASONS = {
    0x4: "software power cap", 0x8: "hardware slowdown", 0x10: "sync boost", 0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown", 0x80: "hardware power brake", 0x100: "display clock setting",
}


class ClockSampler:
    """Context manager: samples SM clock and throttle reasons of one GPU every 100 ms through NVML.

    Without NVML or a GPU the reading has no clocks and says why. requested: "none", "lock" or a number of MHz.
    """

    def __init__(self, requested: str, *, device: str) -> None:
        self._requested = requested
        self._device = device
        self._sm_mhz: list[int] = []
        self._reasons = 0
        self._note = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ClockSampler:
        if self._device != "cpu":
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def reading(self) -> ClockReading:
        """What was seen so far."""
        notes = [self._note] if self._note else []
        if self._requested != "none":
            forbidden = os.environ.get("KERNELWRIGHT_CLOCKS") == "none"
            notes.append("clock changes are forbidden here (KERNELWRIGHT_CLOCKS=none): clocks not locked" if forbidden
                         else "clocks were not locked: this version only watches them")
        return ClockReading(
            requested=self._requested, locked=False,
            sm_mhz_min=min(self._sm_mhz, default=None), sm_mhz_max=max(self._sm_mhz, default=None),
            throttle_reasons=tuple(name for bit, name in THROTTLE_REASONS.items() if self._reasons & bit),
            note="; ".join(notes),
        )

    def _sample(self) -> None:
        try:
            import pynvml
        except ImportError:
            self._note = "NVML's Python binding is not installed"
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            self._note = "NVML not available"
            return
        try:
            self._sample_until_stopped(pynvml, _first_visible(pynvml))
        except pynvml.NVMLError as error:
            self._note = f"NVML: {error}"
        finally:
            pynvml.nvmlShutdown()

    def _sample_until_stopped(self, nvml: Any, handle: Any) -> None:
        while not self._stop.wait(SAMPLE_EVERY_S):
            # Idle samples (the process still imports) would hide what the clock was under load.
            if nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0:
                continue
            self._sm_mhz.append(int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)))
            self._reasons |= int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _first_visible(nvml: Any) -> Any:
    """The handle of CUDA device 0: the first entry of CUDA_VISIBLE_DEVICES (a number or a UUID), else index 0."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    if first.startswith("GPU-"):
        return nvml.nvmlDeviceGetHandleByUUID(first)
    return nvml.nvmlDeviceGetHandleByIndex(int(first) if first.isdigit() else 0)
