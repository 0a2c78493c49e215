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
from .channel import WorkerFailed
from .exchange import Exchange
from .placement import same_cores
from .statistics import MIN_QUADS, Decision, Estimate, decide, estimate, plan_looks, quad_values, settled

WARM_S = 0.2
"""Each side is called for at least this long before the first block (clocks ramp, caches and allocators fill)."""
SAMPLE_S = 400e-6
"""A sample makes enough calls to last this long: a timer's 0.5 us (CUDA events) are then 0.1%."""
MAX_RING = 16
MAX_QUADS = 40
MAX_SAMPLES = 50
LEAD_IN_BELOW_S = 0.05
"""Each block starts with one untimed pass over the inputs (the other process had the caches), where that costs less than this."""
HIDDEN_SHARE = 0.10
HIDDEN_NS = 20e3
"""Host time that events do not see, beyond the reference's own: above both, host time with device-wide synchronisation counts."""
DISAGREE_SHARE = 0.5
DISAGREE_S = 0.005
"""The parent's own clock must account for a block: reported time below half of it, and 5 ms missing, is a lying timer."""


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
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """How the blocks are cut: fixed before the first one counts."""

    ring: int
    """Calls a sample, each on its own input set."""
    samples: int
    lead_in: bool
    looks: tuple[int, ...]
    """Quads after which the interval is looked at."""


def compare(reference: Exchange, candidate: Exchange, max_timing_s: float) -> Timed:
    """Time both against each other until the statistics stop it or max_timing_s is used up (warm-up not counted).

    Raises WorkerFailed, OutOfTime.
    """
    sides = (reference, candidate)
    told = [who.ask("prepare_timing", calls=1, seconds=0.0, min_calls=2) for who in sides]
    threads = [int(reply["threads"]) if reply["device"] == "cpu" else 0 for reply in told]
    with same_cores([who.worker.process.pid for who in sides], threads):
        plan, pool = _prepare(reference, candidate, max_timing_s)
        return _run(sides, plan, pool, time.monotonic() + max_timing_s)


def _run(sides: tuple[Exchange, Exchange], plan: Plan, pool: int, stop_at_s: float) -> Timed:
    blocks: tuple[list[Block], list[Block]] = ([], [])
    found: Estimate | None = None
    use_host, first, last = False, 0, 0
    for look in plan.looks:
        while len(blocks[0]) < 2 * look and (len(blocks[0]) < 2 * MIN_QUADS or time.monotonic() < stop_at_s):
            for side in (0, 1, 1, 0) if secrets.randbits(1) else (1, 0, 0, 1):
                blocks[side].append(_block(sides[side], plan, first))
                first += plan.samples * plan.ring
                last = first - 1 if side == 1 else last
        use_host = _events_miss_work(blocks, plan.ring)
        found = estimate(quad_values(*(_block_times(side, plan.ring, use_host) for side in blocks)), len(plan.looks))
        if settled(found) or time.monotonic() >= stop_at_s:
            break  # time, unlike the values, may end it at any quad: fewer looks than planned only widen the interval
    assert found is not None
    notes = ["CUDA events miss work that the device does: host time with device-wide synchronisation was used"] if use_host else []
    return Timed(_comparison(blocks, found, plan, use_host), decide(found), last % pool, _timer_disagrees(blocks, use_host), notes)


def _prepare(reference: Exchange, candidate: Exchange, max_timing_s: float) -> tuple[Plan, int]:
    first = [who.ask("prepare_timing", calls=1, seconds=WARM_S, min_calls=2) for who in (reference, candidate)]
    fastest = max(min(float(reply["call_s"]) for reply in first), 1e-9)
    wanted = min(MAX_RING, max(1, math.ceil(SAMPLE_S / fastest)))
    if wanted > 1:
        first = [who.ask("prepare_timing", calls=wanted, seconds=WARM_S / 4, min_calls=wanted) for who in (reference, candidate)]
    if {int(reply["ring"]) for reply in first} != {int(first[0]["ring"])}:
        raise WorkerFailed("malformed", "prepared another number of inputs than it was asked for", role=candidate.worker.role)
    ring, calls_s = int(first[0]["ring"]), [max(float(reply["call_s"]), 1e-9) for reply in first]
    sample_s = ring * max(calls_s)
    samples = max(1, min(MAX_SAMPLES, int(max_timing_s / (4 * MAX_QUADS) / sample_s)))
    lead_in = sample_s < LEAD_IN_BELOW_S
    quad_s = 2 * ring * sum(calls_s) * (samples + lead_in)
    quads = max(MIN_QUADS, min(MAX_QUADS, int(max_timing_s / quad_s)))
    return Plan(ring, samples, lead_in, plan_looks(quads)), int(first[0]["pool"])


def _block(who: Exchange, plan: Plan, first: int) -> Block:
    start = time.monotonic()
    reply = who.ask("time", samples=plan.samples, lead_in=plan.lead_in, first=first)
    wall = time.monotonic() - start
    events, hosts = ([float(value) for value in reply[key]] for key in ("events_ns", "host_ns"))
    if len(hosts) != plan.samples or len(events) not in (0, plan.samples) or not all(0 < value < math.inf for value in (*events, *hosts)):
        raise WorkerFailed("forged", "gave timings that no clock gives", role=who.worker.role)
    return Block(wall, events, hosts)


def _block_times(blocks: Sequence[Block], ring: int, use_host: bool) -> list[float]:
    """ns a call of each block: the median sample, so that one interruption does not move it."""
    return [order.median(_chosen(block, use_host)) / ring for block in blocks]


def _chosen(block: Block, use_host: bool) -> Sequence[float]:
    return block.host_ns if use_host or not block.events_ns else block.events_ns


def _events_miss_work(blocks: tuple[list[Block], list[Block]], ring: int) -> bool:
    if not all(block.events_ns for side in blocks for block in side):
        return False
    hidden = [order.median(host - event for block in side for host, event in zip(block.host_ns, block.events_ns, strict=True))
              for side in blocks]
    event = order.median(value for block in blocks[1] for value in block.events_ns)
    return hidden[1] - hidden[0] > max(HIDDEN_SHARE * event, HIDDEN_NS)


def _timer_disagrees(blocks: tuple[list[Block], list[Block]], use_host: bool) -> str | None:
    reported = [[sum(_chosen(block, use_host)) / 1e9 for block in side] for side in blocks]
    overhead = order.median(block.wall_s - seconds for block, seconds in zip(blocks[0], reported[0], strict=True))
    walls = order.median(block.wall_s for block in blocks[1]) - max(overhead, 0.0)
    claimed = order.median(reported[1])
    if claimed < DISAGREE_SHARE * walls and walls - claimed > DISAGREE_S:
        return f"timer disagrees: it reported {claimed * 1e3:.3g} ms a block, and the judge's own clock saw {walls * 1e3:.3g} ms"
    return None


def _comparison(blocks: tuple[list[Block], list[Block]], found: Estimate, plan: Plan, use_host: bool) -> Comparison:
    timer = "perf_counter" if use_host or not blocks[0][0].events_ns else "cuda_events"
    sides = [Measurement.of([value / plan.ring for block in side for value in _chosen(block, use_host)], timer=timer) for side in blocks]
    return Comparison(
        reference=sides[0], candidate=sides[1], speedup=found.speedup, interval=(found.low, found.high),
        smallest_detectable_effect_pct=found.smallest_effect_pct, pairs=2 * found.quads, blocks=4 * found.quads,
        method=f"{found.method}; {plan.samples} samples a block, {plan.ring} calls a sample, {timer}")
