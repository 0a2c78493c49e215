"""Measured time by the call stack of the user's own lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..model.profile import Profile
from .numbers import pct, us
from .text import Safe, cell

MOST_ENTRIES = 8
"""Of one stack, the innermost."""


@dataclass(frozen=True)
class StackRow:
    """One stack, already written. Time is per step."""

    duration: str
    share: str
    stack: Safe


def stack_rows(profile: Profile, most: int) -> tuple[list[StackRow], float]:
    """The `most` heaviest stacks, and the percentage of the measured time that has a stack in none of them. Empty without stacks."""
    line = profile.timeline
    if line is None or line.measured_ns <= 0 or not profile.stacks:
        return [], 0.0
    sums: Counter[int] = Counter()
    for operator in profile.operators:
        if operator.stack is not None and operator.stack < len(profile.stacks) and profile.stacks[operator.stack]:
            sums[operator.stack] += operator.aggregated.total_duration_ns
    ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:most]
    rows = [StackRow(us(duration / max(line.steps, 1)), pct(100 * duration / line.measured_ns), _words(profile.stacks[number]))
            for number, duration in ordered]
    return rows, 100 - 100 * sum(duration for _, duration in ordered) / line.measured_ns


def _words(stack: tuple[str, ...]) -> Safe:
    shown = stack[-MOST_ENTRIES:]
    outer = [f"({len(stack) - len(shown)} more)"] if len(stack) > len(shown) else []
    return cell(" > ".join((*outer, *shown)), 500)
