"""Operator calls of the profiled steps, with what the trace says about each: shapes, dtype, stage, forward call."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import Any

import numpy as np

from ..model.table import EventTable, Int64
from ..model.trace import STAGE_PREFIX, Trace
from ..readers.ncu import flat_shapes
from ..timeline.nesting import Nesting
from ..timeline.steps import step_of

Shape = tuple[int, ...]
OPTIMIZER_PREFIX = "Optimizer."
"""torch.optim marks its calls "Optimizer.step#AdamW.step" and "Optimizer.zero_grad#AdamW.zero_grad"."""

DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "int": "int32",
    "long int": "int64", "long": "int64", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
}
"""Kineto's "Input type" (C++ type names) -> torch's short dtype names."""
_FLOATING = frozenset({"float32", "float64", "float16", "bfloat16"})


class Calls:
    """Look-ups on trace.operators; rows are row numbers of that table."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.table = trace.operators
        self.nesting = Nesting(self.table)
        self.step: Int64 = step_of(trace, self.table.start_ns)
        """Step in which each call starts, -1 outside; shape (n,). Steps that nobody marked begin inside calls: such a call is the first
        step's that begins in it."""
        if trace.steps_from != "kernelwright":
            self.step = _or_reached(self.step, self.table, trace.steps)
        is_stage = np.array([name.startswith(STAGE_PREFIX) for name in trace.ranges.names], dtype=bool)
        self._stages = Nesting(trace.ranges, is_stage[trace.ranges.name_id])
        is_optimizer = np.array([name.startswith(OPTIMIZER_PREFIX) for name in trace.ranges.names], dtype=bool)
        self._optimizers = Nesting(trace.ranges, is_optimizer[trace.ranges.name_id])

    def steps_of(self, table: EventTable) -> Int64:
        """Step in which each event of some table of the trace starts, -1 outside; shape (n,)."""
        return step_of(self.trace, table.start_ns)

    def name(self, row: int) -> str:
        """Operator name of a call."""
        return self.table.name(row)

    @cached_property
    def call_index(self) -> dict[int, int]:
        """Row -> how many calls of the same name came before it in all steps."""
        counts: Counter[int] = Counter()
        index: dict[int, int] = {}
        for row in np.flatnonzero(self.step >= 0):
            name = int(self.table.name_id[row])
            index[int(row)] = counts[name]
            counts[name] += 1
        return index

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Row -> calls directly inside it."""
        inside: dict[int, list[int]] = defaultdict(list)
        for row in np.flatnonzero(self.nesting.parent >= 0):
            inside[int(self.nesting.parent[row])].append(int(row))
        return inside

    def parents(self, row: int) -> tuple[str, ...]:
        """Names of the enclosing calls, outermost first."""
        return tuple(self.name(ancestor) for ancestor in reversed(self.nesting.ancestors(row)))

    def shapes(self, row: int) -> tuple[Shape, ...]:
        """Shapes of the tensor arguments, tensor lists flattened; scalars and absent arguments left out.

        Where the recording has no types (nsys) scalars can't be told from 0-dimensional tensors, and both are left out.
        """
        details = self.table.args[row]
        if not details["types"]:
            return flat_shapes(details["dims"])
        return tuple(shape for dims, kind in zip(details["dims"], details["types"], strict=False) if _is_tensor(kind)
                     for shape in _flatten(dims))

    def dtype(self, row: int) -> str:
        """Dtype of the first floating tensor argument, else of the first tensor argument, else ""."""
        kinds = [DTYPES[kind] for kind in self.table.args[row]["types"] if kind in DTYPES]
        return next((kind for kind in kinds if kind in _FLOATING), kinds[0] if kinds else "")

    @cached_property
    def _forward_calls(self) -> dict[int, list[int]]:
        calls: dict[int, list[int]] = defaultdict(list)
        for row, details in enumerate(self.table.args):
            if details["sequence"] >= 0 and details["forward_thread"] == 0:
                calls[details["sequence"]].append(row)
        return calls

    def forward_call(self, row: int) -> int | None:
        """The forward operator call whose gradient this call computes: the latest earlier one with its sequence number."""
        for candidate in [row, *self.nesting.ancestors(row)]:
            details = self.table.args[candidate]
            if details["forward_thread"] > 0 and details["sequence"] >= 0:
                start = self.table.start_ns[candidate]
                earlier = [f for f in self._forward_calls.get(details["sequence"], ()) if self.table.start_ns[f] <= start]
                return earlier[-1] if earlier else None
        return None

    def stage(self, row: int) -> str | None:
        """Innermost stage range around a call.

        On its own thread; else on the step's thread at that moment (autograd's thread works while the caller waits in
        backward()); else the stage of the forward call that it differentiates.
        """
        found = int(self._own_stage[row])
        if found < 0:
            found = int(self._home_stage[row])
        if found >= 0:
            return self.trace.ranges.name(found).removeprefix(STAGE_PREFIX)
        forward = self.forward_call(row)
        return self.stage(forward) if forward is not None else None

    def optimizer(self, row: int) -> str | None:
        """Class of the optimizer around a call; "" where the range does not say it."""
        found = int(self._own_optimizer[row])
        return self.trace.ranges.name(found).partition("#")[2].partition(".")[0] if found >= 0 else None

    @cached_property
    def _own_optimizer(self) -> Int64:
        return self._optimizers.innermost(self.table.process, self.table.thread, self.table.start_ns)

    def stage_at(self, process: int, thread: int, point: int) -> str | None:
        """Innermost stage range around a point in time on one thread."""
        row = int(self._stages.innermost(*(np.array([value], dtype=np.int64) for value in (process, thread, point)))[0])
        return self.trace.ranges.name(row).removeprefix(STAGE_PREFIX) if row >= 0 else None

    def step_at(self, point: int) -> int:
        """Step that holds a point in time, -1 outside."""
        return int(step_of(self.trace, np.array([point], dtype=np.int64))[0])

    @cached_property
    def _own_stage(self) -> Int64:
        return self._stages.innermost(self.table.process, self.table.thread, self.table.start_ns)

    @cached_property
    def _home_stage(self) -> Int64:
        steps, inside = self.trace.steps, self.step >= 0
        process, thread = (np.where(inside, column[self.step], -1) for column in (steps.process, steps.thread))
        return self._stages.innermost(process, thread, np.where(inside, self.table.start_ns, np.iinfo(np.int64).min))


def _or_reached(step: Int64, table: EventTable, steps: EventTable) -> Int64:
    following = np.searchsorted(steps.start_ns, table.start_ns)
    inside = (step < 0) & (following < len(steps))
    inside[inside] = steps.start_ns[following[inside]] < table.end_ns[inside]
    return np.where(inside, following, step)


def _is_tensor(kind: str) -> bool:
    return kind in DTYPES or kind == "TensorList" or kind.startswith("c10::")


def _flatten(dims: Any) -> list[Shape]:
    if isinstance(dims, list) and dims and all(isinstance(inner, list) for inner in dims):
        return [shape for inner in dims for shape in _flatten(inner)]
    return [tuple(int(size) for size in dims)] if isinstance(dims, list) and all(isinstance(d, int) for d in dims) else []
