"""Two timelines, the earlier one first: what appeared, vanished, grew or shrank, by operator and kernel family; kernels that changed names.

A timeline is taken apart into uses: the work of one kernel under one operator with one set of input shapes. Times are per step, so that
recordings of different length can be compared. What changed is decided by the steps' own scatter: a time grew where the 95% interval
of its median over the steps lies above the earlier one's. With fewer than five steps on a side the scatter is not known, and every
difference is told as what it is, `sure` being False.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

import numpy as np

from ..model.measurement import FEWEST_FOR_INTERVAL, median_interval
from ..model.table import Int64
from .families import kernel_family, skeleton, without_number

State = Literal["appeared", "vanished", "grew", "shrank", "same"]
Matched = Literal["operator and shapes", "operator", "name without its numbers"]
Shape = tuple[int, ...]
NO_OPERATOR = "(no operator)"
MOST_PAIRS = 400
"""Above this number of possible pairs under one operator, names are paired by time alone."""
MOST_LIKENESSES = 50_000
"""Pairs of names that are held against each other, in all."""
MOST_CELLS = 20_000_000
"""Of uses times steps: above, the scatter is not looked at."""
_ANONYMOUS = (NO_OPERATOR, "cudaGraphLaunch")
"""Operators that say nothing about the work under them: there, only names that differ in their numbers are paired."""


@dataclass(frozen=True)
class Use:
    """The work of one kernel under one operator and one set of shapes. On the CPU the kernel is the operator itself."""

    operator: str
    shapes: tuple[Shape, ...]
    kernel: str
    total_ns: int
    """Over all steps."""
    count: int
    """Launches (CPU: calls) over all steps."""


@dataclass(frozen=True)
class Breakdown:
    """One timeline taken apart."""

    uses: tuple[Use, ...]
    steps: int
    by_step_ns: Int64 | None
    """Time of each use in each step, shape (uses, steps), negative where it is not known; None where it is not known for any."""
    has_shapes: bool
    """Whether any operator's input shapes were recorded."""


@dataclass(frozen=True)
class Changed:
    """One operator, family or kernel in both. Times in ns a step, counts a step; None where it is absent."""

    name: str
    state: State
    before_ns: float | None
    after_ns: float | None
    change_ns: float
    change_pct: float | None
    """Of the earlier time; None where there is none."""
    before_count: float
    after_count: float
    sure: bool
    """The state rests on the scatter of the steps on both sides; appeared and vanished are always sure."""


@dataclass(frozen=True)
class Renamed:
    """The same work by another kernel. Times in ns a step."""

    operator: str
    shapes: tuple[Shape, ...]
    before: str
    after: str
    matched_by: Matched
    before_ns: float
    after_ns: float
    change_pct: float | None
    before_count: float
    after_count: float


@dataclass(frozen=True)
class Difference:
    """What changed, the largest difference first."""

    before_ns: float
    """All work of a step."""
    after_ns: float
    change_pct: float | None
    operators: tuple[Changed, ...]
    families: tuple[Changed, ...]
    renamed: tuple[Renamed, ...]
    kernels: tuple[Changed, ...]
    """By kernel name, renamed ones left out."""


def difference(before: Breakdown, after: Breakdown) -> Difference:
    """What changed from `before` to `after`."""
    renamed, pairs = _renamed(before, after)
    totals = [sum(use.total_ns for use in side.uses) / side.steps if side.steps else 0.0 for side in (before, after)]
    return Difference(
        before_ns=totals[0], after_ns=totals[1], change_pct=_percent(*totals),
        operators=_changes(before, after, lambda use: use.operator),
        families=_changes(before, after, lambda use: kernel_family(use.kernel)),
        renamed=renamed,
        kernels=_changes(before, after, lambda use: use.kernel, leave_out=pairs))


def named_alike(name: str) -> str:
    """An operator's name as both sides must share it: the number of a generated kernel is no part of it."""
    return without_number(name) if name else NO_OPERATOR


Pairs = tuple[frozenset[int], frozenset[int]]


def _changes(before: Breakdown, after: Breakdown, key: Callable[[Use], str], leave_out: Pairs = (frozenset(), frozenset())
             ) -> tuple[Changed, ...]:
    sides = [_grouped(side, key, left) for side, left in zip((before, after), leave_out, strict=True)]
    rows = [_changed(name, sides[0].get(name), sides[1].get(name), before, after) for name in dict.fromkeys([*sides[0], *sides[1]])]
    return tuple(sorted(rows, key=lambda row: (-abs(row.change_ns), row.name)))


