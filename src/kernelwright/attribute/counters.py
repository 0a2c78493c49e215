"""Counters of the measured launches -> every launch of the same signature; what the counter run and the timeline disagree on.

A launch of the report names its own operator and shapes (NVTX), so its signature is known without the timeline. Where op_id, operator,
shapes and kernel agree with the plan it is that launch of the timeline ("measured"); where they don't, that is reported, and its counters
still serve launches of exactly its signature ("propagated"). Durations are never touched.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..model.counters import Counters, CounterSet, Disagreement
from ..model.profile import Aggregated, Kernel, Metrics, Operator
from ..readers.ncu import NcuLaunch, NcuReport, NvtxRange, Shape
from ..readers.symbols import same_kernel
from ..timeline.names import is_collective
from .cuda import GRAPH_LAUNCH
from .signatures import CounterPlan, Signature, signature

Value = Callable[[str, Mapping[str, float]], float | None]
"""Role ("dram_read_bytes", ...) and a launch's raw counters -> its value; None where it can't be known."""
MAX_DISAGREEMENTS = 50
_ROLLUPS = (".sum", ".avg", ".min", ".max")
_SUMS = {"total_dram_bytes_read": "dram_read_bytes", "total_dram_bytes_written": "dram_write_bytes"}
_MEANS = {"achieved_occupancy": "occupancy_pct", "tensor_core_active_pct": "tensor_pct", "l1_hit_rate": "l1_hit_pct",
          "l2_hit_rate": "l2_hit_pct"}


@dataclass(frozen=True)
class _Measured:
    """One launch of the report."""

    launch: NcuLaunch
    operator: str
    shapes: tuple[Shape, ...]
    kernel_id: str | None
    """The launch of the timeline that it is; None where that is not certain."""
    raw: dict[str, float]


def attach_counters(
    operators: Sequence[Operator], unattributed: Sequence[Kernel], plan: CounterPlan, report: NcuReport, *, value: Value | None = None,
    counter_set: CounterSet = "default", seconds: float = 0.0, wanted: Collection[str] | None = None,
) -> tuple[tuple[Operator, ...], tuple[Kernel, ...], Counters]:
    """The same operators and kernels, those whose signature was measured with counters, and what came of it.

    value: reads roles off raw counters, for Aggregated, which stays as it is without. wanted: the metrics that were asked for; ncu adds
    minimum, maximum, mean and sum of each, of which only the wanted ones are kept; None keeps all. seconds: wall time of the counter
    process.
    """
    disagreements: list[Disagreement] = []
    known = _Known(operators, unattributed, plan)
    measured = _matched(known, plan, report, disagreements, wanted)
    pool: dict[Signature, list[_Measured]] = defaultdict(list)
    for one in measured:
        for key in known.signatures_of(one):
            pool[key].append(one)
    _not_seen(known, plan, pool, disagreements)
    for found in pool.values():
        found.sort(key=lambda one: one.kernel_id is None)
    carried = _Carried(plan, pool)
    done = tuple(_with_aggregates(operator, carried.of(operator.kernels, _operator_name(operator), operator.input_shapes), value)
                 for operator in operators)
    rest = carried.of(unattributed, "", ())
    counters = _summary(known, plan, report, pool, (*(kernel for operator in done for kernel in operator.kernels), *rest))
    notes = _notes(disagreements, counters.time_share_pct, plan.expected_share_pct)
    return done, rest, counters.model_copy(update={
        "set": counter_set, "seconds": seconds, "notes": notes, "disagreements": tuple(disagreements[:MAX_DISAGREEMENTS])})


class _Known:
    """What the timeline says."""

    def __init__(self, operators: Sequence[Operator], unattributed: Sequence[Kernel], plan: CounterPlan) -> None:
        self.plan = plan
        self.kernels: dict[str, Kernel] = {}
        self.owner: dict[str, tuple[str, tuple[Shape, ...]]] = {}
        self.by_launch: dict[tuple[object, ...], list[Signature]] = defaultdict(list)
        self.time_ns: dict[Signature, int] = defaultdict(int)
        for operator in operators:
            self._add(operator.kernels, _operator_name(operator), operator.input_shapes)
        self._add(unattributed, "", ())
        self.annotations = frozenset(one.name for one in plan.ranges if not one.is_operator)

    def _add(self, kernels: Iterable[Kernel], operator: str, shapes: tuple[Shape, ...]) -> None:
        for kernel in kernels:
            if kernel.category != "kernel":
                continue
            key = signature(kernel, operator, shapes)
            self.kernels[kernel.kernel_id], self.owner[kernel.kernel_id] = kernel, (operator, key.input_shapes)
            if key not in self.time_ns:
                self.by_launch[key.operator, key.input_shapes, key.grid, key.block].append(key)
            self.time_ns[key] += kernel.duration_ns

    def signatures_of(self, one: _Measured) -> list[Signature]:
        """Signatures of the timeline that a measured launch answers for."""
        launch = one.launch
        return [key for operator in ((one.operator,) if one.operator else ("", GRAPH_LAUNCH))
                for key in self.by_launch.get((operator, one.shapes, launch.grid, launch.block), ()) if _is_launch(key, launch)]

    def operator_of(self, launch: NcuLaunch) -> NvtxRange | None:
        """The innermost range around a launch that is an operator, not an annotation or somebody else's range."""
        return next((one for one in reversed(launch.nvtx) if one.op_id is not None and not self._is_annotation(one)), None)

    def _is_annotation(self, one: NvtxRange) -> bool:
        at = (one.op_id or 0) - 1
        if 0 <= at < len(self.plan.ranges) and self.plan.ranges[at].name == one.name:
            return not self.plan.ranges[at].is_operator
        return one.name in self.annotations


