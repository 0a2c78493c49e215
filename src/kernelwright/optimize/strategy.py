"""What to screen next (finalists.py: who is judged). Pure: the same rows give the same answer, so a resumed run goes on where it was.

Order: what won for this workload before; what the profile lets expect a gain of (OPENING) over the best so far, the most a second first, as
long as it needs no compiler; below equal precision each cast in a CUDA graph once one is ahead, or launches may hide what a cast gains, the
compiler on the best so far, and the lowest cast in what is ahead at a higher precision; what is expected to gain and must be compiled; else
the ladder's first rows; then the dimension that UCB1 names, in it again the most a second first.

A pass that costs little is tried alone, since alone it is refuted without a compiler, then on top of the best so far; one that shortens the
device's work much also together with a CUDA graph, where the host's launches don't hide it; one that found nothing to change also beside
what brings together what it looks for. The rescue pool puts together what gained somewhere and is missing from the best. PATIENCE trials
that brought nothing, and a share of the budget with them, end the screening.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations

from ..judge.correctness import PRECISION_ORDER
from ..model.verdict import Experiment
from ..model.workload import Precision
from . import bandit, memory
from .budget import LIGHT, TUNING, is_cheap, kind
from .expected import (
    evidence,
    fastest,
    hope,
    is_graphed,
    launches_hide,
    modelled,
    once,
    shown_by,
    stays_out,
    waits_for_guards,
    waits_for_host,
)
from .passes import CARRIER, CATALOGUE, Pass
from .passes.conditions import has_products
from .plan import CASTS, GRAPH, GRAPHLESS, HOPELESS, LADDER, UNWRAP, WARM, Candidate, candidate, carrier_of, compatible, refusal
from .view import STEP, View, always, incumbent, refused

PATIENCE = 12
"""So many trials without a gain of STEP end the screening: by then each dimension had its turn, and most had several."""
PATIENCE_SHARE = 0.25
"""And so much of the budget, spent on them: twelve trials of a short call take 15 s, and a long budget was given to look further."""
WEIGHTS, AUTOCAST = "bf16", "bf16_autocast"
ALIKE = 1.1
"""Casts whose screens differ by less are as good as each other."""
OPENING = 1.05
"""A candidate that is expected to be so much faster than the best so far comes before the dimensions have their turns."""
CHEAPEST = LADDER[0]
"""Its screen takes a second or two once the workload is loaded. First without a GPU: a short budget then has a result before the first
compilation, which takes 30 s on two cold cores."""
AS_GOOD = 0.85
"""A warm start has what it wants once a former winner's screen shows this share of what it was judged to gain: a screen is rougher."""
DIRECT = "direct_calls"
RESCUE = "rescue"
FOR_REWRITES = ("freeze_weights", "cudnn_benchmark", "blas_library")
"""Settings that change what later rewrites see (frozen weights are constants), or which kernels they are measured against."""
UNCAPTURED = "the call can't be captured"
"""In the reason of such a candidate (probe/rewrites/cuda_graph.py)."""
IDLE = "found nothing to change in the compiled graphs"
"""In the reason of such a candidate (probe/rewrites/graphs.py)."""
NO_PRIOR = 1e-6
"""A dimension of which similar workloads say nothing: after what paid there, before what gained nothing."""
MOST_SWAPS = 3
_COSTS = ("cheap", "compile", *TUNING)
_BAD = ("wrong", "failed", "not_applicable")


def untried_ladder(view: View) -> list[Candidate]:
    """The ladder's rows that were not measured and apply, cheap ones first: those at the lowest precision allowed, as every user can have
    it, before those at the workload's own, which can't be kept where a cast pays."""
    names = sorted((name for name in LADDER if not (name == "no_grad" and view.context.facts.needs_gradients)),
                   key=lambda name: (name == CHEAPEST and _compiles_anew(view), _COSTS.index(CATALOGUE[name].cost)))
    cast = _best_cast(view)
    return still_open(view, [candidate([name, *also], view.context, ladder_row=True, origin="ladder", dimension=CATALOGUE[name].dimension)
                             for also in ([[cast], []] if cast is not None else [[]]) for name in names])


