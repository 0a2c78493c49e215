"""Recordings of both profilers through the structure analyses: a listing each, and figures that plain SQL and the marked steps give."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from golden_files import assert_golden
from kernelwright.attribute import attribute
from kernelwright.model.base import Figure
from kernelwright.model.capture import OpRecord
from kernelwright.model.structure import HostLink, RegionTree, Structure
from kernelwright.model.trace import STEP_NAME, Trace
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.lines import read_lines
from kernelwright.readers.nsys import read_nsys
from kernelwright.timeline.iterations import with_found_steps
from kernelwright.timeline.structure import structure
from kernelwright.timeline.work import Work
from nsys_recordings import NAMES as NSYS_NAMES
from nsys_recordings import recording

DATA = Path(__file__).parents[1] / "data"
KINETO = {f"{path.parent.parent.name}_{path.parent.name}": path.parent for path in
          sorted([*(DATA / "traces").glob("*/trace.json.gz"), *(DATA / "captures" / "h200").glob("*/trace.json.gz")])}
ALL = [*KINETO, *(f"nsys_{name}" for name in NSYS_NAMES)]
PEAK = Figure(value=67.0, unit="TFLOP/s", evidence="datasheet")
LINKS = {"NVIDIA H200": HostLink(name="PCIe Gen5", bandwidth=Figure(value=64.0, unit="GB/s", evidence="datasheet"))}


@cache
def analysed(name: str) -> tuple[Trace, Structure]:
    if name in KINETO:
        folder = KINETO[name]
        trace, ops, stacks = read_kineto(folder / "trace.json.gz"), folder / "ops.json", folder / "trace_stacks.json.gz"
        found = attribute(trace, ops=[OpRecord.model_validate(row) for row in json.loads(ops.read_text())] if ops.exists() else [],
                          stacks=read_kineto(stacks) if stacks.exists() else None)
    else:
        folder = recording(name.removeprefix("nsys_"))
        trace, stacks_step = read_nsys(folder / "report.sqlite")
        lines = folder / "lines.json.gz"
        found = attribute(trace, stacks=stacks_step, lines=read_lines(lines) if lines.exists() else ())
    return trace, structure(trace, operators=found.operators, peak=PEAK, links=LINKS)


def listing(found: Structure) -> str:
    """What must not change unnoticed, in lines that a person can read."""
    lines = ["iterations:", *(f"  {row.index}: wall {row.wall_ns}, device {row.device_ns}, busy {row.device_busy_ns}, "
                              f"{row.launches} launches"
                              + (f", {row.flops:.0f} FLOP, MFU {row.mfu_pct:.2f}%" if row.mfu_pct is not None else "")
                              for row in found.iterations)]
    if found.comparison is not None:
        sums = found.comparison.model_dump(exclude={"differences"})
        lines += ["comparison: " + ", ".join(f"{key} {value}" for key, value in sums.items())]
        lines += [f"  {row.change} {row.count}x {row.difference_ns} {row.kernel[:60]}" for row in found.comparison.differences[:3]]
    for title, rows in (("sequences", found.sequences[:5]), ("fusion candidates", found.fusion_candidates[:5])):
        lines += [f"{title}:", *(f"  {row.count}x {len(row.kernels)} kernels, {row.duration_ns} + {row.gap_ns}, {row.where}: "
                                 + " | ".join(name[:40] for name in row.kernels[:4]) for row in rows)]
    lines += ["graph candidates:"]
    lines += [f"  {row.launches} launches on {row.streams}, device {row.duration_ns}, idle {row.idle_ns}, gain {row.gain_ns} = "
              f"{row.gain_pct:.2f}%, {row.first_where} .. {row.last_where}" for row in found.graph_candidates[:4]]
    lines += ["transfers:", *(f"  {row.direction} {row.source} -> {row.target}, {row.count}x, {row.bytes} B, {row.duration_ns} ns, hidden "
                              f"{row.hidden_ns}, {row.bandwidth_gbs:.2f} GB/s, link {row.link_pct}"
                              for row in (found.transfers.rows if found.transfers else ()))]
    lines += ["memory peaks:", *(f"  {row.device} step {row.step}: {row.peak_bytes} at {row.at_ns} in {row.region}"
                                 for row in found.memory_peaks)]
    lines += [f"    {share.bytes} B, {share.count}x {share.region}" for row in found.memory_peaks for share in row.owners[:5]]
    for tree in found.region_trees:
        lines += [f"{tree.kind}:"]
        lines += [f"  {'  ' * node.depth}{node.name[:60]} {node.count}x, device {node.device_total_ns}/{node.device_self_ns}, launches "
                  f"{node.launches_total}/{node.launches_self}, host {node.host_total_ns}/{node.host_self_ns}, idle {node.idle_total_ns}/"
                  f"{node.idle_self_ns}" + (f", MFU {node.mfu_pct:.2f}%" if node.mfu_pct is not None else "") for node in tree.nodes[:25]]
    if found.critical_path is not None:
        path = found.critical_path
        lines += [f"critical path {path.end_ns - path.start_ns} in {path.segments} parts, {path.inferred_edges} edges inferred:"]
        lines += [f"  {category} {ns}" for category, ns in path.by_category.items()]
        lines += [f"    {row.ns} {row.count}x {row.category}: {row.name[:60]} {row.where}" for row in path.largest[:6]]
    return "\n".join([*lines, "abstained:", *(f"  {one.name}: {one.reason}" for one in found.abstained), ""])


@pytest.mark.parametrize("name", ALL)
def test_listing(name: str) -> None:
    assert_golden(f"structure_{name}.txt", listing(analysed(name)[1]))


@pytest.mark.parametrize("name", ALL)
def test_sums_agree_with_each_other(name: str) -> None:
    trace, found = analysed(name)
    for tree in found.region_trees:
        check_tree(tree)
    if not trace.is_cuda:
        return
    work = Work(trace)
    device = int(work.duration.sum())
    assert found.region_trees[0].nodes[0].device_total_ns == device == sum(row.device_ns or 0 for row in found.iterations)
    path = found.critical_path
    assert path is not None and sum(path.by_category.values()) == path.end_ns - path.start_ns
    idle = found.region_trees[0].nodes[0].idle_total_ns
    assert idle is not None and idle <= sum(row.wall_ns for row in found.iterations)
    for candidate in found.graph_candidates:
        assert 0 <= candidate.gain_ns <= candidate.idle_ns
    for row in (*found.sequences, *found.fusion_candidates):
        assert row.count >= 2 and row.duration_ns <= device


def check_tree(tree: RegionTree) -> None:
    for index, node in enumerate(tree.nodes):
        inner = [other for other in tree.nodes if other.parent == index]
        for whole, own in (("device_total_ns", "device_self_ns"), ("launches_total", "launches_self"), ("host_total_ns", "host_self_ns"),
                           ("idle_total_ns", "idle_self_ns")):
            total = getattr(node, whole)
            assert total is None or total == getattr(node, own) + sum(getattr(other, whole) for other in inner)


# -- nsys recordings, against plain SQL -----------------------------------------------------------------------------------

IN_STEPS = ("FROM {table} w JOIN CUPTI_ACTIVITY_KIND_RUNTIME c ON c.correlationId = w.correlationId "
            "JOIN NVTX_EVENTS s ON coalesce(s.text, (SELECT value FROM StringIds WHERE id = s.textId)) LIKE '" + STEP_NAME + ",%' "
            "AND c.start >= s.start AND c.start < s.end")
COPIED = {1: "HtoD", 2: "DtoH", 8: "DtoD"}


@pytest.mark.parametrize("name", NSYS_NAMES)
def test_copies_are_those_of_the_database(name: str) -> None:
    with sqlite3.connect(recording(name) / "report.sqlite") as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        rows = [] if "CUPTI_ACTIVITY_KIND_MEMCPY" not in tables else database.execute(
            "SELECT w.copyKind, count(*), sum(w.bytes), sum(w.end - w.start) "
            f"{IN_STEPS.format(table='CUPTI_ACTIVITY_KIND_MEMCPY')} GROUP BY w.copyKind").fetchall()
    ours: Counter[tuple[str, str]] = Counter()
    transfers = analysed(f"nsys_{name}")[1].transfers
    assert transfers is not None
    for row in transfers.rows:
        ours[row.direction, "count"] += row.count
        ours[row.direction, "bytes"] += row.bytes or 0
        ours[row.direction, "ns"] += row.duration_ns
    theirs = {(COPIED[kind], key): value for kind, *values in rows for key, value in zip(("count", "bytes", "ns"), values, strict=True)}
    assert dict(ours) == theirs


@pytest.mark.parametrize("name", NSYS_NAMES)
def test_regions_hold_what_the_database_launches_in_them(name: str) -> None:
    """Ranges by name, wherever in the tree, on the step's thread: kernels, copies and memsets whose calls lie in them."""
    trace, found = analysed(f"nsys_{name}")
    tree = found.region_trees[0]
    threads = set(trace.steps.thread.tolist())
    names = {trace.ranges.name(row) for row in range(len(trace.ranges)) if int(trace.ranges.thread[row]) in threads}
    nodes = [node for node in tree.nodes if node.name in names]
    assert len({node.name for node in nodes}) == len(nodes), "no name twice in these recordings"
    with sqlite3.connect(recording(name) / "report.sqlite") as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        for node in nodes:
            counted = total = 0
            for table in ("KERNEL", "MEMCPY", "MEMSET"):
                table = f"CUPTI_ACTIVITY_KIND_{table}"
                if table not in tables:
                    continue
                count, ns = database.execute(
                    f"SELECT count(*), total(w.end - w.start) {IN_STEPS.format(table=table)} "
                    "JOIN NVTX_EVENTS r ON (coalesce(r.text, (SELECT value FROM StringIds WHERE id = r.textId)) = ? "
                    "OR coalesce(r.text, (SELECT value FROM StringIds WHERE id = r.textId)) LIKE ? || ', %') "
                    "AND c.start >= r.start AND c.start < r.end AND c.globalTid = r.globalTid", (node.name, node.name)).fetchone()
                counted, total = counted + count, total + int(ns)
            assert (node.launches_total, node.device_total_ns) == (counted, total), node.name


