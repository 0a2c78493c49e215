"""Starts a program where it sees no other processes: a process namespace of its own with its own /proc (Linux).

Nsight Systems reads the environment of every process that it may look at, and its reports then hold the secrets of other programs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache

CHECK_TIMEOUT_S = 5.0
_COMMON = ("--pid", "--fork", "--mount-proc", "--kill-child")
_ENDS_WITH_US = ("--pdeathsig", "KILL")
"""setpriv: unshare is killed when the process that started it dies, however it dies, and with --kill-child all that is below it."""
_KEEP = '"$@"; exit "$?"'
"""The shell stays as the namespace's first process: it takes up orphans, and when it ends everything else in there does."""
_COUNT = 'set -- /proc/[0-9]*; exit "$(($# > 3))"'
"""Ends with 0 when at most three processes are to be seen."""


@cache
def alone_prefix() -> tuple[str, ...] | None:
    """The words before a command line that start it alone; None where that is not possible (containers often forbid it).

    Root needs no user namespace. The others keep their own user and group inside theirs.
    """
    tool, setpriv = shutil.which("unshare"), shutil.which("setpriv")
    if tool is None or setpriv is None or not sys.platform.startswith("linux") or shutil.which("sh") is None:
        return None
    ways = ((), ("--user", "--map-current-user")) if os.geteuid() == 0 else (("--user", "--map-current-user"),)
    for way in ways:
        words = (setpriv, *_ENDS_WITH_US, tool, *way, *_COMMON, "sh", "-c")
        if _works((*words, _COUNT)):
            return (*words, _KEEP, "sh")
    return None


def _works(command: tuple[str, ...]) -> bool:
    environment: Mapping[str, str] = {"PATH": os.environ.get("PATH", os.defpath)}
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=CHECK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
