"""Which launches to measure: one of each signature, the heaviest first.

A signature is (kernel, grid, block, shared memory, operator, input shapes). ncu is told op_ids (see op_ids.py); it then measures every
launch inside the ranges with these numbers, those of nested operators too, so a pick costs all of them and may serve several signatures.

One range may hold the same launch hundreds of times (an LSTM in cuDNN, a CUDA graph). Then ncu is to take the first launch_count of each
configuration only (--filter-mode per-launch-config --launch-count N). Its manual calls grid, block and shared memory the configuration; N
is reckoned by grid and block alone and the cost by the kernel's name too, so that whatever it groups by, no signature is missed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..model.profile import Kernel
from ..model.trace import Trace
from ..readers.ncu import Dims, Shape
from ..timeline.names import is_collective
from ..timeline.steps import DeviceWork, device_work
from .calls import Calls
from .cuda import GRAPH_LAUNCH, owned_work
from .op_ids import Numbered, StepRanges

DEFAULT_SHARE = 0.95
BESIDE_REASON = "every range around it holds a collective"
WIDE_REASON = "{} launches would have to be replayed for it; with --ncu-budget they are, if they fit"
LATER_REASON = "no such launch with a known launch call in the first profiled step"
WIDE_RANGE = 64
"""Without a budget, the most launches that are replayed for the sake of one signature (about half a minute at 16 passes)."""
WORTH_FILTERING = 8
"""Launches that --launch-count must save; each costs about half a second."""
OPTIONS_TRIED = 4
COLLECTIVE_REASON = "a collective waits for its peers, and ncu runs kernels one by one: it would never end"


@dataclass(frozen=True)
class Signature:
    """What two launches must share to share counters."""

    kernel: str
    grid: Dims | None
    block: Dims | None
    shared_bytes: int | None
    """Static and dynamic; None where the timeline does not say."""
    operator: str
    """Innermost operator around the launch; a graph launch outside any operator is "cudaGraphLaunch"; "" without one."""
    input_shapes: tuple[Shape, ...]
    """Of the operator's tensor arguments, those without dimensions left out."""


@dataclass(frozen=True)
class CounterPlan:
    """What to measure, and what is needed to bring the answers back to the timeline."""

    op_ids: tuple[int, ...]
    """Ranges for ncu's --nvtx-include, ascending; () when nothing can be measured."""
    signatures: tuple[Signature, ...]
    """Those that will be measured, the heaviest first."""
    expected_share_pct: float
    """Share of all kernel time whose launches will carry counters."""
    excluded: Mapping[str, str]
    """Kernel name -> why it is not measured."""
    launches: int
    """Launches that ncu will replay, at most."""
    launch_count: int | None = None
    """Replay only so many of each configuration (ncu's --filter-mode per-launch-config --launch-count); None: no such filter is needed."""
    budget_s: float | None = None
    expected_s: float | None = None
    """launches times the cost of one; None where that is not known."""
    ranges: tuple[Numbered, ...] = ()
    """Of the first step; the op_id is the place plus 1."""
    launched: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """op_id of the innermost range -> kernel_ids of its launches in launch order, first step."""
    order: Mapping[str, int] = field(default_factory=dict)
    """kernel_id -> its place in launch order, all steps."""


def signature(kernel: Kernel, operator: str, shapes: Sequence[Shape]) -> Signature:
    """The signature of a launch of the timeline."""
    known = tuple(shape for shape in shapes if shape)
    return Signature(kernel.kernel_name, kernel.grid, kernel.block, kernel.shared_bytes, operator, known)


def plan_counters(trace: Trace, *, budget_s: float | None = None, per_launch_s: float | None = None,
                  share: float = DEFAULT_SHARE) -> CounterPlan:
    """Choose the launches of the first step that ncu shall measure.

    Without a budget: until the launches with counters hold `share` of all kernel time (0..1). With a budget in seconds, and per_launch_s
    what one launch costs: as many as fit, whatever their share. A signature's cheapest call is taken. Launches that only later steps have
    can't be chosen. Raises ValueError for a budget without a cost.
    """
    if budget_s is not None and (per_launch_s is None or per_launch_s <= 0):
        raise ValueError("a budget needs the cost of one launch")
    launches = _Launches(trace)
    room = None if budget_s is None or per_launch_s is None else int(budget_s / per_launch_s + 1e-9)
    op_ids, pass_ = _pick(launches, room, share if room is None else 1.0)
    covered = sorted(pass_.serves, key=lambda one: -launches.time_ns[one])
    with_counters = sum(launches.time_ns[one] for one in covered)
    return CounterPlan(
        op_ids=tuple(sorted(op_ids)), signatures=tuple(covered), excluded=launches.excluded, launches=pass_.launches,
        launch_count=pass_.launch_count, expected_share_pct=100.0 * with_counters / launches.total_ns if launches.total_ns else 0.0,
        budget_s=budget_s, expected_s=pass_.launches * per_launch_s if per_launch_s is not None else None, ranges=launches.ranges.rows,
        launched={op_id: tuple(kernels) for op_id, kernels in launches.launched.items()}, order=launches.order)


@dataclass(frozen=True)
class _Pass:
    """What ncu does for some ranges."""

    launches: int
    launch_count: int | None
    serves: frozenset[Signature]
    """Signatures of which at least one launch is certainly replayed."""


