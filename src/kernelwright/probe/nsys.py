"""The nsys action's steps: run while Nsight Systems watches, an NVTX range around every operator, step, stage and module.

torch.profiler can't run beside nsys (both need CUPTI), so ranges come from emit_nvtx: "aten::addmm, op_id = 13, sizes = ...".
As in the annotation action there are two parts: several clean steps, then one with a marker for every line of the user's and a
range around every nn.Module call. Nothing is timed from the second part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import emit_nvtx, record_function

from .annotation import STEP, module_ranges, nvtx_stages
from .failures import machine_lacks
from .lines import LineMarkers
from .timers import synchronize

STACKS_STEP = "kernelwright.stacks_step"
"""The step with line markers and module ranges."""


def record_steps(call: Callable[[], Any], model: Any, device: str, out_dir: str, folder: str, steps: int,
                 stacks: bool) -> tuple[str | None, list[str]]:
    """The steps between cudaProfilerStart and cudaProfilerStop; returns the file of exact lines (None without) and warnings.

    model: gets module ranges when it is an nn.Module. folder: the workload's. Raises no_gpu on the CPU.
    """
    if device != "cuda":
        raise machine_lacks("no_gpu", "Nsight Systems records GPU work, and this ran on the CPU", where="--device",
                            fix="use --device cuda where there is one, or --mode annotation")
    runtime = torch.cuda.cudart()
    markers = LineMarkers(folder)
    synchronize(device)
    with nvtx_stages(), emit_nvtx(record_shapes=True):
        runtime.cudaProfilerStart()
        try:
            # Thrown away: the recording itself begins inside this call.
            call()
            _steps(call, device, STEP, steps)
            if stacks:
                with module_ranges(model):
                    markers.start()
                    try:
                        _steps(call, device, STACKS_STEP, 1)
                    finally:
                        markers.stop()
        finally:
            runtime.cudaProfilerStop()
    return markers.write(out_dir), [markers.note] if markers.note else []


def _steps(call: Callable[[], Any], device: str, name: str, steps: int) -> None:
    synchronize(device)
    for _ in range(steps):
        with record_function(name):
            call()
    synchronize(device)
