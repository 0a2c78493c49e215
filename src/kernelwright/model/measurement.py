"""A measurement is a value that knows its own noise and says when it is suspect."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .base import Evidence, Record

NOISY_IQR_SHARE = 0.10
"""An interquartile range above this share of the median is called noisy (torch.utils.benchmark warns at the same)."""
FAR_SHARE = 0.25
"""So is a median whose 95% interval reaches further than this share of it to either side: the samples fall into two groups."""


FEWEST_FOR_INTERVAL = 5
"""From fewer samples no interval of the median is told: five cover it with 94%, four with 88%, one with nothing."""


PAIRED = "paired, by the judge"
"""Ends the timer's name of a timing taken in pairs with the other version: its noise is in the interval of the pair."""
COLD = "L2 flushed"
"""Part of the timer's name where the L2 cache was emptied before each call."""


class Measurement(Record):
    """Repeated timings of one thing, in ns. Order statistics, so outliers do not move it."""

    median_ns: float
    iqr_ns: float
    ci95_low_ns: float
    ci95_high_ns: float
    samples: int
    evidence: Evidence = "events"
    timer: str = ""
    """"cuda_events" or "perf_counter", with COLD or PAIRED behind a comma."""
    warning: str | None = None
    """Set when the timing is too noisy or too short to trust."""

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """The 95% interval of the median; None where the samples are too few for one."""
        return (self.ci95_low_ns, self.ci95_high_ns) if self.samples >= FEWEST_FOR_INTERVAL else None

    @property
    def cold(self) -> bool:
        """Whether the L2 cache was emptied before each call."""
        return COLD in self.timer

    @classmethod
    def of(cls, samples_ns: Sequence[float], *, timer: str, evidence: Evidence = "events") -> Measurement:
        """Summarise samples. Raises ValueError on an empty sequence or a sample that is not finite and positive."""
        values = np.sort(np.asarray(samples_ns, dtype=np.float64))
        if values.size == 0 or not np.all(np.isfinite(values)) or values[0] < 0:
            raise ValueError("a measurement needs at least one finite, non-negative sample")
        median = float(np.median(values))
        q1, q3 = (float(q) for q in np.percentile(values, [25, 75]))
        low, high = median_interval(values)
        warning = None
        if values.size < FEWEST_FOR_INTERVAL:
            warning = f"only {values.size} sample{'' if values.size == 1 else 's'}"
        elif median > 0 and (q3 - q1) / median > NOISY_IQR_SHARE:
            warning = f"noisy: the interquartile range is {100 * (q3 - q1) / median:.0f}% of the median"
        elif max(median - low, high - median) > FAR_SHARE * median:
            warning = f"noisy: the 95% interval of the median reaches from {100 * low / median:.0f}% to {100 * high / median:.0f}% of it"
        return cls(median_ns=median, iqr_ns=q3 - q1, ci95_low_ns=low, ci95_high_ns=high, samples=int(values.size),
                   evidence=evidence, timer=timer, warning=warning)


def median_interval(sorted_values: np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Distribution-free confidence interval of the median from order statistics (binomial; Conover 1999, section 3.2).

    sorted_values: ascending, shape (n,). Returns the smallest symmetric pair of order statistics whose coverage is at
    least `confidence`, or the extremes where n is too small for that (coverage is then below `confidence`).
    """
    n = int(sorted_values.size)
    tail, k = 0.0, 0
    # tail = P(Binomial(n, 1/2) <= k - 1); the interval [x_(k), x_(n+1-k)] covers with 1 - 2 * tail.
    while k < n // 2:
        step = math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2))
        if 2 * (tail + step) > 1 - confidence:
            break
        tail, k = tail + step, k + 1
    index = max(k - 1, 0)
    return float(sorted_values[index]), float(sorted_values[n - 1 - index])
