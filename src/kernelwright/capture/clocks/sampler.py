"""Watches a GPU during a run: SM clock, throttle reasons, temperature, power, and other processes on it."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...model.profile import GpuUser
from ..gpu_users import users_of
from ..gpus import VisibleGpu
from .settings import settings

SAMPLE_EVERY_S = 0.1
SLOW_EVERY = 10
"""Temperature, power and processes change slowly: every tenth sample has them."""
# Names of NVML's nvmlClocksEventReason* bits (nvml.h). Idle (bit 0) and application clocks (bit 1) are no throttling.
THROTTLE_REASONS = {
    0x4: "software power cap", 0x8: "hardware slowdown", 0x10: "sync boost", 0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown", 0x80: "hardware power brake", 0x100: "display clock setting",
}


@dataclass
class Samples:
    """What was seen under load: idle samples (the process still imports) would hide what the clock was."""

    sm_mhz: list[int] = field(default_factory=list)
    reasons: int = 0
    temperature_c: int | None = None
    power_w: float | None = None
    users: dict[int, GpuUser] = field(default_factory=dict)
    note: str = ""

    def throttled(self) -> tuple[str, ...]:
        """Names of the reasons seen."""
        return tuple(name for bit, name in THROTTLE_REASONS.items() if self.reasons & bit)

    def held(self, mhz: int) -> bool:
        """Whether the clock under load was seen at `mhz`."""
        near = sum(abs(value - mhz) <= settings().tolerance_mhz for value in self.sm_mhz)
        return bool(self.sm_mhz) and 100.0 * near / len(self.sm_mhz) >= settings().held_share_pct

    def spread_pct(self) -> float | None:
        """Spread of the middle 80% as a share of their highest; None with too few samples."""
        if len(self.sm_mhz) < settings().unsteady_samples:
            return None
        tenths = statistics.quantiles(self.sm_mhz, n=10, method="inclusive")
        return 100.0 * (tenths[-1] - tenths[0]) / tenths[-1]


class Sampler:
    """Samples one GPU in a thread of its own between start() and stop(). tick: called with each sample."""

    def __init__(self, binding: Any, gpu: VisibleGpu, tick: Callable[[], None] = lambda: None) -> None:
        self.seen = Samples()
        self._binding, self._gpu, self._tick = binding, gpu, tick
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; `seen` is complete afterwards."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2)

    def _run(self) -> None:
        count = 0
        try:
            while not self._stop.wait(SAMPLE_EVERY_S):
                self._tick()
                sample(self._binding, self._gpu, self.seen, slow=count % SLOW_EVERY == 0)
                count += 1
        except self._binding.NVMLError as error:
            self.seen.note = f"NVML: {error}"


def sample(binding: Any, gpu: VisibleGpu, seen: Samples, *, slow: bool = False) -> None:
    """Add one sample. Raises NVMLError."""
    if slow:
        for user in users_of(binding, gpu, known_only=True):
            seen.users.setdefault(user.pid, user)
    if binding.nvmlDeviceGetUtilizationRates(gpu.handle).gpu == 0:
        return
    seen.sm_mhz.append(int(binding.nvmlDeviceGetClockInfo(gpu.handle, binding.NVML_CLOCK_SM)))
    seen.reasons |= int(binding.nvmlDeviceGetCurrentClocksThrottleReasons(gpu.handle))
    if slow or len(seen.sm_mhz) == 1:
        heat = _optional(binding, lambda: int(binding.nvmlDeviceGetTemperature(gpu.handle, binding.NVML_TEMPERATURE_GPU)))
        power = _optional(binding, lambda: binding.nvmlDeviceGetPowerUsage(gpu.handle) / 1000.0)  # NVML gives mW
        seen.temperature_c = max((value for value in (seen.temperature_c, heat) if value is not None), default=None)
        seen.power_w = max((value for value in (seen.power_w, power) if value is not None), default=None)


def _optional(binding: Any, ask: Callable[[], Any]) -> Any | None:
    try:
        return ask()
    except binding.NVMLError:
        return None
