"""The time budget of one optimisation, and what a candidate is expected to cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..judge.options import MIN_ROUNDS
from ..model.verdict import Experiment
from .passes import CATALOGUE
from .passes.base import LAYER_COMPILE, Context
from .passes.conditions import call_ns, sizes_bytes

LIGHT = "light autotune"
TUNING = (LIGHT, "autotune")
"""The kinds for which the compiler measures kernels."""
PRIOR_S = {"cheap": 10.0, "compile": 40.0, LIGHT: 60.0, "autotune": 120.0}
"""Seconds to judge a candidate of each kind before any was seen. Starting points only: compiling takes 20 to 30 s on a busy
CPU, tuning minutes on a large model; the first measurement of a kind replaces its entry."""
ENDING_S = 2.0
"""Kept of the time for a judgement: one that is ended for want of time takes a moment to end (0.5 s on two busy cores; with 0.6 GiB of
inputs an H100 took 1.3 and 2.6 s until the search was over, and an H200 2.3 s, processes ending one after the other; 1.4 s on both where
all end together)."""
SLOW_INPUTS_S = 0.3
"""From so many seconds for making inputs on, processes that hold them are slow to end: the screen's, open beside the judge's, get
ENDING_S of their own.
With inputs of 0.05 s at most all was over 0.1 to 0.7 s after a judgement was cut short, on an H200 and on two cores; with 0.6 GiB the
judgement took 2.2 s to end, and the other processes 1.3 s more."""
CONFIRM_SHARE = 0.4
"""At most this share of the budget is held back for the final confirmation."""
RESERVE_MARGIN = 1.25
"""The confirmation may take this many times what was measured before it ends for want of time."""
SCREENED_MARGIN = 1.6
"""The same where the candidate had been screened: what it compiles is in the caches, but the original's process, started ahead for the
judgement, is started anew for the confirmation (an H200 with a busy host: 16 s, then 26 s; 11 s, then 12 s)."""
START_S = 5.0
"""What the start of the original's process for a confirmation may take, where SCREENED_MARGIN allows for less: of 39 candidates on H100s
and H200s that were judged in at most 8 s nine in ten took at most 4.4 s longer when they were confirmed."""
UNSEEN_SHARE = 0.5
"""A candidate of a kind not seen yet starts when this share of its prior is left: the prior may be far too long."""
LAST_TRY_SHARE = 0.4
"""When nothing is expected to end in time, one more is tried with this share: the time would pass unused otherwise."""


@dataclass
class Budget:
    """Seconds from the start of the optimisation to the last judgement, and the ablation that it leaves time for."""

    total_s: float
    clock: Callable[[], float] = time.monotonic
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def used_s(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.started

    def left_s(self) -> float:
        """Seconds until the end; not below 0."""
        return max(0.0, self.total_s - self.used_s())


def kind(passes: Iterable[str], *, has_products: bool) -> str:
    """The dearest kind among the passes: cheap, compile, light autotune or autotune. has_products: whether the workload has products or
    convolutions (conditions.has_products), of which a compile mode that measures kernels tries many; of fused loops it tries a few."""
    costs = (LIGHT if CATALOGUE[name].carrier and not has_products and CATALOGUE[name].cost == "autotune" else CATALOGUE[name].cost
             for name in passes)
    return max(costs, key=list(PRIOR_S).index, default="cheap")


def is_cheap(passes: Iterable[str]) -> bool:
    """Whether nothing is compiled."""
    return all(CATALOGUE[name].cost == "cheap" for name in passes)


def estimate_s(passes: Iterable[str], done: Iterable[Experiment], *, has_products: bool) -> tuple[float, bool]:
    """(expected seconds to judge such a candidate, whether that rests on one of the same kind that was judged)."""
    names = tuple(passes)
    wanted, known = kind(names, has_products=has_products), set()
    seen: dict[str, list[float]] = {}
    for row in done:
        if row.status == "judged" and row.elapsed_s > 0:
            seen.setdefault(kind(row.passes, has_products=has_products), []).append(row.elapsed_s)
            known.add((kind(row.passes, has_products=has_products), _graph(row.passes)))
    if wanted == "autotune" and "compile" in seen and (wanted, _graph(names)) in known:
        # The same kernels were tuned before: Inductor finds them in its cache and only compiles.
        return statistics.median(seen["compile"]), True
    if wanted in seen:
        return statistics.median(seen[wanted]), True
    if wanted in TUNING and "compile" in seen:  # as much longer than what compiling was seen to take
        return PRIOR_S[wanted] / PRIOR_S["compile"] * statistics.median(seen["compile"]), False
    return PRIOR_S[wanted], False


SCREEN_PRIOR_S = {"cheap": 2.0, "compile": 12.0, LIGHT: 15.0, "autotune": 100.0}
"""Seconds to screen a candidate of each kind before any was seen on this machine (H200, 16 cores: 0.8 to 2.6, 5 to 15, 13)."""
LIGHT_FACTOR = 2.5
"""A screen that measures few kernels takes so many times what one that compiles was seen to take (a cross entropy, H200: 13 s and 5 s)."""
COMPILE = "compile"
COMPILED = "compiled ahead"
COMPILED_S = 4.0
"""Seconds to screen what was compiled ahead, before any was (H200: 0.9 to 1.6)."""
JUDGE_PRIOR_S = {True: 7.0, False: 14.0}
"""On a GPU or not: seconds to judge a screened candidate, beside its set-up and what the workload itself costs, before any was on this
machine: a process's start, its checks, the timing. On a GPU least squares, with the two below, over the first judgements of 165 searches
on H200s: they took 0.6 to 1.5 times what is expected so (tenth and 90th percentile)."""
OUTPUTS_S_PER_GB = 4.0
"""On a GPU a judgement takes so many seconds longer for each 1e9 bytes that a call returns: they are copied and compared in each round."""
JUDGED_CALLS, JUDGED_CALLS_S = 300.0, 9.0
"""On a GPU a judgement also takes as long as so many calls of the original, its float64 runs among them; of long calls fewer are made: so
many seconds at most."""
INPUTS_MADE = 5
"""The first judgement of a session waits so often for inputs to be made, at least: at the load, in the survey of the workload, and for
each round (MIN_ROUNDS). Later ones wait for those of the rounds alone."""
SETUP_S = 3.0
"""Set-up of a candidate that compiles in a process of its own, everything being in the compilers' caches and torch imported beforehand
(over the ledgers of docs/predictions.md 2 s on GPUs, 3 s on a CPU)."""
JUDGING_SHARE = 0.65
"""At most this share of the budget is held back for judging finalists and what follows, while none was judged."""
PLENTY = 2.0
"""A judgement that can hardly change what is kept is made where so many of them fit in the time left."""
JUDGEMENT = "judgement without the workload's own"
"""Key of `costs`, beside the kinds: what a judgement takes on this machine less the candidate's set-up, the wait for inputs and workload_s,
which are the workload's own (H200: 26 s with 1.1 GB of inputs; of the next workload's minute 65% were held back for two such, and its took
8 s)."""
LEAST_JUDGEMENT_S = 2.0
"""None takes less, whatever its inputs took."""
ABLATION_SHARE = 0.15
"""At most this share is held back for ablation, once there is something to ablate."""
SLIM_SHARE = 0.12
"""A judgement of what ablation may leave of the winner is held back for where it takes no more than this share (H200: 8 to 12 s)."""
WEIGHING_SHARE = 0.06
"""At most this share is held back for the first look of ablation, whether lower precision earns anything (H200: 1.3 to 5.3 s)."""


def screen_estimate_s(passes: Iterable[str], done: Iterable[Experiment], costs: Mapping[str, float] | None = None, *,
                      has_products: bool) -> tuple[float, bool]:
    """(expected seconds to screen such a candidate, whether that rests on one of the same kind). costs: of earlier runs on this
    machine. Where none of the kind came to an end, no less than the longest that was ended for want of time (a GPT block on two cores:
    `compile_default` after 16 s, the next with it after the last 9, so that nothing was judged)."""
    wanted, known, rows = kind(passes, has_products=has_products), costs or {}, list(done)
    seen = screens_s(rows, has_products=has_products)
    if wanted in seen:
        return statistics.median(seen[wanted]), True
    cut_s = max((row.screen.own_s for row in rows if row.screen is not None and row.screen.status == "out_of_budget"
                 and _screened_kind(row, has_products) == wanted), default=0.0)
    if cut_s > 0.0:
        return max(cut_s, known.get(wanted, SCREEN_PRIOR_S[wanted])), True
    if wanted == LIGHT and wanted not in known and (COMPILE in seen or COMPILE in known):
        return LIGHT_FACTOR * (statistics.median(seen[COMPILE]) if COMPILE in seen else known[COMPILE]), False
    return known.get(wanted, SCREEN_PRIOR_S[wanted]), wanted in known


def screens_s(done: Iterable[Experiment], *, has_products: bool) -> dict[str, list[float]]:
    """Kind -> seconds of its screens that came to an end, less the workload's loading; what was compiled ahead is a kind of its own
    (COMPILED). The very first, and the first that is compiled, find nothing in place (libraries; a compiler and its headers: 19 s on two
    cores, then 9), and are left out once there are others of the kind. done: in the order in which they were first screened."""
    ended = [row for row in done if row.screen is not None and row.screen.status in ("timed", "hopeless")]
    found: dict[str, list[float]] = {}
    for row in ended:
        found.setdefault(_screened_kind(row, has_products), []).append(row.screen.own_s if row.screen is not None else 0.0)
    for name in {_screened_kind(ended[0], has_products), _cold(ended, has_products)} if ended else ():
        if len(found.get(name, ())) > 1:
            del found[name][0]
    return found


def compiled_estimate_s(done: Iterable[Experiment]) -> float:
    """Expected seconds to screen what was compiled ahead."""
    return statistics.median(screens_s(done, has_products=True).get(COMPILED, [COMPILED_S]))


def _screened_kind(row: Experiment, has_products: bool) -> str:
    return COMPILED if row.screen is not None and row.screen.compiled_ahead else kind(row.passes, has_products=has_products)


def _cold(rows: Iterable[Experiment], has_products: bool) -> str:
    """The kind of the run's first screen that compiled: it takes longer than the others, but for those that measure products."""
    compiled = (_screened_kind(row, has_products) for row in rows if row.screen is not None and not is_cheap(row.passes))
    first = next((name for name in compiled if name != COMPILED), COMPILE)
    return first if first in (COMPILE, LIGHT) else COMPILE


