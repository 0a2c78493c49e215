"""The watchdog: waits for its parent's end, however it comes, and then ends the parent's lease."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import sys
import time
from typing import Any

from . import leases, release, switch

POLL_S = 0.25
"""The pipe tells of the parent's end at once; a descriptor that leaked to a child is caught by this look at the parent."""
TRIES = 5


def watch() -> int:
    """Read {"uuid", "token", "nvml", "parent", "start"} from stdin, say "ready", and wait. Returns the exit code.

    "done" on stdin: the parent has reset the clocks itself.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    line = _line(None)
    if line is None:
        return 0
    order: dict[str, Any] = json.loads(line)
    nvml = load_nvml(order["nvml"])  # before the lock: nothing can then keep the reset waiting
    os.write(1, b"ready\n")
    if _line((int(order["parent"]), str(order["start"]))) == "done":
        return 0
    return _undo(nvml, str(order["uuid"]), str(order["token"]))


def load_nvml(file: str | None) -> Any | None:
    """The binding in this very file, initialised; None without it. The path comes from the parent: sys.path may differ here."""
    if not file:
        return None
    spec = importlib.util.spec_from_file_location("pynvml", file)
    if spec is None or spec.loader is None:
        return None
    try:
        module = importlib.util.module_from_spec(spec)
        sys.modules["pynvml"] = module
        spec.loader.exec_module(module)
    except (ImportError, OSError):
        return None
    try:
        module.nvmlInit()
    except module.NVMLError:
        return None
    return module


def _undo(nvml: Any | None, uuid: str, token: str) -> int:
    for _ in range(TRIES):
        try:
            release.release(nvml, uuid, token)
            return 0
        except OSError:  # the record can't be written (a full disk): the reset counts for more
            with contextlib.suppress(switch.Refused):
                switch.reset(nvml, uuid)
                return 0
        except switch.Refused as refused:
            if switch.forbidden():
                sys.stderr.write(refused.message + "\n")
                return 3
        time.sleep(0.2)
    return 3


def _line(parent: tuple[int, str] | None) -> str | None:
    """The next line of stdin; None at its end or when the parent is gone."""
    data = b""
    while True:
        ready, _, _ = select.select([0], [], [], POLL_S)
        if ready:
            piece = os.read(0, 4096)
            data += piece
            if not piece:
                return None
            if data.endswith(b"\n"):
                return data.decode("utf-8", "replace").strip()
        elif parent is not None and not leases.alive(leases.Lease("", *parent)):
            return None