def _compiles_anew(view: View) -> bool:
    """Whether a call without gradients may have the workload's own torch.compile make other code of it first."""
    return view.context.facts.already_compiled


def _best_cast(view: View) -> str | None:
    """The flag or cast that was fastest alone, compiled or in a CUDA graph; None where none gained."""
    found = {name: max((memory.screened_speedup(row) or 0.0 for row in view.rows if name in row.passes and not _is_bad(row)
                        and bare(row.passes) <= {name, GRAPH, *LADDER}), default=0.0) for name in sorted(CASTS)}
    best = max(found, key=lambda name: found[name])
    return best if found[best] > STEP else None


def proposals(view: View, *, whole: bool = False) -> list[Candidate]:
    """Everything that may be tried now, in no order that matters but for equals. whole: also where the search looks no further."""
    warm = [candidate(names, view.context, origin=WARM) for names in view.winners if set(names) <= CATALOGUE.keys()]
    found = still_open(view, warm)
    ladder = untried_ladder(view)
    found += ladder
    if not whole and (settled(view) or exhausted(view)):
        return _distinct(found)
    passes = _usable(view)
    found += still_open(view, [_single(view, item) for item in passes if item.name not in LADDER and _alone_first(view, item)])
    found += still_open(view, [_graphed(view, item) for item in passes if _pays_in_graph(view, item) and _is_graph_usable(view)])
    found += still_open(view, [*_casts_in_graph(view), *_own_graphs(view), *_called_directly(view)])
    found += _freed_captures(view, passes)
    found += _casts_on_fastest(view) + _first_compiled(view)
    for level in view.allowed:
        found += _steps(view, level, passes)
    found += _rescues(view)
    return _distinct(found)


def settled(view: View) -> bool:
    """Whether a former winner of this workload does again what it did: nothing new is looked for."""
    if not view.winners or view.won is None:
        return False
    first = view.row(candidate(view.winners[0], view.context).name) if set(view.winners[0]) <= CATALOGUE.keys() else None
    speed = memory.screened_speedup(first) if first is not None else None
    return speed is not None and speed >= AS_GOOD * view.won


def exhausted(view: View) -> bool:
    """Whether the last trials brought nothing, at any precision: PATIENCE of them, and those of PATIENCE_SHARE of the budget."""
    idle, idle_s = _idle_trials(view)
    return idle >= PATIENCE and idle_s >= PATIENCE_SHARE * view.budget_s


def out_of_patience(view: View) -> str:
    """The same in words; "" where there is patience left."""
    idle, idle_s = _idle_trials(view)
    return f"the last {idle} trials, {idle_s:.0f} s, brought nothing" if exhausted(view) else ""


def _idle_trials(view: View) -> tuple[int, float]:
    """(trials since the last gain of STEP, the seconds that they took)."""
    best: dict[Precision, float] = {}
    idle, idle_s = 0, 0.0
    for row in view.rows:
        if row.screen is None or row.status in ("out_of_budget", "not_applicable"):
            continue
        speed = memory.screened_speedup(row) or 0.0
        idle, idle_s = idle + 1, idle_s + row.screen.elapsed_s
        if speed > STEP * best.get(row.precision, 1.0):
            best[row.precision], idle, idle_s = speed, 0, 0.0
    return idle, idle_s


