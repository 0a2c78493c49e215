"""Peak memory against a slow, obvious account of the same events."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.model.errors import BadInput
from kernelwright.model.trace import Trace
from kernelwright.readers.kineto import read_kineto
from kernelwright.timeline.memory import thinned, usages
from property_examples import examples
from trace_builder import TraceBuilder

STEPS = ((0, 100), (150, 250))
ACTIONS = st.lists(st.tuples(st.integers(-40, 300), st.integers(0, 5), st.integers(1, 1000)), min_size=1, max_size=25)
"""(time, address, size): frees what lives at the address, else allocates there."""


def trace_of(actions: list[tuple[int, int, int]], before: dict[int, int]) -> tuple[Trace, list[tuple[int, int, int]]]:
    """The recording, and its events as (time, address, change)."""
    living, total = dict(before), sum(before.values())
    builder = TraceBuilder()
    for start, end in STEPS:
        builder.step(start, end)
    events = []
    for time, address, size in sorted(actions, key=lambda action: action[0]):
        change = -living.pop(address) if address in living else size
        if change > 0:
            living[address] = size
        total += change
        events.append((time, address, change))
        builder.memory(time, change, total, address)
    with TemporaryDirectory() as folder:
        return read_kineto(builder.write(Path(folder) / "t.json")), events


@given(ACTIONS, st.dictionaries(st.integers(0, 5), st.integers(1, 1000), max_size=4))
@examples(60)
def test_peak_and_what_was_alive(actions: list[tuple[int, int, int]], before: dict[int, int]) -> None:
    trace, events = trace_of(actions, before)
    found = usages(trace)
    inside = [event for event in events if STEPS[0][0] <= event[0] <= STEPS[-1][1]]
    if not inside:
        assert found == []
        return
    (usage,) = found
    # Replay: who lives after each event, with "old" for what was there before the first step.
    living: dict[int, tuple[int, bool]] = {address: (size, True) for address, size in before.items()}
    best, best_living = -1, dict(living)

    def look() -> None:
        nonlocal best, best_living
        if sum(size for size, _ in living.values()) > best:
            best, best_living = sum(size for size, _ in living.values()), dict(living)

    moments = sorted([(start, -1, 0, 0) for start, _ in STEPS] + [(event[0], place, *event[1:]) for place, event in enumerate(events)])
    started = False
    for time, place, address, change in moments:
        if time >= 0 and not started:
            started = True
            living = {key: (size, True) for key, (size, _) in living.items()}
        if place >= 0 and change > 0:
            living[address] = (change, False)
        elif place >= 0:
            del living[address]
        if started and any(start <= time <= end for start, end in STEPS):
            look()
    assert usage.peak_bytes == best
    assert usage.before_bytes == sum(size for size, old in best_living.values() if old)
    alive = {(int(trace.memory.address[row]), int(trace.memory.change_bytes[row])) for row in usage.alive}
    assert alive == {(address, size) for address, (size, old) in best_living.items() if not old}
    assert usage.before_bytes + sum(size for _, size in alive) == usage.peak_bytes
    assert (usage.peak_ns, usage.peak_bytes) in usage.points


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=300), st.integers(5, 40), st.integers(0, 299))
@examples(60)
def test_a_thinned_curve_keeps_its_ends_and_extremes(levels: list[int], most: int, keep: int) -> None:
    times, array, keep = np.arange(len(levels)), np.array(levels), keep % len(levels)
    points = thinned(times, array, most, keep=keep)
    assert len(points) <= max(most, 1) and points == tuple(sorted(points))
    assert set(points) <= {(place, level) for place, level in enumerate(levels)}
    assert {(0, levels[0]), (len(levels) - 1, levels[-1]), (keep, levels[keep])} <= set(points)
    kept = [level for _, level in points]
    assert max(kept) == max(levels) and min(kept) == min(levels)


def test_a_peak_between_two_steps_is_none_of_a_step(tmp_path: Path) -> None:
    builder = (TraceBuilder().step(0, 100).step(200, 300).memory(10, 5, 5, 1).memory(150, 1000, 1005, 2).memory(160, -1000, 5, 2)
               .memory(210, 7, 12, 3))
    (usage,) = usages(read_kineto(builder.write(tmp_path / "t.json")))
    assert (usage.peak_bytes, usage.peak_step, usage.peak_ns) == (12, 1, 210)
    assert max(level for _, level in usage.points) == 1005, "the curve shows it all the same"


def test_a_block_left_from_between_the_steps_counts_in_the_next(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 100).step(200, 300).memory(10, 5, 5, 1).memory(150, 1000, 1005, 2).memory(210, -1000, 5, 2)
    (usage,) = usages(read_kineto(builder.write(tmp_path / "t.json")))
    assert (usage.peak_bytes, usage.peak_step, usage.peak_ns) == (1005, 1, 200)


def test_a_free_that_was_not_recorded_does_not_break_the_sum(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 100).memory(10, 5, 105, 1).memory(20, 7, 112, 1).memory(30, 8, 120, 2)
    (usage,) = usages(read_kineto(builder.write(tmp_path / "t.json")))
    assert usage.peak_bytes == 120 and usage.before_bytes == 105 and usage.alive.size == 2


@pytest.mark.parametrize(("change", "total", "address"), [(2**60, 0, 1), (1, 2**70, 1), (1, 1, 2**70)])
def test_impossible_sizes_are_refused(tmp_path: Path, change: int, total: int, address: int) -> None:
    with pytest.raises(BadInput):
        read_kineto(TraceBuilder().step(0, 100).memory(10, change, total, address).write(tmp_path / "t.json"))
