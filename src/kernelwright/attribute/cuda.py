"""CUDA attribution: device work -> correlation id -> launch call -> innermost operator on that thread at the call's time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from ..model.profile import Attribution, Confidence, Kernel, Operator
from ..timeline.steps import DeviceWork, device_work
from .calls import Calls
from .inductor import fused_operators, is_generated
from .owned import Owned, aggregate

GRAPH_LAUNCH = "cudaGraphLaunch"
_GRAPH_CALLS = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")


def owned_work(calls: Calls, own: Mapping[str, str] | None = None) -> Owned:
    """All device rows that the steps launched, by operator call.

    A graph launch's kernels share its correlation id: they belong to the operator around the launch, else to an operator
    named after the launch, both with low confidence, since the operators that recorded them are not in the trace.
    own: kernel name -> Python function of the workload's own Triton kernels. Their launches outside any operator are operators of that
    name; without it they are unattributed.
    """
    own = own or {}
    trace = calls.trace
    work = device_work(trace)
    runtime = trace.runtime
    known = work.launch >= 0
    owner = np.full(work.rows.size, -1, dtype=np.int64)
    launch = work.launch[known]
    owner[known] = calls.nesting.innermost(runtime.process[launch], runtime.thread[launch], runtime.start_ns[launch])
    by_call: dict[int, list[Kernel]] = defaultdict(list)
    loose: dict[int, tuple[str, list[Kernel]]] = {}
    unattributed: list[Kernel] = []
    for place in range(work.rows.size):
        launched_by, call = int(work.launch[place]), int(owner[place])
        graph = launched_by >= 0 and runtime.name(launched_by).startswith(_GRAPH_CALLS)
        name = GRAPH_LAUNCH if graph else own.get(trace.device.name(int(work.rows[place]))) if launched_by >= 0 else None
        kernel = _kernel(calls, work, place, _attribution(calls, work, place, call >= 0 or name is not None, graph))
        if call >= 0:
            by_call[call].append(kernel)
        elif name is not None:
            loose.setdefault(launched_by, (name, []))[1].append(kernel)
        else:
            unattributed.append(kernel)
    seen: Counter[str] = Counter()
    launches = []
    for row in sorted(loose):
        name, kernels = loose[row]
        launches.append(_launch_operator(calls, name, seen[name], row, kernels))
        seen[name] += 1
    return Owned(dict(by_call), tuple(unattributed), tuple(launches), tuple(sorted(loose)), _warnings(calls, work, unattributed))


def _attribution(calls: Calls, work: DeviceWork, place: int, known: bool, graph: bool) -> Attribution:
    if not known:
        return Attribution(method="none", confidence="none")
    confidence: Confidence = "low" if graph else "high"
    if not graph and is_generated(calls.trace.device.name(int(work.rows[place]))):
        # Which launch it was is certain; which operators went into the kernel is read off its name.
        return Attribution(method="inductor", confidence="medium")
    return Attribution(method="correlation", confidence=confidence)


def _kernel(calls: Calls, work: DeviceWork, place: int, attribution: Attribution) -> Kernel:
    device = calls.trace.device
    row = int(work.rows[place])
    details = device.args[row]
    stream, index = int(device.stream[row]), int(device.device[row])
    return Kernel(
        kernel_id=f"kernel_{place}", kernel_name=device.name(row), stream_id=stream if stream >= 0 else None,
        device_id=index if index >= 0 else None, start_ns=int(device.start_ns[row]), end_ns=int(device.end_ns[row]),
        duration_ns=int(device.end_ns[row] - device.start_ns[row]), category=details["category"], grid=_three(details["grid"]),
        block=_three(details["block"]), shared_bytes=details["shared_bytes"], registers=details["registers"],
        attribution=attribution)


def _three(sizes: list[int] | None) -> tuple[int, int, int] | None:
    return (sizes[0], sizes[1], sizes[2]) if sizes is not None and len(sizes) == 3 else None


def _launch_operator(calls: Calls, name: str, index: int, launch: int, kernels: list[Kernel]) -> Operator:
    names = [kernel.kernel_name for kernel in kernels]
    runtime = calls.trace.runtime
    start = int(runtime.start_ns[launch])
    return Operator(
        operator_id=f"{name}_{index}", operator_name=name, call_index=index, step=calls.step_at(start), own_launch=name != GRAPH_LAUNCH,
        is_fused=any(is_generated(name) for name in names),
        fused_ops=tuple(dict.fromkeys(part for name in names for part in fused_operators(name))),
        stage=calls.stage_at(int(runtime.process[launch]), int(runtime.thread[launch]), start), kernels=tuple(kernels),
        aggregated=aggregate(kernels))


def _warnings(calls: Calls, work: DeviceWork, unattributed: list[Kernel]) -> tuple[str, ...]:
    messages = []
    if work.ambiguous:
        messages.append(f"{work.ambiguous} kernels have a correlation id that several processes used; they are unattributed")
    lost = int(np.count_nonzero(work.launch < 0)) - work.ambiguous
    if lost:
        messages.append(f"{lost} kernels have no launch call in the trace; they are unattributed")
    outside = len(unattributed) - lost - work.ambiguous
    if outside:
        duration_us = sum(kernel.duration_ns for kernel in unattributed) / 1e3
        messages.append(f"{outside} kernels were launched outside any PyTorch operator; all unattributed time is {duration_us:.1f} us")
    return tuple(messages)
