"""Counted FLOPs and bytes of one step's dispatched operators, brought to the operators that hold the kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from ..model.capture import OpRecord
from .calls import Calls, Shape

Key = tuple[str, tuple[Shape, ...]]
Counts = tuple[float | None, float | None]
"""(FLOPs, bytes)."""
_MOVES_ONLY = frozenset({"aten::copy_", "aten::fill_", "aten::zero_", "aten::resize_", "aten::empty", "aten::empty_strided"})
"""Operators that do no arithmetic: on a loaded CPU the bias copy inside aten::addmm once took longer than the product."""


def counted_work(calls: Calls, ops: Sequence[OpRecord], heaviest_ns: Mapping[int, int]) -> tuple[dict[int, Counts], list[str]]:
    """Operator row -> (FLOPs, bytes), each record at most once a step, and warnings.

    ops: one step's records in dispatch order. heaviest_ns: for each row that becomes an Operator, its longest kernel (CPU:
    its self time). A record is matched, in order, to the call with its name and shapes; calls inside a matched one are its
    implementation and match nothing. Its figures go to the row below it (or itself) with the longest kernel.
    """
    assigned: dict[int, Counts] = {}
    unmatched = 0
    for step in range(len(calls.trace.steps)) if ops else ():
        waiting: dict[Key, list[OpRecord]] = defaultdict(list)
        for record in reversed(ops):
            waiting[_key(record.name, record.dims)].append(record)
        covered: set[int] = set()
        for row in (int(r) for r in np.flatnonzero(calls.step == step)):
            if int(calls.nesting.parent[row]) in covered:
                covered.add(row)
                continue
            records = waiting.get(_key(calls.name(row), calls.shapes(row)))
            if not records:
                continue
            record = records.pop()
            covered.add(row)
            holder = _heaviest_below(calls, row, heaviest_ns, arithmetic=bool(record.flops))
            if holder is not None:
                # A view moves nothing: no figure rather than 0 bytes.
                assigned[holder] = (record.flops or None, record.bytes or None)
        unmatched = max(unmatched, sum(1 for records in waiting.values() for record in records if record.flops))
    warnings = [f"{unmatched} of {sum(1 for r in ops if r.flops)} operators with counted FLOPs have no counterpart in the timeline; "
                "their FLOPs are missing from the stages"] if unmatched else []
    return assigned, warnings


def _key(name: str, dims: Sequence[Shape]) -> Key:
    # Kineto writes [] for scalars and for 0-dimensional tensors alike, so shapes without dimensions can't be compared.
    return name, tuple(tuple(shape) for shape in dims if shape)


def _heaviest_below(calls: Calls, row: int, heaviest_ns: Mapping[int, int], *, arithmetic: bool) -> int | None:
    best: int | None = None
    pending = [row]
    while pending:
        current = pending.pop()
        eligible = current in heaviest_ns and not (arithmetic and calls.name(current) in _MOVES_ONLY)
        if eligible and (best is None or heaviest_ns[current] > heaviest_ns[best]):
            best = current
        pending.extend(calls.children.get(current, ()))
    return best
