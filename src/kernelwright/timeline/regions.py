"""Time by region: a tree of stages, NVTX ranges and annotations, and one of modules. Definitions: docs/timeline-structure.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..model.base import Figure
from ..model.profile import Operator
from ..model.structure import MOST_REGIONS, Region, RegionTree
from ..model.table import Int64
from ..model.trace import Trace
from .intervals import covered, distinct, innermost, nesting_order, parents
from .iterations import mfu
from .nesting import by_thread
from .owners import Owners
from .steps import step_of
from .work import Work, summed

ROOT_NAME = "(all steps)"
OTHER_NAME = "(other)"
MOST_DEPTH = 64
"""Ranges nested deeper belong to their ancestor at this depth."""


def region_tree(trace: Trace, work: Work, owners: Owners, operators: Sequence[Operator] = (), peak: Figure | None = None) -> RegionTree:
    """Stages, NVTX ranges and annotations. operators: with FLOPs. peak: in TFLOP/s."""
    places = RangePlaces(trace)
    tree = places.tree
    size = len(tree.name)
    tree.count[:] = np.bincount(places.node, minlength=size).tolist()
    launches = places.of_work(work)
    tree.device[:] = summed(work.duration, launches, size).tolist()
    tree.launches[:] = np.bincount(launches, minlength=size).tolist()
    places.add_host_times(work if trace.is_cuda else None)
    rows = owners.rows_of(operators) if any(operator.flops is not None for operator in operators) else np.zeros(0, dtype=np.int64)
    for operator, row in zip(operators, rows.tolist(), strict=False):
        if operator.flops is not None:
            tree.add_flops(int(places.of_operator(row)) if row >= 0 else 0, operator.flops)
    return tree.finished("ranges", peak, on_device=trace.is_cuda, has_host=True)


def module_tree(operators: Sequence[Operator], peak: Figure | None = None, *, on_device: bool) -> RegionTree | None:
    """nn.Module paths, from the operators that attribution found; None when no module is known."""
    if not any(operator.module for operator in operators):
        return None
    tree = _Tree([ROOT_NAME], [-1])
    nodes: dict[tuple[str, ...], int] = {(): 0}
    for operator in operators:
        parts = tuple(operator.module.split(".")[:MOST_DEPTH]) if operator.module else ()
        for depth in range(1, len(parts) + 1):
            if parts[:depth] not in nodes:
                nodes[parts[:depth]] = tree.add(parts[depth - 1], nodes[parts[:depth - 1]])
        node = nodes[parts]
        tree.count[node] += 1
        tree.device[node] += operator.aggregated.total_duration_ns
        tree.launches[node] += operator.aggregated.kernel_count
        if operator.flops is not None:
            tree.add_flops(node, operator.flops)
    return tree.finished("modules", peak, on_device=on_device, has_host=False)


class _Tree:
    """Nodes, growing; parents come before their children. Columns hold each node's own share."""

    def __init__(self, names: list[str], parent: list[int]) -> None:
        self.name, self.parent = names, parent
        self.count, self.device, self.launches, self.host, self.idle = ([0] * len(names) for _ in range(5))
        self.flops: dict[int, float] = {}

    def add(self, name: str, parent: int) -> int:
        """A new node's number."""
        self.name.append(name)
        self.parent.append(parent)
        for column in (self.count, self.device, self.launches, self.host, self.idle):
            column.append(0)
        return len(self.name) - 1

    def add_flops(self, node: int, flops: float) -> None:
        """More FLOPs of a node's own."""
        self.flops[node] = self.flops.get(node, 0.0) + flops

    def finished(self, kind: Literal["ranges", "modules"], peak: Figure | None, *, on_device: bool, has_host: bool) -> RegionTree:
        """With totals, in depth-first order, the small ones merged."""
        size = len(self.name)
        own = np.array([self.device, self.launches, self.host, self.idle], dtype=np.int64)
        flops = np.array([self.flops.get(node, 0.0) for node in range(size)])
        counted = np.array([node in self.flops for node in range(size)], dtype=np.int64)
        total, all_flops, all_counted = own.copy(), flops.copy(), counted.copy()
        for node in range(size - 1, 0, -1):
            parent = self.parent[node]
            total[:, parent] += total[:, node]
            all_flops[parent] += all_flops[node]
            all_counted[parent] += all_counted[node]
        listed, merged = _kept(self.parent, total)
        timed = on_device or not has_host
        rows: list[Region] = []
        place: dict[int, int] = {}
        for node, others in listed:
            parent = self.parent[node] if not others else node
            mine = total[:, others].sum(axis=1) if others else own[:, node]
            whole = mine if others else total[:, node]
            known = all_flops[others].sum() if others else all_flops[node]
            has_flops = bool(all_counted[others].sum() if others else all_counted[node])
            above = place[parent] if parent >= 0 else -1
            if not others:
                place[node] = len(rows)
            work = float(known) if has_flops else None
            rows.append(Region(
                name=OTHER_NAME if others else self.name[node], parent=above, depth=rows[above].depth + 1 if above >= 0 else 0,
                count=sum(self.count[one] for one in others) if others else self.count[node],
                device_total_ns=int(whole[0]) if timed else None, device_self_ns=int(mine[0]) if timed else None,
                launches_total=int(whole[1]), launches_self=int(mine[1]),
                host_total_ns=int(whole[2]) if has_host else None, host_self_ns=int(mine[2]) if has_host else None,
                idle_total_ns=int(whole[3]) if has_host and on_device else None,
                idle_self_ns=int(mine[3]) if has_host and on_device else None,
                flops=work, mfu_pct=mfu(work, peak, int(whole[0 if timed else 2]))))
        return RegionTree(kind=kind, nodes=tuple(rows), merged_nodes=merged)


