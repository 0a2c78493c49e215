"""Reports for tests: recorded ones (see strip_ncu_report.py), and what ncu would say of a recorded timeline."""

from __future__ import annotations

import lzma
from collections import Counter
from pathlib import Path

from kernelwright.attribute.calls import Calls
from kernelwright.attribute.cuda import owned_work
from kernelwright.attribute.op_ids import StepRanges
from kernelwright.attribute.signatures import CounterPlan
from kernelwright.model.profile import Kernel
from kernelwright.model.trace import Trace
from kernelwright.readers.ncu import NcuLaunch, NcuReport, NvtxRange

DATA = Path(__file__).parent / "data"


def recorded(name: str, folder: Path) -> Path:
    """A recorded report, unpacked into `folder`."""
    path = folder / f"{name}.ncu-rep"
    path.write_bytes(lzma.decompress((DATA / "ncu" / f"{name}.ncu-rep.xz").read_bytes()))
    return path


def simulated(trace: Trace, plan: CounterPlan) -> NcuReport:
    """What ncu would report for a plan, were the counter run the same as the timeline's first step, launch by launch.

    Every launch has one counter, "which": its number in launch order.
    """
    ranges = StepRanges(trace)
    around: dict[str, tuple[int, ...]] = {}
    owned = owned_work(Calls(trace))
    kernels = [kernel for rows in owned.by_call.values() for kernel in rows]
    kernels += [*owned.unattributed, *(kernel for operator in owned.launches for kernel in operator.kernels)]
    by_id = {kernel.kernel_id: kernel for kernel in kernels}
    for op_id, ids in plan.launched.items():
        around.update(dict.fromkeys(ids, ranges.with_ancestors(op_id)[::-1]))
    taken: Counter[tuple[object, ...]] = Counter()
    launches: list[NcuLaunch] = []
    for kernel_id in sorted(around, key=lambda one: plan.order[one]):
        kernel, inside = by_id[kernel_id], around[kernel_id]
        if not set(inside) & set(plan.op_ids):
            continue
        config = kernel.kernel_name, kernel.grid, kernel.block, kernel.shared_bytes
        taken[config] += 1
        if plan.launch_count is None or taken[config] <= plan.launch_count:
            launches.append(_launch(kernel, len(launches), tuple(
                NvtxRange(ranges.rows[op_id - 1].name, op_id, ranges.rows[op_id - 1].shapes) for op_id in inside), plan.order[kernel_id]))
    return NcuReport("ncu 2025.3.1", "NVIDIA H200", (9, 0), 12, tuple(launches))


def _launch(kernel: Kernel, index: int, nvtx: tuple[NvtxRange, ...], which: int) -> NcuLaunch:
    assert kernel.grid is not None and kernel.block is not None
    return NcuLaunch(index=index, name=kernel.kernel_name, symbol=kernel.kernel_name, function=kernel.kernel_name, grid=kernel.grid,
                     block=kernel.block, cluster=None, shared_bytes=kernel.shared_bytes or 0, registers=kernel.registers or 0,
                     stream=kernel.stream_id, device=0, nvtx=nvtx, metrics={"which": float(which)})
