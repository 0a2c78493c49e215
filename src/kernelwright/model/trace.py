"""The timeline that every trace reader produces, and the names that the probe gives to its ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .table import EventTable, MemoryEvents

Recorder = Literal["kineto", "nsys"]
StepsFrom = Literal["kernelwright", "ProfilerStep", "range", "found", "whole"]

STEP_NAME = "kernelwright.step"
STACKS_STEP_NAME = "kernelwright.stacks_step"
"""In an nsys recording: the step with line markers and module ranges, which nothing is timed from."""
MODULE_PREFIX = "kernelwright.module:"
STAGE_PREFIX = "stage:"
LINE_PREFIX = "kernelwright.line:"
RECORD_AGAIN = "record the profile again"
"""The mend for traces that can't be read."""


@dataclass(frozen=True)
class Trace:
    """One recording. Times are int64 ns from the start of the first profiled step; earlier ones are negative.

    Tables are in nesting order (start, then the longer first). Rows outside the steps are kept here and left out later.
    """

    device: EventTable
    """Kernels, copies and memsets. args: category, grid, block, bytes, graph, shared_bytes, registers; collective where the recording says
    which one a kernel is part of (name, group, ranks, size, in_elements, out_elements, dtype, sequence; None for what it does not say)."""
    runtime: EventTable
    """CUDA runtime and driver calls, with the correlation ids of what they launched."""
    operators: EventTable
    """cpu_op events. args: dims, types, sequence, forward_thread, opened (the recorder's own number, -1 for none); collective as for
    device.

    In an nsys recording types is empty: NVTX holds no dtypes, and [] among dims is a scalar, a 0-dimensional tensor or absent.
    """
    ranges: EventTable
    """User annotations: stages, modules, compiled graphs; without the steps. args: opened."""
    python: EventTable
    """Python frames; empty unless recorded with stacks."""
    lines: EventTable
    """The probe's markers of source lines; empty unless recorded with stacks."""
    steps: EventTable
    """The profiled steps, in order; at least one."""
    overheads: EventTable
    """CUPTI's own and the driver's overhead, e.g. "Lazy Function Loading" (nsys: its own, e.g. "CUPTI Buffer flush"). Kineto's are on no
    thread."""
    memory: MemoryEvents
    """Allocations and frees; empty unless recorded with memory. Kineto's are of torch's allocator, nsys's of the driver (cudaMalloc)."""
    device_names: tuple[str, ...]
    sm_counts: tuple[int, ...]
    """Multiprocessors of each device; 0 where the file does not say."""
    is_cuda: bool
    """True when device work was recorded."""
    source: str
    """File name, for messages."""
    recorder: Recorder = "kineto"
    steps_from: StepsFrom = "kernelwright"
    """What the steps are: the probe's, torch.profiler's own (ProfilerStep#N), ranges that the user named, repetitions that were found, or
    the whole recording as one."""
    rank: int | None = None
    """Of a distributed run, as the recording says; None where it does not."""
    world_size: int | None = None