def judge_estimate_s(row: Experiment | None, done: Iterable[Experiment], costs: Mapping[str, float] | None = None, *,
                     on_gpu: bool = False, inputs_s: float | None = None, work_s: float = 0.0) -> float:
    """Expected seconds to judge a screened candidate (None: any): what others took beside their set-up here; else what judgements take on
    this machine, the wait for inputs that take inputs_s to make, and work_s (workload_s). To it comes what is not cached of its own."""
    seen = judgements_s(done)
    own = (1.0 - CACHED_SHARE) * (row.screen.build_s if row is not None and row.screen is not None else 0.0)
    own = max(own, SETUP_S if row is None or not is_cheap(row.passes) else 0.0)
    if seen:
        return statistics.median(seen) + own
    return (costs or {}).get(JUDGEMENT, JUDGE_PRIOR_S[on_gpu]) + INPUTS_MADE * (inputs_s or 0.0) + work_s + own


def workload_s(context: Context) -> float:
    """Seconds that a judgement takes longer on a GPU for this workload's outputs and its calls. 0 on a CPU: not looked at there."""
    if not context.on_gpu:
        return 0.0
    outputs_s = OUTPUTS_S_PER_GB * sizes_bytes(context.facts.outputs) / 1e9
    return outputs_s + min(JUDGED_CALLS * (call_ns(context) or 0.0) / 1e9, JUDGED_CALLS_S)