def _kept(parent: list[int], total: Int64) -> tuple[list[tuple[int, list[int]]], int]:
    """(nodes in depth-first order, the children that are too small as a list behind their siblings; how many nodes those stand for).

    The largest by device and host time are kept; a parent is never smaller than its child, and comes first among equals.
    """
    size = len(parent)
    order = np.lexsort((np.arange(size), -(total[0] + total[2]), -total[0]))
    kept = np.zeros(size, dtype=bool)
    # Device time first; a parent's figures are never below its child's, so the chosen ones hold their parents.
    kept[order[:MOST_REGIONS // 2]] = True
    kept[0] = True
    children: dict[int, list[int]] = {}
    small: dict[int, list[int]] = {}
    for node in range(1, size):
        if kept[parent[node]]:
            (children if kept[node] else small).setdefault(parent[node], []).append(node)
    listed: list[tuple[int, list[int]]] = []
    stack: list[tuple[int, list[int]]] = [(0, [])]
    while stack:
        node, others = stack.pop()
        listed.append((node, others))
        if not others:
            if small.get(node):
                stack.append((node, small[node]))
            stack.extend((child, []) for child in sorted(children.get(node, ()), key=lambda one: (total[0, one], total[2, one], -one)))
    return listed, size - int(kept.sum())


@dataclass(frozen=True)
class _Thread:
    """Ranges (and steps) of one thread in nesting order."""

    starts: Int64
    ends: Int64
    parent: Int64
    node: Int64
    """Node of each; shape (k,)."""


class RangePlaces:
    """The steps' ranges as a tree, and which node any moment of a thread belongs to.

    Ranges count that start in a step; an end beyond the step is cut there. A range or launch on another thread than the step's lies in the
    innermost range of its own thread, else in that of the step's thread at that moment (autograd's thread works while backward() waits).
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        step = step_of(trace, trace.ranges.start_ns)
        self.rows: Int64 = np.flatnonzero(step >= 0)
        """Rows of trace.ranges that count."""
        self.ends = np.minimum(trace.ranges.end_ns[self.rows], trace.steps.end_ns[step[self.rows]])
        self.tree = _Tree([ROOT_NAME], [-1])
        self._threads: dict[tuple[int, int], _Thread] = {}
        self.node: Int64 = np.zeros(self.rows.size, dtype=np.int64)
        """Node of each of the rows; steps first of all belong to node 0."""
        self._nodes: dict[tuple[int, int], int] = {}
        home = set(zip(trace.steps.process.tolist(), trace.steps.thread.tolist(), strict=True))
        every = dict(by_thread(trace.ranges.process[self.rows], trace.ranges.thread[self.rows]))
        steps = dict(by_thread(trace.steps.process, trace.steps.thread))
        none = np.zeros(0, dtype=np.int64)
        # The steps' threads first: the others hang below them.
        for thread in sorted(home) + [one for one in every if one not in home]:
            self._add(thread, every.get(thread, none), steps.get(thread, none))
        self.node = np.concatenate((self.node, np.zeros(len(trace.steps), dtype=np.int64)))

    def _add(self, thread: tuple[int, int], mine: Int64, own_steps: Int64) -> None:
        """The ranges (indices into rows) and steps of one thread."""
        ranges, steps = self.trace.ranges, self.trace.steps
        starts, ends = ranges.start_ns[self.rows[mine]], self.ends[mine]
        starts = np.concatenate((steps.start_ns[own_steps], starts))
        ends = np.concatenate((steps.end_ns[own_steps], ends))
        order = nesting_order(starts, ends)
        starts, ends = starts[order], ends[order]
        parent = parents(starts, ends)
        # Nodes level by level: a node is its parent's node and a name.
        node = np.zeros(starts.size, dtype=np.int64)
        names = np.concatenate((np.full(own_steps.size, -1), ranges.name_id[self.rows[mine]]))[order]
        loose = np.flatnonzero((parent < 0) & (names >= 0))
        above = np.zeros(starts.size, dtype=np.int64)
        above[loose] = self._home_node(starts[loose]) if self._threads else 0
        for rows in _levels(parent):
            inner = parent[rows] >= 0
            above[rows[inner]] = node[parent[rows[inner]]]
            named = names[rows] >= 0
            node[rows[named]] = self._numbers(above[rows[named]], names[rows[named]])
        self._threads[thread] = _Thread(starts, ends, parent, node)
        back = np.empty(starts.size, dtype=np.int64)
        back[order] = node
        self.node[mine] = back[own_steps.size:]

    def _numbers(self, above: Int64, names: Int64) -> Int64:
        """Node of each (parent's node, name), new ones added in order of appearance."""
        pairs = above * max(len(self.trace.ranges.names), 1) + names
        keys, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
        numbers = np.zeros(keys.size, dtype=np.int64)
        for index in np.argsort(first).tolist():
            parent, name = int(above[first[index]]), int(names[first[index]])
            if (parent, name) not in self._nodes:
                deep = self._depth(parent) >= MOST_DEPTH
                self._nodes[parent, name] = parent if deep else self.tree.add(self.trace.ranges.names[name], parent)
            numbers[index] = self._nodes[parent, name]
        return numbers[inverse]

    def _depth(self, node: int) -> int:
        depth = 0
        while node > 0:
            node, depth = self.tree.parent[node], depth + 1
        return depth

    def _home_node(self, points: Int64) -> Int64:
        """Node on the step's thread at each moment."""
        steps = self.trace.steps
        step = step_of(self.trace, points)
        known = step >= 0
        result = np.zeros(points.size, dtype=np.int64)
        result[known] = self._on_thread(steps.process[step[known]], steps.thread[step[known]], points[known])
        return np.maximum(result, 0)

    def _on_thread(self, process: Int64, thread: Int64, points: Int64) -> Int64:
        """Node of the innermost range on each thread at each moment, -1 for none."""
        result = np.full(points.size, -1, dtype=np.int64)
        for key, chosen in by_thread(process, thread):
            if key not in self._threads:
                continue
            one = self._threads[key]
            found = innermost(one.starts, one.ends, one.parent, points[chosen])
            result[chosen] = np.where(found >= 0, one.node[np.maximum(found, 0)] if one.node.size else -1, -1)
        return result

    def of(self, process: Int64, thread: Int64, points: Int64) -> Int64:
        """Node of each moment on a thread, the root where no range is open; shapes (m,)."""
        own = self._on_thread(process, thread, points)
        missing = np.flatnonzero(own < 0)
        own[missing] = self._home_node(points[missing])
        return own

    def of_work(self, work: Work) -> Int64:
        """Node of each piece of device work, by its launch call; the root where the call is not known."""
        node = np.zeros(len(work), dtype=np.int64)
        runtime, known = self.trace.runtime, np.flatnonzero(work.launch >= 0)
        launch = work.launch[known]
        node[known] = self.of(runtime.process[launch], runtime.thread[launch], runtime.start_ns[launch])
        return node

    def of_operator(self, row: int) -> int:
        """Node of one row of trace.operators."""
        table = self.trace.operators
        return int(self.of(table.process[row:row + 1], table.thread[row:row + 1], table.start_ns[row:row + 1])[0])

    def path(self, node: int) -> tuple[str, ...]:
        """Names from below the root to the node."""
        names: list[str] = []
        while node > 0:
            names.append(self.tree.name[node])
            node = self.tree.parent[node]
        return tuple(reversed(names))

    def add_host_times(self, work: Work | None) -> None:
        """Each node's own host time (over threads) and, with device work, the time in it in which no device worked."""
        steps = self.trace.steps
        size = len(self.tree.name)
        host, idle = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        home = set(zip(steps.process.tolist(), steps.thread.tolist(), strict=True))
        starts, ends = (np.zeros(0, dtype=np.int64),) * 2 if work is None else (self.trace.device.start_ns, self.trace.device.end_ns)
        for key, one in self._threads.items():
            cuts = distinct(np.concatenate((one.starts, one.ends)))
            if cuts.size < 2:
                continue
            owner = innermost(one.starts, one.ends, one.parent, cuts[:-1])
            inside = owner >= 0
            lows, highs = cuts[:-1][inside], cuts[1:][inside]
            node = one.node[owner[inside]]
            host += summed(highs - lows, node, size)
            if key in home:
                idle += summed(highs - lows - covered(starts, ends, lows, highs), node, size)
        self.tree.host[:] = host.tolist()
        self.tree.idle[:] = idle.tolist()


def _levels(parent: Int64) -> list[Int64]:
    """Rows by depth, the roots first; each in order."""
    depth = np.zeros(parent.size, dtype=np.int64)
    hop = parent.copy()
    length = np.where(hop >= 0, 1, 0)
    while (hop >= 0).any():
        # length[i] hops lead to hop[i]; then as many as it needs itself.
        known = hop >= 0
        target = hop[known]
        length[known], hop[known] = length[known] + length[target], hop[target]
    depth = length
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if parent.size else []
