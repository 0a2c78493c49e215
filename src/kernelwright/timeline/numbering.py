"""Rows of equal values under one number, column by column: several times faster than numpy's unique of whole rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..model.table import Int64


def dense(columns: Iterable[Int64]) -> Int64:
    """Numbers from 0 without gaps, equal where all columns are equal, in the columns' order; each of shape (n,), at least one."""
    number: Int64 | None = None
    for column in columns:
        _, own = np.unique(column, return_inverse=True)
        own = own.reshape(-1).astype(np.int64)
        if number is not None:
            _, own = np.unique(number * (int(own.max(initial=0)) + 1) + own, return_inverse=True)
        number = own.reshape(-1).astype(np.int64)
    assert number is not None
    return number
