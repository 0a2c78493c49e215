"""The timing half: blocks in the order A B B A or B A A B between two live processes, commanded by the parent, one at a time."""

from __future__ import annotations

import secrets
import statistics as order
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..model.measurement import Measurement
from ..model.verdict import Comparison, ConditionTiming
from . import clocks, conditions, window
from .blocks import Block, Plan, block_times, cut_short, one_block, prepare, warm
from .channel import WorkerFailed
from .exchange import Exchange
from .placement import same_cores
from .sm_clocks import Kept, SmClocks, Watch, kept_quads, nothing_watched
from .statistics import ALPHA, MIN_QUADS, Decision, Estimate, Floats, decide, estimate, quad_values, settled
from .tensors import Leaf

SAME_CORES_QUADS = 4
"""On a GPU another core is drawn for both sides' launches after so many quads: a core that just woke is slow for some milliseconds."""
CHECKED_QUADS = ((0, 1), (1, 2), (2, 3), (3, 8), (8, 20))
"""In one quad drawn from each range the blocks have a random length, the inputs lie at new addresses, and the output of the last call of
each of the candidate's blocks is checked, after a random number of calls of a sample."""
CLOSING_CHECKS = 3
"""So many short blocks of the candidate follow the last quad, look like the others and only serve for a check each: a program that
began to cheat late is found too. Where it works in one call of 16 and repeats itself otherwise, a check misses it with probability 0.4
(the inputs recur every third call), all ten of them with 0.0001."""
CHECK_BUDGET_S = 1.0
"""After so much time spent on getting outputs (large ones take tenths of a second) only the closing ones are asked for."""
OF_PROCESS = ("died", "timeout", "noisy", "forged")
"""Failures of a worker that end it."""
HIDDEN_SHARE = 0.10
HIDDEN_NS = 20e3
"""Host time that events do not see, beyond the reference's own: above both, host time with device-wide synchronisation counts."""


@dataclass(frozen=True)
class Checked:
    """The output of one timed call, as the candidate's process gave it right after its block."""

    pool_index: int
    """Which round's inputs the call had."""
    leaves: Sequence[Leaf]


Export = Callable[[int], Sequence[Leaf]]
"""The output of the candidate's last timed call, of this pool entry."""


@dataclass
class Checks:
    """Outputs of timed calls, taken right after their blocks and compared later."""

    export: Export | None
    pool: int
    taken: list[Checked] = field(default_factory=list)
    spent_s: float = 0.0

    def take(self, call: int) -> None:
        """The output of the call with this number, which was the last one."""
        if self.export is None:
            return
        begin = time.monotonic()
        self.taken.append(Checked(call % self.pool, self.export(call % self.pool)))
        self.spent_s += time.monotonic() - begin


@dataclass
class Timed:
    """What the timing found."""

    comparison: Comparison
    found: Estimate
    """What the comparison says, as numbers."""
    decision: Decision
    cheat: str | None
    doubt: str | None = None
    """Why a decision in the candidate's favour was not believed."""
    notes: list[str] = field(default_factory=list)
    alpha: float = ALPHA
    """Chance that the interval misses the true speed-up."""
    stopped: str = ""
    """Why the timing ended, and after how long."""
    checked: list[Checked] = field(default_factory=list)
    """Outputs of timed calls, still to be compared."""
    ring: int = 1
    threads: Sequence[int] = ()
    """Of each side; 0 on a GPU."""
    conditions: tuple[ConditionTiming, ...] = ()
    windows: tuple[window.Seen, window.Seen] | None = None
    """What torch.profiler recorded of the reference's and the candidate's calls."""
    apart: bool = False
    """That recording and the candidate's timer do not agree."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Of each part."""
    by_own_clock: Estimate | None = None
    """`found` by the judge's own clock."""


def compare(
    reference: Exchange, candidate: Exchange, max_timing_s: float, alpha: float = ALPHA, *, export: Export | None = None,
    cross_check: bool = False, alone: bool = False,
) -> Timed:
    """Time both against each other until the statistics stop it or max_timing_s is used up (warm-up not counted).

    export: asked for the outputs of randomly chosen timed calls; None: none are kept. cross_check: hold the timer against
    torch.profiler, on a GPU. alone: no other pair of processes follows. Raises WorkerFailed, OutOfTime.
    """
    sides = (reference, candidate)
    begin = time.monotonic()
    told = [warm(who, calls=1, seconds=0.0)[0] for who in sides]
    device = told[0].device
    threads = [reply.threads if reply.device == "cpu" else 0 for reply in told]
    with same_cores([who.worker.pid for who in sides], threads) as draw_cores:
        plan, pool = prepare(reference, candidate, max_timing_s, alpha)
        warmed = time.monotonic()
        with SmClocks(device) as watched:
            try:
                timed = _run(sides, plan, pool, max_timing_s, alpha, export, watched.during if device == "cuda" else nothing_watched,
                             draw_cores, alone=alone)
            finally:
                for who in sides:
                    who.worker.resume()
        done = time.monotonic()
        timed.seconds |= {"warm-up": warmed - begin, "timing": done - warmed}
        timed.notes += [watched.note] if watched.note else []
        if cross_check and device == "cuda" and timed.cheat is None:
            _cross_check(timed, sides)
            timed.seconds["cross-check"] = time.monotonic() - done
    timed.threads = threads
    return timed


