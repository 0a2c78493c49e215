"""The timing half: blocks in the order A B B A or B A A B between two live processes, commanded by the parent, one at a time."""

from __future__ import annotations

import math
import secrets
import statistics as order
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..model.measurement import Measurement
from ..model.verdict import Comparison
from . import clocks
from .channel import WorkerFailed
from .exchange import Exchange
from .options import USUAL_TIMING_S
from .placement import same_cores
from .replies import Done, Prepared, Times
from .statistics import ALPHA, MIN_QUADS, Decision, Estimate, decide, estimate, plan_looks, quad_values, settled

WARM_S = 0.2
"""Each side is called for at least this long before the first block (clocks ramp, caches and allocators fill)."""
SAMPLE_S = 400e-6
"""A sample makes enough calls to last this long: a timer's 0.5 us (CUDA events) are then 0.1%."""
MAX_RING = 16
MAX_QUADS = 40
"""In the usual time; a longer timing may have as many times more as it is longer, up to MAX_LONGER: quads average the noise of a
machine, more samples in a block do not."""
MAX_LONGER = 5
MAX_SAMPLES = 50
MIN_BLOCK_S = 5e-3
"""A block of the slower side lasts this long where MAX_SAMPLES allow it: against it the judge's own clock (0.1 ms a command) is sharp."""
LEAD_IN_BELOW_S = 0.05
"""Each block starts with one untimed pass over the inputs (the other process had the caches), where that costs less than this."""
HIDDEN_SHARE = 0.10
HIDDEN_NS = 20e3
"""Host time that events do not see, beyond the reference's own: above both, host time with device-wide synchronisation counts."""


@dataclass
class Block:
    """One block of one side."""

    wall_s: float
    """By the parent's clock, from the command to the reply."""
    events_ns: Sequence[float]
    host_ns: Sequence[float]


@dataclass
class Timed:
    """What the timing found."""

    comparison: Comparison
    decision: Decision
    last_pool_index: int
    """Which round's inputs the last timed call had."""
    cheat: str | None
    doubt: str | None = None
    """Why a decision in the candidate's favour was not believed."""
    notes: list[str] = field(default_factory=list)
    alpha: float = ALPHA
    """Chance that the interval misses the true speed-up."""
    stopped: str = ""
    """Why the timing ended, and after how long."""


@dataclass(frozen=True)
class Plan:
    """How the blocks are cut: fixed before the first one counts."""

    ring: int
    """Calls a sample, each on its own input set."""
    samples: int
    lead_in: bool
    looks: tuple[int, ...]
    """Quads after which the interval is looked at. The last is the most that are made: time usually ends it earlier."""


def compare(reference: Exchange, candidate: Exchange, max_timing_s: float, alpha: float = ALPHA) -> Timed:
    """Time both against each other until the statistics stop it or max_timing_s is used up (warm-up not counted).

    Raises WorkerFailed, OutOfTime.
    """
    sides = (reference, candidate)
    told = [_warm(who, calls=1, seconds=0.0)[0] for who in sides]
    threads = [reply.threads if reply.device == "cpu" else 0 for reply in told]
    with same_cores([who.worker.pid for who in sides], threads):
        plan, pool = _prepare(reference, candidate, max_timing_s, alpha)
        return _run(sides, plan, pool, max_timing_s, alpha)


def _run(sides: tuple[Exchange, Exchange], plan: Plan, pool: int, max_timing_s: float, alpha: float) -> Timed:
    begin = time.monotonic()
    stop_at_s = begin + max_timing_s
    blocks: tuple[list[Block], list[Block]] = ([], [])
    found: Estimate | None = None
    use_host, first, last = False, 0, 0
    for look in plan.looks:
        while len(blocks[0]) < 2 * look and (len(blocks[0]) < 2 * MIN_QUADS or time.monotonic() < stop_at_s):
            for side in (0, 1, 1, 0) if secrets.randbits(1) else (1, 0, 0, 1):
                blocks[side].append(_block(sides[side], plan, first))
                first += plan.samples * plan.ring
                last = first - 1 if side == 1 else last
        use_host = _events_miss_work(blocks)
        found = estimate(quad_values(*(_block_times(side, plan.ring, use_host) for side in blocks)), len(plan.looks), alpha)
        if settled(found) or time.monotonic() >= stop_at_s:
            break  # time, unlike the values, may end it at any quad: fewer looks than planned only widen the interval
    assert found is not None
    stopped = _why_stopped(found, plan, time.monotonic() - begin, max_timing_s)
    notes = ["CUDA events miss work that the device does: host time with device-wide synchronisation was used"] if use_host else []
    decision = decide(found)
    mine, theirs = ([clocks.Block(block.wall_s, _chosen(block, use_host)) for block in side] for side in blocks)
    clock = clocks.confirm(mine, theirs, found, decision, len(plan.looks), alpha)
    if clock.doubt:  # then the worker's figure is not repeated: the speed-up shown is the judge's own
        return Timed(_comparison(blocks, clock.seen, plan, use_host, "speed-up by the judge's own clock"), "AMBIGUOUS", last % pool,
                     clock.cheat, clock.doubt, notes, alpha, stopped)
    return Timed(_comparison(blocks, found, plan, use_host), decision, last % pool, clock.cheat, None, notes, alpha, stopped)


