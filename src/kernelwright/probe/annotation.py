"""The annotation action's recordings: two passes of torch.profiler over a warm call.

Pass A (trace.json.gz): several steps with shapes and memory, no Python stacks: the timeline that durations come from.
Pass B (trace_stacks.json.gz, lines.json.gz): one step with Python stacks, a range around every nn.Module call and a marker
for every line of the user's, to attribute operators to modules and source lines. Stacks slow the host down several times, so
nothing is timed from pass B.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.profiler import ProfilerActivity

from .lines import LineMarkers
from .recording import Recorder
from .results import compress
from .timers import synchronize

STEP = "kernelwright.step"
STAGE = "stage:"
MODULE = "kernelwright.module:"
DEFAULT_STEPS = 5
STEPS_CAP_S = 5.0
"""Without an explicit number, slow calls are profiled fewer times, so that the steps take about this long at most."""
TRACE_FILE = "trace.json.gz"
STACKS_FILE = "trace_stacks.json.gz"


def step_count(asked: int | None, call_s: float) -> int:
    """How many steps to profile."""
    if asked is not None:
        return max(1, asked)
    return max(1, min(DEFAULT_STEPS, int(STEPS_CAP_S / max(call_s, 1e-9))))


def record_timeline(call: Callable[[], Any], device: str, out_dir: str, steps: int, call_s: float) -> list[str]:
    """Pass A into out_dir/trace.json.gz; returns warnings."""
    _start_profiler(call if call_s < 1.0 else lambda: torch.ones(1, device=device), device)
    with nvtx_stages(), Recorder(activities=_activities(device), record_shapes=True, profile_memory=True) as profiler:
        _steps(call, device, steps)
    return _export(profiler, device, out_dir, TRACE_FILE)


def record_stacks(call: Callable[[], Any], model: Any, device: str, out_dir: str, folder: str) -> tuple[str | None, list[str]]:
    """Pass B into out_dir/trace_stacks.json.gz; returns the file of exact lines (None without) and warnings.

    model: gets module ranges when it is an nn.Module. folder: the workload's.
    """
    options = {"activities": _activities(device), "record_shapes": True, "with_stack": True}
    markers = LineMarkers(folder)
    with nvtx_stages(), module_ranges(model), Recorder(**options) as profiler:
        markers.start()
        try:
            _steps(call, device, 1)
        finally:
            markers.stop()
    warnings = _export(profiler, device, out_dir, STACKS_FILE)
    return markers.write(out_dir), warnings + ([markers.note] if markers.note else [])


def _activities(device: str) -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])


def _start_profiler(call: Callable[[], Any], device: str) -> None:
    """A recording that is thrown away: the process's first one starts CUPTI and fills caches inside its first step."""
    with Recorder(activities=_activities(device), record_shapes=True, profile_memory=True):
        call()
        synchronize(device)


def _steps(call: Callable[[], Any], device: str, steps: int) -> None:
    synchronize(device)
    for _ in range(steps):
        with record_function(STEP):
            call()
    synchronize(device)


def _export(profiler: Recorder, device: str, out_dir: str, name: str) -> list[str]:
    scratch = os.path.join(out_dir, f".{name}.plain.json")
    profiler.export_chrome_trace(scratch)
    has_kernels = compress(scratch, os.path.join(out_dir, name), b'"cat": "kernel"')
    if device == "cuda" and not has_kernels:
        return [f"{name} holds no GPU kernels: another profiler may hold CUPTI, or the driver does not permit it"]
    return []


@contextmanager
def nvtx_stages() -> Iterator[None]:
    """Within it, a torch.cuda.nvtx range "stage:NAME" is a profiler range of that name too: torch.profiler records no NVTX."""
    nvtx = torch.cuda.nvtx
    push, pop = nvtx.range_push, nvtx.range_pop
    open_ranges: list[Any] = []

    def range_push(message: str, *args: Any, **kwargs: Any) -> Any:
        depth = push(message, *args, **kwargs)
        span = record_function(message) if str(message).startswith(STAGE) else nullcontext()
        span.__enter__()
        open_ranges.append(span)
        return depth

    def range_pop() -> Any:
        if open_ranges:
            open_ranges.pop().__exit__(None, None, None)
        return pop()

    nvtx.range_push, nvtx.range_pop = range_push, range_pop
    try:
        yield
    finally:
        nvtx.range_push, nvtx.range_pop = push, pop


@contextmanager
def module_ranges(model: Any) -> Iterator[None]:
    """Within it, every call of a submodule of `model` is a range "kernelwright.module:<path>"; the model itself has the path "".

    Hooks for all modules rather than on each: torch's Transformer fast path switches itself off on modules that carry hooks.
    """
    names = {id(module): name for name, module in model.named_modules()} if isinstance(model, torch.nn.Module) else {}
    if not names:
        yield
        return
    open_ranges: list[tuple[int, Any]] = []

    def enter(module: torch.nn.Module, _args: Any) -> None:
        if id(module) in names:
            span = record_function(MODULE + names[id(module)])
            span.__enter__()
            open_ranges.append((id(module), span))

    def leave(module: torch.nn.Module, _args: Any, _output: Any) -> None:
        if open_ranges and open_ranges[-1][0] == id(module):
            open_ranges.pop()[1].__exit__(None, None, None)

    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        while open_ranges:
            open_ranges.pop()[1].__exit__(None, None, None)
