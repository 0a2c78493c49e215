"""Little distributed runs made up on one true clock, and each rank's recording of its own by its own clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from flow_brute import Row, make
from kernelwright.model.trace import Trace

KERNELS = {"all_reduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "all_gather": "ncclDevKernel_AllGather_RING_LL",
           "broadcast": "ncclDevKernel_Broadcast_RING_LL"}


@dataclass(frozen=True)
class Talk:
    """One collective: when each rank arrived (None: it has no recording of it), on the true clock."""

    kind: str
    step: int
    sequence: int
    arrivals: tuple[int | None, ...]
    end: int

    @property
    def latest(self) -> int:
        """The last recorded arrival."""
        return max(at for at in self.arrivals if at is not None)


@dataclass(frozen=True)
class Run:
    """What happened."""

    ranks: int
    steps: int
    step_ns: int
    talks: tuple[Talk, ...]
    compute: tuple[tuple[int, int, int, int], ...]
    """(rank, step, start, end)"""
    offsets: tuple[int, ...]
    numbered: bool


@st.composite
def runs(draw: st.DrawFn, *, lose: bool = False) -> Run:
    """Two to four ranks, up to three steps, up to four collectives a step; clocks days apart. lose: some parts are not recorded."""
    ranks, steps, talks, compute = draw(st.integers(2, 4)), draw(st.integers(1, 3)), [], []
    step_ns, sequence, numbered = 300, 0, lose or draw(st.booleans())
    for step in range(steps):
        at = step * step_ns + 5
        for _ in range(draw(st.integers(0, 4))):
            arrivals = [at + draw(st.integers(0, 30)) for _ in range(ranks)]
            end = max(arrivals) + draw(st.integers(1, 20))
            kept = [None if lose and draw(st.integers(0, 4)) == 0 else one for one in arrivals]
            if any(one is not None for one in kept):
                talks.append(Talk(draw(st.sampled_from(sorted(KERNELS))), step, sequence, tuple(kept), end))
            # Where nothing but their order tells them apart, they come one after the other.
            at, sequence = max(step * step_ns + 5, end + draw(st.integers(-25 if numbered else 0, 5))), sequence + 1
        for rank in range(ranks):
            for _ in range(draw(st.integers(0, 3))):
                start = step * step_ns + draw(st.integers(1, 250))
                compute.append((rank, step, start, start + draw(st.integers(0, 60))))
    offsets = tuple(draw(st.integers(-10**14, 10**14)) for _ in range(ranks))
    return Run(ranks, steps, step_ns, tuple(talks), tuple(compute), offsets, numbered)


def recordings(run: Run) -> list[tuple[int, Trace]]:
    """(rank, what it recorded)."""
    return [(rank, recording(run, rank)) for rank in range(run.ranks)]


def recording(run: Run, rank: int) -> Trace:
    """One rank's recording: its own clock, launches at the start of each step."""
    shift = run.offsets[rank]
    works = [(talk.step, Row(talk.arrivals[rank] + shift, talk.end + shift, KERNELS[talk.kind], device=0, stream=20), talk)
             for talk in run.talks if talk.arrivals[rank] is not None]
    works += [(step, Row(start + shift, end + shift, "gemm", device=0, stream=7), None) for owner, step, start, end in run.compute
              if owner == rank]
    device = [replace(row, correlation=number) for number, (_, row, _) in enumerate(works)]
    runtime = [Row(step * run.step_ns + shift, step * run.step_ns + 1 + shift, "cudaLaunchKernel", correlation=number)
               for number, (step, _, _) in enumerate(works)]
    steps = [Row(step * run.step_ns + shift, (step + 1) * run.step_ns - 10 + shift, "kernelwright.step") for step in range(run.steps)]
    trace = make(device=device, runtime=runtime, steps=steps)
    known = {number: details(talk, run) for number, (_, _, talk) in enumerate(works)}
    args = tuple(known[int(correlation)] for correlation in trace.device.correlation)
    return replace(trace, device=replace(trace.device, args=args), rank=rank, world_size=run.ranks, is_cuda=True, source=f"rank{rank}.json")


def details(talk: Talk | None, run: Run) -> dict[str, object]:
    """As torch writes them for NCCL, where the run's collectives are numbered."""
    if talk is None or not run.numbered:
        return {"category": "kernel"}
    return {"category": "kernel", "collective": {
        "name": {"all_reduce": "allreduce", "all_gather": "_allgather_base", "broadcast": "broadcast"}[talk.kind], "group": "0",
        "ranks": str(list(range(run.ranks))), "size": run.ranks, "in_elements": 10, "out_elements": 40, "dtype": "BFloat16",
        "sequence": talk.sequence}}


def covered(spans: Sequence[tuple[int, int]]) -> set[int]:
    """Every nanosecond that a span covers."""
    return {at for start, end in spans for at in range(start, end)}
