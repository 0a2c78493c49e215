"""SessionStart: one line on this machine. No torch, no nvidia-smi: files and folders only. Silent where there is nothing to say."""

from __future__ import annotations

import glob
import os
import re
import sys
from typing import Any

DRIVER = "/proc/driver/nvidia"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLACES = {
    "ncu": ("/usr/local/cuda*/bin/ncu", "/usr/local/cuda*/nsight-compute-*/ncu", "/opt/nvidia/nsight-compute/*/ncu"),
    "nsys": ("/usr/local/cuda*/bin/nsys", "/usr/local/cuda*/nsight-systems-*/bin/nsys", "/opt/nvidia/nsight-systems*/*/bin/nsys",
             "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys"),
}
"""Where profilers lie that are not on PATH."""


def answer(_given: dict[str, Any]) -> dict[str, Any] | None:
    """The line, or None."""
    line = machine_line(DRIVER)
    return {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": line}} if line else None


def machine_line(driver: str) -> str:
    """driver: the NVIDIA driver's folder in /proc."""
    gpus = _gpus(driver)
    tools = [name for name in PLACES if _found(name)]
    ready = _environment_ready()
    if not gpus and not tools and ready != "no":
        return ""
    parts = [_gpu_words(gpus)]
    if tools:
        parts.append("%s found" % " and ".join(tools))
    elif gpus:
        parts.append("neither ncu nor nsys found")
    if gpus:
        parts.append(_counters(driver))
    parts.append({"yes": "environment ready", "no": "the first command installs about 100 MB (a minute or two)",
                  "old": "the scripts need Python 3.10 or newer as python3"}[ready])
    return "kernelwright on this machine: %s." % "; ".join(parts)


def _gpus(driver: str) -> list[str]:
    models = []
    for path in sorted(glob.glob(os.path.join(glob.escape(driver), "gpus", "*", "information"))):
        match = re.search(r"^Model:\s*(.+)$", _text(path), re.MULTILINE)
        models.append("".join(c for c in match[1].strip() if c.isprintable())[:60] if match else "NVIDIA GPU")
    return models


def _gpu_words(gpus: list[str]) -> str:
    if not gpus:
        return "no NVIDIA GPU (event and annotation run on the CPU)"
    words = ", ".join("%d x %s" % (gpus.count(model), model) for model in sorted(set(gpus)))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return words if visible is None else "%s, CUDA_VISIBLE_DEVICES=%s" % (words, visible[:60] or '""')


def _found(name: str) -> bool:
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders) or any(glob.glob(pattern) for pattern in PLACES[name])


def _counters(driver: str) -> str:
    match = re.search(r"RmProfilingAdminOnly:\s*(\d)", _text(os.path.join(driver, "params")))
    if match is None:
        return "counters n/a"
    if match[1] == "0":
        return "counters allowed"
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return "counters for administrators only (this is root)"
    return "counters for administrators only (doctor.py has the fix)"


def _environment_ready() -> str:
    """"yes", "no", or "old" where python3 is too old to tell."""
    if os.environ.get("KERNELWRIGHT_PYTHON"):
        return "yes"
    if sys.version_info < (3, 10):
        return "old"
    sys.path.insert(0, os.path.join(ROOT, "src"))
    from kernelwright.setup.place import CHECKOUT, environment_folder
    from kernelwright.setup.stamp import is_ready, lock_hash

    lock = CHECKOUT / "requirements.lock"
    return "yes" if is_ready(environment_folder(CHECKOUT, os.environ), {lock.name: lock_hash(lock)}) else "no"


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(100_000)
    except OSError:
        return ""