def judgements_s(done: Iterable[Experiment]) -> list[float]:
    """Seconds of each judgement that came to an end, the first one first, less the candidate's set-up."""
    return [max(0.0, one.elapsed_s - (one.verdict.candidate_setup_s or 0.0)) for one in sorted(done, key=lambda row: row.index)
            if one.status == "judged" and one.verdict is not None]


def costs_of(done: Iterable[Experiment], *, has_products: bool, inputs_s: float | None = None, work_s: float = 0.0) -> dict[str, float]:
    """What this run's judgements and screens took, for later runs on this machine, of whatever workload; one compilation alone says nothing
    of later ones. inputs_s: what this workload takes to make its inputs; work_s: see workload_s."""
    rows = list(done)
    judged, seen = judgements_s(rows), screens_s(rows, has_products=has_products)
    cold = _cold(rows, has_products)
    once = {cold} if sum(row.screen is not None and _screened_kind(row, has_products) == cold for row in rows) < 2 else set()
    found = {name: statistics.median(seconds) for name, seconds in seen.items() if name not in {COMPILED} | once}
    if not judged:
        return found
    waited = [INPUTS_MADE, *[MIN_ROUNDS] * (len(judged) - 1)]
    own = [seconds - times * (inputs_s or 0.0) - work_s for seconds, times in zip(judged, waited, strict=True)]
    return {**found, JUDGEMENT: max(LEAST_JUDGEMENT_S, statistics.median(own))}


