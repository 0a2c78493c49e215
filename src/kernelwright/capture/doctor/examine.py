"""Makes the report: looks at everything once, and draws each check and each mode from what was seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from ..interpreter import Interpreter
from ..nsight import Tool
from ..remedies import container
from ..system_view import SystemView
from .gpu import check_clocks, check_counters, check_gpu, check_users
from .host import PACKAGES, check_disk, check_load, check_lock, check_memory, check_packages, check_python, disk_places, lock_of, memory_of
from .modes import abilities
from .report import Check, Examination, Facts, GpuFacts, GpuProcessFacts, Status, ToolFacts, TorchFacts
from .seen import Seen, look
from .torch import check_compiler, check_torch, check_triton

__all__ = ["PACKAGES", "examine"]


def examine(
    view: SystemView, available_modes: Collection[str], *, ncu: str | None = None, nsys: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Examination:
    """Look at everything. available_modes: the modes that this version of kernelwright has. ncu, nsys: named by the user."""
    start = clock()
    seen = look(view, ncu=ncu, nsys=nsys)
    checks = (
        check_python(view), check_packages(view), check_torch(view, seen), check_gpu(view, seen), check_users(view, seen),
        check_counters(view, seen), check_clocks(view, seen), check_tool(seen.ncu), check_tool(seen.nsys), check_compiler(view, seen),
        check_triton(view, seen), check_disk(view), check_memory(view), check_load(view), check_lock(view),
    )
    modes = abilities({check.name: check for check in checks}, seen, available_modes)
    facts = facts_of(view, seen)
    return Examination(elapsed_s=round(clock() - start, 3), checks=checks, modes=modes, facts=facts)


def check_tool(tool: Tool) -> Check:
    """ncu or nsys."""
    if tool.works:
        return Check(name=tool.name, status="ok", detail=f"{tool.version or 'version n/a'} at {tool.path} ({tool.source})")
    status: Status = "warn" if tool.path is not None else "missing"
    return Check(name=tool.name, status=status, detail=tool.problem, fix=tool.fix, advice=tool.advice)


def facts_of(view: SystemView, seen: Seen) -> Facts:
    """The same for programs."""
    found, memory = seen.interpreter, memory_of(view)
    torch = None
    if isinstance(found, Interpreter):
        torch = TorchFacts(version=found.torch_version, build=found.torch_build, python=str(found.path), source=found.source,
                           triton=seen.triton, python_headers=seen.python_headers)
    gpus = tuple(
        GpuFacts(name=gpu.name, compute_capability=_dotted(gpu.compute_capability), driver=gpu.driver, driver_cuda=_dotted(gpu.driver_cuda),
                 memory_bytes=gpu.memory_bytes, memory_free_bytes=gpu.memory_free_bytes) for gpu in seen.gpus)
    processes = None if seen.processes is None else tuple(
        GpuProcessFacts(gpu=item.gpu, pid=item.pid, name=item.name, memory_bytes=item.memory_bytes) for item in seen.processes)
    compiler = view.which(view.env.get("CXX") or "g++")
    return Facts(
        python=".".join(map(str, view.python)), torch=torch, gpus=gpus, gpu_source=seen.gpu_source, gpu_processes=processes,
        ncu=_tool_facts(seen.ncu), nsys=_tool_facts(seen.nsys), compiler=str(compiler) if compiler else None, container=container(view),
        disk_free_bytes={name: view.free_bytes(path) for name, path in disk_places(view).items()}, memory_available_bytes=memory.available,
        memory_limit_bytes=memory.total, lock_holder=lock_of(view)[0])


def _tool_facts(tool: Tool) -> ToolFacts:
    return ToolFacts(works=tool.works, path=str(tool.path) if tool.path else None, version=tool.version, source=tool.source)


def _dotted(version: tuple[int, int] | None) -> str | None:
    return f"{version[0]}.{version[1]}" if version else None
