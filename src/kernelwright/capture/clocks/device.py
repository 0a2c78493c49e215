"""The clocks of one run: lock, watch, undo, and say what was seen."""

from __future__ import annotations

import contextlib
import statistics
from types import TracebackType
from typing import Any

from ...model.profile import ClockReading, GpuUser
from ...model.saying import Say, silent
from ...model.workload import Device
from ..clockguard import switch
from ..clockguard.release import sweep
from ..clockguard.switch import Refused
from ..gpu_users import users_of
from ..gpus import NoGpu, VisibleGpu, first_visible, nvml
from ..lock import device_lock
from .load import Load
from .locking import ClockLock, inherited, standing
from .sampler import Sampler, Samples
from .settings import settings


class DeviceClocks:
    """Context manager around a run. Watches the clocks, and locks them when `requested` is "lock" or a number of MHz.

    Whatever stands in the way of a lock is said in the reading, and the run goes on. load: how to keep the GPU busy while its clock is
    found. wait: take the one-profile-at-a-time lock for that; a caller that holds it already leaves this out.
    Raises BadInput for a clock that the GPU does not have, MachineLacks from the one-profile-at-a-time lock.
    """

    def __init__(
        self, requested: str, *, device: Device, load: Load | None = None, say: Say = silent,
        wait: bool = False,
    ) -> None:
        self._requested, self._device, self._load, self._say, self._wait = requested, device, load, say, wait
        self._stack = contextlib.ExitStack()
        self._sampler: Sampler | None = None
        self._lock: ClockLock | None = None
        self._target: int | None = None
        self._users: tuple[GpuUser, ...] = ()
        self._notes: list[str] = []

    def __enter__(self) -> DeviceClocks:
        if self._device == "cpu":
            return self
        try:
            self._start(self._stack.enter_context(nvml()))
        except NoGpu as error:
            self._notes.append(str(error))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _start(self, binding: Any) -> None:
        gpu = first_visible(binding)
        try:
            self._users = users_of(binding, gpu)  # before the workload starts: later its own process is among them
        except binding.NVMLError as error:
            self._notes.append(f"other processes on the GPU can't be listed: {error}")
        self._clear_stale(binding, gpu)
        if self._requested != "none" and not inherited(gpu.uuid):
            self._take(binding, gpu)
        record = standing(gpu.uuid)
        if record is not None:
            self._target = record.mhz
        self._sampler = Sampler(binding, gpu, self._lock.check if self._lock is not None else lambda: None)
        self._sampler.start()
        self._stack.callback(self._sampler.stop)

    def _clear_stale(self, binding: Any, gpu: VisibleGpu) -> None:
        """Reset what a run left that was killed together with its watchdog."""
        try:
            if sweep(binding, gpu.uuid):
                self._notes.append("a killed run had left the clocks locked: they were reset first")
        except (Refused, OSError) as error:
            self._notes.append(f"a killed run has left the clocks locked, and they were not reset: {error}")

    def _take(self, binding: Any, gpu: VisibleGpu) -> None:
        if switch.forbidden():
            self._notes.append(f"not locked: {switch.forbidden()}")
            return
        lock = ClockLock(binding, gpu)
        self._stack.callback(lock.end)  # before: an interrupt may come at any moment
        alone = device_lock("locking the clocks", self._say) if self._wait else contextlib.nullcontext()
        try:
            with alone:
                lock.take(self._requested, self._load, self._say)
        except Refused as refused:
            self._notes.append(f"not locked: {refused.message}{f' (fix: {refused.fix})' if refused.fix else ''}")
            return
        except (binding.NVMLError, OSError) as error:
            self._notes.append(f"not locked: {error}")
            return
        self._lock = lock

    def reading(self) -> ClockReading:
        """What was seen so far; whole once the context has ended."""
        seen = self._sampler.seen if self._sampler is not None else Samples()
        users = {user.pid: user for user in (*self._users, *seen.users.values())}
        held = self._target is not None and seen.held(self._target)
        return ClockReading(
            requested=self._requested, locked=held and self._as_asked(), locked_mhz=self._target,
            sm_mhz_min=min(seen.sm_mhz, default=None), sm_mhz_max=max(seen.sm_mhz, default=None),
            sm_mhz_median=round(statistics.median(seen.sm_mhz)) if seen.sm_mhz else None, samples=len(seen.sm_mhz),
            throttle_reasons=seen.throttled(), temperature_c_max=seen.temperature_c, power_w_max=seen.power_w,
            other_processes=tuple(users.values()), warnings=self._warnings(seen, tuple(users.values())),
            note="; ".join(self._all_notes(seen)),
        )

    def _as_asked(self) -> bool:
        """Whether a standing lock is at the clock that was asked for, if one was."""
        if self._requested in ("none", "lock") or self._target is None:
            return True
        return abs(self._target - int(self._requested)) <= settings().tolerance_mhz

    def _all_notes(self, seen: Samples) -> list[str]:
        notes = [*self._notes, *(self._lock.notes if self._lock is not None else []), *([seen.note] if seen.note else [])]
        if self._requested != "none" and self._sampler is None:  # "not locked" stands before the notes wherever they are shown
            notes = [switch.forbidden() or "the run used no GPU"]
        if self._target is not None and not seen.held(self._target):
            notes.append(f"set to {self._target} MHz, but " + ("the clock under load was another" if seen.sm_mhz
                                                              else "no sample under load shows the clock"))
        return notes

    def _warnings(self, seen: Samples, users: tuple[GpuUser, ...]) -> tuple[str, ...]:
        found = []
        if users:
            names = ", ".join(f"{user.name} (process {user.pid}, {_mib(user.memory_bytes)})" for user in users)
            found.append(f"other processes use this GPU: {names}; timings beside other work are not to be trusted")
        spread = seen.spread_pct()
        if spread is not None and spread > settings().unsteady_pct:
            found.append(f"the SM clock varied by {spread:.0f}% under load ({min(seen.sm_mhz)} to {max(seen.sm_mhz)} MHz), and timings "
                         "with it")
        if seen.throttled():
            found.append(f"the GPU throttled its clocks: {', '.join(seen.throttled())}")
        return tuple(found)


def _mib(size: int | None) -> str:
    return "memory n/a" if size is None else f"{size / 2**20:.0f} MiB"
