"""What report.md of mode nsys shows, as rows: causes of idle time, overlap, launches, waits, copies, candidates. All from the document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..diagnose.idle import call_share_of_idle_pct, idle_causes, is_of_recorded, recorded_steps
from ..model.activity import Synchronization
from ..model.flow import Flow, GapCause, GapSite
from ..model.profile import Profile
from ..model.structure import CriticalPath, GraphCandidate, LaunchSequence, Transfer
from ..roofline.knowledge import bottlenecks

HOST_CAUSES: tuple[GapCause, ...] = ("host_bound",)
"""Idle time that more or faster launching would fill."""


@dataclass(frozen=True)
class CauseRow:
    """Idle time of one cause on all devices, in words."""

    cause: GapCause
    words: str
    share_pct: float
    """Of the devices' spans, while it was recorded."""
    call_pct: float
    """The same without the recording's own cost, scaled."""
    per_step_ns: float
    gaps: int
    what: str
    """The call, range or operator behind the largest site; "" where nothing is known."""
    where: str | None


@dataclass(frozen=True)
class Busy:
    """How busy the devices were. Spans and times are sums over devices."""

    span_ns: int
    busy_ns: int
    idle_ns: int
    gaps: int
    devices: int

    @property
    def busy_pct(self) -> float:
        """Busy share of the span."""
        return 100.0 * self.busy_ns / self.span_ns if self.span_ns else 0.0


@dataclass(frozen=True)
class LaunchBound:
    """Whether the device waits mostly for launches."""

    verdict: Literal["yes", "partly", "no"]
    """"no": less than makes a finding. "yes": they are the largest cause, and cost more than the device works. "partly": between."""
    share_pct: float
    """Only a launch call was missing: of the devices' spans, without the recording's own cost."""


@dataclass(frozen=True)
class OverlapRow:
    """What ran beside what on one device, shares of its busy time in %."""

    device: int
    streams: int
    several_pct: float
    """Of the span: two streams or more at work at once."""
    compute_compute_pct: float
    compute_copy_pct: float
    compute_communication_pct: float
    exposed_copy_pct: float
    exposed_communication_pct: float
    busiest: tuple[tuple[int, float], ...]
    """(stream, share of the span in %)."""


def busy(flow: Flow) -> Busy:
    """All devices together."""
    rows = flow.devices
    return Busy(sum(row.span_ns for row in rows), sum(row.busy_ns for row in rows), sum(row.idle_ns for row in rows),
                sum(row.gap_count for row in rows), len(rows))


def cause_rows(profile: Profile) -> list[CauseRow]:
    """Causes with any idle time, most first."""
    steps = recorded_steps(profile)
    texts = bottlenecks().texts
    return [CauseRow(row.cause, texts[f"cause_{row.cause}"], row.share_pct, row.call_pct, row.idle_ns / steps, row.gaps, _what(row.site),
                     row.where) for row in idle_causes(profile)]


def _what(site: GapSite | None) -> str:
    if site is None:
        return ""
    return " in ".join(part for part in (site.call, site.operator) if part)


def launch_bound(profile: Profile) -> LaunchBound | None:
    """Whether launching limits the device; None without device work."""
    if profile.flow is None or not profile.flow.devices:
        return None
    rows = idle_causes(profile)
    share = sum(row.call_pct for row in rows if row.cause in HOST_CAUSES)
    if share < bottlenecks().rules["launch_gaps"].thresholds["share_pct"]:
        return LaunchBound("no", share)
    works = 100.0 - sum(row.call_pct for row in rows)
    return LaunchBound("yes" if rows[0].cause in HOST_CAUSES and share >= works else "partly", share)


def overlap_rows(flow: Flow) -> list[OverlapRow]:
    """One row a device, the busiest first."""
    rows = []
    for device in sorted(flow.devices, key=lambda one: -one.busy_ns):
        part, whole = device.overlaps, device.busy_ns or 1
        rows.append(OverlapRow(
            device.device, device.stream_count, 100.0 * sum(device.concurrency_ns[2:]) / (device.span_ns or 1),
            100.0 * part.compute_compute_ns / whole, 100.0 * part.compute_copy_ns / whole, 100.0 * part.compute_communication_ns / whole,
            100.0 * part.exposed_copy_ns / whole, 100.0 * part.exposed_communication_ns / whole,
            tuple((stream.stream, stream.busy_share_pct or 0.0) for stream in device.streams[:4])))
    return rows