def _operator_name(operator: Operator) -> str:
    """As in its launches' signatures: the counter run knows no operator around an own launch."""
    return "" if operator.own_launch else operator.operator_name


def _is_launch(key: Signature, launch: NcuLaunch) -> bool:
    return same_kernel(key.kernel, launch.name, launch.symbol, launch.function) and key.shared_bytes in (None, launch.shared_bytes)


def _matched(known: _Known, plan: CounterPlan, report: NcuReport, disagreements: list[Disagreement],
             wanted: Collection[str] | None) -> list[_Measured]:
    """Every launch of the report with its operator, and its place in the timeline where all agrees."""
    groups: dict[int, list[NcuLaunch]] = defaultdict(list)
    for launch in report.launches:
        groups[next((one.op_id for one in reversed(launch.nvtx) if one.op_id is not None), 0)].append(launch)
    measured: list[_Measured] = []
    for op_id, launches in groups.items():
        if not plan.ranges:
            ids: list[str | None] = [None] * len(launches)
        elif _range_agrees(plan, op_id, launches[0], disagreements):
            ids = _aligned(known, plan.launched.get(op_id, ()), launches, disagreements)
        else:
            ids = [None] * len(launches)
        for launch, kernel_id in zip(launches, ids, strict=True):
            operator = known.operator_of(launch)
            shapes = (operator.sizes or ()) if operator is not None else ()
            name = operator.name if operator is not None else ""
            if kernel_id is not None:
                name, shapes = known.owner[kernel_id]
            measured.append(_Measured(launch, name, shapes, kernel_id, _kept(launch.metrics, wanted)))
    return measured


def _range_agrees(plan: CounterPlan, op_id: int, launch: NcuLaunch, disagreements: list[Disagreement]) -> bool:
    """Whether the range with this number is the timeline's: same name, same shapes."""
    seen = next((one for one in reversed(launch.nvtx) if one.op_id is not None), None)
    if seen is None:
        disagreements.append(Disagreement(kernel_name=launch.name, what="operator", timeline="", counters="no numbered range"))
        return False
    if not 0 < op_id <= len(plan.ranges):
        disagreements.append(Disagreement(kernel_name=launch.name, what="operator", timeline="", counters=f"{seen.name} ({op_id})"))
        return False
    expected = plan.ranges[op_id - 1]
    if expected.name != seen.name:
        disagreements.append(Disagreement(kernel_name=launch.name, what="operator", timeline=f"{expected.name} ({op_id})",
                                          counters=f"{seen.name} ({op_id})"))
        return False
    if expected.is_operator and seen.sizes is not None and expected.shapes != seen.sizes:
        disagreements.append(Disagreement(kernel_name=launch.name, what="shapes", timeline=f"{seen.name} {_words(expected.shapes)}",
                                          counters=f"{seen.name} {_words(seen.sizes)}"))
        return False
    return True


