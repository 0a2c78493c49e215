"""Checks of the GPU: what it is, who else uses it, whether counters may be read and clocks changed."""

from __future__ import annotations

import re

from ..gpu_processes import GpuProcess
from ..remedies import Packages, container, install, open_counters, sudo
from ..system_view import SystemView
from .report import Check
from .seen import Seen

CAP_SYS_ADMIN, CAP_PERFMON = 1 << 21, 1 << 38
"""linux/capability.h. With RmProfilingAdminOnly 1 the driver asks for the first (developer.nvidia.com/ERR_NVGPUCTRPERM); newer open
kernel modules take the second too (os_check_access in kernel-open/nvidia/os-interface.c, 580)."""
WHOLE_RANGE = 2**32 - 1
"""Length of the only line of /proc/self/uid_map outside user namespaces."""
IN_USE_BYTES = 2 * 2**30
"""Memory in use that no listed process explains: the driver itself reserves less than 1 GiB of each GPU."""
SHOWN_PROCESSES = 5


def check_gpu(view: SystemView, seen: Seen) -> Check:
    """GPUs, their architecture, memory and driver."""
    if not seen.gpus:
        return _silent_driver(view, seen.smi_problem) if seen.smi_problem else _no_gpu(view)
    first = seen.gpus[0]
    names = ", ".join(sorted({gpu.name for gpu in seen.gpus}))
    architecture = f" (sm_{first.compute_capability[0]}{first.compute_capability[1]})" if first.compute_capability else ""
    runs = f" (up to CUDA {first.driver_cuda[0]}.{first.driver_cuda[1]})" if first.driver_cuda else ""
    detail = (f"{len(seen.gpus)} x {names}{architecture}, memory {gib(first.memory_bytes)}, driver {first.driver or 'n/a'}{runs} "
              f"(by {seen.gpu_source})")
    if seen.hidden:
        return Check(name="gpu", status="warn", detail=f"{detail}; hidden by CUDA_VISIBLE_DEVICES", fix="unset CUDA_VISIBLE_DEVICES")
    return Check(name="gpu", status="ok", detail=detail)


def _silent_driver(view: SystemView, problem: str) -> Check:
    """nvidia-smi is there, and gets no answer of the driver."""
    look = "look for NVRM and Xid lines in `dmesg`; a reboot or the driver installed anew mends most"
    inside = bool(container(view))
    return Check(name="gpu", status="missing", detail=f"NVML lists no GPU, and nvidia-smi says: {problem}",
                 fix="docker run --gpus all IMAGE" if inside else f"{sudo(view)}modprobe nvidia && nvidia-smi",
                 advice=f"where nvidia-smi works on the host; else there {look}" if inside else f"if that fails, {look}")


def _no_gpu(view: SystemView) -> Check:
    driver = Packages("nvidia-open", "nvidia-open")
    if container(view):
        fix, needs = "docker run --gpus all IMAGE", "the host's GPU needs its driver and NVIDIA's container toolkit there"
    elif view.which("ubuntu-drivers"):
        fix, needs = f"{sudo(view)}ubuntu-drivers install", "only where there is an NVIDIA GPU"
    else:
        fix = install(view, driver)
        needs = "only where there is an NVIDIA GPU; the package is of NVIDIA's CUDA repository (developer.nvidia.com/cuda-downloads)"
    return Check(name="gpu", status="missing", detail="no NVIDIA GPU: neither NVML, nvidia-smi nor the driver's files list one",
                 fix=fix, advice=f"{needs}; event and annotation run on the CPU without")


def check_users(view: SystemView, seen: Seen) -> Check:
    """Who else uses the GPUs, and how much of their memory is left."""
    if not seen.gpus:
        return Check(name="gpu users", status="ok", detail="n/a: no GPU")
    free = _free_words(seen)
    if seen.processes:
        names = [_process_words(item) for item in seen.processes[:SHOWN_PROCESSES]]
        more = len(seen.processes) - len(names)
        detail = f"{'; '.join(names)}{f'; and {more} more' if more > 0 else ''}; {free}"
        return Check(name="gpu users", status="warn", detail=detail,
                     fix=f"nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv && ps -fp {_pids(seen.processes)}",
                     advice="timings beside other work are worth little: wait until they have ended, or choose another GPU with "
                            "CUDA_VISIBLE_DEVICES=N")
    used = [gpu.memory_bytes - gpu.memory_free_bytes for gpu in seen.gpus if gpu.memory_bytes and gpu.memory_free_bytes is not None]
    if any(size > IN_USE_BYTES for size in used):
        return Check(name="gpu users", status="warn", detail=f"{gib(max(used))} in use by processes that can't be seen from here; {free}",
                     fix="nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
                     advice="run it on the host: a container does not see other containers' processes" if container(view) else
                            "run it as root")
    if seen.processes is None:
        return Check(name="gpu users", status="warn", detail=f"n/a: neither NVML nor nvidia-smi lists processes; {free}")
    return Check(name="gpu users", status="ok", detail=f"none seen; {free}")


