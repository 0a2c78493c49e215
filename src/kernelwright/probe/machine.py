"""What else wants to run on this machine. Standard library only: a script's process has not imported torch yet when this is read."""

from __future__ import annotations

import os


def busy_machine() -> str | None:
    """A warning when more wants to run than this process may use CPUs: the load average of the last minute.

    To be read before the run's own work starts, which would count too. None where the machine is not busy, or does not say.
    """
    try:
        load = os.getloadavg()[0]
    except (OSError, AttributeError):  # AttributeError: Windows has none
        return None
    cores, usable = os.cpu_count() or 1, usable_cpus()
    where = f"{usable} core{'' if usable == 1 else 's'}" if usable == cores else f"the {usable} usable of {cores} cores"
    return f"the machine is busy: load average {load:.1f} on {where}" if load > usable else None


def usable_cpus() -> int:
    """CPUs that this process may run on."""
    try:
        return len(os.sched_getaffinity(0)) or 1
    except (OSError, AttributeError):  # AttributeError: only Linux has it
        return os.cpu_count() or 1
