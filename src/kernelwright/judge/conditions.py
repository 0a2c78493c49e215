"""The same two programs under further conditions: a few quads each, which inform and decide nothing.

Their times are the workers' own words: no clock of the parent confirms them. The verdict rests on the warm figure alone.
"""

from __future__ import annotations

import secrets
import statistics as order
from collections.abc import Iterator, Sequence

from ..model.verdict import ConditionTiming
from .channel import WorkerFailed
from .exchange import Exchange
from .replies import ConditionReady, Done, Times
from .statistics import ALPHA, MIN_QUADS, RANK_MIN_QUADS, estimate, quad_values

BUDGET_S = 0.4
"""Of each condition, on top of its preparation."""
MAX_SAMPLES = 10
MOST_OVER = 10
"""Where the fewest quads would take more than so many times the budget, there are none."""


def measure(
    reference: Exchange, candidate: Exchange, names: Sequence[str], budget_s: float = BUDGET_S, pair_s: float = 0.0,
) -> Iterator[ConditionTiming]:
    """Time both under each condition; each row as it is done. pair_s: a call of both sides, warm. While one side is timed the other
    process is stopped.

    Raises WorkerFailed, OutOfTime.
    """
    for name in names:
        if 2 * MIN_QUADS * pair_s > MOST_OVER * budget_s:
            why = f"a call takes too long for it ({pair_s:.2g} s on both sides together)"
            yield ConditionTiming(condition=name, not_applicable=why)
            continue
        try:
            row = _measured(reference, candidate, name, budget_s)
        except WorkerFailed as error:
            if name != "graph" or error.code == "forged":  # an ordinary call must not fail; a capture may, and end its process
                raise
            row = ConditionTiming(condition=name, not_applicable=f"{error.role}: {error.message[:200]}")
        yield row


def _measured(reference: Exchange, candidate: Exchange, name: str, budget_s: float) -> ConditionTiming:
    sides = (reference, candidate)
    ready: list[ConditionReady] = []
    for who in sides:
        ready.append(who.ask("prepare_condition", ConditionReady, condition=name))
        if not ready[-1].applicable:
            reference.ask("end_conditions", Done)
            return ConditionTiming(condition=name, not_applicable=f"{who.worker.role}: {ready[-1].reason}")
    samples, quads = plan(sum(one.sample_s for one in ready), budget_s)
    blocks: tuple[list[float], list[float]] = ([], [])
    first = 0
    for _ in range(quads):
        for side in (0, 1, 1, 0) if secrets.randbits(1) else (1, 0, 0, 1):
            sides[1 - side].worker.pause()
            blocks[side].append(_block(sides[side], samples, ready[side].calls, first))
            first += samples * ready[side].calls
    for who in sides:
        who.ask("end_conditions", Done)
    found = estimate(quad_values(*blocks), 1, ALPHA)
    return ConditionTiming(
        condition=name, reference_ns=order.median(blocks[0]), candidate_ns=order.median(blocks[1]), speedup=found.speedup,
        interval=(found.low, found.high), pairs=2 * quads, note=_as_they_are(sides, ready),
        method=f"{found.method}; {samples} samples a block, {ready[0].calls} calls a sample")


def _as_they_are(sides: Sequence[Exchange], ready: Sequence[ConditionReady]) -> str:
    own = " and ".join(who.worker.role for who, one in zip(sides, ready, strict=True) if one.has_own_graph)
    return f"{own}: as it is, with CUDA graphs of its own" if own else ""


def plan(pair_s: float, budget_s: float) -> tuple[int, int]:
    """(samples a block, quads) when one sample of both sides takes pair_s."""
    quad_s = max(2 * pair_s, 1e-6)
    if RANK_MIN_QUADS * quad_s > budget_s:
        return 1, max(MIN_QUADS, int(budget_s / quad_s))
    return max(1, min(MAX_SAMPLES, int(budget_s / (RANK_MIN_QUADS * quad_s)))), RANK_MIN_QUADS


def _block(who: Exchange, samples: int, calls: int, first: int) -> float:
    reply = who.ask("time_condition", Times, samples=samples, first=first)
    if len(reply.host_ns) != samples or len(reply.events_ns) not in (0, samples):
        raise WorkerFailed("forged", "gave another number of timings than it was asked for", role=who.worker.role)
    return order.median(reply.events_ns or reply.host_ns) / calls


def slower_cold(decision: str, rows: Sequence[ConditionTiming]) -> list[str]:
    """What to say of a candidate that is faster warm and slower cold; [] of others."""
    cold = next((row for row in rows if row.condition == "cold L2" and row.interval is not None), None)
    if decision != "FASTER" or cold is None or cold.interval is None or cold.speedup is None or cold.interval[1] >= 1:
        return []
    return [f"faster with warm caches only: with cold ones it is slower, {cold.speedup:.3g}x "
            f"[{cold.interval[0]:.3g}, {cold.interval[1]:.3g}]"]
