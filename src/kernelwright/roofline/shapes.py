"""Work of matrix products from their recorded shapes, for steps whose operators were not counted (compiled callables)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from ..model.profile import Operator

_PRODUCT = re.compile(r"^aten::(mm|bmm|addmm|baddbmm)$")
_ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def with_product_work(operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """The operators, products with FLOPs and (where their dtype is known) minimum bytes. As they are where anything was counted: a
    counted parent may hold a product's work already."""
    if any(operator.flops is not None or operator.min_bytes is not None for operator in operators):
        return operators
    return tuple(_with_work(operator) for operator in operators)


def _with_work(operator: Operator) -> Operator:
    if not _PRODUCT.match(operator.operator_name) or not operator.kernels:
        return operator
    work = product_work(operator.operator_name, operator.input_shapes)
    if work is None:
        return operator
    size = _ITEM_BYTES.get(operator.dtype)
    return operator.model_copy(update={"flops": work[0], "min_bytes": None if size is None else work[1] * size})


def product_work(name: str, shapes: Sequence[tuple[int, ...]]) -> tuple[float, float] | None:
    """(FLOPs, elements read and written at least) of one product; None where the shapes are not those of one.

    Two FLOPs a multiply-add; each factor, the addend and the output once. addmm and baddbmm have their addend first.
    """
    addend, factors = (shapes[:1], shapes[1:3]) if name in ("aten::addmm", "aten::baddbmm") else ((), shapes[:2])
    if len(factors) != 2 or len(factors[0]) != len(factors[1]) or len(factors[0]) not in (2, 3):
        return None
    left, right = factors
    if left[-1] != right[-2] or left[:-2] != right[:-2] or not prod(left) * prod(right):
        return None
    out = prod(left[:-1]) * right[-1]
    return 2.0 * out * left[-1], float(prod(left) + prod(right) + out + sum(prod(shape) for shape in addend))
