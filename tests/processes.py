"""Whether processes that a test knows by their numbers still run. One that was killed lives until it is next scheduled: `gone` waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path


def state(number: int) -> str:
    """Of a process, as /proc has it: "R", "S", "T" (stopped), "Z" (a zombie: it only waits to be asked after); "" when there is none."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def alive(number: int) -> bool:
    """A zombie is not."""
    return state(number) not in ("", "Z", "X")


def in_groups(groups: Collection[int]) -> list[int]:
    """Living processes of these process groups."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status, _parent, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if status not in ("Z", "X") and int(group) in groups:
            found.append(int(folder.name))
    return found


def soon(holds: Callable[[], object], within_s: float = 20.0) -> bool:
    """Whether it comes to hold."""
    until = time.monotonic() + within_s
    while not (held := bool(holds())) and time.monotonic() < until:
        time.sleep(0.02)
    return held


def gone(*numbers: int) -> bool:
    """Whether all of them end, those that were just killed given their moment."""
    return soon(lambda: not any(map(alive, numbers)))
