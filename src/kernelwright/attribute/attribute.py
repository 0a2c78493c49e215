"""Kernel -> operator, for the steps of one trace. Attributed plus unattributed time is the measured time, to the nanosecond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..model.activity import Activity
from ..model.capture import OpRecord
from ..model.errors import KernelwrightError
from ..model.profile import Kernel, MemoryUse, Operator
from ..model.table import Int64
from ..model.trace import Trace
from ..readers.lines import UserStack
from ..timeline.summary import measured_ns
from . import cpu, cuda
from .activity import activity
from .calls import Calls
from .counted import Counts, counted_work
from .inductor import fused_operators, is_compiled_region, is_generated
from .memory import memory_uses
from .moments import Moments
from .owned import aggregate
from .sources import Place, Places


@dataclass(frozen=True)
class Attributed:
    """Every piece of measured time, once."""

    operators: tuple[Operator, ...]
    """Calls that hold device work (CPU: all calls), in start order."""
    unattributed: tuple[Kernel, ...]
    stacks: tuple[tuple[str, ...], ...]
    """Call stacks in words, outermost first; Operator.stack is a place in here. Only those in use."""
    places: Places
    """Where any other row of the trace was called from, e.g. synchronising runtime calls."""
    memory: tuple[MemoryUse, ...]
    measured_ns: int
    """Sum over all rows above; computed from the trace's intervals, not from the rows."""
    activity: Activity
    """Waits, copies, streams, data loading and compilation."""
    warnings: tuple[str, ...]

    @property
    def attributed_ns(self) -> int:
        """Time that has an operator."""
        return sum(operator.aggregated.total_duration_ns for operator in self.operators)

    @property
    def unattributed_ns(self) -> int:
        """Time that has none."""
        return sum(kernel.duration_ns for kernel in self.unattributed)


def attribute(trace: Trace, *, ops: Sequence[OpRecord] = (), stacks: Trace | None = None,
              lines: Sequence[UserStack] = (), own: Mapping[str, str] | None = None, idle_of_calls: Int64 | None = None) -> Attributed:
    """Attribute the steps' work to operator calls.

    ops: counted operators of one step, in dispatch order. stacks: a recording of one step with Python stacks and module
    ranges. lines: the user's stacks that its line markers name; without them sources are the lines of definitions. own: kernel name ->
    Python function of the workload's own Triton kernels, whose launches outside any operator then stand for themselves. idle_of_calls: idle
    time that each runtime call explains (timeline.gaps), for the idle time after waits; None: all idle time that a wait ends in is its own.
    CUDA: a kernel belongs to the innermost operator around its launch call. CPU: an operator's self time is its row.
    Raises KernelwrightError when the sums disagree (a defect of ours, never of the input).
    """
    calls = Calls(trace)
    owned = cuda.owned_work(calls, own or {}) if trace.is_cuda else cpu.owned_work(calls)
    places = Places(calls, stacks, lines)
    heaviest = {row: max(kernel.duration_ns for kernel in kernels) for row, kernels in owned.by_call.items()}
    work, warnings = counted_work(calls, ops, heaviest)
    operators = [_operator(calls, row, kernels, places, work.get(row, (None, None))) for row, kernels in owned.by_call.items()]
    operators += [operator.model_copy(update=_where(places.of_runtime(row)))
                  for operator, row in zip(owned.launches, owned.launch_rows, strict=True)]
    operators, table = _interned(operators, lines)
    result = Attributed(
        operators=tuple(sorted(operators, key=lambda operator: (operator.kernels[0].start_ns, operator.operator_id))),
        stacks=table, places=places, memory=memory_uses(calls, places), unattributed=owned.unattributed,
        measured_ns=measured_ns(trace), activity=activity(calls, places, Moments(trace, stacks, lines), idle_of_calls=idle_of_calls),
        warnings=(*owned.warnings, *places.warnings, *warnings))
    if result.attributed_ns + result.unattributed_ns != result.measured_ns:
        raise KernelwrightError(
            "time_does_not_add_up", f"attributed {result.attributed_ns} + unattributed {result.unattributed_ns} ns is not the measured "
            f"{result.measured_ns} ns", where=trace.source, fix="please report this trace")
    return result


def _interned(operators: list[Operator], lines: Sequence[UserStack]) -> tuple[list[Operator], tuple[tuple[str, ...], ...]]:
    """Operators with their stacks numbered anew in order of first use, and those stacks in words."""
    numbers: dict[int, int] = {}
    for operator in operators:
        if operator.stack is not None:
            numbers.setdefault(operator.stack, len(numbers))
    renumbered = [operator if operator.stack is None else operator.model_copy(update={"stack": numbers[operator.stack]})
                  for operator in operators]
    return renumbered, tuple(lines[number].words() for number in numbers)


def _where(place: Place) -> dict[str, Any]:
    return {"module": place.module, "source": place.source, "source_kind": place.kind, "stack": place.stack}


def _operator(calls: Calls, row: int, kernels: list[Kernel], places: Places, work: Counts) -> Operator:
    name, index = calls.name(row), calls.call_index[row]
    fused = is_generated(name) or is_compiled_region(name) or any(is_generated(kernel.kernel_name) for kernel in kernels)
    names = [name, *(kernel.kernel_name for kernel in kernels)] if fused else []
    fused_ops = tuple(dict.fromkeys(part for text in names for part in fused_operators(text)))
    return Operator(
        operator_id=f"{name}_{index}", operator_name=name, call_index=index, step=int(calls.step[row]), is_fused=fused,
        fused_ops=fused_ops, stage=calls.stage(row), optimizer=calls.optimizer(row), **_where(places.of(row)),
        input_shapes=calls.shapes(row), dtype=calls.dtype(row), flops=work[0], min_bytes=work[1],
        parents=calls.parents(row), kernels=tuple(kernels), aggregated=aggregate(kernels))