def next_candidate(view: View, affordable: Callable[[Candidate], bool], *, due: Collection[str] = ()) -> Candidate | None:
    """The next trial. affordable: whether the time allows it; due: rows of the ladder that the time left is needed for."""
    waiting = [item for item in proposals(view) if affordable(item)]
    if not waiting:
        return None
    hopes = {item.name: hope(view, item) for item in waiting}
    best = sorted(waiting, key=lambda item: (-hopes[item.name].rate, len(item.passes), item.name))
    openings = [item for item in best if hopes[item.name].ratio >= OPENING and _kind(view, item) != "autotune"]
    graphs = [item.name for item in (*_casts_in_graph(view), *_own_graphs(view), *_called_directly(view))]
    lower, deep = _lower_compiled(view, waiting), [item.name for item in _casts_on_fastest(view)]
    casts = [item for item in waiting if item.name in deep]
    is_ahead = (memory.screened_speedup(leader) or 0.0) >= OPENING if (leader := fastest(view)) is not None else False
    first = [item for item in waiting if item.origin == WARM] \
        or [item for item in waiting if item.name == CHEAPEST and not view.context.on_gpu and not _compiles_anew(view)] \
        or [item for item in openings[:1] if is_cheap(item.passes)] \
        or sorted((item for item in waiting if item.name in graphs), key=lambda item: graphs.index(item.name)) \
        or [item for item in (*lower, *casts) if is_ahead] \
        or openings \
        or lower \
        or casts \
        or [item for item in waiting if item.name in LADDER[:2] and not (item.name == CARRIER and _ahead(view) is not None)
            and not (item.name == CHEAPEST and _compiles_anew(view))]
    if first:
        return first[0]
    if ladder := [item for item in waiting if item.name in due]:
        return ladder[0]
    known = bandit.arms(memory.plays_of(memory.trials_of(view.rows)), view.priors)
    by_dimension: dict[str, list[Candidate]] = {}
    for item in waiting:
        by_dimension.setdefault(item.dimension, []).append(item)
    chosen = _order(view, known, by_dimension)[0]
    return min(by_dimension[chosen], key=lambda item: (_COSTS.index(_kind(view, item)), not item.ladder_row, -hopes[item.name].rate,
                                                       len(item.passes), item.name))


def _ahead(view: View) -> Experiment | None:
    """The fastest candidate so far, where it computes at lower precision."""
    best = fastest(view)
    return best if best is not None and best.precision != "equal" else None


def _own_graphs(view: View) -> list[Candidate]:
    """Where the fastest candidate has the compiler's CUDA graphs and its call is short: one's own graph in their place. What was compiled
    is in the caches, so that it takes seconds."""
    best = fastest(view)
    if best is None or not waits_for_host(view, best) or stays_out(view.context, best.passes) or not _is_graph_usable(view):
        return []
    return [candidate(_captured(view, best.passes), view.context, origin="step", parents=(best.name,),
                      dimension=CATALOGUE[GRAPH].dimension)]


def _called_directly(view: View) -> list[Candidate]:
    """Where the fastest candidate is compiled, its call is short, and a CUDA graph of it was tried or can't be: the same without Dynamo's
    guards. What was compiled is in the caches, so that it takes seconds."""
    best = fastest(view)
    if best is None or carrier_of(best.passes) is None or {DIRECT, AUTOCAST} & set(best.passes) or not waits_for_guards(view, best) \
            or not any(item.name == DIRECT for item in _usable(view)) or not compatible([*best.passes, DIRECT]):
        return []
    in_graph = candidate(_captured(view, best.passes), view.context).name
    if _is_graph_usable(view) and compatible([*best.passes, GRAPH]) and view.row(in_graph) is None:
        return []
    return [candidate([*best.passes, DIRECT], view.context, origin="step", parents=(best.name,),
                      dimension=CATALOGUE[DIRECT].dimension)]


def _freed_captures(view: View, passes: Iterable[Pass]) -> list[Candidate]:
    """Where the call can't be captured as it is: the CUDA graph with what takes such obstacles out, all of it first, then with one less
    after another, until one can be captured."""
    graph = view.row(GRAPH)
    if graph is None or UNCAPTURED not in graph.reason or _freed(view) is not None:
        return []
    free = sorted(item.name for item in passes if item.frees_capture)
    for count in range(len(free), 0, -1):
        if left := still_open(view, [candidate([*some, GRAPH], view.context, origin="step", dimension=CATALOGUE[GRAPH].dimension)
                                     for some in combinations(free, count)]):
            return left
    return []


def _freed(view: View) -> Experiment | None:
    """The CUDA graph that needs no more than some of them, and that was captured."""
    found = [row for row in view.rows if GRAPH in row.passes and bare(row.passes) != {GRAPH} and not _is_bad(row)
             and memory.screened_speedup(row) and all(CATALOGUE[name].frees_capture for name in bare(row.passes) - {GRAPH})]
    return max(found, key=lambda row: memory.screened_speedup(row) or 0.0, default=None)


