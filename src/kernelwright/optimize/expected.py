"""What a candidate is expected to gain, and what a second of looking at it buys. Pure.

A call is the time in which the device works and the time in which it waits. Passes that fuse, fold or compute otherwise shorten the work,
each by the geometric middle of what it predicts, or by what a trial of it has shown; a CUDA graph takes most of the waiting, and adds the
copies of inputs and outputs. So a pass that makes the work much shorter is expected to pay most where the launches go too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from ..model.verdict import Experiment
from .budget import is_cheap, screen_estimate_s
from .hypothesis import IDLE
from .passes import CATALOGUE, Context
from .passes.base import Pass, Prediction
from .passes.conditions import call_ns, copies_share, fusion_words, has_products, idle_share, loading_share, recurrent
from .plan import GRAPHLESS, UNWRAP, Candidate, carrier_of
from .view import View, always, incumbent

UNKNOWN_GAIN = 1.01
"""Of a pass whose gain the profile gives no number for."""
WAITING_LEFT = 0.3
"""Part of the device's waiting that a CUDA graph leaves (H200: half of it in two convolution models, nothing in an LSTM)."""
COMPILERS_GRAPH_NS = 150e3
"""A call where the compiler's own CUDA graphs are replayed is expected to take at least so long, whatever its kernels do: guards, copies,
bookkeeping (H200, torch 2.11, two models in bfloat16, the same compiled code with them and in a graph of one's own: 181 and 61 us, 131 and
60 us)."""
HOST_BOUND_NS = 400e3
"""A shorter call with the compiler's own CUDA graphs may be waiting for the host."""
GUARDS_NS = 2e6
"""In a shorter call what Dynamo does before anything is launched may be more than the screen's noise: some 60 us on two CPU cores
(bench/call_cost.py)."""
A_LAUNCH_NS = 50e3
"""What the host may need for a launch, with all that torch and the model do between two (GPT-2 at TF32, H200: 126 launches in 4.6 ms,
37 us each; in a graph 1.4 ms)."""
LOADS = "loader_workers"
"""Shortens the waiting for a DataLoader, and that alone does."""
IN_A_KERNEL = "persistent_lstm"
"""With it no recurrent layer of the library is left."""
LEAST_SHARE = 0.02
"""Of a call's work, at least so much is left whatever is predicted."""
SHOWN_ANYWAY = 1.05
"""A gain that shows although the host was waited for."""
OTHERWISE = 1.1
"""The screen's time of the original counts where it differs from the profile's by this factor."""
T = TypeVar("T")
Factor = Callable[[str], "float | None"]
"""Pass -> by what factor a trial has shown it to shorten the call; None: not known."""


def as_screened(context: Context, rows: Iterable[Experiment]) -> Context:
    """What is known of the workload, with the time of a call as the first screen found it, and the idle share that follows: the profile's
    own timing is short, and the host may have been busy with other work then (H200: 969 us, and 650 a few seconds later)."""
    screens = (row.screen for row in rows if row.screen is not None and not row.screen.against)
    usual_ns = next((screen.reference_ns for screen in screens if screen.reference_ns), None)
    profile, whole_ns = context.profile, call_ns(context)
    if usual_ns is None or whole_ns is None or profile.timing is None or 1.0 / OTHERWISE < usual_ns / whole_ns < OTHERWISE:
        return context
    known = context.known.get(f"{as_screened.__name__} {usual_ns}")
    if isinstance(known, Context):
        return known
    timeline = profile.timeline
    if timeline is not None and timeline.steps and timeline.idle_share_pct is not None:
        timeline = timeline.model_copy(update={"idle_share_pct": 100.0 * max(0.0, 1.0 - timeline.busy_ns / timeline.steps / usual_ns)})
    timing = profile.timing.model_copy(update={"median_ns": usual_ns})
    made = replace(context, profile=profile.model_copy(update={"timing": timing, "timeline": timeline}))
    context.known[f"{as_screened.__name__} {usual_ns}"] = made
    return made


def middle(prediction: Prediction) -> float | None:
    """Geometric middle of the gain that is predicted; None without a number."""
    gain = prediction.gain
    return math.sqrt(gain[0] * gain[1]) if gain is not None and gain[0] > 0 and gain[1] > 0 else None


