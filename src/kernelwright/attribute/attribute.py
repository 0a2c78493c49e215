"""Kernel -> operator, for the steps of one trace. Attributed plus unattributed time is the measured time, to the nanosecond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.capture import OpRecord
from ..model.errors import KernelwrightError
from ..model.profile import Kernel, Operator
from ..readers.kineto import Trace
from ..timeline.summary import measured_ns
from . import cpu, cuda
from .calls import Calls
from .counted import Counts, counted_work
from .inductor import fused_operators, is_compiled_region, is_generated
from .owned import aggregate
from .sources import Places


@dataclass(frozen=True)
class Attributed:
    """Every piece of measured time, once."""

    operators: tuple[Operator, ...]
    """Calls that hold device work (CPU: all calls), in start order."""
    unattributed: tuple[Kernel, ...]
    measured_ns: int
    """Sum over all rows above; computed from the trace's intervals, not from the rows."""
    warnings: tuple[str, ...]

    @property
    def attributed_ns(self) -> int:
        """Time that has an operator."""
        return sum(operator.aggregated.total_duration_ns for operator in self.operators)

    @property
    def unattributed_ns(self) -> int:
        """Time that has none."""
        return sum(kernel.duration_ns for kernel in self.unattributed)


def attribute(trace: Trace, *, ops: Sequence[OpRecord] = (), stacks: Trace | None = None) -> Attributed:
    """Attribute the steps' work to operator calls.

    ops: counted operators of one step, in dispatch order. stacks: a recording of one step with Python stacks and module
    ranges. CUDA: a kernel belongs to the innermost operator around its launch call. CPU: an operator's self time is its row.
    Raises KernelwrightError when the sums disagree (a defect of ours, never of the input).
    """
    calls = Calls(trace)
    owned = cuda.owned_work(calls) if trace.is_cuda else cpu.owned_work(calls)
    places = Places(calls, stacks)
    heaviest = {row: max(kernel.duration_ns for kernel in kernels) for row, kernels in owned.by_call.items()}
    work, warnings = counted_work(calls, ops, heaviest)
    operators = [_operator(calls, row, kernels, places, work.get(row, (None, None))) for row, kernels in owned.by_call.items()]
    operators += owned.graph_launches
    result = Attributed(
        operators=tuple(sorted(operators, key=lambda operator: (operator.kernels[0].start_ns, operator.operator_id))),
        unattributed=owned.unattributed, measured_ns=measured_ns(trace), warnings=(*owned.warnings, *places.warnings, *warnings))
    if result.attributed_ns + result.unattributed_ns != result.measured_ns:
        raise KernelwrightError(
            "time_does_not_add_up", f"attributed {result.attributed_ns} + unattributed {result.unattributed_ns} ns is not the measured "
            f"{result.measured_ns} ns", where=trace.source, fix="please report this trace")
    return result


def _operator(calls: Calls, row: int, kernels: list[Kernel], places: Places, work: Counts) -> Operator:
    name, index = calls.name(row), calls.call_index[row]
    module, source = places.of(row)
    fused = is_generated(name) or is_compiled_region(name) or any(is_generated(kernel.kernel_name) for kernel in kernels)
    names = [name, *(kernel.kernel_name for kernel in kernels)] if fused else []
    fused_ops = tuple(dict.fromkeys(part for text in names for part in fused_operators(text)))
    return Operator(
        operator_id=f"{name}_{index}", operator_name=name, call_index=index, step=int(calls.step[row]), is_fused=fused,
        fused_ops=fused_ops, stage=calls.stage(row), module=module, source=source, input_shapes=calls.shapes(row),
        dtype=calls.dtype(row), flops=work[0], min_bytes=work[1], parents=calls.parents(row), kernels=tuple(kernels),
        aggregated=aggregate(kernels))
