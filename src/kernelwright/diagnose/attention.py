"""Finds attention that is written out: product, softmax over its result, product of that with the values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from math import prod

from ..model.profile import Operator

_PRODUCT = re.compile(r"^aten::(bmm|baddbmm|matmul|mm)$")
_COPY = re.compile(r"^aten::(copy_|clone|contiguous|_to_copy)$")
_SOFTMAX = re.compile(r"^aten::(_softmax|softmax|_safe_softmax)$")
MOST_BETWEEN = 12
"""Operators between a product and its softmax, or a softmax and its product: scaling, masks, casts, dropout, layout copies."""


def unfused_attention(operators: Sequence[Operator]) -> list[Operator]:
    """All operators that belong to written-out attention, in order; operators must be in start order, step by step."""
    found: dict[str, Operator] = {}
    for _, group in groupby(operators, key=lambda operator: operator.step):
        step = list(group)
        for place, operator in enumerate(step):
            if _SOFTMAX.match(operator.operator_name) and operator.input_shapes:
                found.update((part.operator_id, part) for part in _around(step, place))
    return list(found.values())


def product_flops(operators: Sequence[Operator]) -> float:
    """FLOPs of their matrix products, two a multiply-add, from the shapes."""
    return float(sum(2 * prod(left) * right[-1] for operator in operators if _PRODUCT.match(operator.operator_name)
                     for left, right in [_factors(operator)] if left and right))


def _around(step: list[Operator], place: int) -> list[Operator]:
    scores = step[place].input_shapes[0]
    before = next((index for index in range(place - 1, max(-1, place - 2 - MOST_BETWEEN), -1) if _makes(step[index], scores)), None)
    after = next((index for index in range(place + 1, min(len(step), place + 2 + MOST_BETWEEN)) if _takes(step[index], scores)), None)
    if before is None or after is None:
        return []
    size = prod(scores)
    between = [row for row in step[before + 1:after] if _lays_out(row) or any(prod(shape) == size for shape in row.input_shapes)]
    first = before
    while first > 0 and _lays_out(step[first - 1]):
        first -= 1
    return [*step[first:before], step[before], *between, step[after]]


def _lays_out(operator: Operator) -> bool:
    """A copy that torch.matmul makes of a factor, because the batched product wants another layout."""
    return _COPY.match(operator.operator_name) is not None and "aten::matmul" in operator.parents


def _factors(operator: Operator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the two factors; baddbmm has its addend first."""
    shapes = operator.input_shapes[1:] if operator.operator_name == "aten::baddbmm" else operator.input_shapes
    return (shapes[0], shapes[1]) if len(shapes) >= 2 and len(shapes[0]) >= 2 and len(shapes[1]) >= 2 else ((), ())


def _makes(operator: Operator, scores: tuple[int, ...]) -> bool:
    left, right = _factors(operator) if _PRODUCT.match(operator.operator_name) else ((), ())
    return bool(left) and len(scores) >= 2 and (left[-2], right[-1]) == scores[-2:] and prod(left[:-1]) * right[-1] == prod(scores)


def _takes(operator: Operator, scores: tuple[int, ...]) -> bool:
    left, _ = _factors(operator) if _PRODUCT.match(operator.operator_name) else ((), ())
    return bool(left) and left[-2:] == scores[-2:] and prod(left) == prod(scores)