def modelled(context: Context, names: Iterable[str], shown: Factor) -> float:
    """Speed-up over the original that these passes together are expected to have."""
    names = sorted(names)
    passes = [CATALOGUE[name] for name in names]  # of those that say the same, one counts: always the same one
    work, waiting, loading = _start(context, names)
    said: set[str] = set()
    for item in passes:
        prediction = _said(context, item)
        if (item.one_launch and not item.carrier) or item.name == UNWRAP or prediction.words in said:
            continue  # the graph counts below; taking torch.compile off above; the same time can't go twice
        said.add(prediction.words)
        known, expected = shown(GRAPHLESS.get(item.name, item.name)), middle(prediction)  # what a mode's own graph gave counts below
        if item.name == LOADS:
            loading = max(0.0, loading - (1.0 - 1.0 / (known or expected or 1.0)))
            continue
        if known is None and any(move.quantity == IDLE for move in prediction.moves):
            waiting = max(0.0, waiting - (1.0 - 1.0 / (expected or 1.0)))
            continue
        work /= known if known is not None else expected or UNKNOWN_GAIN
    if any(item.one_launch and not (item.carrier and stays_out(context, names)) for item in passes):
        waiting = WAITING_LEFT * waiting + once(context, copies_share)
    whole_ns = once(context, call_ns) if any(item.one_launch and item.carrier for item in passes) else None
    return 1.0 / max(LEAST_SHARE, work + waiting + loading, COMPILERS_GRAPH_NS / whole_ns if whole_ns else 0.0)


def _start(context: Context, names: Collection[str]) -> tuple[float, float, float]:
    """Work, waiting and waiting for a DataLoader of what these passes begin with, of a call of the original: that, or the model without
    its own torch.compile where they put no other in its place, or its graphs."""
    compiled_anew = carrier_of(names) is not None and context.facts.already_compiled
    bare = context.uncompiled if UNWRAP in names and not compiled_anew else None
    of = replace(context, profile=bare, uncompiled=None) if bare is not None else context
    idle = min(max(once(of, idle_share) or 0.0, 0.0), 1.0 - LEAST_SHARE) if context.on_gpu else 0.0
    before, after = once(context, call_ns), once(of, call_ns)
    whole = after / before if before and after else 1.0
    loading = min(idle, once(of, loading_share))
    return whole * (1.0 - idle), whole * (idle - loading), whole * loading


def stays_out(context: Context, names: Iterable[str]) -> bool:
    """Whether recurrent layers are left, which stay outside of the compiler's CUDA graphs."""
    return once(context, recurrent) and IN_A_KERNEL not in names


def _said(context: Context, item: Pass) -> Prediction:
    """What a pass predicts; a compile mode with CUDA graphs of its own what its fusion does, since the graph counts beside it. Where a pass
    predicts no number since the workload is compiled already: what it does of the model without. How much of that the compiler took away
    is not known, but the order of the trials has nothing better to go by."""
    made = context.known.get(item.name)
    if not isinstance(made, Prediction):
        made = fusion_words(context) if item.one_launch and item.carrier else item.prediction(context)
        if made.gain is None and context.uncompiled is not None and not item.carrier:
            facts = context.facts.model_copy(update={"already_compiled": False})
            made = replace(made, gain=item.prediction(replace(context, facts=facts, profile=context.uncompiled, uncompiled=None)).gain)
        context.known[item.name] = made
    return made


def once(context: Context, what: Callable[[Context], T]) -> T:
    """what(context), worked out once."""
    if what.__name__ not in context.known:
        context.known[what.__name__] = what(context)
    found: T = context.known[what.__name__]
    return found


def shown_by(evidence: Mapping[tuple[str, bool], float], graphed: bool) -> Factor:
    """What trials have shown of a pass, for a candidate with a CUDA graph or without one. A loss without a graph says nothing of the pass
    in one: it may be the launches'."""

    def factor(name: str) -> float | None:
        own = evidence.get((name, graphed))
        if own is None and graphed:
            other = evidence.get((name, False))
            return other if other is not None and other > 1.0 else None
        return own

    return factor


def is_graphed(names: Iterable[str]) -> bool:
    """Whether the host launches once: a CUDA graph of one's own or the compiler's."""
    return any(CATALOGUE[name].one_launch for name in names)