def _capture(view: View) -> tuple[str, ...]:
    """What a CUDA graph of the whole call is made of: itself, with what took the obstacles out where it was captured so. () where it can't
    be had."""
    if CATALOGUE[GRAPH].refusal(view.context) is not None:
        return ()
    if not _refuted(view, GRAPH):
        return (GRAPH,)
    freed = _freed(view)
    return tuple(sorted(bare(freed.passes))) if freed is not None else ()


def _captured(view: View, passes: Iterable[str]) -> list[str]:
    """These passes in that graph."""
    found = list(passes)
    for name in _capture(view):
        found = found if name in found else joined(found, name)
    return found


def _casts_in_graph(view: View) -> list[Candidate]:
    """Where a candidate in a CUDA graph is ahead, or a cast whose launches may hide what it gains: the casts that are allowed in one too,
    before anything is compiled. Without a graph they show the host's launches, not what they shorten (GPT-2: bf16 1.2x, in a graph 4.7x on
    an H200; tf32 1.3x and 4.2x on an H100). Of those the one that is ahead comes first."""
    best = fastest(view)
    hidden = best is not None and set() < bare(best.passes) <= CASTS and launches_hide(view, best)
    if best is None or not (hidden or GRAPH in best.passes) or not _is_graph_usable(view):
        return []
    casts = sorted((item for item in _usable(view) if item.name in CASTS), key=lambda item: item.name not in best.passes)
    return [_graphed(view, item) for item in casts]


def _lower_compiled(view: View, waiting: Sequence[Candidate]) -> list[Candidate]:
    """The compiler on top of the fastest candidate, where that is of lower precision: the ladder's own compiled row can't catch up."""
    by_name = {item.name: item for item in waiting}
    return [by_name[item.name] for item in _first_compiled(view) if item.name in by_name]


def _first_compiled(view: View) -> list[Candidate]:
    """The fastest candidate compiled, where it is of lower precision and was not: first with the passes that are early, where they are
    expected to gain (a budget of a minute has no second compilation for them), then without."""
    base = _weights_alike(view) or _ahead(view)
    if base is None or carrier_of(base.passes) is not None:
        return []
    usable, shown = _usable(view), shown_by(evidence(view), is_graphed(base.passes))
    early = [item for item in usable if item.early and compatible([*base.passes, item.name])
             and not _brought_loss(view, item, base.precision)
             and modelled(view.context, [item.name, *sorted(item.partners)], shown) >= OPENING]
    more = sorted({item.name for item in early} | {item.name for item in usable if any(item.name in one.better_beside for one in early)})
    compiled = candidate([*base.passes, CARRIER], view.context, ladder_row=base.name in CASTS, origin="step", parents=(base.name,),
                         dimension=CATALOGUE[CARRIER].dimension)
    whole = candidate([*compiled.passes, *more], view.context, origin="step", parents=(base.name,))
    return still_open(view, [whole, compiled] if more else [compiled])


def _brought_loss(view: View, item: Pass, level: Precision) -> bool:
    """Whether a candidate of this precision with this pass, and with what shows it more, was bad with little else in it, or no faster than
    the same without them."""
    for row in view.rows:
        if item.name not in row.passes or row.precision != level:
            continue
        without = set(row.passes) - {item.name, *item.better_beside}
        plain = next((memory.screened_speedup(other) for other in view.rows if set(other.passes) == without), None)
        own = memory.screened_speedup(row)
        if (_is_bad(row) and bare(without) <= {*CASTS, CARRIER, GRAPH}) or (own is not None and plain is not None and own <= plain):
            return True
    return False


def _weights_alike(view: View) -> Experiment | None:
    """The weights' cast, where autocast is ahead, alone or in a CUDA graph, and that is as good: it is the one to compile, since then it
    casts nothing but inputs (a product with a batch norm at bf16, H200: autocast 7.44x, compiled 9.2x; the weights 7.40x, compiled 9.9x).
    None where it was compiled, without success."""
    best = fastest(view)
    if best is None or bare(best.passes) - {GRAPH} != {AUTOCAST} or _refuted(view, WEIGHTS):
        return None
    own, least = bare(best.passes) - {AUTOCAST} | {WEIGHTS}, max(STEP, (memory.screened_speedup(best) or 0.0) / ALIKE)
    alike = [row for row in view.rows if bare(row.passes) == own and not _is_bad(row) and (memory.screened_speedup(row) or 0.0) > least]
    compiled = [candidate([*row.passes, CARRIER], view.context) for row in alike[:1]]
    return alike[0] if still_open(view, compiled) else None