def time_further(timed: Timed, reference: Exchange, candidate: Exchange, names: Sequence[str], max_timing_s: float) -> None:
    """Time under further conditions, after `compare`. Last of all: a failed capture may leave a process useless.

    Raises WorkerFailed, and OutOfTime (what was timed by then is in `timed`).
    """
    budget_s = min(conditions.BUDGET_S, max_timing_s / 6)
    with same_cores([who.worker.pid for who in (reference, candidate)], timed.threads):
        for row in conditions.measure(reference, candidate, names, budget_s, _pair_s(timed)):
            timed.conditions = (*timed.conditions, row)


def _pair_s(timed: Timed) -> float:
    return (timed.comparison.reference.median_ns + timed.comparison.candidate.median_ns) / 1e9


def _cross_check(timed: Timed, sides: tuple[Exchange, Exchange]) -> None:
    try:
        samples = window.SAMPLES if _pair_s(timed) * timed.ring < window.LONG_S else 1
        timed.windows = window.record(sides[0], samples), window.record(sides[1], samples)
    except WorkerFailed as error:
        if error.code in OF_PROCESS:
            raise
        timed.notes.append(f"the timer was not held against torch.profiler: {error.message[:200]}")
        return
    if timed.windows[0].busy_ns <= 0:
        timed.notes.append("the timer was not held against torch.profiler: it recorded no kernel of the reference")
        return
    doubt = window.doubt(*timed.windows, timed.comparison.reference.median_ns, timed.comparison.candidate.median_ns)
    timed.apart = doubt is not None
    if doubt and timed.doubt is None:
        timed.decision, timed.doubt = "AMBIGUOUS", doubt


def _run(
    sides: tuple[Exchange, Exchange], plan: Plan, pool: int, max_timing_s: float, alpha: float, export: Export | None, watch: Watch,
    draw_cores: Callable[[], None], *, alone: bool = False,
) -> Timed:
    begin = time.monotonic()
    stop_at_s = begin + max_timing_s
    blocks: tuple[list[Block], list[Block]] = ([], [])
    found: Estimate | None = None
    kept = Kept(())
    drawn = {low + secrets.randbelow(high - low) for low, high in CHECKED_QUADS}
    checks = Checks(export, pool)
    use_host = is_clear = False
    firsts = [0, 0]  # calls of each side: what is new to one in its next sample does not hang on the other's blocks
    for look in plan.looks:
        while len(blocks[0]) < 2 * look and (len(blocks[0]) < 2 * MIN_QUADS or time.monotonic() < stop_at_s):
            quad = len(blocks[0]) // 2
            if quad % SAME_CORES_QUADS == 0:
                draw_cores()
            cut = cut_short(plan, sides) if quad in drawn else None
            order_of_sides = (0, 1, 1, 0) if secrets.randbits(1) else (1, 0, 0, 1)
            for side in order_of_sides:
                sides[1 - side].worker.pause()
                blocks[side].append(one_block(sides[side], plan, firsts[side], cut))
                if side == 1 and cut and checks.spent_s < CHECK_BUDGET_S:
                    checks.take(firsts[side] + cut.calls - 1)
                firsts[side] += (cut.samples if cut else plan.samples) * plan.ring
        use_host = _events_miss_work(blocks)
        kept = kept_quads(*([watch(one.start_s, one.start_s + one.wall_s) for one in side] for side in blocks))
        values = _values(blocks, use_host, kept)
        if len(values) < MIN_QUADS and time.monotonic() < stop_at_s and look != plan.looks[-1]:
            continue
        found = estimate(values if len(values) >= MIN_QUADS else _values(blocks, use_host, None), len(plan.looks), alpha)
        if time.monotonic() >= stop_at_s:
            break  # time, unlike the values, may end it at any quad: fewer looks than planned only widen the interval
        is_clear = settled(found, alone=alone) and not _by_own_clock(blocks, kept, use_host, found, plan, alpha).doubt
        if is_clear:
            break  # few quads, of which one was interrupted, leave the judge's own clock unsure of what the samples show clearly
    assert found is not None
    used_s = time.monotonic() - begin
    if export is not None:
        _closing(sides[1], plan, firsts[1], checks)
    notes = ["CUDA events miss work that the device does: host time with device-wide synchronisation was used"] if use_host else []
    notes += [kept.note] if kept.note else []
    decision = decide(found)
    clock = _by_own_clock(blocks, kept, use_host, found, plan, alpha)
    seen, method, ratios = found, _method(plan, blocks, use_host, kept), None
    if clock.doubt or clock.counts:  # then the worker's figure is not repeated: the speed-up shown is the judge's own
        seen, ratios, method = clock.seen, clock.values, f"{method}; speed-up by the judge's own clock"
    if clock.counts:
        notes.append(f"others use these cores: the median samples say {found.speedup:.3g}x, the judge's own clock, which counts, "
                     f"{seen.speedup:.3g}x")
    doubt = clock.doubt or (kept.too_many or None if decision in ("FASTER", "SLOWER", "SAME") else None)
    stopped = _why_stopped(is_clear, plan, used_s, max_timing_s)
    comparison = _comparison(_only(blocks, kept), seen, method, use_host, alpha, ratios)
    return Timed(comparison, seen, "AMBIGUOUS" if doubt else decision, clock.cheat, doubt, notes, alpha, stopped, checks.taken, plan.ring,
                 by_own_clock=clock.seen)