def usual_costs(seen: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The median of each over several runs."""
    found: dict[str, list[float]] = {}
    for costs in seen:
        for name, seconds in costs.items():
            found.setdefault(name, []).append(seconds)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def worth_starting(passes: Iterable[str], done: Iterable[Experiment], left_s: float, share: float | None = None, *,
                   has_products: bool) -> bool:
    """Whether a candidate can be expected to end in the time left; `share` of the expected time suffices where given."""
    expected_s, seen = estimate_s(passes, done, has_products=has_products)
    return left_s > 0 and left_s >= expected_s * (share or (1.0 if seen else UNSEEN_SHARE))


def _graph(passes: Iterable[str]) -> frozenset[str]:
    """Those passes that change the graph a compiler sees."""
    items = [CATALOGUE[name] for name in passes]
    return frozenset(item.name for item in items if item.layer < LAYER_COMPILE or item.precision != "equal")


CACHED_SHARE = 0.7
"""Part of a candidate's set-up that the second judgement finds in Inductor's cache (H200, max-autotune of GPT-2: 66 s, then 14 s)."""


def confirmation_reserve_s(best: Experiment | None, done: Iterable[Experiment], total_s: float) -> float:
    """Seconds to hold back for judging optimized.py itself once a candidate is FASTER (its compilation is cached by then).

    The confirmation starts the original's process anew: to the candidate's own seconds comes what that start was seen to cost. It is
    ended ENDING_S before the time is up, where the screen's processes hold large inputs (SLOW_INPUTS_S) twice that.
    """
    if best is None:
        return 0.0
    rows = list(done)
    first = min((row for row in rows if row.status == "judged"), key=lambda row: row.index)
    start_s = reference_start_s(rows) if first.name != best.name else 0.0  # the first one's seconds hold the start already
    setup_s = best.verdict.candidate_setup_s if best.verdict is not None else None
    # What was screened before it was judged found everything in the caches then: a second judgement is no faster (H200: 6.4 and 6.3 s).
    saved_s = CACHED_SHARE * (setup_s or 0.0) if best.screen is None else 0.0
    needed_s = best.elapsed_s - saved_s + start_s
    needed_s = RESERVE_MARGIN * needed_s if best.screen is None else max(SCREENED_MARGIN * needed_s, needed_s + START_S)
    return min(needed_s + 2 * ENDING_S, CONFIRM_SHARE * total_s)


def reference_start_s(done: Iterable[Experiment]) -> float:
    """Seconds that a judgement takes longer when the original's process starts with it: the first one's, less the quickest
    of the same kind. While there is no second of the kind, all of the first one's seconds."""
    first, *others = sorted((row for row in done if row.status == "judged"), key=lambda row: row.index)
    alike = [row.elapsed_s for row in others if kind(row.passes, has_products=True) == kind(first.passes, has_products=True)]
    return max(0.0, first.elapsed_s - min(alike, default=0.0))
