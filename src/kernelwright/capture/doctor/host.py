"""Checks of the machine around the GPU: kernelwright's own Python, disk, memory, and who measures now."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from ...model.errors import KernelwrightError
from ..cache import cache_dir
from ..system_view import SystemView
from .gpu import gib
from .report import Check

GIB = 2**30
LOW_DISK_BYTES = 2 * GIB
"""A gzip'd trace of a large model with its unpacked tables is some hundred MB; below this a few profiles fill the disk."""
LOW_MEMORY_BYTES = 4 * GIB
"""A process with a CUDA torch takes 3 GiB of host memory before the workload's own."""
PACKAGES = ("pydantic", "numpy", "jinja2", "msgspec", "pyyaml", "filelock", "scipy", "rich", "nvidia-ml-py", "matplotlib")


@dataclass(frozen=True)
class Memory:
    """Bytes that a new process can have, and all that there is; None where it can't be told. limited: by a control group."""

    available: int | None
    total: int | None
    limited: bool


def check_python(view: SystemView) -> Check:
    """kernelwright's own interpreter."""
    detail = f"{'.'.join(map(str, view.python))} at {view.python_path}"
    if view.python >= (3, 10, 0):
        return Check(name="python", status="ok", detail=detail)
    return Check(name="python", status="missing", detail=f"{detail}; 3.10 is needed", advice="run the script with Python 3.10 or newer")


def check_packages(view: SystemView) -> Check:
    """kernelwright's own environment."""
    versions = {name: view.package_version(name) for name in PACKAGES}
    lacking = [name for name, version in versions.items() if version is None]
    if not lacking:
        return Check(name="environment", status="ok", detail=", ".join(f"{name} {version}" for name, version in versions.items()))
    return Check(name="environment", status="missing", detail=f"not installed: {', '.join(lacking)}",
                 fix=f"{shlex.quote(view.python_path)} -m pip install {' '.join(lacking)}",
                 advice="or delete kernelwright's environment (the folder above its bin/): the next script makes it anew")


def disk_places(view: SystemView) -> dict[str, Path]:
    """What is written where: results, what is learnt about the machine, and the judge's tensors with compilers' caches."""
    return {"results": view.cwd / "out", "cache": cache_dir(), "temporary": Path(view.env.get("TMPDIR") or "/tmp")}


def check_disk(view: SystemView) -> Check:
    """Room for all that is written."""
    places = disk_places(view)
    free = {name: view.free_bytes(path) for name, path in places.items()}
    words = [f"{name} {gib(size)} free in {places[name]}" for name, size in free.items()]
    closed = [name for name, path in places.items() if not _writable(path)]
    if closed:
        paths = ", ".join(str(places[name]) for name in closed)
        return Check(name="disk", status="warn", detail=f"not writable: {paths} ({', '.join(closed)})", fix=_elsewhere(closed[0]),
                     advice="--out DIR writes results elsewhere" if "results" in closed else "")
    low = [name for name, size in free.items() if size is not None and size < LOW_DISK_BYTES]
    if low:
        return Check(name="disk", status="warn", detail=f"little room: {', '.join(words)}", fix=_elsewhere(low[0]),
                     advice=f"less than {gib(LOW_DISK_BYTES)} fills up after a few profiles: free some, or write elsewhere")
    return Check(name="disk", status="ok", detail=", ".join(words))


def memory_of(view: SystemView) -> Memory:
    """What /proc/meminfo and the control groups (version 2 or 1) of this process allow."""
    text = view.read("/proc/meminfo") or ""
    available, total = (int(match[1]) * 1024 if (match := re.search(rf"^{name}:\s*(\d+) kB", text, re.MULTILINE)) else None
                        for name in ("MemAvailable", "MemTotal"))
    limited = False
    for limit, used in _groups(view):
        if total is None or limit < total:
            total, limited = limit, True
        available = min(max(limit - used, 0), limit if available is None else available)
    return Memory(available, total, limited)


