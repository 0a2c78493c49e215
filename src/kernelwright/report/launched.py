"""What launched each row of a trace's device table: the runtime call, the operator around it, the attributed call where known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..model.profile import Kernel, Operator
from ..model.table import Int64
from ..model.trace import Trace
from ..timeline.nesting import Nesting
from ..timeline.steps import launch_calls

_Key = tuple[int, int, int, int, str]


@dataclass(frozen=True)
class Launched:
    """By rows of trace.device."""

    call: Int64
    """Row of trace.runtime; -1: not in the recording. Shape (n,)."""
    operator: Int64
    """Row of trace.operators, the innermost one around the call; -1: none. Shape (n,)."""
    attributed: Mapping[int, tuple[Operator, Kernel]]
    """What attribution says of a row, where it was asked."""

    def name(self, trace: Trace, row: int) -> str | None:
        """Operator of a device row; None without one."""
        if row in self.attributed:
            return self.attributed[row][0].operator_name
        operator = int(self.operator[row])
        return trace.operators.name(operator) if operator >= 0 else None


def launched(trace: Trace, operators: Sequence[Operator] | None) -> Launched:
    """Look-ups for all device rows, those outside the steps too. operators: as attribute() gave them for this trace."""
    call = launch_calls(trace)
    operator = np.full(call.size, -1, dtype=np.int64)
    known = np.flatnonzero(call >= 0)
    if known.size and len(trace.operators):
        made, runtime = call[known], trace.runtime
        operator[known] = Nesting(trace.operators).innermost(runtime.process[made], runtime.thread[made], runtime.start_ns[made])
    return Launched(call, operator, _attributed(trace, operators) if operators else {})


def _attributed(trace: Trace, operators: Sequence[Operator]) -> dict[int, tuple[Operator, Kernel]]:
    """Kernels carry no row number, so they are found by place, time and name; of equal rows each is taken once."""
    device = trace.device
    rows: dict[_Key, list[int]] = defaultdict(list)
    columns = (device.device, device.stream, device.start_ns, device.end_ns, device.name_id)
    for row, (index, stream, start, end, name) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        rows[index, stream, start, end, device.names[name]].append(row)
    found: dict[int, tuple[Operator, Kernel]] = {}
    for operator in operators:
        for kernel in operator.kernels:
            key = (_number(kernel.device_id), _number(kernel.stream_id), kernel.start_ns, kernel.end_ns, kernel.kernel_name)
            if rows[key]:
                found[rows[key].pop(0)] = (operator, kernel)
    return found


def _number(identity: int | None) -> int:
    return -1 if identity is None else identity