class _Launches:
    """Kernel launches of the steps by signature, and what each range of the first step holds."""

    def __init__(self, trace: Trace) -> None:
        self.ranges = StepRanges(trace)
        self.time_ns: dict[Signature, int] = defaultdict(int)
        self.total_ns = 0
        self.excluded: dict[str, str] = {}
        self.inside: dict[int, list[str]] = defaultdict(list)
        """op_id -> kernel_ids launched inside it, nested ones too."""
        self.launched: dict[int, list[str]] = defaultdict(list)
        self.signature_of: dict[str, Signature] = {}
        calls = Calls(trace)
        owned = owned_work(calls)
        for row, kernels in owned.by_call.items():
            for kernel in kernels:
                self._add(kernel, signature(kernel, calls.name(row), calls.shapes(row)))
        for kernel in (kernel for operator in owned.launches for kernel in operator.kernels):
            self._add(kernel, signature(kernel, GRAPH_LAUNCH, ()))
        for kernel in owned.unattributed:
            self._add(kernel, signature(kernel, "", ()))
        self.order: dict[str, int] = {}
        self._place(trace, device_work(trace))

    def _add(self, kernel: Kernel, key: Signature) -> None:
        if kernel.category != "kernel":
            return
        self.total_ns += kernel.duration_ns
        self.time_ns[key] += kernel.duration_ns
        self.signature_of[kernel.kernel_id] = key
        if is_collective(kernel.kernel_name):
            self.excluded[kernel.kernel_name] = COLLECTIVE_REASON

    def replay(self, op_ids: Sequence[int], needed: Collection[Signature]) -> _Pass:
        """The pass that measures these ranges, with as few launches of each configuration as the needed signatures allow."""
        chosen = sorted({kernel for op_id in op_ids for kernel in self.inside[op_id]}, key=lambda kernel: self.order[kernel])
        keys = [self.signature_of[kernel] for kernel in chosen]
        seen: Counter[tuple[Dims | None, Dims | None]] = Counter()
        first: dict[Signature, int] = {}
        for key in keys:
            seen[key.grid, key.block] += 1
            first.setdefault(key, seen[key.grid, key.block])
        count = max((first[key] for key in needed), default=1)
        alike = Counter((key.kernel, key.grid, key.block, key.shared_bytes) for key in keys)
        launches = sum(min(number, count) for number in alike.values())
        if len(keys) - launches < WORTH_FILTERING:
            return _Pass(len(keys), None, frozenset(first))
        return _Pass(launches, count, frozenset(key for key, place in first.items() if place <= count))

    def best(self, options: Sequence[int], chosen: Sequence[int], needed: Collection[Signature]) -> tuple[int, _Pass]:
        """The cheapest of some ranges beside those chosen already; of equal ones the earlier, then the inner."""
        few = sorted(options, key=lambda op_id: (len(self.inside[op_id]), self.order[self.inside[op_id][0]], -op_id))[:OPTIONS_TRIED]
        passes = [self.replay([*chosen, op_id], needed) for op_id in few]
        at = min(range(len(few)), key=lambda place: passes[place].launches)
        return few[at], passes[at]

    def _place(self, trace: Trace, work: DeviceWork) -> None:
        """Launch order, and the ranges around each launch of the first step."""
        runtime = trace.runtime
        known = np.flatnonzero(work.launch >= 0)
        called = trace.device.start_ns[work.rows].copy()
        launch = work.launch[known]
        called[known] = runtime.start_ns[launch]
        inner = np.zeros(work.rows.size, dtype=np.int64)
        inner[known] = self.ranges.innermost(runtime.process[launch], runtime.thread[launch], runtime.start_ns[launch])
        inner[work.step != 0] = 0
        for place, at in enumerate(np.lexsort((trace.device.start_ns[work.rows], called))):
            kernel_id, op_id = f"kernel_{at}", int(inner[at])
            self.order[kernel_id] = place
            if op_id > 0 and kernel_id in self.signature_of:
                self.launched[op_id].append(kernel_id)
                for outer in self.ranges.with_ancestors(op_id):
                    self.inside[outer].append(kernel_id)


def _pick(launches: _Launches, room: int | None, share: float) -> tuple[list[int], _Pass]:
    """Ranges to measure, and what that does. room: how many launches may be replayed; None: any number, but for the sake of one signature
    no more than WIDE_RANGE, unless these are in no operator of their own."""
    options = _options(launches)
    chosen: list[int] = []
    needed: set[Signature] = set()
    done = launches.replay((), ())
    for one in sorted(launches.time_ns, key=lambda key: -launches.time_ns[key]):
        if room is None and sum(launches.time_ns[key] for key in done.serves) >= share * launches.total_ns:
            break
        if one in done.serves or one not in options:
            continue
        op_id, wider = launches.best(options[one], chosen, {*needed, one})
        more = wider.launches - done.launches
        if room is None and more > max(WIDE_RANGE, 4 * len(launches.launched[op_id])):
            launches.excluded.setdefault(one.kernel, WIDE_REASON.format(more))
        elif room is None or wider.launches <= room:
            chosen, done = [*chosen, op_id], wider
            needed.add(one)
    return [op_id for op_id in chosen if not _inside_another(op_id, chosen, launches)], done


def _options(launches: _Launches) -> dict[Signature, list[int]]:
    """Ranges that may be measured for each signature: those that hold no collective."""
    options: dict[Signature, list[int]] = defaultdict(list)
    beside: set[Signature] = set()
    for op_id in sorted(launches.inside):
        inside = {launches.signature_of[kernel]: None for kernel in launches.inside[op_id]}
        waits = any(is_collective(one.kernel) for one in inside)
        for one in inside:
            if waits:
                beside.add(one)
            else:
                options[one].append(op_id)
    for one in launches.time_ns:
        if one not in options:
            launches.excluded.setdefault(one.kernel, BESIDE_REASON if one in beside else LATER_REASON)
    return options


def _inside_another(op_id: int, chosen: Sequence[int], launches: _Launches) -> bool:
    """Whether another chosen range measures all that this one does, and more."""
    own = set(launches.inside[op_id])
    return any(own < set(launches.inside[other]) for other in chosen)
