"""The GPU's SM clock while blocks are timed, by NVML, in the parent: quads in which it was disturbed do not count."""

from __future__ import annotations

import contextlib
import statistics as order
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..capture.gpus import NoGpu, first_visible, nvml

SAMPLE_EVERY_S = 2e-3
DEVIATION = 0.05
"""The two sides of a quad may run at SM clocks this far apart."""
CONSISTENT_SHARE = 0.8
"""Where in this share of the quads the same side is slower by more than that, it is the programs' doing (power), not a disturbance."""
DISTURBED = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's clock event reasons that are no steady state: hardware slowdown, software and hardware thermal slowdown, power brake. The
software power cap (0x4) is the usual state of a busy GPU; where it moves the clock, the deviation shows it."""
MAX_DROPPED_SHARE = 0.5


@dataclass(frozen=True)
class Reading:
    """The GPU during one block."""

    mhz: float
    disturbed: bool


@dataclass
class SmClocks:
    """Samples the clock in a thread between entering and leaving; `during` says what was seen. Without NVML it sees nothing."""

    device: str
    seen: list[tuple[float, int, int]] = field(default_factory=list)
    """(time.monotonic(), MHz, reasons)."""
    note: str = ""

    def __enter__(self) -> SmClocks:
        self._stack = contextlib.ExitStack()
        if self.device != "cuda":
            return self
        try:
            binding = self._stack.enter_context(nvml())
            gpu = first_visible(binding)
        except NoGpu as error:
            self.note = f"SM clocks were not watched: {error}"
            return self
        stop = threading.Event()
        thread = threading.Thread(target=self._watch, args=(stop, binding, gpu.handle), daemon=True)
        thread.start()
        self._stack.callback(thread.join, timeout=2)
        self._stack.callback(stop.set)  # called before the join: last in, first out
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def during(self, start_s: float, end_s: float) -> Reading | None:
        """What was seen between these moments of time.monotonic(); None when nothing was."""
        found = [(mhz, reasons) for at, mhz, reasons in _between(self.seen, start_s, end_s)]
        if not found:
            return None
        return Reading(order.median(mhz for mhz, _ in found), any(reasons & DISTURBED for _, reasons in found))

    def _watch(self, stop: threading.Event, binding: Any, handle: Any) -> None:
        reasons_of = getattr(binding, "nvmlDeviceGetCurrentClocksEventReasons", None) or binding.nvmlDeviceGetCurrentClocksThrottleReasons
        with contextlib.suppress(binding.NVMLError):
            while not stop.wait(SAMPLE_EVERY_S):
                mhz = int(binding.nvmlDeviceGetClockInfo(handle, binding.NVML_CLOCK_SM))
                self.seen.append((time.monotonic(), mhz, int(reasons_of(handle))))


def _between(seen: Sequence[tuple[float, int, int]], start_s: float, end_s: float) -> list[tuple[float, int, int]]:
    found = []
    for row in reversed(seen):
        if row[0] < start_s:
            break
        if row[0] <= end_s:
            found.append(row)
    return found


@dataclass(frozen=True)
class Kept:
    """Which quads count."""

    quads: tuple[bool, ...]
    note: str = ""
    too_many: str = ""
    """Why the rest is too little to decide; empty when it is enough."""


def kept_quads(reference: Sequence[Reading | None], candidate: Sequence[Reading | None]) -> Kept:
    """Readings of the blocks in the order run, two a quad and side, shape (2 n,). A quad without readings counts."""
    count = len(reference) // 2
    ratios = [_ratio(reference[2 * i : 2 * i + 2], candidate[2 * i : 2 * i + 2]) for i in range(count)]
    disturbed = [any(one is not None and one.disturbed for side in (reference, candidate) for one in side[2 * i : 2 * i + 2])
                 for i in range(count)]
    known = [ratio for ratio in ratios if ratio is not None]
    lower = sum(ratio < 1 - DEVIATION for ratio in known)
    higher = sum(ratio > 1 + DEVIATION for ratio in known)
    steady = bool(known) and max(lower, higher) >= CONSISTENT_SHARE * len(known)
    apart = [ratio is not None and abs(ratio - 1) > DEVIATION and not steady for ratio in ratios]
    quads = tuple(not (one or two) for one, two in zip(disturbed, apart, strict=True))
    dropped = count - sum(quads)
    note = ""
    if steady:
        note = (f"the candidate ran at {100 * (order.median(known) - 1):+.0f}% of the reference's SM clock throughout: "
                "that is part of its speed here")
    too_many = ""
    if dropped > MAX_DROPPED_SHARE * count:
        too_many = (f"{dropped} of {count} quads were dropped ({sum(disturbed)} while the GPU throttled, {sum(apart)} with SM clocks more "
                    f"than {100 * DEVIATION:g}% apart): let the GPU cool down, or lock its clocks")
    return Kept(quads, note, too_many)


def _ratio(reference: Sequence[Reading | None], candidate: Sequence[Reading | None]) -> float | None:
    sides = [[one.mhz for one in side if one is not None and one.mhz > 0] for side in (reference, candidate)]
    if not all(sides):
        return None
    return order.mean(sides[1]) / order.mean(sides[0])


Watch = Callable[[float, float], Reading | None]


def nothing_watched(_start_s: float, _end_s: float) -> Reading | None:
    """For a device without such clocks."""
    return None
