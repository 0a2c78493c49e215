"""The kernels (CPU: operator calls) of a profile summed by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from ..model.profile import Kernel, Operator, Profile
from .numbers import amount, pct, us
from .text import Safe, cell


@dataclass
class _Sum:
    duration_ns: int = 0
    calls: int = 0
    operators: Counter[str] = field(default_factory=Counter)
    modules: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    python_name: str | None = None

    def add(self, kernel: Kernel, operator: Operator | None) -> None:
        self.duration_ns += kernel.duration_ns
        self.calls += 1
        self.python_name = self.python_name or kernel.python_name
        for counter, value in ((self.operators, operator.operator_name if operator else None),
                               (self.modules, operator.module if operator else None),
                               (self.sources, operator.source if operator else None)):
            if value:
                counter[value] += kernel.duration_ns


@dataclass(frozen=True)
class Hotspot:
    """One row, already written. The name is the Python one where that is known.

    Times and calls are per step; operator, module and source are those with most of its time.
    """

    name: str
    duration: str
    share: str
    calls: str
    operator: Safe | None
    module: Safe | None
    source: Safe | None


@dataclass(frozen=True)
class Left:
    """What the table leaves out: how many names, and their time a step."""

    names: int
    duration_ns: float


def hotspots(profile: Profile, most: int) -> tuple[list[Hotspot], Left]:
    """The `most` heaviest kernel names, attributed or not, and the sum of the rest. Empty without a timeline."""
    if profile.timeline is None:
        return [], Left(0, 0.0)
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for operator in profile.operators:
        for kernel in operator.kernels:
            sums[kernel.kernel_name].add(kernel, operator)
    for kernel in profile.unattributed_kernels:
        sums[kernel.kernel_name].add(kernel, None)
    ordered = sorted(sums.items(), key=lambda item: (-item[1].duration_ns, item[0]))
    steps, total = max(profile.timeline.steps, 1), profile.timeline.measured_ns
    rows = [_row(name, entry, steps, total) for name, entry in ordered[:most]]
    return rows, Left(len(ordered) - len(rows), sum(entry.duration_ns for _, entry in ordered[most:]) / steps)


def _row(name: str, entry: _Sum, steps: int, total_ns: int) -> Hotspot:
    share = 100 * entry.duration_ns / total_ns if total_ns else None
    return Hotspot(entry.python_name or name, us(entry.duration_ns / steps), pct(share), amount(entry.calls / steps),
                   _most(entry.operators), _most(entry.modules), _most(entry.sources))


def _most(counter: Counter[str]) -> Safe | None:
    found = counter.most_common(1)
    return cell(found[0][0], 60) if found else None
