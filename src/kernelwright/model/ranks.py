"""`ranks.json`: the ranks of one distributed run side by side. docs/ranks.md defines each figure. Schema: docs/schema/ranks.schema.json.

Times are ns, sums over all compared steps unless named otherwise. Clocks of different ranks are never compared: a collective that all
must finish together ends at one moment, so that whoever spent least time in it arrived last, and the others waited for it.
"""

from __future__ import annotations

from typing import Literal

from .base import Record

RANKS_VERSION = "1.0"
MOST_COLLECTIVES = 100
MOST_KINDS = 50
MOST_RANKS = 1024
MOST_STEPS = 500


class Exposure(Record):
    """How one rank's time passed, from the start of its first compared step (or the end of what the device still ran for the steps before
    it) to the end of its last one's work."""

    span_ns: int
    compute_ns: int
    """At least one kernel that does not communicate (CPU: an operator)."""
    communication_ns: int
    """In at least one collective."""
    overlapped_ns: int
    """Communication beside computing: hidden."""
    exposed_ns: int
    """Communication without computing: communication_ns - overlapped_ns."""
    waiting_ns: int
    """Of communication_ns, time in which a rank that had not arrived yet was waited for."""
    exposed_waiting_ns: int
    """The same without computing beside it."""
    copy_ns: int
    """Copies between host and device and on the device."""
    idle_ns: int
    """None of these, nor a memset."""

    @property
    def exposed_transfer_ns(self) -> int:
        """Exposed communication when all had arrived (or that could not be matched)."""
        return self.exposed_ns - self.exposed_waiting_ns


class RankRow(Record):
    """One rank."""

    rank: int
    source: str
    """Its recording."""
    device: str
    steps: int
    """Compared steps."""
    step_ns: tuple[int, ...]
    """Time of each, its work included; the first MOST_STEPS."""
    step_median_ns: float
    exposure: Exposure
    collectives: int
    """Recorded in the compared steps."""
    matched: int
    """Of these, found on other ranks too."""
    last: int
    """How often it arrived last at a collective that others waited for."""
    caused_ns: int
    """Time in which others waited for it, added over them."""


class CollectiveKind(Record):
    """Collectives of one kind in one process group."""

    kind: str
    """E.g. "all_reduce"."""
    group: str
    """Name of the process group, with its ranks where known; "" where the recording does not say."""
    count: int
    """Matched ones (one for all ranks)."""
    aligned: bool
    """All members finish together. False (broadcast, reduce, gather, scatter, send, receive): no waiting is told."""
    transfer_ns: int
    """From the last arrival to the end, added over the collectives; where not aligned, the longest time in it on any rank."""
    waiting_ns: int
    """Added over ranks and collectives, those that overlap too."""
    longest_wait_ns: int
    bytes: int | None = None
    """Sum of the message sizes (the larger of input and output on a rank); None where the recording does not say."""
    last_rank: int | None = None
    """Who arrived last most often; None where nobody was waited for."""
    last_count: int = 0
    waited_count: int = 0
    """Collectives at which somebody was waited for."""

    @property
    def bandwidth_gbps(self) -> float | None:
        """bytes / transfer_ns (nccl-tests calls it the algorithm's bandwidth)."""
        return self.bytes / self.transfer_ns if self.bytes and self.transfer_ns > 0 else None


class Waited(Record):
    """One collective that was waited for."""

    kind: str
    group: str
    step: int
    """Of the compared steps, from 0, on the rank that arrived last."""
    sequence: int | None
    """Its number in the process group; None where the recording does not say."""
    last_rank: int
    longest_wait_ns: int
    waiting_rank: int
    """Who waited longest."""
    transfer_ns: int
    bytes: int | None = None


class Ranks(Record):
    """The document."""

    schema_version: str = RANKS_VERSION
    world_size: int
    """As the recordings say, else as many as were given."""
    missing: tuple[int, ...] = ()
    """Ranks of which there is no recording; those below MOST_RANKS."""
    recorder: str
    backend: Literal["device", "host"]
    """"device": collectives are kernels (NCCL, RCCL); "host": ranges on the host's threads (gloo, MPI)."""
    left_out_steps: int = 0
    """First steps of each rank that were not compared: profilers do not start at one moment."""
    ranks: tuple[RankRow, ...]
    kinds: tuple[CollectiveKind, ...]
    """Most waiting and transfer first."""
    waits_for: tuple[tuple[int, ...], ...]
    """Row: a rank (in the order of `ranks`), column: the rank that it waited for; ns. Waits at one moment, of collectives that overlap,
    count once."""
    waits_by_step: tuple[tuple[int, ...], ...]
    """Row: a rank, column: a compared step; ns in which it waited. The first MOST_STEPS."""
    worst: tuple[Waited, ...]
    """The longest waits."""
    collectives: int
    """Matched collectives that all members finish together."""
    waited: int
    """Of these, those at which a rank waited longer than notable_ns."""
    notable_ns: int
    unmatched: int
    """Recorded collectives that could not be matched, over all ranks."""
    matched_by: Literal["sequence", "order", "mixed", "nothing"]
    """"sequence": the process group's own numbers; "order": the n-th of its kind in a step."""
    warnings: tuple[str, ...] = ()
