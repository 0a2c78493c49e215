"""Ends a lease; the last one to end resets the clocks."""

from __future__ import annotations

import dataclasses
from typing import Any

from . import leases, switch


def release(nvml: Any | None, uuid: str, token: str, *, changed: bool = True) -> bool:
    """End one lease. True when the clocks were reset: nobody else held them. Repeating it is harmless.

    changed=False: its lock never came about, so there is nothing to reset. Raises switch.Refused, OSError.
    """
    with leases.guarded(uuid):
        record = leases.read(uuid)
        if record is None or all(lease.token != token for lease in record.leases):
            return False
        others = tuple(lease for lease in leases.living(record) if lease.token != token)
        if others:
            leases.write(dataclasses.replace(record, leases=others))
            return False
        if changed:
            switch.reset(nvml, uuid, record.route)
        leases.remove(uuid)
        return changed


def sweep(nvml: Any | None, uuid: str | None = None) -> list[str]:
    """Reset the locks (of one GPU) whose holders are all gone; the UUIDs that were reset. Raises switch.Refused, OSError."""
    done = []
    for found in leases.recorded():
        if uuid is not None and found.uuid != uuid:
            continue
        with leases.guarded(found.uuid):
            record = leases.read(found.uuid)
            if record is None or leases.living(record):
                continue
            switch.reset(nvml, record.uuid, record.route)
            leases.remove(record.uuid)
            done.append(record.uuid)
    return done