def _why_stopped(found: Estimate, plan: Plan, used_s: float, max_timing_s: float) -> str:
    if settled(found) and used_s < max_timing_s:
        return f"timing stopped after {used_s:.1f} s of at most {max_timing_s:g} s: the answer was clear"
    if used_s >= max_timing_s:
        return f"timing used up its {max_timing_s:g} s"
    most = plan.looks[-1]
    more = "" if most >= MAX_LONGER * MAX_QUADS else "; a longer --max-timing allows more"
    return f"timing stopped after {used_s:.1f} s of at most {max_timing_s:g} s: all {2 * most} pairs that it allows were made{more}"


def _warm(who: Exchange, *, calls: int, seconds: float) -> tuple[Prepared, float]:
    """The reply, and the seconds a call by what the worker says, but no more than the parent saw."""
    start = time.monotonic()
    reply = who.ask("prepare_timing", Prepared, calls=calls, seconds=seconds, min_calls=max(2, calls))
    return reply, max(min(reply.call_s, time.monotonic() - start), 1e-9)


def _prepare(reference: Exchange, candidate: Exchange, max_timing_s: float, alpha: float) -> tuple[Plan, int]:
    warm = [_warm(who, calls=1, seconds=WARM_S) for who in (reference, candidate)]
    wanted = min(MAX_RING, max(1, math.ceil(SAMPLE_S / min(call_s for _, call_s in warm))))
    if wanted > 1:
        warm = [_warm(who, calls=wanted, seconds=WARM_S / 4) for who in (reference, candidate)]
    (mine, reference_s), (theirs, candidate_s) = warm
    if (theirs.ring, theirs.pool) != (mine.ring, mine.pool):
        raise WorkerFailed("malformed", "prepared another number of inputs than it was asked for", role=candidate.worker.role)
    return plan_of(mine.ring, reference_s, candidate_s, max_timing_s, alpha), mine.pool


def plan_of(ring: int, reference_s: float, candidate_s: float, max_timing_s: float, alpha: float = ALPHA) -> Plan:
    """How to spend max_timing_s on two sides whose calls take these seconds. More than the usual time means more quads, not longer ones."""
    sample_s = ring * max(reference_s, candidate_s)
    samples = max(1, math.ceil(MIN_BLOCK_S / sample_s), int(min(max_timing_s, USUAL_TIMING_S) / (4 * MAX_QUADS) / sample_s))
    samples = min(MAX_SAMPLES, samples)
    lead_in = sample_s < LEAD_IN_BELOW_S
    quad_s = 2 * ring * (reference_s + candidate_s) * (samples + lead_in)
    most = int(MAX_QUADS * min(MAX_LONGER, max(1.0, max_timing_s / USUAL_TIMING_S)))
    quads = max(MIN_QUADS, min(most, int(max_timing_s / quad_s)))
    # The warm-up on a busy machine makes a call look slow (seen: 62 quads planned for 30 s, done after 12 s): time ends the last look.
    return Plan(ring, samples, lead_in, (*plan_looks(quads, alpha)[:-1], most))


def _block(who: Exchange, plan: Plan, first: int) -> Block:
    if plan.lead_in:  # a command of its own, so that the parent's clock sees the timed samples alone
        who.ask("lead_in", Done)
    start = time.monotonic()
    reply = who.ask("time", Times, samples=plan.samples, first=first)
    wall = time.monotonic() - start
    if len(reply.host_ns) != plan.samples or len(reply.events_ns) not in (0, plan.samples):
        raise WorkerFailed("forged", "gave another number of timings than it was asked for", role=who.worker.role)
    return Block(wall, reply.events_ns, reply.host_ns)


def _block_times(blocks: Sequence[Block], ring: int, use_host: bool) -> list[float]:
    """ns a call of each block: the median sample, so that one interruption does not move it."""
    return [order.median(_chosen(block, use_host)) / ring for block in blocks]


def _chosen(block: Block, use_host: bool) -> Sequence[float]:
    return block.host_ns if use_host or not block.events_ns else block.events_ns


def _events_miss_work(blocks: tuple[list[Block], list[Block]]) -> bool:
    if not all(block.events_ns for side in blocks for block in side):
        return False
    hidden = [order.median(host - event for block in side for host, event in zip(block.host_ns, block.events_ns, strict=True))
              for side in blocks]
    event = order.median(value for block in blocks[1] for value in block.events_ns)
    return hidden[1] - hidden[0] > max(HIDDEN_SHARE * event, HIDDEN_NS)


def _comparison(blocks: tuple[list[Block], list[Block]], found: Estimate, plan: Plan, use_host: bool, note: str = "") -> Comparison:
    timer = "perf_counter" if use_host or not blocks[0][0].events_ns else "cuda_events"
    sides = [Measurement.of([value / plan.ring for block in side for value in _chosen(block, use_host)], timer=timer) for side in blocks]
    return Comparison(
        reference=sides[0], candidate=sides[1], speedup=found.speedup, interval=(found.low, found.high),
        smallest_detectable_effect_pct=found.smallest_effect_pct, pairs=2 * found.quads, blocks=4 * found.quads,
        method=f"{found.method}; {plan.samples} samples a block, {plan.ring} calls a sample, {timer}" + (f"; {note}" if note else ""))