def _casts_on_fastest(view: View) -> list[Candidate]:
    """Where the fastest candidate is compiled, or in a CUDA graph of one's own, at a higher precision than the lowest allowed: the casts of
    that one in it, under the default mode where its own measures kernels, once they were seen alone or in a graph and did not halve the
    speed. By itself a cast is a kernel more, in compiled code none (a LayerNorm over 4 M elements at bf16, H200: 1.01x alone, 22.7x
    compiled, 20.3x without it); and what a kernel of one's own gains, the fastest with the cast may not have (depthwise convolutions at
    bf16, H200: 1.65x in a graph, 6.51x with `separable_convolutions` too)."""
    best = fastest(view)
    if best is None or best.precision == view.precision or not (carrier_of(best.passes) is not None or GRAPH in best.passes):
        return []
    mode = carrier_of(best.passes)
    rest = [name for name in best.passes if name not in CASTS and name != mode]
    if mode is not None:
        rest.append(mode if kind([mode], has_products=once(view.context, has_products)) != "autotune" else CARRIER)
    seen = [(name, memory.screened_speedup(row) or 1.0) for row in view.rows if row.screen is not None
            for name in CASTS & set(row.passes) if bare(row.passes) <= {name, GRAPH, *_capture(view)}]
    casts = {name for name, _ in seen} - {name for name, speed in seen if speed < HOPELESS}
    usable = [item for item in _usable(view) if item.name in casts and item.precision == view.precision]
    # That a cast gained nothing in a graph alone says little of what it gains beside a kernel of one's own.
    tried = {item.name for item in usable if mode is not None and _tried_on(view, item.name, [*rest, item.name], view.precision)}
    return still_open(view, [candidate([*rest, item.name], view.context, origin="step", parents=(best.name,), dimension=item.dimension)
                             for item in usable if item.name not in tried])


def _kind(view: View, item: Candidate) -> str:
    return kind(item.passes, has_products=once(view.context, has_products))


def bare(passes: Iterable[str]) -> set[str]:
    """These passes without those that are a condition of others."""
    return set(passes) - {"no_grad", UNWRAP}


def upcoming(view: View, count: int) -> list[Candidate]:
    """Candidates that are likely to come soon and need a compiler, for compiling ahead. None that measures on the device while it is
    built: it would disturb, and be disturbed by, what is measured meanwhile."""
    waiting = [item for item in proposals(view) if _kind(view, item) == "compile"
               and not any(CATALOGUE[name].measures for name in item.passes)]
    rates = {item.name: hope(view, item).rate for item in waiting}
    return sorted(waiting, key=lambda item: (item.origin != WARM, -rates[item.name], not item.ladder_row, item.name))[:count]


def tuning(view: View) -> list[Candidate]:
    """Rows of the ladder whose kernels the compiler measures, for compiling ahead: that takes longer than a short budget has, and a screen
    of what is compiled a few seconds."""
    return [item for item in untried_ladder(view) if _kind(view, item) in TUNING]


def is_tuned_shortly(view: View, item: Candidate) -> bool:
    """Whether it is expected to gain and the compiler measures few kernels for it: neither products nor convolutions."""
    return _kind(view, item) == LIGHT and hope(view, item).ratio >= OPENING


def _order(view: View, known: Mapping[str, bandit.Arm], by_dimension: Mapping[str, list[Candidate]]) -> list[str]:
    """UCB1's order; before it those without a trial: what paid in similar workloads, what they say nothing of (the cheap first, then by the
    best promise), what gained nothing there."""
    order = bandit.order(known, by_dimension)
    played = {trial.dimension for trial in memory.trials_of(view.rows)}
    unplayed = [name for name in order if name not in played]
    unplayed.sort(key=lambda name: (-view.priors.get(name, NO_PRIOR), min(_COSTS.index(_kind(view, item)) for item in by_dimension[name]),
                                    -max(hope(view, item).ratio for item in by_dimension[name]), name))
    return unplayed + [name for name in order if name not in unplayed]