@dataclass(frozen=True)
class Hope:
    """What a trial is expected to bring."""

    speedup: float
    """Over the original."""
    ratio: float
    """Over the best so far; of a cheap pass alone, over the original: it shows what the pass gives to any other candidate."""
    rate: float
    """Logarithm of the ratio a second."""


def hoped(view: View, items: Iterable[Candidate]) -> list[tuple[Candidate, Hope]]:
    """Each with what is expected of it, what brings the most a second first."""
    return sorted(((item, hope(view, item)) for item in items), key=lambda pair: (-pair[1].rate, pair[0].name))


def hope(view: View, item: Candidate) -> Hope:
    """What this candidate is expected to bring, from its parent's screen, the profile and what its passes have shown so far."""
    parent = view.row(item.parents[0]) if item.parents else None
    measured = view.speed(parent) if parent is not None else None
    shown = evidence(view)
    speedup = modelled(view.context, item.passes, shown_by(shown, is_graphed(item.passes)))
    if parent is not None and measured:
        speedup *= measured / modelled(view.context, parent.passes, shown_by(shown, is_graphed(parent.passes)))
    best = fastest(view)
    known = view.speed(best) if best is not None else None
    freed = is_graphed(item.passes) and any(CATALOGUE[name].frees_capture for name in item.passes)
    alone = not item.parents and not freed and is_cheap(item.passes) and not (best is not None and set(item.passes) <= set(best.passes))
    ratio = speedup if alone or known is None else speedup / known
    seconds, _ = screen_estimate_s(item.passes, view.rows, view.costs, has_products=once(view.context, has_products))
    return Hope(speedup, ratio, math.log(max(ratio, 1e-9)) / seconds)


def fastest(view: View) -> Experiment | None:
    """The fastest candidate so far, at any precision."""
    found = [row for level in view.allowed if (row := incumbent(view, level)) is not None]
    return max(found, key=lambda row: view.speed(row) or 0.0, default=None)


def waits_for_host(view: View, row: Experiment) -> bool:
    """Whether a candidate has the compiler's CUDA graphs, and is so fast that replaying them may be what was measured."""
    usual_ns = _usual_ns(view, row) if GRAPHLESS.keys() & set(row.passes) else None
    return usual_ns is not None and usual_ns <= HOST_BOUND_NS


def waits_for_guards(view: View, row: Experiment) -> bool:
    """Whether a compiled candidate's call is so short that torch.compile's guards may tell."""
    usual_ns = _usual_ns(view, row)
    return usual_ns is not None and usual_ns <= GUARDS_NS


def launches_hide(view: View, row: Experiment) -> bool:
    """Whether a candidate that launches what the original does gained less than expected, and its launches may be what was measured."""
    timeline, usual_ns, speed = view.context.profile.timeline, _usual_ns(view, row), view.speed(row)
    if not view.context.on_gpu or timeline is None or not timeline.steps or usual_ns is None or speed is None:
        return False
    return speed < modelled(view.context, row.passes, lambda _name: None) and usual_ns <= A_LAUNCH_NS * timeline.launches / timeline.steps


def _usual_ns(view: View, row: Experiment) -> float | None:
    """Time of a candidate's call."""
    whole_ns, measured_ns = once(view.context, call_ns), row.screen.candidate_ns if row.screen is not None else None
    return measured_ns or (whole_ns / (view.speed(row) or 1.0) if whole_ns else None)


def evidence(view: View) -> dict[tuple[str, bool], float]:
    """(pass, in a CUDA graph or not) -> the most that a trial has shown it to gain on top of a candidate without it. Where the host was
    waited for, only a gain shows what the device does."""
    found: dict[tuple[str, bool], float] = {}
    for row in view.rows:
        parent = view.row(row.parents[0]) if row.parents else None
        own, before = view.speed(row), view.speed(parent) if parent is not None else 1.0
        new = set(row.passes) - set(parent.passes if parent is not None else always(row.passes))
        hidden = parent is not None and own and before and own < SHOWN_ANYWAY * before and waits_for_host(view, row)
        if own and before and len(new) == 1 and row.screen is not None and not hidden:
            key = new.pop(), is_graphed(row.passes)
            found[key] = max(found.get(key, 0.0), own / before)
    return found
