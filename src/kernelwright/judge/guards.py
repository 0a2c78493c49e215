"""What guards a timing, as audits of the verdict: the outputs of timed calls, the independent timer, the device's limits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from ..model.verdict import Audit
from ..model.workload import Precision
from ..roofline.knowledge import datasheet
from . import roofs
from .channel import WorkerFailed
from .exchange import Exchange
from .replies import OutputBytes, Work
from .roofs import Finding
from .rounds import Rounds
from .timing import Timed


def timed_calls(timed: Timed, late: list[str]) -> Audit:
    """Whether outputs of secretly chosen timed calls were right."""
    name, count = "timed calls", len(timed.checked)
    if late:
        return Audit(name=name, result="failed", detail=late[0])
    if not count:
        return Audit(name=name, result="not_applicable", detail="the workload draws random numbers or changes its buffers")
    return Audit(name=name, result="passed", detail=f"outputs of {count} secretly chosen timed calls were right")


def independent_timer(timed: Timed, *, asked: bool, on_gpu: bool) -> Audit:
    """How the timer compares with what torch.profiler recorded of the kernels."""
    name = "independent timer"
    if not on_gpu:
        return Audit(name=name, result="not_applicable", detail="a second timer needs a GPU; the judge's own clock checks the times")
    if not asked:
        return Audit(name=name, result="not_applicable", detail="not asked for")
    if timed.windows is None or timed.windows[0].busy_ns <= 0:
        return Audit(name=name, result="not_applicable", detail="torch.profiler recorded no kernels")
    ours, theirs = (f"{seen.busy_ns / 1e3:.3g} us" for seen in timed.windows)
    detail = f"torch.profiler saw the device busy for {ours} a call in the reference, {theirs} in the candidate"
    return Audit(name=name, result="warned" if timed.apart else "passed", detail=detail)


def possible_speed(timed: Timed, found: Finding) -> Audit:
    """Whether the candidate is faster than the device can be."""
    name = "impossible speed"
    if found.cheat is not None or found.doubt is not None:
        return Audit(name=name, result="failed" if found.cheat else "warned", detail=found.cheat or found.doubt or "")
    if timed.decision != "FASTER":
        return Audit(name=name, result="not_applicable", detail="only a faster candidate is asked")
    return Audit(name=name, result="passed", detail="slower than every limit that is known of this device")


def impossible(
    timed: Timed, reference: Exchange, mine: Exchange, rounds: Rounds, environment: Mapping[str, object], declared: Precision
) -> Finding:
    """Whether a faster candidate is faster than can be. Raises WorkerFailed, OutOfTime."""
    if timed.decision != "FASTER":
        return Finding()
    on_gpu = environment.get("device") == "cuda"
    sheet = datasheet(str(environment.get("device_name", ""))) if on_gpu else None
    needed, own = reference.ask("output_bytes", OutputBytes), mine.ask("output_bytes", OutputBytes)
    work = Work()
    if sheet is not None:
        with contextlib.suppress(WorkerFailed):  # what torch cannot count is no floor
            work = reference.ask("count_work", Work)
    cache = environment.get("l2_bytes")
    device = roofs.Roofs(sheet, 0 if on_gpu else os.cpu_count() or 1, cache if isinstance(cache, int) else None)
    dtypes = {leaf.dtype for leaf in rounds.results[0].expected.reference if leaf.floating}
    return roofs.examine(
        roofs.Need(needed.output_bytes, needed.input_bytes, work.min_bytes, work.flops), device,
        candidate_ns=timed.comparison.candidate.median_ns, reference_ns=timed.comparison.reference.median_ns,
        own_output_bytes=own.output_bytes, ring=timed.ring, precision=declared, all_float32=dtypes == {"float32"})