def _usable(view: View) -> list[Pass]:
    """Passes that apply, are allowed and were not refuted, as those that they need beside them."""
    found = [item for item in CATALOGUE.values() if item.precision in view.allowed and item.refusal(view.context) is None
             and not _refuted(view, item.name) and not (item.name == "no_grad" and view.context.facts.needs_gradients)]
    names = {item.name for item in found}
    return [item for item in found if item.partners <= names]


def _refuted(view: View, name: str) -> bool:
    """Alone it was wrong, failed or found nothing to do; or it was so in a CUDA graph that works without it, or on top of two different
    candidates. That it found nothing says little while what may bring together what it looks for was not beside it."""
    unopened, beside = _openers(view, CATALOGUE[name]), CATALOGUE[name].better_beside
    after = {item.name for item in CATALOGUE.values() if name in item.partners}
    if beside and any(name in _found_nothing(row) and _rewrites(row.passes) - beside - after - {"tf32"} == {name} for row in view.rows):
        return True  # what shows a pass more does not decide whether it finds anything; types do

    def says_little(row: Experiment) -> bool:
        return bool(unopened) and IDLE in row.reason and not CATALOGUE[name].opened_by & set(row.passes)

    alone = view.row(_single(view, CATALOGUE[name]).name)
    if alone is not None and not says_little(alone):
        return _is_bad(alone)
    graph, both = view.row(GRAPH), view.row(candidate([name, GRAPH], view.context).name) if name != GRAPH else None
    if both is not None and graph is not None and not _is_bad(graph) and both.status == "not_applicable" and not says_little(both):
        return True
    tried = [row for row in view.rows if row.parents and name in _added(view, row) <= {name, *CATALOGUE[name].opened_by}
             and not says_little(row)]
    return sum(_is_bad(row) for row in tried) >= 2 and all(_is_bad(row) for row in tried)


def _found_nothing(row: Experiment) -> list[str]:
    """Passes that found nothing to change in this candidate."""
    return row.reason.partition(f"{IDLE}: ")[2].split(", ")


def _openers(view: View, item: Pass) -> list[str]:
    """Passes that may bring together what this one looks for: those that apply and were not refuted."""
    return sorted(name for name in item.opened_by if CATALOGUE[name].precision in view.allowed
                  and CATALOGUE[name].refusal(view.context) is None and not _refuted(view, name))


def _is_bad(row: Experiment) -> bool:
    return row.status in ("failed", "not_applicable") or (row.screen is not None and row.screen.status in _BAD) or refused(row)


def _single(view: View, item: Pass) -> Candidate:
    return candidate([item.name], view.context, ladder_row=item.name in LADDER, origin="single", dimension=item.dimension)


def _graphed(view: View, item: Pass) -> Candidate:
    """The pass in a CUDA graph of the whole call."""
    graph = _graph(view)
    return candidate([item.name, *graph.passes], view.context, origin="step", parents=(graph.name,) if view.row(graph.name) else (),
                     dimension=item.dimension)


def _graph(view: View) -> Candidate:
    """A CUDA graph of the whole call and nothing else."""
    return candidate(_capture(view) or (GRAPH,), view.context)


def _is_graph_usable(view: View) -> bool:
    return bool(_capture(view))


def _pays_in_graph(view: View, item: Pass) -> bool:
    """Whether a pass works without the compiler, and shortens the device's work so much that the host's launches may be what is left."""
    if item.one_launch or item.carrier or item.in_graph or item.cost == "cheap" or not compatible([item.name, GRAPH]):
        return False
    return _shortens(view, item)


def _shortens(view: View, item: Pass) -> bool:
    return modelled(view.context, [item.name], shown_by(evidence(view), graphed=True)) >= OPENING


def _alone_first(view: View, item: Pass) -> bool:
    """Whether a pass is tried alone: where that is cheap, or nothing is there to put it on. What it needs beside it comes first."""
    needed = {*item.partners, *({CARRIER} & set(_single(view, item).passes))} - {item.name}
    unseen = {name for name in needed if CATALOGUE[name].refusal(view.context) is None
              and view.row(_single(view, CATALOGUE[name]).name) is None}
    if unseen:
        return unseen == {CARRIER} and _outdoes_compiler(view, item)
    if item.cost == "cheap" and item.level in ("module", "runtime"):
        return True
    best = incumbent(view, item.precision) or incumbent(view, "equal")
    return best is None or (carrier_of(best.passes) is None and item.level not in ("module", "runtime"))


