"""What a recording's work is made of: iterations, regions, repeated launch sequences, copies, memory peaks, the critical path.

Definitions: docs/timeline-structure.md. Times are ns from the start of the first step. Lists are bounded, the largest first; the
totals beside them count everything. None stands for "not known", never for 0.
"""

from __future__ import annotations

from typing import Literal

from .base import Abstained, Figure, Record
from .trace import StepsFrom

MOST_SEQUENCES = 50
MOST_CANDIDATES = 50
MOST_TRANSFERS = 100
MOST_REGIONS = 2_000
MOST_ITERATIONS = 1_000
MOST_DIFFERENCES = 100
MOST_PEAKS = 200
MOST_OWNERS = 20
MOST_ON_PATH = 50

IterationConfidence = Literal["given", "high", "medium", "low"]
Side = Literal["pageable", "pinned", "device", "array", "unified", "unknown"]
PathCategory = Literal[
    "kernel", "communication", "copy", "memset", "launch latency", "stream gap", "event wait", "sync return",
    "runtime call", "operator", "data loader", "compile", "host", "between steps"]


class FoundIterations(Record):
    """Where the iterations come from, and how far to trust them."""

    steps_from: StepsFrom
    count: int
    confidence: IterationConfidence
    """"given": marked in the recording. The others: found by repetition (docs/timeline-structure.md)."""
    launches_each: int | None = None
    """Launches in one iteration; None when they were given."""
    launches_total: int | None = None
    """Launches in the recording; None when the iterations were given."""
    launches_left_out: int = 0
    """In no iteration: warm-up, the tail, and iterations that differ."""
    device_left_out_ns: int = 0
    """Device time of those."""
    confirmed_by: str | None = None
    """A host event that occurs exactly once in each iteration: a data loader's range, an optimizer's step, a synchronisation, a copy."""
    note: str = ""
    """Why the confidence is not high, or why nothing was found."""


class Iteration(Record):
    """One step."""

    index: int
    start_ns: int
    wall_ns: int
    """Length of the step's range on the host."""
    time_ns: int | None = None
    """From its start, or the end of the step before, to the end of its work on host and device: the time that compare.py holds. None in
    documents of before this field."""
    device_ns: int | None
    """Sum of the durations of what it launched; None on the CPU."""
    device_busy_ns: int | None
    """Union of the same: overlapping work counts once."""
    launches: int
    flops: float | None = None
    mfu_pct: float | None = None
    """flops / (peak * wall_ns), %. None without FLOPs of every operator that has them in some step, or without a peak."""


class LaunchDifference(Record):
    """Launches of one kernel that two aligned iterations do not share, or whose durations differ."""

    kernel: str
    change: Literal["only in a", "only in b", "slower in b", "faster in b"]
    count: int
    a_ns: int
    b_ns: int

    @property
    def difference_ns(self) -> int:
        """b_ns - a_ns."""
        return self.b_ns - self.a_ns


class IterationComparison(Record):
    """Two iterations, aligned launch by launch. Sums: b_device_ns - a_device_ns = matched_difference_ns + only_b_ns - only_a_ns."""

    a: int
    b: int
    """Indices of the iterations. By default: the typical one (median wall time) and the slowest."""
    a_wall_ns: int
    b_wall_ns: int
    a_device_ns: int
    b_device_ns: int
    aligned: bool
    """False: they differ in too many launches to be aligned exactly; compared by kernel name and count only."""
    matched: int
    """Pairs of launches that are the same in both. aligned False: per name, the smaller count."""
    only_a: int
    only_b: int
    only_a_ns: int
    only_b_ns: int
    matched_difference_ns: int
    differences: tuple[LaunchDifference, ...] = ()
    """By kernel and kind of change, the largest absolute difference first."""


class LaunchSequence(Record):
    """Kernels that run one after the other on one stream, the same each time."""

    kernels: tuple[str, ...]
    count: int
    """Occurrences in the steps that do not overlap."""
    duration_ns: int
    """Device time of all occurrences."""
    gap_ns: int
    """Time between the launches inside the occurrences in which the device had nothing to do."""
    first_start_ns: int
    fusible: bool
    """No library kernel (matrix product, convolution, attention), no copy and no communication in it: a compiler could make it one
    kernel."""
    where: str | None = None
    """Source line of the first launch, where it is known."""


class GraphCandidate(Record):
    """A stretch of launches that is the same in every iteration and that one CUDA graph could replace."""

    launches: int
    """In one iteration."""
    first_kernel: str
    last_kernel: str
    first_where: str | None = None
    last_where: str | None = None
    streams: int
    duration_ns: int
    """Device time of the stretch, mean of the iterations."""
    idle_ns: int
    """Idle time of the device between its first start and its last end, mean of the iterations."""
    gain_ns: int
    """Of it, what waited for a launch call, less what a queued launch waits in this recording: mean of the iterations. The profiler's own
    cost of each launch is in it: an upper bound."""
    gain_pct: float | None
    """Share of the mean iteration's wall time on the host; the report and csv/ give shares of the devices' spans, as of all idle time."""


