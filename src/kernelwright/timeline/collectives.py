"""The collectives that one rank took part in: which, in which process group and step, from when to when.

NCCL's and RCCL's are kernels on the device; torch writes the group, its ranks, the message and (since 2.5) the collective's number in its
group to them, or to the operator that records the collective around their launch. gloo's and MPI's run on threads of the host, as
ranges such as "gloo:all_reduce", with nothing but their name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.table import Details, EventTable, Int64, RowDetails
from ..model.trace import Trace
from .names import is_collective, named
from .nesting import Nesting
from .numbering import dense
from .steps import device_work, step_of

_HOST = re.compile(r"^(?:gloo|mpi|ucc|xccl):(?P<kind>\w+)$")
_KERNEL = re.compile(r"nccl\w*?_(?P<kind>AllReduce|AllGather|ReduceScatter|AllToAll|SendRecv|Broadcast|Reduce)", re.IGNORECASE)
_KINDS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all", "barrier": "barrier",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "send": "send", "recv": "recv",
    "sendrecv": "send_recv", "alltoallv": "all_to_all"}
_NOT_LETTERS = re.compile(r"[^a-z]+")
_ENDINGS = re.compile(r"(?:base|coalesced|single|intotensor|tensor|sparse|v)+$")
ALIGNED = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""No member can finish before the last one has arrived, and all finish within one hop of data of each other."""
_BYTES = {"float": 4, "double": 8, "half": 2, "bfloat16": 2, "byte": 1, "char": 1, "short": 2, "int": 4, "long": 8, "bool": 1,
          "complexfloat": 8, "complexdouble": 16}
_OPERATORS = re.compile(r"^(?:c10d::|_c10d_functional|record_param_comms$|c10d_functional|torch\.distributed|nccl:|gloo:)")
_RECORD = "record_param_comms"
MOST_NAME = 80


@dataclass(frozen=True)
class What:
    """What collectives share that belong together."""

    kind: str
    group: str
    """Name and ranks of the process group, "" where they are not known."""
    size: int | None
    """Members of the group."""
    bytes: int | None
    """Of the message: the larger of input and output."""

    @property
    def aligned(self) -> bool:
        """All members finish together."""
        return self.kind in ALIGNED


@dataclass(frozen=True)
class Collectives:
    """One rank's. All arrays have shape (n,), in start order."""

    start_ns: Int64
    end_ns: Int64
    step: Int64
    sequence: Int64
    """-1 where it is not known."""
    what: Int64
    """Index into whats."""
    whats: tuple[What, ...]
    on_device: bool


def collectives(trace: Trace) -> Collectives:
    """The collectives of a trace's steps."""
    work = device_work(trace)
    rows = work.rows[named(trace.device, is_collective)[work.rows]] if len(trace.device) else work.rows[:0]
    if rows.size:
        places = np.searchsorted(work.rows, rows)
        return _made(trace.device, rows, work.step[places], on_device=True, around=(trace.operators, _around(trace, work.launch[places])))
    found = [_host(trace, table) for table in (trace.ranges, trace.operators)]
    table, rows = max(zip((trace.ranges, trace.operators), found, strict=True), key=lambda pair: pair[1].size)
    return _made(table, rows, step_of(trace, table.start_ns[rows]), on_device=False)


def communicates(name: str) -> bool:
    """Whether an operator is torch's own around a collective, so that time in it is no computing."""
    return _OPERATORS.match(name) is not None or is_collective(name)


def _host(trace: Trace, table: EventTable) -> Int64:
    rows = np.flatnonzero(named(table, lambda name: _HOST.match(name) is not None))
    return rows[step_of(trace, table.start_ns[rows]) >= 0]


def _made(table: EventTable, rows: Int64, step: Int64, *, on_device: bool, around: tuple[EventTable, Int64] | None = None) -> Collectives:
    """Collectives of these rows of a table. around: rows of operators around their launches (-1: none), which may know what these don't."""
    which, details = _details(table, rows)
    outer, outer_details = _details(*around) if around is not None else (np.full(rows.size, -1, dtype=np.int64), {})
    group = dense((table.name_id[rows], which, outer)) if rows.size else rows
    _, first = np.unique(group, return_index=True)
    numbers: dict[What, int] = {}
    what = np.zeros(first.size, dtype=np.int64)
    sequence = np.full(first.size, -1, dtype=np.int64)
    for number, place in enumerate(first.tolist()):
        own = {name: value for name, value in (details.get(int(which[place])) or {}).items() if value is not None}
        said = {**(outer_details.get(int(outer[place])) or {}), **own}
        what[number] = numbers.setdefault(_what(table.name(int(rows[place])), said), len(numbers))
        told = said.get("sequence")
        sequence[number] = told if isinstance(told, int) and 0 <= told < 1 << 62 else -1
    order = np.argsort(table.start_ns[rows], kind="stable")
    taken = rows[order]
    return Collectives(table.start_ns[taken], table.end_ns[taken], step[order], sequence[group][order], what[group][order], tuple(numbers),
                       on_device)


def _around(trace: Trace, launches: Int64) -> Int64:
    """Row of torch's record of the collective (an operator) around each launch call; -1 where there is none."""
    nesting = Nesting(trace.operators, named(trace.operators, _RECORD.__eq__))
    found = np.full(launches.size, -1, dtype=np.int64)
    known = launches >= 0
    calls, runtime = launches[known], trace.runtime
    found[known] = nesting.innermost(runtime.process[calls], runtime.thread[calls], runtime.start_ns[calls])
    return found


def _details(table: EventTable, rows: Int64) -> tuple[Int64, Mapping[int, Mapping[str, Any]]]:
    """(a number for each row, -1 for none; what the recording says of the collectives of that number)."""
    args = table.args
    if isinstance(args, RowDetails):
        if args.which is None or not rows.size or not len(table):
            return np.full(rows.size, -1, dtype=np.int64), {}
        which = np.where(rows >= 0, args.which[rows], -1)
        _, first = np.unique(which, return_index=True)
        return which, {int(which[place]): _collective(args[int(rows[place])]) for place in first.tolist() if rows[place] >= 0}
    return rows, {row: _collective(args[row]) if args and row >= 0 else {} for row in rows.tolist()}


def _collective(details: Details) -> Mapping[str, Any]:
    found = details.get("collective")
    return found if isinstance(found, Mapping) else {}


def _what(name: str, said: Mapping[str, Any]) -> What:
    ranks, group = str(said.get("ranks") or ""), str(said.get("group") or "")
    has_ranks = any(char.isdigit() for char in ranks)
    label = f"{group} {ranks}".strip() if has_ranks else group
    size = said.get("size")
    members = size if isinstance(size, int) and size > 0 else None
    return What(_kind(str(said.get("name") or ""), name), label[:MOST_NAME], members, _bytes(said))


def _kind(said: str, name: str) -> str:
    """The kind by torch's word for it, else by the kernel's or the range's name."""
    host, kernel = _HOST.match(name), _KERNEL.search(name)
    for word in (said, host["kind"] if host is not None else "", kernel["kind"] if kernel is not None else ""):
        letters = _NOT_LETTERS.sub("", word.lower())
        if letters:
            return _KINDS.get(letters) or _KINDS.get(_ENDINGS.sub("", letters)) or letters[:MOST_NAME]
    return "collective"


def _bytes(said: Mapping[str, Any]) -> int | None:
    counts = [count for count in (said.get("in_elements"), said.get("out_elements")) if isinstance(count, int) and count >= 0]
    size = _BYTES.get(str(said.get("dtype") or "").lower())
    return max(counts) * size if counts and size else None