def _by_own_clock(
    blocks: tuple[list[Block], list[Block]], kept: Kept, use_host: bool, found: Estimate, plan: Plan, alpha: float,
) -> clocks.Confirmation:
    mine, theirs = ([clocks.Block(block.wall_s, block.chosen(use_host)) for block in side] for side in _only(blocks, kept))
    return clocks.confirm(mine, theirs, found, decide(found), len(plan.looks), alpha, on_cpu=not blocks[0][0].events_ns)


def _closing(candidate: Exchange, plan: Plan, first: int, checks: Checks) -> None:
    for _ in range(CLOSING_CHECKS):
        cut = cut_short(plan, (), most=3)
        one_block(candidate, plan, first, cut)
        checks.take(first + cut.calls - 1)
        first += cut.samples * plan.ring


def _values(blocks: tuple[list[Block], list[Block]], use_host: bool, kept: Kept | None) -> Floats:
    values = quad_values(*(block_times(side, use_host) for side in blocks))
    return values if kept is None else values[np.asarray(kept.quads, dtype=bool)]


def _only(blocks: tuple[list[Block], list[Block]], kept: Kept) -> tuple[list[Block], list[Block]]:
    """The blocks of the quads that count; all where too few do."""
    if sum(kept.quads) < MIN_QUADS:
        return blocks
    mine, theirs = ([block for index, block in enumerate(side) if kept.quads[index // 2]] for side in blocks)
    return mine, theirs


def _method(plan: Plan, blocks: tuple[list[Block], list[Block]], use_host: bool, kept: Kept) -> str:
    timer = "perf_counter" if use_host or not blocks[0][0].events_ns else "cuda_events"
    dropped = len(kept.quads) - sum(kept.quads)
    lost = f"; {dropped} of {len(kept.quads)} quads dropped for the GPU's clock" if dropped else ""
    return f"{plan.samples} samples a block, {plan.ring} calls a sample, {timer}{lost}"


def _why_stopped(clear: bool, plan: Plan, used_s: float, max_timing_s: float) -> str:
    if clear and used_s < max_timing_s:
        return f"timing stopped after {used_s:.1f} s of at most {max_timing_s:g} s: the answer was clear"
    if used_s >= max_timing_s:
        return f"timing used up its {max_timing_s:g} s"
    most = plan.looks[-1]
    more = "" if plan.longest else "; a longer --max-timing allows more"
    return f"timing stopped after {used_s:.1f} s of at most {max_timing_s:g} s: all {2 * most} pairs that it allows were made{more}"


def _events_miss_work(blocks: tuple[list[Block], list[Block]]) -> bool:
    if not all(block.events_ns for side in blocks for block in side):
        return False
    hidden = [order.median(host - event for block in side for host, event in zip(block.host_ns, block.events_ns, strict=True))
              for side in blocks]
    event = order.median(value for block in blocks[1] for value in block.events_ns)
    return hidden[1] - hidden[0] > max(HIDDEN_SHARE * event, HIDDEN_NS)


def _comparison(
    blocks: tuple[list[Block], list[Block]], found: Estimate, method: str, use_host: bool, alpha: float, ratios: Floats | None,
) -> Comparison:
    """ratios: the logarithm of each quad's, where the median samples do not give it."""
    timer = "perf_counter" if use_host or not blocks[0][0].events_ns else "cuda_events"
    sides = [Measurement.of([value for block in side for value in block.per_call_ns(use_host)], timer=timer) for side in blocks]
    return Comparison(
        reference=sides[0], candidate=sides[1], speedup=found.speedup, interval=(found.low, found.high),
        smallest_detectable_effect_pct=found.smallest_effect_pct, pairs=2 * found.quads, blocks=4 * found.quads,
        method=f"{found.method}; {method}", level_pct=100 * (1 - alpha), log_ratios=tuple(round(float(value), 6) for value in (
            quad_values(*(block_times(side, use_host) for side in blocks)) if ratios is None else ratios)))
