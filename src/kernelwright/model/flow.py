"""How the profiled steps flowed through host and device: busy, overlap, gaps with their causes, launches. docs/timeline.md defines each.

Times are ns from the first step's start, sums over all steps. Lists are bounded, the largest first; counts and totals count all.
"""

from __future__ import annotations

from typing import Literal

from .base import Record

GapCause = Literal["outside", "profiler", "first_use", "data_loader", "allocator", "copy", "synchronization", "host_bound",
                   "launch_latency", "dependency", "unknown"]
GAP_CAUSES: tuple[GapCause, ...] = ("outside", "profiler", "first_use", "data_loader", "allocator", "copy", "synchronization", "host_bound",
                                    "launch_latency", "dependency", "unknown")
"""In order of precedence: of two that hold at one moment the earlier counts, of two with equal time in a gap the earlier names it.

outside: between the steps; profiler: its own overhead; first_use: compiling or loading a module; data_loader: in DataLoader.__next__;
allocator: in cudaMalloc, cudaFree or the like; copy: in a call that copies between host and device; synchronization: in a call that
waits for the device, or coming back from it; host_bound: the host had not launched the next work yet, for no reason above;
launch_latency: launched inside the gap, not begun; dependency: launched before the gap, so waiting for other work (stream order, event,
graph node, room); unknown: the recording does not hold the launch."""
WorkKind = Literal["compute", "communication", "copy", "memset"]
MOST_GAPS = 200
MOST_SITES = 50
MOST_STREAMS = 64
MOST_STEPS = 200
MOST_CALLS = 100
MOST_POINTS = 400
DEEPEST = 32
"""Streams at once that the concurrency histogram tells apart; its last entry holds that many and more."""


class CauseTime(Record):
    """Idle time of one cause."""

    cause: GapCause
    idle_ns: int
    gaps: int
    """Gaps that are named after this cause: the one with most of their time."""


class Gap(Record):
    """One stretch in which a device (or one stream of several) had nothing to run."""

    device: int
    stream: int | None = None
    """None: no stream of the device ran anything. Else the one that idled, between two works of its own."""
    start_ns: int
    end_ns: int
    cause: GapCause
    """The one that most of it passed in."""
    parts: tuple[CauseTime, ...]
    """All of it, ns by ns, by cause, most first; gaps is 0 here."""
    call: str | None = None
    """The host event behind the cause: the synchronising, copying or allocating call, the DataLoader's range, the compiler's range or the
    overhead's name. None where the cause has none (host_bound, launch_latency, dependency, outside, unknown)."""
    call_ns: int | None = None
    """That event's own duration."""
    operator: str | None = None
    """Innermost PyTorch operator around that event; without an event, around the launch of the next work."""
    where: str | None = None
    """Line of the user's of that event; without an event, of the launch of the next work."""
    previous: str | None = None
    """Name of the work that ended when the gap began; None before the first."""
    next: str | None = None
    """Name of the work that ended it."""
    next_call: str | None = None
    """The call that launched that work."""
    next_operator: str | None = None
    """Innermost operator around that call."""
    next_where: str | None = None
    """Line of the user's of that call."""
    after_stream: int | None = None
    """dependency: the stream whose work ended last before the gap's end (its own: stream order)."""
    event_wait: bool = False
    """dependency: a stream was made to wait for an event between the launches of this stream's previous and next work."""

    @property
    def duration_ns(self) -> int:
        """Length of the gap."""
        return self.end_ns - self.start_ns


class GapSite(Record):
    """Gaps of whole devices that have one cause, event, operator and line."""

    cause: GapCause
    call: str | None = None
    operator: str | None = None
    where: str | None = None
    count: int
    idle_ns: int
    """All time of these gaps."""
    longest_ns: int


class StreamFlow(Record):
    """One stream's work in the steps."""

    device: int
    stream: int
    busy_ns: int
    """Time in which it ran at least one work."""
    busy_share_pct: float | None
    """Of the device's span."""
    kernels: int
    copies: int
    memsets: int
    first_ns: int
    """Start of its first work."""
    last_ns: int
    """End of its last."""


