"""csv/ of mode nsys: one table a question, for spreadsheets and programs. Times are ns, sums over all steps."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..model.flow import GAP_CAUSES, Gap
from ..model.profile import Operator, Profile
from ..model.trace import Trace
from ..timeline.steps import device_work
from .nsys_views import candidate_pct

MOST_LAUNCHES = 100_000
"""Rows of launches.csv: the first of the steps."""
Table = tuple[Sequence[str], Iterable[Sequence[Any]]]
"""(heading, rows)."""


def tables(profile: Profile, trace: Trace) -> dict[str, str]:
    """File name -> content."""
    made: dict[str, Table] = {
        "kernels": _kernels(trace), "launches": _launches(profile, trace), "streams": _streams(profile), "gaps": _gaps(profile),
        "gap_sites": _sites(profile), "copies": _copies(profile), "syncs": _syncs(profile), "api_calls": _api_calls(profile),
        "regions": _regions(profile), "iterations": _iterations(profile),
        "iteration_differences": _iteration_differences(profile), "sequences": _sequences(profile),
        "graph_candidates": _graphs(profile)}
    return {f"{name}.csv": _text(*table) for name, table in made.items()}


def _text(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([_plain(value) for value in row] for row in rows)
    return out.getvalue()


def _plain(value: Any) -> Any:
    """No cell that a spreadsheet would run as a formula; a name may hold anything."""
    text = value if not isinstance(value, str) else value.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    return f"'{text}" if isinstance(text, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _kernels(trace: Trace) -> Table:
    """Device work by name, as nsys's cuda_gpu_kern_sum has it."""
    heading = ("name", "category", "count", "total_ns", "share_pct", "mean_ns", "median_ns", "min_ns", "max_ns")
    work = device_work(trace)
    names, durations = trace.device.name_id[work.rows], trace.device.duration_ns[work.rows]
    if not durations.size:
        return heading, ()
    order = np.lexsort((durations, names))
    ids, first, counts = np.unique(names[order], return_index=True, return_counts=True)
    ordered = durations[order]
    total = np.add.reduceat(ordered, first)
    whole = int(durations.sum())
    rows = []
    for place in np.argsort(-total, kind="stable").tolist():
        low, count = int(first[place]), int(counts[place])
        some = ordered[low:low + count]
        row = int(work.rows[order[low]])
        rows.append((trace.device.names[int(ids[place])], trace.device.args[row]["category"], count, int(total[place]),
                     round(100.0 * int(total[place]) / whole, 4) if whole else "", round(float(total[place]) / count, 1),
                     float(np.median(some)), int(some[0]), int(some[-1])))
    return heading, rows


def _launches(profile: Profile, trace: Trace) -> Table:
    heading = ("step", "name", "category", "device", "stream", "start_ns", "duration_ns", "launch_call", "call_start_ns", "call_ns",
               "latency_ns", "grid", "block", "bytes", "operator", "module", "line")
    work, device, runtime = device_work(trace), trace.device, trace.runtime
    owners: dict[tuple[int, int | None, str], Operator] = {
        (kernel.start_ns, kernel.stream_id, kernel.kernel_name): operator for operator in profile.operators for kernel in operator.kernels}
    rows = []
    for place in range(min(work.rows.size, MOST_LAUNCHES)):
        row, call = int(work.rows[place]), int(work.launch[place])
        details, stream, start = device.args[row], int(device.stream[row]), int(device.start_ns[row])
        name = device.name(row)
        operator = owners.get((start, stream if stream >= 0 else None, name))
        rows.append((
            int(work.step[place]), name, details["category"], int(device.device[row]), stream, start, int(device.end_ns[row]) - start,
            runtime.name(call) if call >= 0 else "", int(runtime.start_ns[call]) if call >= 0 else "",
            int(runtime.end_ns[call] - runtime.start_ns[call]) if call >= 0 else "",
            max(0, start - int(runtime.end_ns[call])) if call >= 0 else "", _sizes(details["grid"]), _sizes(details["block"]),
            details["bytes"] if details["bytes"] is not None and details["bytes"] >= 0 else "",
            operator.operator_name if operator else "", (operator.module or "") if operator else "",
            (operator.source or "") if operator else ""))
    return heading, rows


def _sizes(sizes: Sequence[int] | None) -> str:
    return "x".join(map(str, sizes)) if sizes else ""


def _streams(profile: Profile) -> Table:
    heading = ("device", "stream", "busy_ns", "busy_share_pct", "kernels", "copies", "memsets", "first_ns", "last_ns")
    return heading, [tuple(getattr(stream, name) for name in heading)
                     for device in (profile.flow.devices if profile.flow else ()) for stream in device.streams]