def check_counters(view: SystemView, seen: Seen) -> Check:
    """Whether this user may read hardware counters (ncu); only a run of ncu proves it."""
    text = view.read("/proc/driver/nvidia/params")
    match = re.search(r"RmProfilingAdminOnly:\s*(\d)", text or "")
    if match is None:
        detail = "n/a: /proc/driver/nvidia/params " + ("does not say" if text is not None else "is not there")
        return Check(name="counters", status="warn" if seen.gpus else "missing", detail=detail,
                     advice="only a run of ncu will tell" if seen.gpus else "needs an NVIDIA GPU and its driver")
    if match[1] == "0":
        return Check(name="counters", status="ok", detail="open to all users (RmProfilingAdminOnly 0)")
    closed = counters_closed(view)
    if closed:
        fix, advice = open_counters(view)
        return Check(name="counters", status="missing", detail=closed, fix=fix, advice=advice)
    return Check(name="counters", status="ok", detail=f"for administrators (RmProfilingAdminOnly 1), and {_who(view)} is one")


def counters_closed(view: SystemView) -> str:
    """Why the driver keeps counters from this user; "" where it does not, or can't be told beforehand."""
    match = re.search(r"RmProfilingAdminOnly:\s*(\d)", view.read("/proc/driver/nvidia/params") or "")
    own = has_capability(view, CAP_SYS_ADMIN | CAP_PERFMON)
    if match is None or match[1] == "0" or (own and not in_user_namespace(view)):
        return ""
    if own:
        why = f"{_who(view)} is an administrator in a user namespace only (a rootless container)"
    else:
        why = "root here lacks CAP_SYS_ADMIN" if view.uid == 0 else f"this is {_who(view)}"
    return f"for administrators only (RmProfilingAdminOnly 1); {why}"


def _who(view: SystemView) -> str:
    return f"uid {view.uid}" if view.uid is not None else "uid n/a"


def check_clocks(view: SystemView, seen: Seen) -> Check:
    """Whether clocks may be changed: the machine's owner can forbid it."""
    if view.env.get("KERNELWRIGHT_CLOCKS") == "none":
        return Check(name="clocks", status="ok", detail="any change is forbidden (KERNELWRIGHT_CLOCKS=none); they are watched only")
    if not seen.gpus:
        return Check(name="clocks", status="ok", detail="n/a: no GPU whose clocks could be locked")
    if view.uid == 0 and has_capability(view, CAP_SYS_ADMIN) and not in_user_namespace(view):
        return Check(name="clocks", status="ok", detail="root may ask the driver to lock them (not tried here)")
    lock = "nvidia-smi --lock-gpu-clocks=MHZ"
    if container(view):
        return Check(name="clocks", status="warn", detail="they may be watched but not locked from this container; timings vary more",
                     fix=f"sudo {lock}", advice="on the host, as root; undone by: sudo nvidia-smi --reset-gpu-clocks")
    return Check(name="clocks", status="warn", detail=f"uid {view.uid} may watch but not lock them; timings vary more", fix=f"sudo {lock}",
                 advice="before the run; undone by: sudo nvidia-smi --reset-gpu-clocks")


def has_capability(view: SystemView, wanted: int) -> bool:
    """Whether this process has one of the capabilities in effect; without /proc, whether it is root."""
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", view.read("/proc/self/status") or "", re.MULTILINE)
    return bool(int(match[1], 16) & wanted) if match else view.uid == 0


def in_user_namespace(view: SystemView) -> bool:
    """Whether capabilities here are those of a user namespace: the kernel's capable(), which the driver asks, does not count them."""
    words = (view.read("/proc/self/uid_map") or "").split()
    return bool(words) and words != ["0", "0", str(WHOLE_RANGE)]


def gib(size: int | None) -> str:
    """"1.0 GiB"; n/a where it is not known."""
    return "n/a" if size is None else f"{size / 2**30:.1f} GiB"


def _free_words(seen: Seen) -> str:
    known = [gpu.memory_free_bytes for gpu in seen.gpus]
    if len(known) == 1:
        return f"device memory {gib(known[0])} free of {gib(seen.gpus[0].memory_bytes)}"
    return f"device memory free: {', '.join(gib(size) for size in known)}"


def _process_words(item: GpuProcess) -> str:
    return f"{item.name} (process {item.pid}, GPU {item.gpu}, {gib(item.memory_bytes)})"


def _pids(processes: tuple[GpuProcess, ...]) -> str:
    return ",".join(str(item.pid) for item in processes[:SHOWN_PROCESSES])
