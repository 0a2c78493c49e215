"""Stable order of integers, digit by digit: several times faster than numpy's stable sort of int64, which compares."""

from __future__ import annotations

import numpy as np

from .intervals import Int64

_DIGIT_BITS = 16
"""numpy sorts uint16 stably by counting."""


def stable_order(keys: Int64) -> Int64:
    """Permutation that sorts the keys, equal ones in their given order. keys: >= 0, shape (n,)."""
    bits = int(keys.max(initial=0)).bit_length()
    order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    for shift in range(_DIGIT_BITS, bits, _DIGIT_BITS):
        order = order[np.argsort(((keys[order] >> shift) & 0xFFFF).astype(np.uint16), kind="stable")]
    return order.astype(np.int64)


def dense(keys: Int64) -> Int64:
    """Numbers from 0 in the order of the keys, equal for equal keys. keys: >= 0, shape (n,)."""
    numbers = np.zeros(keys.size, dtype=np.int64)
    if keys.size:
        order = stable_order(keys)
        ordered = keys[order]
        numbers[order] = np.concatenate(([0], np.cumsum(ordered[1:] != ordered[:-1])))
    return numbers


def grouped(values: Int64) -> list[tuple[int, Int64]]:
    """(value, indices that have it in their order) for each distinct value, in order. One sort, however many values."""
    if not values.size:
        return []
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return list(zip(ordered[begins].tolist(), np.split(order, begins[1:]), strict=True))
