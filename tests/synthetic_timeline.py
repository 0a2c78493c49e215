"""Timelines of any length, made without a file: one thread that launches kernels on a few streams, operators around the launches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernelwright.model.table import EventTable, MemoryEvents, RowDetails
from kernelwright.model.trace import STEP_NAME, Trace

Int64 = npt.NDArray[np.int64]
OPERATORS = ("aten::linear", "aten::addmm", "aten::relu", "aten::mul", "aten::sum", "aten::copy_")
KERNELS = ("void gemm_tn<float, 4>(float*)", "void at::native::relu_kernel<float>(int)", "triton_poi_fused_add_0", "sum_kernel",
           "ncclDevKernel_AllReduce_Sum_f32")
NOTHING = np.zeros(0, dtype=np.int64)


def table(start: Int64, end: Int64, names: tuple[str, ...], name_id: Int64, *, device: int = -1, stream: Int64 | None = None,
          process: int = 1, thread: int = 1, correlation: Int64 | None = None, args: RowDetails | None = None) -> EventTable:
    """A table of rows in start order."""
    full = lambda value: np.full(start.size, value, dtype=np.int64)  # noqa: E731
    return EventTable(start_ns=start, end_ns=end, name_id=name_id, stream=full(-1) if stream is None else stream, device=full(device),
                      process=full(process), thread=full(thread), correlation=full(-1) if correlation is None else correlation,
                      names=names, args=args if args is not None else RowDetails(start.size))


def timeline(launches: int, *, streams: int = 3, steps: int = 4, names: tuple[str, ...] = KERNELS, rank: int | None = None, seed: int = 0,
             ) -> Trace:
    """`launches` kernels of 1 to 40 us; launch k is call k, inside operator 2k + 1, which is inside operator 2k, "aten::linear"."""
    random = np.random.default_rng(seed)
    k = np.arange(launches, dtype=np.int64)
    outer = k * 20_000
    inner, call = outer + 2_000, outer + 5_000
    stream = random.integers(0, streams, launches)
    length = random.integers(1_000, 40_000, launches)
    start = np.zeros(launches, dtype=np.int64)
    for one in range(streams):  # each stream runs one kernel after the other
        mine = np.flatnonzero(stream == one)
        ready, before = call[mine] + 6_000, np.cumsum(length[mine]) - length[mine]
        start[mine] = np.maximum.accumulate(ready - before) + before
    order = np.argsort(start, kind="stable")
    grids = [("kernel", [4 * (one + 1), 32, 2]) for one in range(8)]
    args = RowDetails(launches, which=random.integers(0, len(grids), launches), shared=grids, decode=lambda one: {
        "category": one[0], "grid": one[1], "block": [128, 1, 1], "bytes": -1, "graph": False, "shared_bytes": 2048, "registers": 40})
    device = table(start[order], (start + length)[order], names, (k % len(names))[order], device=0, stream=7 + stream[order], process=0,
                   thread=7, correlation=k[order] + 1, args=args)
    inner_name = 1 + k % (len(OPERATORS) - 1)
    both = np.stack((outer, inner), axis=1).reshape(-1)
    ends = np.stack((outer + 18_000, inner + 12_000), axis=1).reshape(-1)
    which = np.stack((np.zeros_like(inner_name), inner_name), axis=1).reshape(-1)
    shapes = RowDetails(2 * launches, columns={"sequence": np.full(2 * launches, -1, np.int64),
                                               "forward_thread": np.zeros(2 * launches, np.int64)})
    cuts = np.linspace(0, launches, steps + 1).astype(np.int64) * 20_000
    empty = table(NOTHING, NOTHING, (), NOTHING)
    memory = MemoryEvents(outer, np.full(launches, 1024, np.int64), (k + 1) * 1024, k, np.ones(launches, np.int64),
                          np.zeros(launches, np.int64), np.ones(launches, np.int64), np.ones(launches, np.int64))
    return Trace(
        device=device, runtime=table(call, call + 4_000, ("cudaLaunchKernel",), np.zeros(launches, np.int64), correlation=k + 1),
        operators=table(both, ends, OPERATORS, which, args=shapes), ranges=empty, python=empty, lines=empty,
        steps=table(cuts[:-1], cuts[1:], (STEP_NAME,), np.zeros(steps, np.int64)), overheads=empty, memory=memory,
        device_names=("NVIDIA H200",), sm_counts=(132,), is_cuda=True, source="synthetic", rank=rank)
