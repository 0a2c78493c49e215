"""One block of one side: how long it is, what is in it, and how it is asked for."""

from __future__ import annotations

import math
import secrets
import statistics as order
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .channel import WorkerFailed
from .exchange import Exchange
from .options import USUAL_TIMING_S
from .replies import Done, Prepared, Times
from .statistics import ALPHA, MIN_QUADS, plan_looks

WARM_S = 0.2
"""Each side is called for at least this long before the first block (clocks ramp, caches and allocators fill)."""
SAMPLE_S = 400e-6
"""A sample makes enough calls to last this long: a timer's 0.5 us (CUDA events) are then 0.1%."""
MAX_RING = 16
MAX_QUADS = {"cuda": 40, "cpu": 400}
"""In the usual time; a longer timing may have as many times more as it is longer, up to MAX_LONGER: quads average the noise of a
machine, more samples in a block do not. A CPU core that others share changes speed within milliseconds, so the sides take short turns
there (two cores, two threads, the same program on both sides, 15 s: standard error of the median quad 0.4% with blocks of 4 ms, 0.7% with
8 ms, 1.2% with 22 ms)."""
MAX_LONGER = 5
MAX_SAMPLES = 50
MIN_BLOCK_S = {"cuda": 5e-3, "cpu": 2.5e-3}
"""A block of the slower side lasts this long where MAX_SAMPLES allow it: against it the judge's own clock (0.1 ms a command) is sharp."""
FASTER_BLOCK_S = {"cuda": 0.0, "cpu": 2.5e-3}
"""A block of the faster side lasts this long too where it is faster by half and FASTER_QUADS fit: others that use the cores interrupt the
long blocks of one side amid a sample and the short ones of the other between two (two cores, two busy loops: 7.3x, and 6.0x by the
judge's own clock)."""
FASTER_BY, FASTER_QUADS = 1.5, 30
LEAD_IN_BELOW_S = 0.05
"""Each block starts with one untimed pass over the inputs (the other process had the caches), where that costs less than this."""


@dataclass
class Block:
    """One block of one side."""

    wall_s: float
    """By the parent's clock, from the command to the reply."""
    events_ns: Sequence[float]
    host_ns: Sequence[float]
    calls: Sequence[int] = ()
    """Of each sample."""
    start_s: float = 0.0
    """time.monotonic() at the command."""

    def chosen(self, use_host: bool) -> Sequence[float]:
        """ns of each sample by the timer that counts."""
        return self.host_ns if use_host or not self.events_ns else self.events_ns

    def per_call_ns(self, use_host: bool) -> list[float]:
        """ns a call of each sample; a sample that was cut short counts only where it is the block's only one."""
        rates = [value / calls for value, calls in zip(self.chosen(use_host), self.calls, strict=True)]
        return rates[:-1] if len(rates) > 1 and self.calls[-1] < self.calls[0] else rates


@dataclass(frozen=True)
class Plan:
    """How the blocks are cut: fixed before the first one counts."""

    ring: int
    """Calls a sample, each on its own input set."""
    samples: int
    lead_in: bool
    looks: tuple[int, ...]
    """Quads after which the interval is looked at. The last is the most that are made: time usually ends it earlier."""
    longest: bool
    """A longer timing would not have more quads."""


@dataclass(frozen=True)
class Cut:
    """The blocks of one quad end early: after `samples` samples, the last of which has `last_calls` calls."""

    samples: int
    last_calls: int
    calls: int
    """All of a block."""


