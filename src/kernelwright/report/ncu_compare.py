"""Two captures of ncu side by side: counters, registers and occupancy, rules, and where the samples moved.

Every counter is one replay of one launch, so its noise is not known: changes are stated, none is called faster or slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..pipeline.ncu_profile import all_launches
from ..pipeline.ncu_rules import groups, ranked_rules
from ..readers.ncu import parse_range
from ..readers.ncu_records import KernelDetails, NcuDetails
from ..roofline.ncu_knowledge import Better, ncu_knowledge
from .ncu_views import base_name, occupancy_limiter, source_line
from .numbers import change_pct, usable
from .templates import render
from .text import named

SMALLEST_PCT = 1.0
"""Changes of an amount below this, or of a share by fewer points, are counted but not listed."""
MOST_COUNTERS = 16
MOST_LINES = 15
MOST_KERNELS = 8
How = Literal["name", "name, other grid", "operator", "only one left"]


@dataclass(frozen=True)
class CounterChange:
    """One counter. change: percent of A's value, or points where the counter is a percentage itself; None: not in both, or A is 0."""

    key: str
    label: str
    unit: str
    before: float | None
    after: float | None
    change: float | None
    in_points: bool
    better: Better
    resource: bool

    @property
    def size(self) -> float:
        """How large the change is, for ranking: percent or points; from or to nothing counts as 100."""
        if self.before is None or self.after is None or self.before == self.after:
            return 0.0
        return abs(self.change) if self.change is not None else 100.0


@dataclass(frozen=True)
class LineChange:
    """One source line (without line information one SASS opcode): its samples, and their share of the kernel's in percent."""

    where: str
    text: str
    samples_before: int
    samples_after: int
    share_before: float
    share_after: float

    @property
    def points(self) -> float:
        """By how much its share moved."""
        return self.share_after - self.share_before


@dataclass(frozen=True)
class KernelChange:
    """One kernel in both captures; its heaviest launch in each."""

    name: str
    renamed_to: str | None
    matched_by: How
    launches: tuple[int, int]
    grids: tuple[str, str]
    """"grid / block"."""
    limiters: tuple[str, str]
    counters: tuple[CounterChange, ...]
    lines: tuple[LineChange, ...]
    by_opcode: bool
    rules_gone: tuple[str, ...]
    rules_new: tuple[str, ...]


