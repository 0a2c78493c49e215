"""Finds the highest clock that a GPU holds under load, once a device and driver."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...model.files import write_json_atomic
from ...model.saying import Say
from ..cache import cache_dir
from ..clockguard.switch import Refused
from ..gpus import VisibleGpu
from .load import Load
from .sampler import SAMPLE_EVERY_S, Samples, sample
from .settings import settings


def supported_mhz(binding: Any, gpu: VisibleGpu) -> list[int]:
    """The graphics clocks that the GPU has at its highest memory clock, highest first; [] where the driver does not list them."""
    try:
        memory = max(binding.nvmlDeviceGetSupportedMemoryClocks(gpu.handle), default=None)
        listed = binding.nvmlDeviceGetSupportedGraphicsClocks(gpu.handle, memory) if memory is not None else []
        return sorted({int(clock) for clock in listed}, reverse=True)
    except binding.NVMLError:
        return []


def known_mhz(gpu: VisibleGpu) -> int | None:
    """The clock found earlier for this GPU and driver."""
    try:
        document = json.loads(_file(gpu).read_text(encoding="utf-8"))
        return int(document["mhz"]) if document["key"] == gpu.key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def find_mhz(binding: Any, gpu: VisibleGpu, load: Load, set_clock: Callable[[int], None], say: Say) -> int:
    """Try clocks under the load, from the highest down, until one is held without throttling; keeps it for the next time.

    set_clock locks at a clock; the last one set is the one returned. Raises Refused when none holds, or when the clocks seem to be locked
    by somebody else already; NVMLError.
    """
    choices = supported_mhz(binding, gpu)
    if not choices:
        raise Refused("the driver does not list the clocks that this GPU has", "name one: --clocks MHZ")
    say(f"finding the clock that {gpu.name} holds under load (once a device and driver)")
    with load():
        _refuse_foreign(_watch(binding, gpu), choices[0])
        mhz = choices[0]
        for _ in range(settings().probe.tries):
            set_clock(mhz)
            seen = _watch(binding, gpu)
            if seen.held(mhz) and not seen.throttled():
                _keep(gpu, mhz)
                return mhz
            lowest = min(seen.sm_mhz, default=mhz)
            lower = [clock for clock in choices if clock < min(mhz, lowest)]
            if not lower:
                break
            mhz = lower[0]
    raise Refused(f"no clock of this GPU was held under load (the last tried was {mhz} MHz)", "name a lower one: --clocks MHZ")


def _watch(binding: Any, gpu: VisibleGpu) -> Samples:
    """Samples after the GPU has settled. Raises Refused when no load was seen at all."""
    time.sleep(settings().probe.settle_s)
    seen, end = Samples(), time.monotonic() + settings().probe.sample_s
    while time.monotonic() < end:
        sample(binding, gpu, seen)
        time.sleep(SAMPLE_EVERY_S)
    if not seen.sm_mhz:
        raise Refused(f"the load did not reach {gpu.name}", "name a clock: --clocks MHZ")
    return seen


def _refuse_foreign(seen: Samples, highest: int) -> None:
    """Without a lock only throttling keeps a loaded GPU below its highest clock; else somebody else holds it, and it stays theirs."""
    still = max(seen.sm_mhz) - min(seen.sm_mhz) <= settings().tolerance_mhz
    if still and not seen.throttled() and max(seen.sm_mhz) < highest * (1 - settings().probe.foreign_pct / 100):
        raise Refused(f"under load the clock stands still at {max(seen.sm_mhz)} of {highest} MHz without throttling: somebody else seems "
                      "to have locked it, and a lock of ours would end theirs",
                      "ask them, or reset it first (sudo nvidia-smi --reset-gpu-clocks); if nobody did, name a clock: --clocks MHZ")


def _keep(gpu: VisibleGpu, mhz: int) -> None:
    try:
        write_json_atomic(_file(gpu), {"key": gpu.key, "mhz": mhz})
    except OSError:  # a cache that can't be written costs time, not the run
        return


def _file(gpu: VisibleGpu) -> Path:
    return cache_dir() / "clocks" / f"{hashlib.sha256(gpu.key.encode()).hexdigest()[:16]}.json"