def cut_short(plan: Plan, sides: Sequence[Exchange], most: int | None = None) -> Cut:
    """A random length (at most `most` samples), and input sets at new addresses on these sides: on both, so that the quad stays fair."""
    for who in sides:
        who.ask("renew", Done)
    longest = min(plan.samples, most or plan.samples)
    samples = longest - secrets.randbelow(max(1, longest // 2))
    last_calls = 1 + secrets.randbelow(plan.ring)
    return Cut(samples, last_calls, (samples - 1) * plan.ring + last_calls)


def warm(who: Exchange, *, calls: int, seconds: float) -> tuple[Prepared, float]:
    """The reply, and the seconds a call by what the worker says, but no more than the parent saw."""
    start = time.monotonic()
    reply = who.ask("prepare_timing", Prepared, calls=calls, seconds=seconds, min_calls=max(2, calls))
    return reply, max(min(reply.call_s, time.monotonic() - start), 1e-9)


def prepare(reference: Exchange, candidate: Exchange, max_timing_s: float, alpha: float) -> tuple[Plan, int]:
    warmed = [warm(who, calls=1, seconds=WARM_S) for who in (reference, candidate)]
    wanted = min(MAX_RING, max(1, math.ceil(SAMPLE_S / min(call_s for _, call_s in warmed))))
    if wanted > 1:
        warmed = [warm(who, calls=wanted, seconds=WARM_S / 4) for who in (reference, candidate)]
    (mine, reference_s), (theirs, candidate_s) = warmed
    if (theirs.ring, theirs.pool) != (mine.ring, mine.pool):
        raise WorkerFailed("malformed", "prepared another number of inputs than it was asked for", role=candidate.worker.role)
    return plan_of(mine.ring, reference_s, candidate_s, max_timing_s, mine.device, alpha), mine.pool


def plan_of(ring: int, reference_s: float, candidate_s: float, max_timing_s: float, device: str, alpha: float = ALPHA) -> Plan:
    """How to spend max_timing_s on two sides whose calls take these seconds. More than the usual time means more quads, not longer ones."""
    sample_s, max_quads = ring * max(reference_s, candidate_s), MAX_QUADS[device]
    lead_in = sample_s < LEAD_IN_BELOW_S
    block_s = min(max_timing_s, USUAL_TIMING_S) / (4 * max_quads)
    fast_s, slow_s = sorted((reference_s, candidate_s))
    fit = int(min(max_timing_s, USUAL_TIMING_S) / (2 * ring * (fast_s + slow_s) * FASTER_QUADS)) - lead_in
    faster = min(math.ceil(FASTER_BLOCK_S[device] / (ring * fast_s)), fit) if slow_s >= FASTER_BY * fast_s else 1
    samples = min(MAX_SAMPLES, max(1, math.ceil(MIN_BLOCK_S[device] / sample_s), int(block_s / sample_s), faster))
    quad_s = 2 * ring * (reference_s + candidate_s) * (samples + lead_in)
    most = int(max_quads * min(MAX_LONGER, max(1.0, max_timing_s / USUAL_TIMING_S)))
    quads = max(MIN_QUADS, min(most, int(max_timing_s / quad_s)))
    # The warm-up on a busy machine makes a call look slow (seen: 62 quads planned for 30 s, done after 12 s): time ends the last look.
    return Plan(ring, samples, lead_in, (*plan_looks(quads, alpha)[:-1], most), most == MAX_LONGER * max_quads)


def one_block(who: Exchange, plan: Plan, first: int, cut: Cut | None = None) -> Block:
    if plan.lead_in:  # a command of its own, so that the parent's clock sees the timed samples alone
        who.ask("lead_in", Done, first=first)
    samples, last_calls = (cut.samples, cut.last_calls) if cut else (plan.samples, plan.ring)
    start = time.monotonic()
    reply = who.ask("time", Times, samples=samples, first=first, last_calls=last_calls)
    wall = time.monotonic() - start
    if len(reply.host_ns) != samples or len(reply.events_ns) not in (0, samples):
        raise WorkerFailed("forged", "gave another number of timings than it was asked for", role=who.worker.role)
    return Block(wall, reply.events_ns, reply.host_ns, [plan.ring] * (samples - 1) + [last_calls], start)


def block_times(blocks: Sequence[Block], use_host: bool) -> list[float]:
    """ns a call of each block: the median sample, so that one interruption does not move it."""
    return [order.median(block.per_call_ns(use_host)) for block in blocks]