class Overlaps(Record):
    """Time in which a device ran work of each kind, alone and beside another. A moment counts once however many works ran."""

    compute_ns: int
    """At least one kernel that does not communicate."""
    communication_ns: int
    """At least one kernel of a collective library."""
    copy_ns: int
    memset_ns: int
    compute_compute_ns: int
    """Two computing kernels or more."""
    compute_copy_ns: int
    compute_communication_ns: int
    exposed_copy_ns: int
    """Copies and nothing else but memsets."""
    exposed_communication_ns: int
    """Communication and no computing kernel."""


class QueueDepth(Record):
    """Launches that had returned and not begun, over a device's span."""

    deepest: int
    mean: float
    """Weighted by time."""
    empty_ns: int
    """Time with none."""
    points: tuple[tuple[int, int], ...]
    """(ns, depth from then on); thinned to MOST_POINTS, lows and highs kept."""


class DeviceFlow(Record):
    """One device over the span from the first step's start to the end of the steps' last work on it (that took any time)."""

    device: int
    span_start_ns: int
    span_end_ns: int
    busy_ns: int
    """At least one work of the steps ran."""
    idle_ns: int
    """Span without busy: the sum of its gaps."""
    gap_count: int
    causes: tuple[CauseTime, ...]
    """All idle time, most first; the sum of idle_ns is idle_ns."""
    overlaps: Overlaps
    concurrency_ns: tuple[int, ...]
    """Entry k: time with k streams at work at once; the sum is the span. At most DEEPEST + 1 entries."""
    stream_count: int
    streams: tuple[StreamFlow, ...]
    """The busiest first."""
    stream_causes: tuple[CauseTime, ...] = ()
    """The same for the gaps of each stream between its own works; empty with one stream."""
    queue: QueueDepth | None = None
    """None without a known launch."""

    @property
    def span_ns(self) -> int:
        """Length of the span."""
        return self.span_end_ns - self.span_start_ns


class Distribution(Record):
    """Durations in ns."""

    count: int
    total_ns: int
    median_ns: float
    p90_ns: float
    p99_ns: float
    min_ns: int
    max_ns: int


class LaunchOrder(Record):
    """In which order launched work began."""

    launches: int
    threads: int
    """Host threads that launched."""
    stream_switches: int
    """Launches that went to another stream than the launch before."""
    overtaken: int
    """Launches whose work began after work that was launched later, on the same device."""


class Launches(Record):
    """Calls in the steps that launched device work."""

    order: LaunchOrder
    latency: Distribution | None
    """From the call's return to the start of its first work, 0 where that began before; None without a launch."""
    unqueued_latency: Distribution | None
    """The same where the device had nothing left to run when the call returned: what a launch takes with nothing in its way."""
    begun_before_return: int
    interval_ns: float | None
    """Median time from one launch call's start to the next one's, on one thread in one step."""


class ApiCall(Record):
    """All calls of one runtime or driver function in the steps."""

    name: str
    count: int
    total_ns: int
    median_ns: float
    min_ns: int
    max_ns: int


class StepFlow(Record):
    """One step."""

    step: int
    start_ns: int
    end_ns: int
    """Of the step on the host."""
    busy_ns: int
    """Of that time, devices at work (any of them, whichever step launched it)."""
    launches: int
    work_ns: int
    """Durations of all work that it launched, whenever it ran."""


class Flow(Record):
    """What the timeline says about the order of things."""

    devices: tuple[DeviceFlow, ...] = ()
    """Empty when no device work was recorded."""
    launches: Launches | None = None
    api_calls: tuple[ApiCall, ...] = ()
    """Most total time first."""
    gaps: tuple[Gap, ...] = ()
    """Of whole devices, the longest first."""
    stream_gaps: tuple[Gap, ...] = ()
    """Of single streams, on devices with several."""
    sites: tuple[GapSite, ...] = ()
    """The longest gaps by cause and place, most idle time first."""
    sites_idle_ns: int = 0
    """Idle time of the gaps that sites were made of: all, or that of the longest where there are very many."""
    steps: tuple[StepFlow, ...] = ()
    """The first MOST_STEPS."""
