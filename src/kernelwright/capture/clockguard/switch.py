"""The only place that changes a GPU's clocks: through NVML, else through nvidia-smi, under `sudo -n` where that is permitted.

Every change is refused while KERNELWRIGHT_CLOCKS is set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

VARIABLE = "KERNELWRIGHT_CLOCKS"
COMMAND_TIMEOUT_S = 10.0
NO_PERMISSION = 4
"""NVML_ERROR_NO_PERMISSION (nvml.h)."""


class Refused(Exception):
    """The clocks were not changed; `fix` says what would permit it."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


def forbidden(env: Mapping[str, str] | None = None) -> str:
    """Why no clock may be changed here, or "". Only `none` is documented; any other value forbids too, to be on the safe side."""
    value = (os.environ if env is None else env).get(VARIABLE, "").strip()
    return f"clock changes are forbidden here ({VARIABLE}={value})" if value else ""


def lock(nvml: Any, uuid: str, mhz: int) -> tuple[str, ...]:
    """Lock the graphics clock of one GPU; returns the route that worked, as a record keeps it. Raises Refused."""
    reason = forbidden()
    if reason:
        raise Refused(reason)
    try:
        nvml.nvmlDeviceSetGpuLockedClocks(handle_of(nvml, uuid), mhz, mhz)
        return ()
    except nvml.NVMLError as error:
        refused = error
    for route in _commands():
        if len(route) > 1 and not _may_reset(route, uuid):  # sudo: never lock what could not be reset
            continue
        if _ran([*route, "-i", uuid, f"--lock-gpu-clocks={mhz},{mhz}"]) == "":
            return tuple(route)
    if getattr(refused, "value", None) == NO_PERMISSION:
        raise Refused("the driver lets only root lock clocks", "run as root, or let sudo run nvidia-smi without a password "
                      "(docs/clocks.md has the rule), or lock once by hand as root")
    raise Refused(f"the driver refused to lock the clock at {mhz} MHz: {refused}")


def reset(nvml: Any | None, uuid: str, route: Sequence[str] = ()) -> None:
    """Undo a lock, by its own route first, then by any other. Raises Refused."""
    reason = forbidden()
    if reason:
        raise Refused(reason)
    why = "NVML is not there"
    if nvml is not None and not route:
        try:
            nvml.nvmlDeviceResetGpuLockedClocks(handle_of(nvml, uuid))
            return
        except nvml.NVMLError as error:
            why = str(error)
    for command in [route, *_commands()] if route else _commands():
        why = _ran([*command, "-i", uuid, "--reset-gpu-clocks"])
        if why == "":
            return
    raise Refused(f"the clocks could not be reset: {why}", f"sudo nvidia-smi -i {uuid} --reset-gpu-clocks")


def handle_of(nvml: Any, uuid: str) -> Any:
    """NVML's handle of a GPU."""
    return nvml.nvmlDeviceGetHandleByUUID(uuid)


def _commands() -> list[list[str]]:
    """nvidia-smi itself, then under sudo, which never asks (-n)."""
    tool, sudo = shutil.which("nvidia-smi"), shutil.which("sudo")
    if tool is None:
        return []
    return [[tool], *([[sudo, "-n", tool]] if sudo is not None else [])]


def _may_reset(route: Sequence[str], uuid: str) -> bool:
    """Whether sudo permits the reset without a password: `sudo -n -l COMMAND` exits 0 then, and runs nothing (sudo(8))."""
    sudo, *rest = route
    return _ran([sudo, "-n", "-l", *rest[1:], "-i", uuid, "--reset-gpu-clocks"]) == ""


def _ran(command: Sequence[str]) -> str:
    """"" when the command succeeded, else why it did not."""
    try:
        done = subprocess.run(list(command), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                              timeout=COMMAND_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    words = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
    return "" if done.returncode == 0 else words[-1][:200]