def _grouped(side: Breakdown, key: Callable[[Use], str], leave_out: frozenset[int]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for place, use in enumerate(side.uses):
        if place not in leave_out:
            groups[key(use)].append(place)
    return dict(groups)


def _changed(name: str, old: Sequence[int] | None, new: Sequence[int] | None, before: Breakdown, after: Breakdown) -> Changed:
    was, now = _per_step(before, old), _per_step(after, new)
    counts = [sum(side.uses[place].count for place in places or ()) / max(1, side.steps) for side, places in ((before, old), (after, new))]
    state, sure = _state(_scatter(before, old), _scatter(after, new), was, now)
    return Changed(name, state, was, now, (now or 0.0) - (was or 0.0), _percent(was, now), counts[0], counts[1], sure)


def _per_step(side: Breakdown, places: Sequence[int] | None) -> float | None:
    return None if places is None else sum(side.uses[place].total_ns for place in places) / max(1, side.steps)


def _scatter(side: Breakdown, places: Sequence[int] | None) -> tuple[float, float] | None:
    """The 95% interval of the median time of a step; None where it is not known."""
    if places is None or side.by_step_ns is None or side.steps < FEWEST_FOR_INTERVAL:
        return None
    rows = side.by_step_ns[np.array(places)]
    return None if bool((rows < 0).any()) else median_interval(np.sort(rows.sum(axis=0)).astype(np.float64))


def _state(old: tuple[float, float] | None, new: tuple[float, float] | None, was: float | None, now: float | None) -> tuple[State, bool]:
    if was is None or now is None:
        return ("appeared" if was is None else "vanished"), True
    if old is None or new is None:
        return ("same" if was == now else "grew" if now > was else "shrank"), False
    return ("grew" if new[0] > old[1] else "shrank" if new[1] < old[0] else "same"), True


def _percent(was: float | None, now: float | None) -> float | None:
    return 100 * (now / was - 1) if was and now is not None else None


def _renamed(before: Breakdown, after: Breakdown) -> tuple[tuple[Renamed, ...], Pairs]:
    """Pairs of names for the same work, and the places of their uses on both sides. Each name is in one pair of its operator and shapes."""
    with_shapes = before.has_shapes and after.has_shapes
    sides = [_by_work(side, with_shapes) for side in (before, after)]
    found: list[Renamed] = []
    taken: tuple[set[int], set[int]] = (set(), set())
    likenesses = MOST_LIKENESSES
    for work in (work for work in sides[0] if work in sides[1]):
        gone = {name: places for name, places in sides[0][work].items() if name not in sides[1][work]}
        new = {name: places for name, places in sides[1][work].items() if name not in sides[0][work]}
        likenesses -= len(gone) * len(new)
        for old_name, new_name, numbers_only in _paired(work[0], gone, new, before, after, by_likeness=likenesses >= 0):
            how: Matched = "name without its numbers" if numbers_only else "operator and shapes" if with_shapes else "operator"
            found.append(_pair(work, old_name, new_name, how, before, after, gone[old_name], new[new_name]))
            taken[0].update(gone[old_name])
            taken[1].update(new[new_name])
    ordered = sorted(found, key=lambda row: (-max(row.before_ns, row.after_ns), row.operator, row.before, row.after, row.shapes))
    return tuple(ordered), (frozenset(taken[0]), frozenset(taken[1]))


def _by_work(side: Breakdown, with_shapes: bool) -> dict[tuple[str, tuple[Shape, ...]], dict[str, tuple[int, ...]]]:
    """Places of uses by operator and shapes (all shapes together where they are not known on both sides), then by kernel."""
    grouped: dict[tuple[str, tuple[Shape, ...]], dict[str, tuple[int, ...]]] = defaultdict(dict)
    for place, use in enumerate(side.uses):
        kernels = grouped[use.operator, use.shapes if with_shapes else ()]
        kernels[use.kernel] = (*kernels.get(use.kernel, ()), place)
    return dict(grouped)


Places = Mapping[str, tuple[int, ...]]


def _paired(operator: str, gone: Places, new: Places, before: Breakdown, after: Breakdown, *, by_likeness: bool
            ) -> Iterable[tuple[str, str, bool]]:
    """(old name, new name, whether they differ in numbers only), each name once: first those that differ in numbers only, then by
    family, number of launches a step, and likeness of the names (by time alone where there are very many)."""
    if not gone or not new:
        return
    left, right = _heaviest_first(gone, before), _heaviest_first(new, after)
    by_skeleton = {skeleton(name): name for name in reversed(right)}
    for name in list(left):
        twin = by_skeleton.pop(skeleton(name), None)
        if twin is not None:
            left.remove(name)
            right.remove(twin)
            yield name, twin, True
    if operator in _ANONYMOUS or not left or not right:
        return
    if not by_likeness or len(left) * len(right) > MOST_PAIRS:
        yield from ((old, twin, False) for old, twin in zip(left, right, strict=False))
        return
    ranked = sorted((_unlike(old, twin, gone, new, before, after), old, twin) for old in left for twin in right)
    used: set[tuple[int, str]] = set()
    for _, old, twin in ranked:
        if (0, old) not in used and (1, twin) not in used:
            used.update(((0, old), (1, twin)))
            yield old, twin, False


def _heaviest_first(places: Places, side: Breakdown) -> list[str]:
    return sorted(places, key=lambda name: (-sum(side.uses[place].total_ns for place in places[name]), name))


def _unlike(old: str, new: str, gone: Places, came: Places, before: Breakdown, after: Breakdown) -> tuple[bool, float, float]:
    counts = [sum(side.uses[place].count for place in places) / max(1, side.steps)
              for side, places in ((before, gone[old]), (after, came[new]))]
    likeness = SequenceMatcher(None, old[:200], new[:200], autojunk=False).ratio()
    return kernel_family(old) != kernel_family(new), abs(counts[0] - counts[1]), -likeness


def _pair(work: tuple[str, tuple[Shape, ...]], old: str, new: str, how: Matched, before: Breakdown, after: Breakdown, gone: Sequence[int],
          came: Sequence[int]) -> Renamed:
    sides = ((before, gone), (after, came))
    was, now = (sum(side.uses[place].total_ns for place in places) / max(1, side.steps) for side, places in sides)
    counts = [sum(side.uses[place].count for place in places) / max(1, side.steps) for side, places in sides]
    return Renamed(work[0], work[1], old, new, how, was, now, _percent(was, now), counts[0], counts[1])
