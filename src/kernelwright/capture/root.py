"""A program under sudo: started with named variables only, ended by sudo, and what it wrote as root given back to the user."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

POLL_S = 0.05
SUDO_TIMEOUT_S = 20.0


def as_root(command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command under sudo, which asks nothing (-n). sudo keeps or drops variables by rules of its own, and -E would pass secrets
    on: root's are dropped, and these named one by one."""
    return ["sudo", "-n", "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *command]


def end_as_root(process: subprocess.Popen[bytes]) -> bool:
    """End a process that runs under sudo, with its group; False: it still runs."""
    for signal in ("-TERM", "-KILL"):
        if process.poll() is not None:
            break
        _sudo("kill", signal, "--", f"-{process.pid}")
        deadline = time.monotonic() + 1.0
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
    return process.poll() is not None


def give_back(folder: Path, report: Path, variables: Mapping[str, str]) -> None:
    """Files of root's in our folder and in the compile caches become the user's, who could not write there any more otherwise."""
    places = [place for place in (folder, report, *cache_folders(variables)) if place.exists()]
    if places:
        _sudo("chown", "-hR", "--from=0", f"{os.getuid()}:{os.getgid()}", "--", *map(str, places))


def cache_folders(variables: Mapping[str, str]) -> list[Path]:
    """Where Inductor and Triton keep what they compiled (torch/_inductor/runtime/cache_dir_utils.py, triton/knobs.py)."""
    user = next((variables[name] for name in ("LOGNAME", "USER", "LNAME", "USERNAME") if variables.get(name)), None) or getpass.getuser()
    inductor = Path(tempfile.gettempdir()) / f"torchinductor_{re.sub(r'[^A-Za-z0-9_.-]', '_', user)}"
    triton = Path(variables.get("HOME") or Path.home()) / ".triton" / "cache"
    return [Path(variables.get("TORCHINDUCTOR_CACHE_DIR") or inductor), Path(variables.get("TRITON_CACHE_DIR") or triton)]


def _sudo(*words: str) -> None:
    try:
        subprocess.run(["sudo", "-n", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=SUDO_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return