def _aligned(known: _Known, kernel_ids: Sequence[str], launches: Sequence[NcuLaunch],
             disagreements: list[Disagreement]) -> list[str | None]:
    """The timeline's launch for each measured one of the same range; None where it is not certain which.

    With a launch_count the report holds the first few of each configuration; without, all.
    """
    expected = [known.kernels[kernel_id] for kernel_id in kernel_ids if kernel_id in known.kernels]
    if len(expected) == len(launches) and all(map(_same, expected, launches)):
        return [kernel.kernel_id for kernel in expected]
    alike = [tuple(place for place, kernel in enumerate(expected) if _same(kernel, launch)) for launch in launches]
    for launch, places in zip(launches, alike, strict=True):
        if not places:
            disagreements.append(Disagreement(kernel_name=launch.name, what="kernel", timeline=_listed(map(_shown, expected)),
                                              counters=_said(launch)))
    numbers = Counter(alike)
    if known.plan.launch_count is not None:
        taken: Counter[tuple[int, ...]] = Counter()
        found: list[int | None] = []
        for places in alike:
            found.append(places[taken[places]] if taken[places] < len(places) else None)
            taken[places] += 1
        certain = [place for place in found if place is not None]
        if certain == sorted(certain) and all(number <= len(places) for places, number in numbers.items() if places):
            return [expected[place].kernel_id if place is not None else None for place in found]
    same = all(alike) and len({place for places in alike for place in places}) == len(expected)
    if same or known.plan.launch_count is not None:
        disagreements.append(Disagreement(kernel_name=launches[0].name, what="order", timeline=_listed(map(_shown, expected)),
                                          counters=_listed(map(_said, launches))))
    # Only what exists once on both sides is certain.
    return [expected[places[0]].kernel_id if len(places) == 1 and numbers[places] == 1 else None for places in alike]


def _not_seen(known: _Known, plan: CounterPlan, pool: Mapping[Signature, Sequence[_Measured]], disagreements: list[Disagreement]) -> None:
    """Signatures that were to be measured, and were not."""
    for key in plan.signatures:
        if not pool.get(key) and key in known.time_ns and not is_collective(key.kernel):
            disagreements.append(Disagreement(kernel_name=key.kernel, what="not_seen", counters="", timeline=(
                f"{key.operator or 'no operator'} {_words(key.input_shapes)}: {key.grid} x {key.block}")))


def _same(kernel: Kernel, launch: NcuLaunch) -> bool:
    return (kernel.grid == launch.grid and kernel.block == launch.block and kernel.shared_bytes in (None, launch.shared_bytes)
            and same_kernel(kernel.kernel_name, launch.name, launch.symbol, launch.function))


def _kept(metrics: Mapping[str, float], wanted: Collection[str] | None) -> dict[str, float]:
    if wanted is None:
        return dict(metrics)
    asked = frozenset(wanted)
    return {name: number for name, number in metrics.items()
            if name in asked or not any(part in name for part in _ROLLUPS)}


