"""Rows of the timeline page: no overlaps, and nothing lost where events are merged."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.report.timeline_lanes import MOST_ROWS, Lane, Placed, depths, place
from kernelwright.timeline.intervals import nesting_order

INTERVALS = st.lists(st.tuples(st.integers(-50, 300), st.integers(0, 60)), max_size=60)


def lane(intervals: list[tuple[int, int]], kind: str = "device") -> Lane:
    start = np.array([low for low, _ in intervals], dtype=np.int64)
    length = np.array([size for _, size in intervals], dtype=np.int64)
    return Lane("group", "label", kind, 0, start, start + length, np.arange(start.size, dtype=np.int64) % 3, np.arange(start.size))


def depths_by_hand(intervals: list[tuple[int, int]]) -> list[int]:
    """A stack: the innermost one that has not ended is the parent."""
    depth: list[int] = []
    for row, (start, _) in enumerate(intervals):
        open_rows = [other for other in range(row) if intervals[other][1] > start]
        depth.append(depth[open_rows[-1]] + 1 if open_rows else 0)
    return depth


@given(INTERVALS)
def test_depths_are_those_of_a_stack(intervals: list[tuple[int, int]]) -> None:
    start, end = (np.array([low for low, _ in intervals], np.int64), np.array([low + size for low, size in intervals], np.int64))
    order = nesting_order(start, end)
    pairs = list(zip(start[order].tolist(), end[order].tolist(), strict=True))
    assert depths(start[order], end[order]).tolist() == depths_by_hand(pairs)


def entries(placed: Placed) -> list[list[tuple[int, int, int, int]]]:
    """Row by row: (start, end, count, busy)."""
    cuts = np.cumsum(placed.rows)[:-1]
    columns = zip(*(np.split(column, cuts) for column in (placed.start_ns, placed.end_ns, placed.count, placed.busy_ns)), strict=True)
    return [list(zip(*(column.tolist() for column in row), strict=True)) for row in columns]


def check(placed: Placed, intervals: list[tuple[int, int]]) -> None:
    assert placed.count.sum() + placed.deeper == len(intervals)
    if not placed.deeper:
        assert placed.busy_ns.sum() == sum(size for _, size in intervals)
    for row in entries(placed):
        for before, after in pairwise(row):
            assert before[1] <= after[0], "entries of a row overlap"
        assert all(busy <= end - start for start, end, _, busy in row)


@given(INTERVALS)
def test_rows_hold_every_event_once_and_do_not_overlap(intervals: list[tuple[int, int]]) -> None:
    (placed,), merged = place([lane(intervals)])
    assert merged == -1
    check(placed, intervals)
    shown = sorted(placed.event.tolist())
    assert len(shown) == len(set(shown)) == len(intervals) - placed.deeper, "each once, but for what is nested too deep"
    assert set(shown) <= set(range(len(intervals)))


@given(st.lists(INTERVALS, min_size=1, max_size=4), st.integers(12, 60))
def test_merging_keeps_numbers_and_times(lanes: list[list[tuple[int, int]]], most: int) -> None:
    kinds = ("device", "operators", "device", "runtime")
    placed, merged = place([lane(one, kind) for one, kind in zip(lanes, kinds, strict=False)], most)
    for one, intervals in zip(placed, lanes, strict=True):
        check(one, intervals)
        single = one.count == 1
        assert (one.busy_ns[single] == (one.end_ns - one.start_ns)[single]).all()
        assert merged >= 0 or single.all()


def test_a_million_events_become_few_and_the_long_ones_stay() -> None:
    random = np.random.default_rng(1)
    start = np.arange(1_000_000, dtype=np.int64) * 1000
    length = random.integers(1, 900, start.size)
    length[::10_000] = 990
    wide = Lane("g", "l", "device", 0, start, start + length, np.zeros(start.size, np.int64), np.arange(start.size))
    (placed,), merged = place([wide], 60_000)
    assert placed.count.size <= 60_000 and placed.count.sum() == 1_000_000 and placed.busy_ns.sum() == length.sum()
    alone = placed.event[placed.count == 1]
    assert set(range(0, 1_000_000, 10_000)) <= set(alone.tolist()) and 0 < merged < 990
    assert set(placed.kind_id.tolist()) == {0}, "a block of one kind keeps it"


def test_what_is_nested_too_deep_is_counted() -> None:
    intervals = [(one, 200 - 2 * one) for one in range(60)]
    (placed,), _ = place([lane(intervals)])
    assert len(placed.rows) == MOST_ROWS and placed.deeper == 60 - MOST_ROWS


def test_empty_lanes_are_fine() -> None:
    (placed,), merged = place([lane([])])
    assert placed.rows == () and merged == -1
    assert place([]) == ([], -1)
