"""The machines that doctor's tests examine; and no test sees what another one compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor_machine import H200, NCU_SAYS, NSYS_SAYS, Machine


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    """The probe takes what Dynamo has counted in its process for the workload's doing."""
    utilities = sys.modules.get("torch._dynamo.utils")
    if utilities is not None:
        utilities.counters.clear()
    yield


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    for name in ("g++", "gcc"):
        made.program(f"/usr/bin/{name}", f"echo '{name} (Debian 12.2.0) 12.2.0'")
    made.program("/usr/bin/apt-get", "exit 0")
    made.file("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable:   33554432 kB\n")
    made.file("/proc/loadavg", "0.50 0.40 0.30 1/200 4242\n")
    made.file("/proc/self/status", "Name:\tpython\nCpus_allowed_list:\t0-3,8\n")
    return made


@pytest.fixture
def h200(machine: Machine) -> Machine:
    """Everything there: one H200, open counters, ncu and nsys on PATH."""
    machine.gpus = (H200,)
    machine.file("/proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\n")
    machine.program("/usr/bin/ncu", NCU_SAYS)
    machine.program("/usr/bin/nsys", NSYS_SAYS)
    return machine
