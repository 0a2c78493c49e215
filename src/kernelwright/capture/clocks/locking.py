"""This process's part in a clock lock: take it, join the one that is there, end it."""

from __future__ import annotations

import dataclasses
import os
import secrets
import sys
from datetime import datetime, timezone
from typing import Any

from ...model.errors import BadInput
from ...model.saying import Say
from ..clockguard import leases, switch
from ..clockguard.release import release
from ..clockguard.switch import Refused
from ..gpus import VisibleGpu
from .finding import find_mhz, known_mhz, supported_mhz
from .load import Load
from .watchdog import Watchdog

MARKER = "KERNELWRIGHT_CLOCK_LEASE"
"""Set while this process holds a lease: runs inside it, in child processes too, lock nothing of their own."""
RESPAWNS = 3


class ClockLock:
    """A lease on one GPU's locked clocks, with its watchdog. `mhz` is the clock once taken. Created by take()."""

    def __init__(self, binding: Any, gpu: VisibleGpu, *, by_hand: bool = False) -> None:
        self._binding, self._gpu, self._by_hand = binding, gpu, by_hand
        self._lease = leases.Lease(secrets.token_hex(8), *((0, "") if by_hand else (os.getpid(), leases.start_of(os.getpid()))))
        self._watchdog: Watchdog | None = None
        self._respawns = 0
        self._held = False
        self._changed = False
        self.mhz = 0
        self.notes: list[str] = []

    def take(self, requested: str, load: Load | None, say: Say) -> None:
        """Lock at `requested` ("lock" or a number of MHz). Raises Refused (nothing is locked then), BadInput for a clock that the GPU
        does not have, NVMLError, OSError."""
        reason = switch.forbidden()
        if reason:
            raise Refused(reason)
        if self._gpu.mig:
            raise Refused("the GPU is cut into MIG slices, which share their clocks", "use a whole GPU")
        if sys.platform == "win32":
            raise Refused("clocks are locked on Linux alone")
        wanted = None if requested == "lock" else _nearest(int(requested), supported_mhz(self._binding, self._gpu))
        if not self._by_hand:
            self._watchdog = Watchdog(self._binding, self._gpu.uuid, self._lease.token)
        try:
            self._take(wanted, load, say)
        except BaseException:
            self.end()
            raise
        if not self._by_hand:
            os.environ[MARKER] = f"{self._gpu.uuid} {self._lease.token}"

    def _take(self, wanted: int | None, load: Load | None, say: Say) -> None:
        known = wanted or known_mhz(self._gpu)
        if known is None and load is None:
            raise Refused("the clock that this GPU holds is not known yet", "name one in MHz")
        first = known or max(supported_mhz(self._binding, self._gpu), default=0)
        if not first:
            raise Refused("the driver does not list the clocks that this GPU has", "name one: --clocks MHZ")
        with leases.guarded(self._gpu.uuid):
            if self._join(wanted):
                return
            self._held = True
            self._record(first)
            if known is not None:
                self._set(known)
        if known is None:
            assert load is not None
            find_mhz(self._binding, self._gpu, load, self._set, say)

    def _join(self, wanted: int | None) -> bool:
        """Use the living lock that is there. Raises Refused when it is at another clock."""
        record = leases.read(self._gpu.uuid)
        living = leases.living(record) if record is not None else ()
        if record is None or not living:
            return False
        who = "by hand" if any(lease.by_hand for lease in living) else f"by process {living[0].pid}"
        if wanted is not None and wanted != record.mhz:
            raise Refused(f"the clocks are locked at {record.mhz} MHz already, {who}", "use that clock, or wait, or reset it by hand")
        leases.write(dataclasses.replace(record, leases=(*living, self._lease)))
        self.mhz, self._changed, self._held = record.mhz, True, True
        self.notes.append(f"locked already, {who}")
        return True

    def _record(self, mhz: int, route: tuple[str, ...] = ()) -> None:
        """Write the record before the clocks change, so that whoever finds it knows what to undo."""
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        record = leases.read(self._gpu.uuid)
        living = leases.living(record) if record is not None else ()
        others = tuple(lease for lease in living if lease.token != self._lease.token)
        leases.write(leases.Record(self._gpu.uuid, mhz, route, leases.boot_id(), since, (*others, self._lease)))

    def _set(self, mhz: int) -> None:
        before, self._changed = self._changed, True  # first: an interrupt may come between the change and the next line
        try:
            route = switch.lock(self._binding, self._gpu.uuid, mhz)
        except Refused:
            self._changed = before
            raise
        self.mhz = mhz
        self._record(mhz, route)

    def check(self) -> None:
        """Start a new watchdog where the old one was killed."""
        if self._watchdog is None or self._watchdog.alive or self._respawns >= RESPAWNS:
            return
        self._respawns += 1
        self.notes.append("the watchdog that undoes the lock was ended from outside, and started again")
        try:
            self._watchdog = Watchdog(self._binding, self._gpu.uuid, self._lease.token)
        except Refused as refused:
            self.notes.append(refused.message)

    def end(self) -> None:
        """End the lease and, where nobody else holds one, reset the clocks. Safe to repeat."""
        if os.environ.get(MARKER, "").endswith(self._lease.token):
            del os.environ[MARKER]
        done = False
        if self._held:
            try:
                release(self._binding, self._gpu.uuid, self._lease.token, changed=self._changed)
                done, self._held = True, False
            except (Refused, OSError) as error:
                self.notes.append(f"the clocks were not reset: {error}")
        if self._watchdog is not None:
            self._watchdog.end(done=done)
            self._watchdog = None


def standing(uuid: str) -> leases.Record | None:
    """The living lock of a GPU, whoever holds it."""
    try:
        record = leases.read(uuid)
    except OSError:
        return None
    return record if record is not None and leases.living(record) else None


def inherited(uuid: str) -> bool:
    """Whether this process runs inside one that holds a living lease on this GPU."""
    marked = os.environ.get(MARKER, "").split()
    record = standing(uuid)
    return record is not None and len(marked) == 2 and marked[0] == uuid and any(
        lease.token == marked[1] for lease in leases.living(record))


def _nearest(mhz: int, choices: list[int]) -> int:
    """The GPU's clock nearest to the one asked for. Raises BadInput outside its range."""
    if not choices:
        return mhz
    if not choices[-1] <= mhz <= choices[0]:
        raise BadInput("clock_not_supported", f"this GPU's clocks go from {choices[-1]} to {choices[0]} MHz", where=f"--clocks {mhz}",
                       fix="name one in between, or --clocks lock")
    return min(choices, key=lambda clock: abs(clock - mhz))