def _outdoes_compiler(view: View, item: Pass) -> bool:
    """Without a GPU: whether a pass is expected to gain more than the compiler that it needs. A minute on two cores has room for one or two
    compilations (the embedding example: `compile_default` came first and was judged, 1.05x, and with `fold_embedding`, expected to gain
    1.27x, it was not begun)."""
    if view.context.on_gpu:
        return False
    shown = shown_by(evidence(view), graphed=False)
    compiled, both = (modelled(view.context, names, shown) for names in ([CARRIER], [CARRIER, item.name]))
    return both / compiled >= max(OPENING, compiled)


def _steps(view: View, level: Precision, passes: Sequence[Pass]) -> list[Candidate]:
    """The best at this precision with one pass more, or with another in the place of one that it excludes; the same in a CUDA graph, where
    the pass shortens the device's work; and the CUDA graph of the whole call with one pass more."""
    best = incumbent(view, level)
    base = best or (incumbent(view, "equal") if level != "equal" else None)
    graph = view.row(_graph(view).name)
    on_graph = graph if graph is not None and base is not graph and _is_graph_usable(view) and memory.screened_speedup(graph) else None
    found = []
    for item in passes:
        if PRECISION_ORDER.index(item.precision) > PRECISION_ORDER.index(level):
            continue
        if item.cost == "cheap" and item.level in ("module", "runtime") and view.row(_single(view, item).name) is None:
            continue  # alone first
        if base is not None and not (best is None and item.precision != level):
            found += _step(view, base, item, level)
        if on_graph is not None and item.precision == level:
            found += _step(view, on_graph, item, level)
    return still_open(view, found)


def _step(view: View, base: Experiment, item: Pass, level: Precision) -> list[Candidate]:
    if item.name in base.passes or _gives_up_graph(base.passes, item.name):
        return []
    if item.in_graph and carrier_of(base.passes) is None:
        compiled = candidate([*base.passes, CARRIER], view.context).name
        if compatible([*base.passes, CARRIER]) and view.row(compiled) is None:
            return []  # what only compiling does comes first
    ways = [joined(base.passes, item.name)]
    if item.opened_by and _rewrites(ways[0]) in _idle(view):
        opened = [joined(base.passes, opener) for opener in _openers(view, item)]
        ways = [joined(names, item.name) for names in opened if _rewrites(names) not in _idle(view)]  # one that is idle opens nothing
    capture = _capture(view)
    graphed = [[*{*names, *capture}] for names in ways if GRAPH not in names and compatible([*names, *capture])]
    if graphed and capture and _shortens(view, item):
        ways += graphed
    return [candidate(way, view.context, origin="step", parents=(base.name,), dimension=item.dimension) for way in ways
            if set(way) != {item.name} and not _tried_on(view, item.name, way, level)]


def _gives_up_graph(passes: Iterable[str], name: str) -> bool:
    """Whether a pass that only spares the host would take the place of the call's CUDA graph, which spares it all of the launches."""
    return CATALOGUE[name].dimension == "host" and any(CATALOGUE[one].one_launch and not compatible([one, name]) for one in passes)


def _tried_on(view: View, name: str, passes: Sequence[str], level: Precision) -> bool:
    """Whether this pass was added to another candidate of this precision under the same compile mode, in a CUDA graph or not as here, and
    gained nothing: it would hardly here. That it found nothing says nothing of it beside what brings together what it looks for."""
    runs, openers = (carrier_of(passes), is_graphed(passes)), CATALOGUE[name].opened_by & set(passes)
    beside = {GRAPH, *_capture(view)} - {name}
    for row in view.rows:
        if IDLE in row.reason and openers - set(row.passes):
            continue
        if row.parents and row.precision == level and name in row.passes and _added(view, row) - beside == {name} \
                and (carrier_of(row.passes), is_graphed(row.passes)) == runs and row.screen is not None:
            parent = view.row(row.parents[0])
            own, before = memory.screened_speedup(row), memory.screened_speedup(parent) if parent is not None else None
            if own is None or before is None or own <= before:
                return True
    return False