class _Carried:
    """Gives launches of the timeline the counters of their signature."""

    def __init__(self, plan: CounterPlan, pool: Mapping[Signature, Sequence[_Measured]]) -> None:
        self.plan, self.pool = plan, pool

    def of(self, kernels: Sequence[Kernel], operator: str, shapes: Sequence[Shape]) -> tuple[Kernel, ...]:
        """The kernels of one operator call (or without one), in their order, with counters where there are any.

        An operator may launch one signature several times (an LSTM, a CUDA graph): its n-th launch takes the n-th measured one.
        """
        turn: dict[Signature, int] = defaultdict(int)
        done = {kernel.kernel_id: self._one(kernel, operator, shapes, turn)
                for kernel in sorted(kernels, key=lambda kernel: self.plan.order.get(kernel.kernel_id, 0))}
        return tuple(done[kernel.kernel_id] for kernel in kernels)

    def _one(self, kernel: Kernel, operator: str, shapes: Sequence[Shape], turn: dict[Signature, int]) -> Kernel:
        key = signature(kernel, operator, shapes)
        found = self.pool.get(key, ()) if kernel.category == "kernel" else ()
        if not found:
            return kernel
        own = next((one for one in found if one.kernel_id == kernel.kernel_id), None)
        place, turn[key] = turn[key], turn[key] + 1
        source = own or found[min(place, len(found) - 1)]
        return kernel.model_copy(update={"metrics": Metrics(
            raw=source.raw, origin="measured" if own is not None else "propagated", measured_kernel_id=source.kernel_id)})


def _with_aggregates(operator: Operator, kernels: tuple[Kernel, ...], value: Value | None) -> Operator:
    if not any(kernel.metrics.origin for kernel in kernels):
        return operator
    aggregated = operator.aggregated if value is None else _aggregated(operator.aggregated, kernels, value)
    return operator.model_copy(update={"kernels": kernels, "aggregated": aggregated})


def _aggregated(plain: Aggregated, kernels: Sequence[Kernel], value: Value) -> Aggregated:
    """Sums of bytes, and means weighted by duration, over the operator's kernels; None where one of its rows has no such counter."""
    update: dict[str, float | None] = {}
    for name, role in (*_SUMS.items(), *_MEANS.items()):
        rows = [kernel for kernel in kernels if name in _SUMS or kernel.category == "kernel"]
        values = [value(role, kernel.metrics.raw) if kernel.metrics.origin else None for kernel in rows]
        numbers = [number for number in values if number is not None]
        weights = [kernel.duration_ns for kernel in rows]
        if len(numbers) < len(values) or not values or (name in _MEANS and not sum(weights)):
            continue
        update[name] = sum(numbers) if name in _SUMS else sum(n * w for n, w in zip(numbers, weights, strict=True)) / sum(weights)
    return plain.model_copy(update=update)


def _summary(known: _Known, plan: CounterPlan, report: NcuReport, pool: Mapping[Signature, Sequence[_Measured]],
             kernels: Sequence[Kernel]) -> Counters:
    launches = [kernel for kernel in kernels if kernel.category == "kernel"]
    served = [kernel for kernel in launches if kernel.metrics.origin is not None]
    total = sum(kernel.duration_ns for kernel in launches)
    return Counters(
        tool=report.tool, set="default", budget_s=plan.budget_s, launches=len(launches), launches_with_counters=len(served),
        launches_measured=len(report.launches), signatures=len(known.time_ns), signatures_measured=sum(1 for key in pool if pool[key]),
        passes=report.passes, time_share_pct=100.0 * sum(kernel.duration_ns for kernel in served) / total if total else 0.0, seconds=0.0,
        excluded=dict(plan.excluded))


def _notes(disagreements: Sequence[Disagreement], share_pct: float, expected_pct: float) -> tuple[str, ...]:
    notes = []
    if len(disagreements) > MAX_DISAGREEMENTS:
        notes.append(f"{len(disagreements)} disagreements between the counter run and the timeline; {MAX_DISAGREEMENTS} are listed")
    if share_pct < expected_pct - 0.05:
        notes.append(f"counters came for {share_pct:.1f}% of kernel time, {expected_pct:.1f}% was planned: launches differ from run to run")
    return tuple(notes)


def _words(shapes: Sequence[Shape]) -> str:
    return str([list(shape) for shape in shapes])[:300]


def _shown(kernel: Kernel) -> str:
    return f"{kernel.kernel_name[:120]} {kernel.grid} x {kernel.block}"


def _said(launch: NcuLaunch) -> str:
    return f"{launch.name[:120]} {launch.grid} x {launch.block}"


def _listed(words: Iterable[str]) -> str:
    return "; ".join(words)[:500]