@dataclass(frozen=True)
class NcuComparison:
    """Everything that the comparison of two captures shows."""

    names: tuple[str, str]
    devices: tuple[str, str]
    kernels: tuple[KernelChange, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON answer."""
        return asdict(self)


def compare_captures(before: tuple[str, Sequence[NcuDetails]], after: tuple[str, Sequence[NcuDetails]]) -> NcuComparison:
    """Compare two captures (name, reports), the kernel with the most time in A first."""
    ours, theirs = groups(all_launches(before[1])), groups(all_launches(after[1]))
    pairs = match_kernels(ours, theirs)
    kernels = tuple(_kernel(ours[name], theirs[other], name, other, how) for name, other, how in pairs)
    devices = (_device(before[1]), _device(after[1]))
    warnings = () if devices[0] == devices[1] else (f"A ran on {devices[0]}, B on {devices[1]}: their counters are not comparable",)
    matched, others = {name for name, _other, _how in pairs}, {other for _name, other, _how in pairs}
    return NcuComparison(
        (before[0], after[0]), devices, kernels, tuple(name for name in ours if name not in matched),
        tuple(name for name in theirs if name not in others), warnings)


def match_kernels(ours: Mapping[str, Sequence[KernelDetails]], theirs: Mapping[str, Sequence[KernelDetails]]) -> list[tuple[str, str, How]]:
    """(name in A, name in B, how they were matched): by name; else by the NVTX operator around them, where it is the only one on each side;
    else the one kernel that is left on each side."""
    found: list[tuple[str, str, How]] = []
    for name in ours:
        if name in theirs:
            same = (ours[name][0].grid, ours[name][0].block) == (theirs[name][0].grid, theirs[name][0].block)
            found.append((name, name, "name" if same else "name, other grid"))
    left, right = [name for name in ours if name not in theirs], [name for name in theirs if name not in ours]
    by_operator = {_operator(theirs[name][0]): name for name in right if _only(theirs, right, name)}
    for name in list(left):
        operator = _operator(ours[name][0])
        other = by_operator.get(operator) if operator and _only(ours, left, name) else None
        if other is not None:
            found.append((name, other, "operator"))
            left.remove(name)
            right.remove(other)
    if len(left) == len(right) == 1:
        found.append((left[0], right[0], "only one left"))
    order = {name: place for place, name in enumerate(ours)}
    return sorted(found, key=lambda pair: order[pair[0]])


def _operator(kernel: KernelDetails) -> str:
    return parse_range(kernel.nvtx[-1]).name if kernel.nvtx else ""


def _only(held: Mapping[str, Sequence[KernelDetails]], names: Sequence[str], name: str) -> bool:
    operator = _operator(held[name][0])
    return bool(operator) and sum(_operator(held[other][0]) == operator for other in names) == 1


def _kernel(ours: Sequence[KernelDetails], theirs: Sequence[KernelDetails], name: str, other: str, how: How) -> KernelChange:
    first, second = _representatives(ours, theirs)
    lines, by_opcode = _lines(first, second)
    before, after = ({rule.action for rule in ranked_rules([one]) if rule.order < 2} for one in (first, second))
    return KernelChange(
        name=name, renamed_to=other if other != name else None, matched_by=how, launches=(len(ours), len(theirs)),
        grids=(_grid(first), _grid(second)), limiters=(occupancy_limiter(first.metrics), occupancy_limiter(second.metrics)),
        counters=_counters(first, second), lines=lines, by_opcode=by_opcode,
        rules_gone=tuple(sorted(before - after)) if second.rules else (), rules_new=tuple(sorted(after - before)) if first.rules else ())


def _representatives(ours: Sequence[KernelDetails], theirs: Sequence[KernelDetails]) -> tuple[KernelDetails, KernelDetails]:
    """The heaviest launch of A, and the heaviest of B with the same grid and block; where there is none, of all of B."""
    first = ours[0]
    return first, next((one for one in theirs if (one.grid, one.block) == (first.grid, first.block)), theirs[0])


def _grid(kernel: KernelDetails) -> str:
    return f"{'x'.join(map(str, kernel.grid))} / {'x'.join(map(str, kernel.block))}"


def _device(reports: Sequence[NcuDetails]) -> str:
    return next((name for kernel in all_launches(reports) if (name := kernel.texts.get("device__attribute_display_name"))), "n/a")


def _counters(first: KernelDetails, second: KernelDetails) -> tuple[CounterChange, ...]:
    """Counters that either has, the time first, then by the size of the change; equal ones in the order of their weight."""
    found = []
    for key, shown in ncu_knowledge().counters.items():
        names = [name for name in shown.names if name in first.metrics and name in second.metrics]
        ours = names[0] if names else shown.name_in(first.metrics)
        theirs = names[0] if names else shown.name_in(second.metrics)
        if ours is None and theirs is None:
            continue
        same = ours == theirs  # two names are two counters: both values stand, no change is told
        before = first.metrics.get(ours) if ours else None
        after = second.metrics.get(theirs) if theirs else None
        unit = (first.units.get(ours, "") if ours else "") or (second.units.get(theirs, "") if theirs else "")
        in_points = unit == "%"
        change = None if before is None or after is None or not same else after - before if in_points else change_pct(before, after)
        found.append(CounterChange(key, shown.label, unit, usable(before), usable(after), usable(change), in_points, shown.better,
                                   shown.resource))
    return tuple(sorted(found, key=lambda one: (one.key != "duration", -one.size)))


def _lines(first: KernelDetails, second: KernelDetails) -> tuple[tuple[LineChange, ...], bool]:
    """Places by how far their share of the samples moved; whether they are opcodes, because one of the two has no line information."""
    if not first.samples or not second.samples:
        return (), False
    by_opcode = not (first.lines() and second.lines())
    texts = {base_name(file) for file in first.sources} & {base_name(file) for file in second.sources}
    ours, theirs = (_by_opcode(one) if by_opcode else _by_line(one, texts) for one in (first, second))
    rows = []
    for key in dict.fromkeys([*ours, *theirs]):
        where = ours.get(key, theirs.get(key, ("", "", 0)))[0]
        text = ours.get(key, ("", "", 0))[1] or theirs.get(key, ("", "", 0))[1]
        if key in theirs and key in ours and ours[key][0] != theirs[key][0]:
            where = f"{ours[key][0]} -> {theirs[key][0]}"
        before, after = ours.get(key, ("", "", 0))[2], theirs.get(key, ("", "", 0))[2]
        rows.append(LineChange(where, text, before, after, 100 * before / first.samples, 100 * after / second.samples))
    return tuple(sorted(rows, key=lambda row: (-abs(row.points), row.where))), by_opcode


def _by_line(kernel: KernelDetails, files: AbstractSet[str]) -> dict[tuple[object, ...], tuple[str, str, int]]:
    """Lines by file and text (its number moves when lines are added above); by their number where the text comes twice, or is not known in
    both captures. files: names of those that both have imported."""
    texts = {(one.file, one.line): source_line(kernel, one.file, one.line) for one in kernel.lines()}
    counts: dict[tuple[str, str], int] = {}
    for (file, _line), text in texts.items():
        counts[file, text] = counts.get((file, text), 0) + 1
    found: dict[tuple[object, ...], tuple[str, str, int]] = {}
    for one in kernel.lines():
        name, text = base_name(one.file), texts[one.file, one.line]
        key = (name, text) if name in files and text and counts[one.file, text] == 1 else (name, one.line)
        held = found.get(key, ("", "", 0))[2]
        found[key] = (f"{name}:{one.line}", text, held + one.samples)
    return found


def _by_opcode(kernel: KernelDetails) -> dict[tuple[object, ...], tuple[str, str, int]]:
    found: dict[tuple[object, ...], tuple[str, str, int]] = {}
    for one in kernel.instructions:
        words = one.sass.split()
        opcode = words[1] if len(words) > 1 and words[0].startswith("@") else words[0] if words else "?"
        found[opcode,] = (opcode, "", found.get((opcode,), ("", "", 0))[2] + one.samples)
    return found


def render_captures(comparison: NcuComparison) -> str:
    """The comparison as Markdown."""
    shown = [(one, [row for row in one.counters if row.key == "duration" or row.size >= SMALLEST_PCT][:MOST_COUNTERS],
              [row for row in one.counters if row.resource], [row for row in one.lines if abs(row.points) >= SMALLEST_PCT][:MOST_LINES])
             for one in comparison.kernels[:MOST_KERNELS]]
    return render("ncu_compare.md.j2", comparison=comparison, shown=shown,
                  only=[(letter, [named(name, 80) for name in names[:MOST_KERNELS]], max(0, len(names) - MOST_KERNELS))
                        for letter, names in (("A", comparison.only_before), ("B", comparison.only_after)) if names],
                  left=max(0, len(comparison.kernels) - MOST_KERNELS), smallest=SMALLEST_PCT)