def check_memory(view: SystemView) -> Check:
    """Memory that a new process can have."""
    found = memory_of(view)
    if found.available is None:
        return Check(name="memory", status="warn", detail="n/a: /proc/meminfo does not say")
    whose = "allowed to this container" if found.limited else "there"
    detail = f"{gib(found.available)} available of {gib(found.total)} {whose}"
    if found.available >= LOW_MEMORY_BYTES:
        return Check(name="memory", status="ok", detail=detail)
    if found.limited and (found.total or 0) < LOW_MEMORY_BYTES:
        return Check(name="memory", status="warn", detail=detail, fix="docker update --memory 16g --memory-swap 16g CONTAINER",
                     advice="a control group limits it: raise the limit where the container is started")
    return Check(name="memory", status="warn", detail=detail, fix="ps -eo pid,rss,comm --sort=-rss | head -n 6",
                 advice="end what is not needed of these, or use smaller inputs")


def check_load(view: SystemView) -> Check:
    """What else wants the CPUs: the load average of the last minute against those that this process may use."""
    load = re.match(r"(\d+(?:\.\d+)?) ", view.read("/proc/loadavg") or "")
    allowed = re.search(r"^Cpus_allowed_list:\s*([\d,-]+)$", view.read("/proc/self/status") or "", re.MULTILINE)
    if load is None or allowed is None:
        return Check(name="load", status="warn", detail="n/a: /proc does not say", advice="see that nothing else runs before you time")
    parts = [part.partition("-") for part in allowed[1].split(",") if part]
    usable = sum(int(last or first) - int(first) + 1 for first, _, last in parts)
    detail = f"load average {float(load[1]):.1f} (last minute) on {usable} usable CPU{'' if usable == 1 else 's'}"
    if float(load[1]) <= usable:
        return Check(name="load", status="ok", detail=detail)
    return Check(name="load", status="warn", detail=f"busy: {detail}", fix="ps -eo pid,pcpu,comm --sort=-pcpu | head -n 6",
                 advice="times taken now are noisy: end what is not needed of these, or wait a few minutes")


def lock_of(view: SystemView) -> tuple[dict[str, str] | None, str]:
    """(the run that holds the device lock, why it can't be told)."""
    try:
        return view.lock_holder(), ""
    except KernelwrightError as error:
        return None, error.line()


def check_lock(view: SystemView) -> Check:
    """Whether another kernelwright run measures now: the next one waits for it."""
    held, problem = lock_of(view)
    if problem:
        return Check(name="lock", status="missing", detail=problem, fix='export KERNELWRIGHT_LOCK="$HOME/.kernelwright.lock"')
    if held is None:
        return Check(name="lock", status="ok", detail="free: no other kernelwright run of this user measures now")
    return Check(name="lock", status="warn", detail=f"held by process {held['pid']} ({held['what']}) since {held['since']}",
                 advice="profiles and timings wait until it has ended; nothing is lost by starting them now")


def _elsewhere(name: str) -> str:
    return {"results": "mkdir -p DIR && cd DIR", "cache": "export KERNELWRIGHT_CACHE=DIR", "temporary": "export TMPDIR=DIR"}[name]


def _writable(folder: Path) -> bool:
    there = next((place for place in (folder, *folder.parents) if place.exists()), None)
    return there is not None and there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _groups(view: SystemView) -> list[tuple[int, int]]:
    """(limit, used without what the kernel gives back at once) of the control groups around this process that have a limit."""
    first = "/sys/fs/cgroup/memory"  # version 1
    pairs = [(f"{first}/memory.limit_in_bytes", f"{first}/memory.usage_in_bytes", f"{first}/memory.stat")]
    match = re.search(r"^0::(/[^\n]*)", view.read("/proc/self/cgroup") or "", re.MULTILINE)
    own = Path(match[1] if match and ".." not in match[1] else "/")
    for group in (own, *own.parents):
        folder = f"/sys/fs/cgroup{str(group).rstrip('/')}"
        pairs.append((f"{folder}/memory.max", f"{folder}/memory.current", f"{folder}/memory.stat"))
    found = []
    for limit_file, used_file, stat_file in pairs:
        limit, used = _number(view.read(limit_file)), _number(view.read(used_file))
        if limit is not None and used is not None and limit < 2**60:  # version 1 says "no limit" with a number near 2^63
            cached = re.search(r"^(?:total_)?inactive_file (\d+)", view.read(stat_file) or "", re.MULTILINE)
            found.append((limit, max(used - (int(cached[1]) if cached else 0), 0)))
    return found


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdigit() else None