# -- iterations that are not marked ---------------------------------------------------------------------------------------


def unmarked(trace: Trace) -> Trace:
    """The recording as one step over everything."""
    tables = [table for table in (trace.runtime, trace.operators, trace.device, trace.ranges) if len(table)]
    one = {key: getattr(trace.steps, key)[:1] for key in ("name_id", "stream", "device", "process", "thread", "correlation")}
    steps = replace(trace.steps, **one, args=(), start_ns=np.array([min(int(table.start_ns.min()) for table in tables)]),
                    end_ns=np.array([max(int(table.end_ns.max()) for table in tables) + 1]))
    return replace(trace, steps=steps, steps_from="whole")


@pytest.mark.parametrize("name", [name for name in ALL if "cpu_" not in name])
def test_iterations_are_found_where_there_are_three_and_refused_where_there_are_two(name: str) -> None:
    trace, _ = analysed(name)
    marked = Work(trace)
    each = int(marked.bounds[1])
    moved, found = with_found_steps(unmarked(trace))
    if len(trace.device) < 3 * each:
        assert found.confidence == "low" and moved.steps_from == "whole" and found.note
        return
    assert (found.count, found.launches_each, found.launches_left_out) == (3, each, 0)
    assert found.confidence == ("high" if name == "nsys_slow_loader" else "medium")
    ours = Work(moved)
    names = [[work.name(place) for place in range(*work.of_step(step).indices(len(work)))] for work, step in ((marked, 0), (ours, 1))]
    assert names[0] == names[1], "the second found is the first marked: a warm-up call comes before"


# -- causes with their lines ----------------------------------------------------------------------------------------------


def test_a_slow_loader_is_the_critical_path() -> None:
    path = analysed("nsys_slow_loader")[1].critical_path
    assert path is not None and path.largest[0].category == "data loader"
    assert path.by_category["data loader"] > 0.8 * (path.end_ns - path.start_ns)


def test_a_loop_of_hidden_syncs_is_cut_into_small_graphs_and_gpt2_is_one() -> None:
    small = analysed("nsys_hidden_sync")[1].graph_candidates
    assert small and max(row.launches for row in small) <= 6
    (whole,) = analysed("nsys_gpt2")[1].graph_candidates
    assert whole.launches == 126 and whole.gain_pct is not None and whole.gain_pct > 30


def test_what_a_graph_launches_already_is_no_candidate() -> None:
    assert analysed("traces_h200_mlp_cuda_graph")[1].graph_candidates == ()
    assert analysed("nsys_mlp_activations-cudagraphs")[1].graph_candidates == ()
