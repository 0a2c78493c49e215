"""The vectorised interval mathematics against slow, obvious implementations."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.timeline import intervals
from property_examples import examples

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=14)


def arrays(pairs: list[tuple[int, int]], base: int = 2**60) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of (start, length) far beyond what float64 resolves, in nesting order."""
    starts = np.array([base + start for start, _ in pairs], dtype=np.int64)
    ends = np.array([base + start + length for start, length in pairs], dtype=np.int64)
    order = intervals.nesting_order(starts, ends)
    return starts[order], ends[order]


def open_at(starts: np.ndarray, ends: np.ndarray, point: int, before: int | None = None) -> int:
    """Most recently opened interval that holds the point, by looking at all."""
    rows = [row for row in range(len(starts) if before is None else before) if starts[row] <= point < ends[row]]
    return rows[-1] if rows else -1


@given(INTERVALS)
@examples(100)
def test_parents_are_the_innermost_open_interval(pairs: list[tuple[int, int]]) -> None:
    starts, ends = arrays(pairs)
    assert intervals.parents(starts, ends).tolist() == [open_at(starts, ends, starts[row], before=row) for row in range(len(starts))]


@given(INTERVALS, st.lists(st.integers(-2, 60), max_size=20))
@examples(100)
def test_innermost_at_points(pairs: list[tuple[int, int]], offsets: list[int]) -> None:
    starts, ends = arrays(pairs)
    points = np.array([2**60 + offset for offset in offsets], dtype=np.int64)
    found = intervals.innermost(starts, ends, intervals.parents(starts, ends), points)
    assert found.tolist() == [open_at(starts, ends, point) for point in points]


@given(INTERVALS)
@examples(100)
def test_self_times_count_each_nanosecond_once(pairs: list[tuple[int, int]]) -> None:
    starts, ends = arrays(pairs)
    own = intervals.self_times(starts, ends, intervals.parents(starts, ends))
    slow = [0] * len(starts)
    for point in range(2**60, 2**60 + 60):
        row = open_at(starts, ends, point)
        if row >= 0:
            slow[row] += 1
    assert own.tolist() == slow
    assert int(own.sum()) == intervals.union_length(starts, ends)


@given(INTERVALS, st.integers(0, 20), st.integers(20, 60))
@examples(100)
def test_union_and_gaps_share_out_a_window(pairs: list[tuple[int, int]], low: int, high: int) -> None:
    starts, ends = arrays(pairs)
    covered = {point for start, end in zip(starts, ends, strict=True) for point in range(start, end)}
    assert intervals.union_length(starts, ends) == len(covered)
    low, high = 2**60 + low, 2**60 + high
    gap_starts, gap_ends = intervals.gaps(starts, ends, low, high)
    free = {point for start, end in zip(gap_starts, gap_ends, strict=True) for point in range(start, end)}
    assert free == set(range(low, high)) - covered
    assert all(end < start for end, start in zip(gap_ends[:-1], gap_starts[1:], strict=True)), "gaps are disjoint, in order, maximal"


def test_nesting_order_puts_the_longer_first_and_keeps_equal_ones() -> None:
    starts = np.array([5, 0, 0, 0], dtype=np.int64)
    ends = np.array([6, 3, 9, 3], dtype=np.int64)
    assert intervals.nesting_order(starts, ends).tolist() == [2, 1, 3, 0]


def test_siblings_by_the_hundred_thousand_take_few_rounds() -> None:
    n = 200_000
    starts = np.concatenate(([0], np.arange(1, n + 1) * 10)).astype(np.int64)
    ends = np.concatenate(([n * 20], starts[1:] + 5)).astype(np.int64)
    parent = intervals.parents(starts, ends)
    assert parent[0] == -1 and not parent[1:].any()
    assert int(intervals.self_times(starts, ends, parent)[0]) == n * 20 - 5 * n


@given(INTERVALS, INTERVALS)
@examples(100)
def test_covered_counts_the_points_that_any_interval_holds(pairs: list[tuple[int, int]], windows: list[tuple[int, int]]) -> None:
    starts, ends = arrays(pairs)
    lows, highs = arrays(windows)
    points = {point for start, end in zip(starts.tolist(), ends.tolist(), strict=True) for point in range(start, end)}
    expected = [len(points & set(range(low, high))) for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]
    assert intervals.covered(starts, ends, lows, highs).tolist() == expected


def test_nothing_covers_nothing() -> None:
    none, one = np.zeros(0, dtype=np.int64), np.array([3], dtype=np.int64)
    assert intervals.covered(none, none, one, one + 5).tolist() == [0]
    assert intervals.covered(one, one + 5, none, none).tolist() == []
    assert intervals.covered(one, one + 5, one + 4, one).tolist() == [0], "a window that ends before it begins holds nothing"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 15)), max_size=16))
@examples(80)
def test_union_of_each_group_is_that_of_its_intervals_alone(rows: list[tuple[int, int, int]]) -> None:
    groups = np.array([group for group, _, _ in rows], dtype=np.int64)
    starts = np.array([2**60 + start for _, start, _ in rows], dtype=np.int64)
    ends = starts + np.array([length for _, _, length in rows], dtype=np.int64)
    found = list(zip(*(column.tolist() for column in intervals.union_by(groups, starts, ends)), strict=True))
    alone = [(group, *pair) for group in range(4)
             for pair in zip(*(side.tolist() for side in intervals.union(starts[groups == group], ends[groups == group])), strict=True)]
    assert found == alone


@given(INTERVALS, st.lists(st.integers(-2, 60), max_size=20))
@examples(80)
def test_few_look_ups_find_the_same_intervals(pairs: list[tuple[int, int]], offsets: list[int]) -> None:
    starts, ends = arrays(pairs)
    openers = intervals.Openers(starts, ends)
    assert [openers.at(2**60 + offset) for offset in offsets] == [open_at(starts, ends, 2**60 + offset) for offset in offsets]


@given(st.lists(st.integers(-5, 5)))
@examples(50)
def test_distinct_values_in_order(values: list[int]) -> None:
    assert intervals.distinct(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=30), st.booleans())
@examples(100)
def test_parents_of_a_tree_are_its_own(moves: list[tuple[int, int]], strangers: bool) -> None:
    """A tree of calls (some of no length, some that begin or end together), and with an interval that crosses some of them."""
    stack: list[int] = []
    spans: list[list[int]] = []
    clock = 0
    for closing, pause in moves:
        for _ in range(min(closing, len(stack))):
            spans[stack.pop()][1] = clock
        stack.append(len(spans))
        spans.append([clock, -1])
        clock += pause
    for row in stack:
        spans[row][1] = clock
    if strangers and len(spans) > 2:
        spans[1][1] += 3
    starts, ends = arrays([(start, end - start) for start, end in spans])
    assert intervals.parents(starts, ends).tolist() == [open_at(starts, ends, starts[row], before=row) for row in range(len(starts))]
    assert intervals.parents(starts, ends).tolist() == intervals._hopped_parents(starts, ends).tolist()


def test_nesting_deeper_than_any_program() -> None:
    count = intervals.DEEPEST_NESTING + 50
    starts = np.arange(count, dtype=np.int64)
    assert intervals.parents(starts, 10 * count - starts).tolist() == list(range(-1, count - 1))
