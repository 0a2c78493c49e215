"""Row-wise work right after an embedding's lookup, by the profile: what a table that is computed once takes away."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...model.profile import Operator
from .base import Context

LOOKUP = "aten::embedding"
ROW_WISE = frozenset(f"aten::{name}" for name in (
    "linear", "layer_norm", "gelu", "relu", "silu", "tanh", "sigmoid", "neg", "square", "add", "sub", "mul", "div", "dropout"))
"""Operators that may treat each row alone, by the outermost name of a call; the rewrite looks at the graph itself."""


def after_lookups_pct(context: Context) -> float | None:
    """Share of the measured time, in percent, of the row-wise operators between a lookup and the last of them whose rows are no wider than
    the table's. None without a timeline."""
    steps: dict[int, list[Operator]] = {}
    for operator in context.seen.operators:
        steps.setdefault(operator.step, []).append(operator)
    return context.share_of_pct(duration for operators in steps.values() for duration in _gone_ns(operators))


def _gone_ns(operators: Iterable[Operator]) -> list[int]:
    """Durations of those operators of one step, in the order of their calls."""
    gone: list[int] = []
    walk: _Walk | None = None
    for operator in operators:
        if _outermost(operator) == LOOKUP:
            table = operator.input_shapes[0] if operator.input_shapes else ()
            if len(table) == 2 and len(operator.input_shapes) > 1:  # its own parts have no table beside another input
                gone += walk.folded_ns if walk is not None else []
                walk = _Walk(table[1])
        elif walk is not None and not walk.takes(operator):
            gone += walk.folded_ns
            walk = None
    return gone + (walk.folded_ns if walk is not None else [])


class _Walk:
    """From one lookup on."""

    def __init__(self, table_width: int) -> None:
        self.table_width = self.width = table_width
        self.rows: int | None = None
        self.folded_ns: list[int] = []
        """Of those up to the last narrow one."""
        self._since_ns: list[int] = []
        """Of the wider ones after it."""

    def takes(self, operator: Operator) -> bool:
        """Whether this one works on the same rows; if so, it is counted."""
        name, shapes = _outermost(operator), operator.input_shapes
        if name not in ROW_WISE:
            return False
        if name == "aten::linear":
            rows, self.width = _linear(operator, self.rows, self.width)
        else:
            tensors = [shape for shape in shapes if len(shape) > 1]
            if any(shape[-1] != self.width for shape in tensors):
                return False
            found = {math.prod(shape[:-1]) for shape in tensors}
            if len(found) > 1:
                return False
            rows = found.pop() if found else self.rows
        if self.rows is not None and rows != self.rows:
            return False
        self.rows = rows
        self._since_ns.append(operator.aggregated.total_duration_ns)
        if self.width <= self.table_width:
            self.folded_ns += self._since_ns
            self._since_ns = []
        return True


def _linear(operator: Operator, rows: int | None, width: int) -> tuple[int | None, int]:
    """(rows, width of the result) of a linear layer's call or of its product; as before where this part of it shows neither."""
    shapes = operator.input_shapes
    if operator.operator_name == "aten::linear" and len(shapes) > 1 and len(shapes[1]) == 2:  # input, weight (out, in)
        return math.prod(shapes[0][:-1]), shapes[1][0]
    if operator.operator_name == "aten::addmm" and len(shapes) > 2 and len(shapes[2]) == 2:  # bias, input, weight (in, out)
        return math.prod(shapes[1][:-1]), shapes[2][1]
    if operator.operator_name == "aten::mm" and len(shapes) > 1 and len(shapes[1]) == 2:
        return math.prod(shapes[0][:-1]), shapes[1][1]
    return rows, width


def _outermost(operator: Operator) -> str:
    return (*operator.parents, operator.operator_name)[0]
