"""FASTER and SLOWER are said only when two pairs of processes, started in opposite orders, both say so. Pure numbers.

A pair keeps the luck of its processes (pages, clocks, neighbours) for life, and no number of quads averages that out: a second pair
draws it anew. When one pair calls a program against itself faster with probability p, both do with p squared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..model.verdict import Comparison
from .statistics import Decision


@dataclass(frozen=True)
class Combined:
    """What both pairs say together."""

    decision: Decision
    comparison: Comparison
    words: str


def combine(decision: Decision, first: Comparison, again: Decision, second: Comparison) -> Combined:
    """The decision where both agree, else AMBIGUOUS. The interval is the hull of both: it holds the true speed-up whenever either does.

    The speed-up is the geometric mean of both. The medians shown are the first pair's.
    """
    low, high = min(first.interval[0], second.interval[0]), max(first.interval[1], second.interval[1])
    speedup = math.sqrt(first.speedup * second.speedup)
    figures = f"{_figures(first)} and {_figures(second)}"
    both = first.model_copy(update={
        "speedup": speedup, "interval": (low, high), "pairs": first.pairs + second.pairs, "blocks": first.blocks + second.blocks,
        "log_ratios": first.log_ratios + second.log_ratios,
        "smallest_detectable_effect_pct": max(first.smallest_detectable_effect_pct, second.smallest_detectable_effect_pct),
        "method": f"{first.method}; two pairs of processes in opposite orders ({figures}): the interval is the hull of both"})
    if again == decision:
        return Combined(decision, both, f"found by two pairs of processes, started in opposite orders: {figures}")
    apart = f"one pair of processes says {decision}, a fresh one in the other order {again}"
    return Combined("AMBIGUOUS", both, f"not confirmed: {apart}: {figures}")


def _figures(one: Comparison) -> str:
    return f"{one.speedup:.3f}x [{one.interval[0]:.3f}, {one.interval[1]:.3f}]"
