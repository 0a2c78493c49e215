"""Budgets of a project's kernels: what the measurements decide, and the table.

A budget is over only where the noise can't explain it: for a duration, the 95% interval of the median lies above the limit in two
processes; against another version, the 95% interval of the ratio over pairs of processes does (Student's t on the logarithms).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, Literal

from ..model.measurement import Measurement
from .templates import render

Outcome = Literal["within", "over", "unsure", "failed"]
"""unsure: the noise reaches over the limit. failed: it could not be measured."""
FEWEST_PAIRS = 3


@dataclass(frozen=True)
class BudgetRow:
    """One limit of one budget, held against what was measured."""

    kernel: str
    version: str | None
    params: dict[str, Any]
    line: int
    """In the project file, from 1."""
    limit: str
    """In words, e.g. "at most 120 us", "at most 3% slower than v3"."""
    outcome: Outcome
    measured: str = "n/a"
    """In words, with the interval."""
    value: float | None = None
    """us, or percent slower; None where nothing was measured."""
    interval: tuple[float, float] | None = None
    """95%, of `value`."""
    why: str = ""
    """What a person should know: why it failed, what makes it unsure, what the timing warns of."""
    error: dict[str, str] | None = None
    elapsed_s: float = 0.0
    profiles: tuple[str, ...] = field(default=())
    """Folders of the measurements."""

    @property
    def name(self) -> str:
        """Version, parameters and limit in words."""
        values = " ".join(f"{key}={value}" for key, value in self.params.items())
        return " ".join(part for part in (self.version or "", values) if part) + (": " if self.version or values else "") + self.limit

    def as_dict(self) -> dict[str, Any]:
        """One row of the JSON answer."""
        return asdict(self)


def decide(low: float, high: float, limit: float) -> Outcome:
    """over: the whole interval lies above the limit; within: none of it does; else unsure."""
    return "over" if low > limit else "within" if high <= limit else "unsure"


def limit_text(value: float) -> str:
    """A limit with all digits that the project file gives it: 1234567.8, 120, 0.000001."""
    text = format(Decimal(repr(float(value))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration_outcome(timing: Measurement, limit_us: float) -> Outcome:
    """Of one process. Samples too few for an interval decide by their median."""
    low, high = timing.interval_ns or (timing.median_ns, timing.median_ns)
    return decide(low / 1000, high / 1000, limit_us)


def slower_pct(own_ns: Sequence[float], other_ns: Sequence[float]) -> tuple[float, float, float]:
    """(estimate, low, high): percent by which own takes longer than other, with its 95% interval.

    own_ns, other_ns: medians, one of each pair of processes, shape (n,), n >= 2. The ratios' logarithms are taken as normal.
    """
    from scipy.special import stdtrit  # 0.1 s to import

    ratios = [math.log(own / other) for own, other in zip(own_ns, other_ns, strict=True)]
    mean, error = statistics.fmean(ratios), statistics.stdev(ratios) / math.sqrt(len(ratios))
    reach = float(stdtrit(len(ratios) - 1, 0.975)) * error
    low, high = (100 * math.expm1(value) for value in (mean - reach, mean + reach))
    return 100 * math.expm1(mean), low, high


def render_budgets(rows: Sequence[BudgetRow]) -> str:
    """The table as Markdown, worst first words below it."""
    counts = {outcome: sum(row.outcome == outcome for row in rows) for outcome in ("within", "over", "unsure", "failed")}
    return render("budgets.md.j2", rows=rows, counts=counts)
