"""The screen's one piece of statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence

MIN_VALUES = 6
"""With fewer no pair of order statistics holds the median with 95%: the extremes of five do with 1 - 2 / 2**5 = 94%."""


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """About 95% for the median: the order statistics k and n + 1 - k, k by the normal approximation of the binomial distribution (Conover,
    Practical Nonparametric Statistics, 3rd ed., 3.2). None with fewer than MIN_VALUES."""
    count = len(values)
    if count < MIN_VALUES:
        return None
    k = max(1, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    ordered = sorted(values)
    return ordered[k - 1], ordered[count - k]