def _gaps(profile: Profile) -> Table:
    heading = ("scope", "device", "stream", "start_ns", "duration_ns", "cause", "call", "call_ns", "operator", "line", "previous", "next",
               "next_call", "next_operator", "next_line", *(f"{cause}_ns" for cause in GAP_CAUSES))

    def row(scope: str, gap: Gap) -> tuple[Any, ...]:
        parts = {part.cause: part.idle_ns for part in gap.parts}
        return (scope, gap.device, gap.stream, gap.start_ns, gap.duration_ns, gap.cause, gap.call, gap.call_ns, gap.operator, gap.where,
                gap.previous, gap.next, gap.next_call, gap.next_operator, gap.next_where, *(parts.get(cause, 0) for cause in GAP_CAUSES))

    flow = profile.flow
    return heading, [row("device", gap) for gap in flow.gaps] + [row("stream", gap) for gap in flow.stream_gaps] if flow else ()


def _sites(profile: Profile) -> Table:
    heading = ("cause", "call", "operator", "line", "gaps", "idle_ns", "longest_ns")
    return heading, [(site.cause, site.call, site.operator, site.where, site.count, site.idle_ns, site.longest_ns)
                     for site in (profile.flow.sites if profile.flow else ())]


def _copies(profile: Profile) -> Table:
    heading = ("direction", "source", "target", "device", "count", "bytes", "smallest_bytes", "largest_bytes", "duration_ns", "hidden_ns",
               "bandwidth_gbs", "link_pct")
    made = profile.structure.transfers if profile.structure else None
    return heading, [tuple(getattr(row, name) for name in heading) for row in (made.rows if made else ())]


def _syncs(profile: Profile) -> Table:
    heading = ("call", "operators", "copies", "line", "count", "wait_ns", "idle_ns")
    activity = profile.timeline.activity if profile.timeline else None
    return heading, [(row.call, " > ".join(row.operators), row.copies, row.where, row.count, row.wait_ns, row.idle_ns)
                     for row in (activity.synchronizations if activity else ())]


def _api_calls(profile: Profile) -> Table:
    heading = ("name", "count", "total_ns", "median_ns", "min_ns", "max_ns")
    return heading, [tuple(getattr(row, name) for name in heading) for row in (profile.flow.api_calls if profile.flow else ())]


def _regions(profile: Profile) -> Table:
    heading = ("tree", "path", "depth", "count", "device_total_ns", "device_self_ns", "launches_total", "launches_self", "host_total_ns",
               "host_self_ns", "idle_total_ns", "idle_self_ns", "flops", "mfu_pct")
    rows = []
    for tree in profile.structure.region_trees if profile.structure else ():
        paths: list[str] = []
        for node in tree.nodes:
            paths.append(node.name if node.parent < 0 else f"{paths[node.parent]} > {node.name}")
            rows.append((tree.kind, paths[-1], *(getattr(node, name) for name in heading[2:])))
    return heading, rows


def _iterations(profile: Profile) -> Table:
    heading = ("index", "start_ns", "wall_ns", "time_ns", "device_ns", "device_busy_ns", "launches", "flops", "mfu_pct")
    return heading, [tuple(getattr(row, name) for name in heading) for row in (profile.structure.iterations if profile.structure else ())]


def _iteration_differences(profile: Profile) -> Table:
    """The slowest step against the typical one, aligned launch by launch: what only one of them has, and what took longer or shorter."""
    heading = ("step_a", "step_b", "aligned", "kernel", "change", "count", "a_ns", "b_ns")
    compared = profile.structure.comparison if profile.structure else None
    if compared is None:
        return heading, ()
    return heading, [(compared.a, compared.b, int(compared.aligned), row.kernel, row.change, row.count, row.a_ns, row.b_ns)
                     for row in compared.differences]


def _sequences(profile: Profile) -> Table:
    heading = ("kernels", "length", "count", "duration_ns", "gap_ns", "first_start_ns", "fusible", "line")
    made = profile.structure
    rows = (*made.fusion_candidates, *(row for row in made.sequences if row not in made.fusion_candidates)) if made else ()
    return heading, [(" + ".join(row.kernels), len(row.kernels), row.count, row.duration_ns, row.gap_ns, row.first_start_ns,
                      int(row.fusible), row.where) for row in rows]


def _graphs(profile: Profile) -> Table:
    plain = ("launches", "first_kernel", "last_kernel", "first_where", "last_where", "streams", "duration_ns", "idle_ns", "gain_ns")
    heading = (*plain, "gain_of_recorded_step_pct", "gain_of_call_pct")
    return heading, [(*(getattr(row, name) for name in plain), *candidate_pct(profile, row))
                     for row in (profile.structure.graph_candidates if profile.structure else ())]