def missing_overlap(profile: Profile) -> list[str]:
    """Which overlap is not there although it could be, as keys of the template's sentences."""
    flow = profile.flow
    if flow is None:
        return []
    missing = []
    parts = [device.overlaps for device in flow.devices]
    if sum(part.exposed_copy_ns for part in parts) > 0 and sum(part.compute_copy_ns for part in parts) == 0:
        missing.append("copy")
    if sum(part.exposed_communication_ns for part in parts) > sum(part.compute_communication_ns for part in parts):
        missing.append("communication")
    if all(device.stream_count == 1 for device in flow.devices):
        missing.append("one_stream")
    elif any(device.stream_count > 1 and sum(device.concurrency_ns[2:]) < 0.01 * device.busy_ns for device in flow.devices):
        missing.append("streams")
    return missing


def synchronizations(profile: Profile, most: int) -> tuple[list[Synchronization], int]:
    """(the waits that cost most idle time, then most waiting; how many rows are left)."""
    activity = profile.timeline.activity if profile.timeline is not None else None
    rows = sorted(activity.synchronizations, key=lambda row: (-row.idle_ns, -row.wait_ns)) if activity is not None else []
    return rows[:most], max(0, len(rows) - most)


def transfers(profile: Profile, most: int) -> Sequence[Transfer]:
    """Copies, the most time first."""
    made = profile.structure.transfers if profile.structure is not None else None
    return sorted(made.rows, key=lambda row: -row.duration_ns)[:most] if made is not None else []


def graphs(profile: Profile, most: int) -> Sequence[GraphCandidate]:
    """Stretches that one CUDA graph could replace, the largest gain first."""
    return profile.structure.graph_candidates[:most] if profile.structure is not None else ()


def fusions(profile: Profile, most: int) -> Sequence[LaunchSequence]:
    """Chains that a compiler could fuse, the heaviest first."""
    return profile.structure.fusion_candidates[:most] if profile.structure is not None else ()


def candidate_pct(profile: Profile, candidate: GraphCandidate) -> tuple[float | None, float | None]:
    """The most that a graph could save, as shares of (a recorded step, a call without the recording's own cost), %.

    Both of the devices' spans, as all idle shares are. None where spans are not known; the second also where no call was timed.
    """
    span = sum(device.span_ns for device in profile.flow.devices) if profile.flow is not None else 0
    if span <= 0:
        return None, None
    gain_ns = candidate.gain_ns * recorded_steps(profile)
    return min(100.0, 100.0 * gain_ns / span), None if is_of_recorded(profile) else call_share_of_idle_pct(profile, gain_ns)


def function_name(kernel: str) -> str:
    """A kernel's function without return type, namespaces, template arguments and parameters, as far as its name is C++."""
    text, depth, start = kernel.replace("(anonymous namespace)", "").replace("<unnamed>", ""), 0, 0
    kept = []
    for place, char in enumerate(text):
        if char == "<":
            kept.append(text[start:place] if depth == 0 else "")
            depth += 1
        elif char == ">" and depth > 0:
            depth, start = depth - 1, place + 1
        elif char == "(" and depth == 0:
            kept.append(text[start:place])
            break
    else:
        kept.append(text[start:] if depth == 0 else "")
    return "".join(kept).strip().split(" ")[-1].split("::")[-1] or kernel


@dataclass(frozen=True)
class Pace:
    """How even the steps are."""

    count: int
    shortest_ns: int
    longest_ns: int
    longest: int
    """Index of the step that took longest."""
    mfu_pct: float | None
    """Of the steps together; None where FLOPs or the peak are not known."""


def pace(profile: Profile) -> Pace | None:
    """The steps, None for fewer than two."""
    rows = profile.structure.iterations if profile.structure is not None else ()
    if len(rows) < 2:
        return None
    slowest = max(rows, key=lambda row: row.wall_ns)
    known = [row.mfu_pct for row in rows if row.mfu_pct is not None]
    mean = None
    if len(known) == len(rows):
        mean = sum(pct * row.wall_ns for pct, row in zip(known, rows, strict=True)) / sum(row.wall_ns for row in rows)
    return Pace(len(rows), min(row.wall_ns for row in rows), slowest.wall_ns, slowest.index, mean)


def path_shares(profile: Profile, most: int) -> list[tuple[str, float]]:
    """(category, share of the critical path in %), the largest first."""
    path: CriticalPath | None = profile.structure.critical_path if profile.structure is not None else None
    if path is None or path.end_ns <= path.start_ns:
        return []
    whole = path.end_ns - path.start_ns
    return [(name, 100.0 * time / whole) for name, time in sorted(path.by_category.items(), key=lambda item: -item[1])[:most] if time > 0]
