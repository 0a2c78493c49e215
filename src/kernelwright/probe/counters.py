"""The counters action: one step of a warm workload while ncu watches, an NVTX range around every operator.

emit_nvtx names each range "aten::addmm, op_id = 13, sizes = ...". It numbers operators from 1 as it is switched on, so the N-th operator
of a step that torch.profiler recorded in another process of the same program has the id N here: launches are chosen by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import emit_nvtx, record_function

from .annotation import STEP, nvtx_stages
from .failures import machine_lacks
from .timers import synchronize

WARMUP_CALLS = 2
"""Besides the first call: CUDA graphs run once, are recorded in the second call and replayed from the third on."""


def warm_up(call: Callable[[], Any], device: str, fixed: int | None) -> None:
    """As few calls as the step needs to launch what it launches when warm; `fixed` where the user says how many."""
    for _ in range(WARMUP_CALLS if fixed is None else fixed):
        call()
    synchronize(device)


def record_step(call: Callable[[], Any], device: str) -> None:
    """One call between cudaProfilerStart and cudaProfilerStop. Raises no_gpu on the CPU."""
    if device != "cuda":
        raise machine_lacks("no_gpu", "hardware counters need a GPU", where="--device", fix="use --device cuda where there is one")
    runtime = torch.cuda.cudart()
    synchronize(device)
    with nvtx_stages(), emit_nvtx(record_shapes=True):
        runtime.cudaProfilerStart()
        try:
            with record_function(STEP):
                call()
            synchronize(device)
        finally:
            runtime.cudaProfilerStop()