def _added(view: View, row: Experiment) -> set[str]:
    parent = view.row(row.parents[0]) if row.parents else None
    before = set(parent.passes) if parent is not None else set()
    return set(row.passes) - before - {GRAPHLESS[name] for name in before & GRAPHLESS.keys() if GRAPH in row.passes}


def _rescues(view: View) -> list[Candidate]:
    """What gained in some candidate, is missing from the best one and did not fail or turn out to be of no use on top of it: all of it at
    once, and each of the strongest that the best one excludes (another compile mode, a capture of one's own) in the excluding pass's
    place, with all that goes with it."""
    trials = memory.trials_of(view.rows)
    by_name = {row.name: row.passes for row in view.rows}
    parents = {row.passes: by_name.get(row.parents[0], ()) if row.parents else always(row.passes) for row in view.rows}
    gains = memory.useful(trials, parents)
    found = []
    for level in view.allowed:
        best = incumbent(view, level)
        if best is None:
            continue
        refused_by_best = {frozenset(_added(view, row)) for row in view.rows
                           if row.parents[:1] == (best.name,) and _is_bad(row) and IDLE not in row.reason}
        missing = sorted((name for name in gains if name in CATALOGUE and name not in best.passes
                          and frozenset({name}) not in refused_by_best
                          and PRECISION_ORDER.index(CATALOGUE[name].precision) <= PRECISION_ORDER.index(level)),
                         key=lambda name: (-gains[name], name))
        added: list[str] = []
        for name in missing:
            added += [name] if compatible([*best.passes, *added, name]) else []
        if len(added) > 1:
            found.append(_rescue(view, [*best.passes, *added], best))
        excluded = [name for name in missing if not compatible([*best.passes, name]) and not _gives_up_graph(best.passes, name)]
        for name in excluded[:MOST_SWAPS]:
            swapped = joined(best.passes, name)
            for other in missing:
                swapped += [other] if other not in swapped and compatible([*swapped, other]) else []
            found.append(_rescue(view, swapped, best))
    return still_open(view, found)


def _rescue(view: View, names: Iterable[str], best: Experiment) -> Candidate:
    return candidate(names, view.context, origin="rescue", parents=(best.name,), dimension=RESCUE)


def joined(passes: Iterable[str], new: str) -> list[str]:
    """These passes with one more, less those that it excludes; a compile mode takes the place of another, and a CUDA graph of one's own
    that of the compiler's: what was compiled stays compiled."""
    kept = [name for name in passes if compatible([name, new])]
    without_graphs = [GRAPHLESS[name] for name in passes if name not in kept and name in GRAPHLESS] if new == GRAPH else []
    return [*kept, *without_graphs, new]


def still_open(view: View, items: Iterable[Candidate]) -> list[Candidate]:
    """Those that were not measured, can be put together and apply."""
    done = {row.name for row in view.rows if row.status != "out_of_budget"}
    idle = _idle(view)
    return [item for item in items if item.name not in done and item.precision in view.allowed and compatible(item.passes)
            and refusal(item, view.context) is None and _rewrites(item.passes) not in idle]


def _idle(view: View) -> set[frozenset[str]]:
    """Sets of rewrites of which one found nothing to change."""
    return {_rewrites(row.passes) for row in view.rows if row.status == "not_applicable" and IDLE in row.reason} - {frozenset()}


def _rewrites(passes: Iterable[str]) -> frozenset[str]:
    """The passes that decide what a rewrite is given, and what its measurements are. Where one of them found nothing to change, it finds
    nothing under another compile mode or other settings of Inductor either; beside another rewrite it may (batch norms that are folded
    away bring a convolution and its ReLU together)."""
    items = [CATALOGUE[name] for name in passes if name in CATALOGUE and name != UNWRAP]
    return frozenset(item.name for item in items if not item.carrier and (
        item.level in ("module", "functional", "aten") or item.precision != "equal" or item.name in FOR_REWRITES))


def _distinct(items: Iterable[Candidate]) -> list[Candidate]:
    found: dict[str, Candidate] = {}
    for item in items:
        found.setdefault(item.name, item)
    return list(found.values())
