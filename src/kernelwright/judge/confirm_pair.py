"""FASTER and SLOWER are said only when two pairs of processes, started in opposite orders, point the same way. Pure numbers.

A pair keeps the luck of its processes (pages, clocks, neighbours) for life, and no number of quads averages that out: a second pair
draws it anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..model.verdict import Comparison
from .statistics import PROCESS_DIFFERENCE, Decision

LEANING = PROCESS_DIFFERENCE / 2
"""A pair that does not decide leans to one side when its interval excludes 1 and its speed-up is further from 1 than this."""
MARGIN = {"cuda": PROCESS_DIFFERENCE, "cpu": 2 * PROCESS_DIFFERENCE}
"""The mean of both speed-ups must lie further from 1 than this. 24 pairs of the same program on one CPU core gave 0.984 to 1.006, 10 on an
H200 1.000 to 1.009. Simulated (1500 A/A decisions, luck of 1% standard deviation between pairs, 1% between quads): 5.1% wrong at a margin
of 1%, 0.7% at 2%."""
Interval = tuple[float, float]


@dataclass(frozen=True)
class Combined:
    """What both pairs say together."""

    decision: Decision
    comparison: Comparison
    words: str


def asks_again(decision: Decision, speedup: float, interval: Interval) -> bool:
    """Whether a second pair is needed: after FASTER and SLOWER, and where a pair's own luck may have hidden one of them."""
    return decision in ("FASTER", "SLOWER") or (_side(interval) != 0 and abs(math.log(speedup)) > LEANING)


def together(first: tuple[Decision, float, Interval], second: tuple[Decision, float, Interval], device: str) -> Decision:
    """(decision, speed-up, interval) of each pair -> their common decision.

    FASTER or SLOWER: one pair at least decides so, the other's interval lies on the same side of 1, and so does the geometric mean of
    the speed-ups, beyond 1 +- MARGIN. Else what both say, AMBIGUOUS where they differ.
    """
    margin = MARGIN[device]
    side = _side(first[2])
    mean = (math.log(first[1]) + math.log(second[1])) / 2
    named: Decision = "FASTER" if side > 0 else "SLOWER"
    beyond = mean > math.log1p(margin) if side > 0 else mean < math.log1p(-margin)
    if side != 0 and side == _side(second[2]) and named in (first[0], second[0]) and beyond:
        return named
    return first[0] if first[0] == second[0] and first[0] not in ("FASTER", "SLOWER") else "AMBIGUOUS"


def combine(decision: Decision, first: Comparison, again: Decision, second: Comparison, device: str) -> Combined:
    """The common decision and figures: the interval is the hull of both (it holds the true speed-up whenever either does), the speed-up
    their geometric mean. The medians shown are the first pair's."""
    low, high = min(first.interval[0], second.interval[0]), max(first.interval[1], second.interval[1])
    said = together((decision, first.speedup, first.interval), (again, second.speedup, second.interval), device)
    figures = f"{_figures(decision, first)} and {_figures(again, second)}"
    both = first.model_copy(update={
        "speedup": math.sqrt(first.speedup * second.speedup), "interval": (low, high), "pairs": first.pairs + second.pairs,
        "blocks": first.blocks + second.blocks, "log_ratios": first.log_ratios + second.log_ratios,
        "smallest_detectable_effect_pct": max(first.smallest_detectable_effect_pct, second.smallest_detectable_effect_pct),
        "method": f"{first.method}; two pairs of processes in opposite orders: the interval is the hull of both"})
    found = "not confirmed by" if said == "AMBIGUOUS" and decision in ("FASTER", "SLOWER") else "found by"
    small = ""
    if said == "AMBIGUOUS" and decision == again:
        small = f"; together that is no more than the {100 * MARGIN[device]:g}% that two processes of one program may differ by here"
    return Combined(said, both, f"{found} two pairs of processes, started in opposite orders: {figures}{small}")


def _side(interval: Interval) -> int:
    """1: the whole interval lies above 1. -1: below. 0: neither."""
    return (interval[0] > 1) - (interval[1] < 1)


def _figures(decision: Decision, one: Comparison) -> str:
    return f"{decision} {one.speedup:.3f}x [{one.interval[0]:.3f}, {one.interval[1]:.3f}]"