class HostLink(Record):
    """Datasheet bandwidth between host and device."""

    name: str
    """E.g. "PCIe Gen5"."""
    bandwidth: Figure
    """GB/s, one direction."""


class Transfer(Record):
    """Copies of one kind."""

    direction: Literal["HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "other"]
    source: Side
    target: Side
    device: int
    count: int
    bytes: int | None
    """None unless the recording gives the size of each."""
    smallest_bytes: int | None
    largest_bytes: int | None
    duration_ns: int
    hidden_ns: int
    """Of it, time in which kernels ran on the same device."""
    bandwidth_gbs: float | None
    """bytes / duration_ns (1e9 bytes a second)."""
    link_pct: float | None
    """bandwidth_gbs as a share of the link's one direction; None without a known link, and for copies that do not cross it."""


class Transfers(Record):
    """All copies of the steps."""

    count: int
    bytes: int | None
    duration_ns: int
    link: HostLink | None = None
    rows: tuple[Transfer, ...] = ()


class RegionShare(Record):
    """Memory alive at a peak that one region allocated."""

    region: str
    """Path of ranges and the operator, " > " between them; "(no region)" outside all; "(before)": older than the first step."""
    bytes: int
    count: int


class MemoryPeak(Record):
    """The highest point of one step."""

    device: str
    """"cuda:0" or "cpu"."""
    step: int
    peak_bytes: int
    at_ns: int
    region: str
    """Where the allocation that reached it was made."""
    is_highest: bool
    """The peak of all steps; only this one has owners."""
    owners: tuple[RegionShare, ...] = ()


class Region(Record):
    """One node of the tree: all occurrences of one path. Sums over all steps; total includes the regions inside, self does not."""

    name: str
    parent: int
    """Place in the list, -1 for the root. Parents come before their children."""
    depth: int
    count: int
    """Occurrences."""
    device_total_ns: int | None
    device_self_ns: int | None
    """Durations of the device work whose launch calls lie in it. On the CPU: None for ranges, the operators' self time for modules."""
    launches_total: int
    launches_self: int
    """Pieces of device work."""
    host_total_ns: int | None
    host_self_ns: int | None
    """Time of threads in it, summed over threads; None for modules."""
    idle_total_ns: int | None
    idle_self_ns: int | None
    """Time in which the device had nothing to do while the step's thread was in it; None for modules and on the CPU."""
    flops: float | None = None
    mfu_pct: float | None = None
    """flops / (peak * device_total_ns), %: of device time, not of wall time. Without a device: of host_total_ns."""


class RegionTree(Record):
    """A roll-up. The root's totals are those of all steps; each total is the node's self plus its children's totals."""

    kind: Literal["ranges", "modules"]
    """"ranges": stages, NVTX ranges and record_function annotations; "modules": nn.Module paths."""
    nodes: tuple[Region, ...]
    merged_nodes: int = 0
    """Small nodes beyond the limit that were added to a node "(other)" of their parent."""


class PathShare(Record):
    """What the critical path spent on one thing."""

    category: PathCategory
    name: str
    """Kernel, call, operator or range."""
    ns: int
    count: int
    where: str | None = None


class CriticalPath(Record):
    """The longest chain of work that had to wait for each other. Its parts tile the time from start_ns to end_ns exactly."""

    start_ns: int
    end_ns: int
    by_category: dict[PathCategory, int]
    """ns; adds up to end_ns - start_ns."""
    segments: int
    largest: tuple[PathShare, ...] = ()
    inferred_edges: int = 0
    """Edges of the path that the recording does not state: event waits and hand-overs between threads."""


class Structure(Record):
    """All of it. A part that could not be made is in `abstained` with its reason."""

    iterations_found: FoundIterations
    iterations: tuple[Iteration, ...]
    """In order, the first MOST_ITERATIONS."""
    comparison: IterationComparison | None = None
    sequences: tuple[LaunchSequence, ...] = ()
    """By duration_ns + gap_ns."""
    fusion_candidates: tuple[LaunchSequence, ...] = ()
    """Sequences between library kernels, copies and communication; by duration_ns + gap_ns."""
    graph_candidates: tuple[GraphCandidate, ...] = ()
    """By gain_ns."""
    transfers: Transfers | None = None
    memory_peaks: tuple[MemoryPeak, ...] = ()
    region_trees: tuple[RegionTree, ...] = ()
    critical_path: CriticalPath | None = None
    abstained: tuple[Abstained, ...] = ()
