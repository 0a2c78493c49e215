"""Clocks that kernelwright locked and nothing unlocked, from the records that its clock guard keeps. Read only."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

_BY_HAND = re.compile(rb'"command"\s*:\s*"(?:[^"\\]|\\.)*(?:/lock-gpu-clock\.sh|gpu_clock\.py(?:\\")? lock)')
TRANSCRIPT_LIMIT = 32_000_000


def state_dir() -> str:
    """KERNELWRIGHT_STATE, else the platform's per-user state folder."""
    if os.environ.get("KERNELWRIGHT_STATE"):
        return os.environ["KERNELWRIGHT_STATE"]
    home = os.path.expanduser("~")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Application Support", "kernelwright")
    if sys.platform == "win32":
        return os.path.join(os.environ.get("LOCALAPPDATA", home), "kernelwright", "State")
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state"), "kernelwright")


def left_locked(transcript: str) -> list[tuple[str, int]]:
    """(GPU, MHz) of each lock that no living run holds: its run died, or it was made by hand in this session. transcript: a path, or ""."""
    left = []
    for record in _records():
        leases = record["leases"]
        if any(int(lease["pid"]) and _alive(lease) for lease in leases):
            continue
        if any(not int(lease["pid"]) for lease in leases) and not _locked_in_session(transcript):
            continue
        left.append((str(record["uuid"])[:60], int(record["mhz"])))
    return left


def _records() -> list[dict[str, Any]]:
    folder = os.path.join(state_dir(), "clocks")
    boot = _text("/proc/sys/kernel/random/boot_id")
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if not name.endswith(".json"):
            continue
        try:
            record = json.loads(_text(os.path.join(folder, name)))
            if record["boot"] == boot and record["leases"] is not None and int(record["mhz"]) and record["uuid"]:
                found.append(record)
        except (ValueError, KeyError, TypeError):
            continue  # half of a record says nothing
    return found


def _alive(lease: dict[str, Any]) -> bool:
    fields = _text("/proc/%d/stat" % int(lease["pid"])).rpartition(")")[2].split()
    if not fields:
        return sys.platform != "linux"  # not told there: rather silent than wrong
    return fields[0] not in "ZX" and fields[19] == str(lease["start"])  # proc(5): state is field 3, starttime field 22


def _locked_in_session(transcript: str) -> bool:
    try:
        with open(transcript, "rb") as file:
            return _BY_HAND.search(file.read(TRANSCRIPT_LIMIT)) is not None
    except OSError:
        return False


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16).strip()
    except OSError:
        return ""
