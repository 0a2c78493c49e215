"""Whether processes that a test did not start itself still run. A killed one is gone only when it was next scheduled: seconds on a busy
machine; and its files in /proc can vanish between any two looks at them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

MOMENT_S = 15.0


def status(pid: int) -> tuple[str, int, int] | None:
    """(state, parent, process group) as in proc(5); None where there is no such process any more."""
    try:
        state, parent, group = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return None
    return state, int(parent), int(group)


def alive(pid: int) -> bool:
    """A zombie is not."""
    found = status(pid)
    return found is not None and found[0] not in "ZX"


def soon(holds: Callable[[], object], within_s: float = MOMENT_S) -> bool:
    """Whether this holds, at once or before the time is up."""
    until = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def gone(pids: Iterable[int], within_s: float = MOMENT_S) -> bool:
    """Whether none of these is alive, once what was killed has had its moment."""
    left = list(pids)
    return soon(lambda: not any(map(alive, left)), within_s)


def in_groups(groups: Iterable[int]) -> list[int]:
    """The processes of these groups that are alive."""
    wanted = set(groups)
    every = {int(folder.name): status(int(folder.name)) for folder in Path("/proc").glob("[0-9]*")}
    return [pid for pid, found in every.items() if found is not None and found[0] not in "ZX" and found[2] in wanted]
