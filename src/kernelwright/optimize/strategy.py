"""What to screen next (finalists.py: who is judged). Pure: the same rows give the same answer, so a resumed run goes on where it was.

Order: what won for this workload before; what the profile lets expect a gain of (OPENING) over the best so far, the most a second first, as
long as it needs no compiler; below equal precision each cast in a CUDA graph once one is ahead, or launches may hide what a cast gains, the
compiler on the best so far, and the lowest cast in what is ahead at a higher precision; what is expected to gain and must be compiled; else
the ladder's first rows; then the dimension that UCB1 names, in it again the most a second first, what is expected to gain nothing after
the ladder's rows.

A pass that costs little is tried alone, since alone it is refuted without a compiler, then on top of the best so far; one that shortens the
device's work much also together with a CUDA graph, where the host's launches don't hide it; one that found nothing to change also beside
what brings together what it looks for. The rescue pool puts together what gained somewhere and is missing from the best. PATIENCE trials
that brought nothing, and a share of the budget with them, end the screening but for what is PROMISING.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ..judge.correctness import PRECISION_ORDER
from ..model.verdict import Experiment
from ..model.workload import Precision
from . import bandit, memory
from .budget import LIGHT, TUNING, is_cheap, kind
from .captures import called_directly, freed_captures, joined, own_graphs, pays_in_graph, shortens, with_graph
from .expected import UNKNOWN_GAIN, evidence, fastest, hope, is_graphed, modelled, once, shown_by
from .lower_precision import best_cast, casts_in_graph, casts_on_fastest, first_compiled, lower_ahead
from .passes import CARRIER, CATALOGUE, Pass
from .passes.conditions import has_products
from .plan import GRAPH, LADDER, WARM, Candidate, candidate, carrier_of, compatible
from .ruled_out import (
    IDLE,
    added_by,
    by_itself,
    can_capture,
    capture_passes,
    idle_rewrites,
    is_bad,
    openers_of,
    outdone_passes,
    rewrites_of,
    still_open,
    usable_passes,
    was_tried_on,
    whole_graph,
)
from .view import OPENING, STEP, View, always, incumbent

PATIENCE = 12
"""So many trials without a gain of STEP end the screening: by then each dimension had its turn, and most had several."""
PATIENCE_SHARE = 0.25
"""And so much of the budget, spent on them: twelve trials of a short call take 15 s, and a long budget was given to look further."""
PROMISING = 1.02
"""What is expected to be so much faster than the best so far has its trial all the same, unless its kernels are measured for it. Of 44
searches on GPUs that had ended so by 30 November 2026, 18 had left such a candidate: `fuse_conv_relu` in eleven of the convolutions', 1.06x
where it was tried, and `inductor_keep_layout`, with which a depthwise convolution's later searches were fastest."""
CHEAPEST = LADDER[0]
"""Its screen takes a second or two once the workload is loaded. First without a GPU: a short budget then has a result before the first
compilation, which takes 30 s on two cold cores."""
AS_GOOD = 0.85
"""A warm start has what it wants once a former winner's screen shows this share of what it was judged to gain: a screen is rougher."""
RESCUE = "rescue"
NO_PRIOR = 1e-6
"""A dimension of which similar workloads say nothing: after what paid there, before what gained nothing."""
MOST_SWAPS = 3
_COSTS = ("cheap", "compile", *TUNING)


def untried_ladder(view: View) -> list[Candidate]:
    """The ladder's rows that were not measured and apply, cheap ones first: those at the lowest precision allowed, as every user can have
    it, before those at the workload's own, which can't be kept where a cast pays."""
    names = sorted((name for name in LADDER if not (name == "no_grad" and view.context.facts.needs_gradients)),
                   key=lambda name: (name == CHEAPEST and _compiles_anew(view), _COSTS.index(CATALOGUE[name].cost)))
    cast = best_cast(view)
    return still_open(view, [candidate([name, *also], view.context, ladder_row=True, origin="ladder", dimension=CATALOGUE[name].dimension)
                             for also in ([[cast], []] if cast is not None else [[]]) for name in names])


def _compiles_anew(view: View) -> bool:
    """Whether a call without gradients may have the workload's own torch.compile make other code of it first."""
    return view.context.facts.already_compiled


def proposals(view: View, *, whole: bool = False) -> list[Candidate]:
    """Everything that may be tried now, in no order that matters but for equals. whole: also where the search looks no further."""
    warm = [candidate(names, view.context, origin=WARM) for names in view.winners if set(names) <= CATALOGUE.keys()]
    found = still_open(view, warm)
    found += untried_ladder(view)
    if not whole and settled(view):
        return _distinct(found)
    further = _further(view)
    if not whole and exhausted(view):
        further = [item for item in further if hope(view, item).ratio >= PROMISING and _kind(view, item) not in TUNING]
    return _distinct([*found, *further])


def _further(view: View) -> list[Candidate]:
    """All but the ladder and what won before."""
    passes = usable_passes(view)
    found = still_open(view, [by_itself(view, item) for item in passes if item.name not in LADDER and _alone_first(view, item)])
    found += still_open(view, [with_graph(view, item) for item in passes if pays_in_graph(view, item) and can_capture(view)])
    found += still_open(view, [*casts_in_graph(view), *own_graphs(view), *called_directly(view)])
    found += freed_captures(view, passes)
    found += casts_on_fastest(view) + first_compiled(view)
    for level in view.allowed:
        found += _steps(view, level, passes) + _relieved(view, level)
    return found + _rescues(view)


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
    """(trials since the last gain of STEP, the seconds that they took). A row of the ladder that gains nothing is none: it is there to be
    compared with."""
    best: dict[Precision, float] = {}
    idle, idle_s = 0, 0.0
    for row in view.rows:
        if row.screen is None or row.status in ("out_of_budget", "not_applicable"):
            continue
        speed = view.speed(row) or 0.0
        if speed > STEP * best.get(row.precision, 1.0):
            best[row.precision], idle, idle_s = speed, 0, 0.0
        elif not row.ladder_row:
            idle, idle_s = idle + 1, idle_s + row.screen.elapsed_s
    return idle, idle_s


def next_candidate(view: View, affordable: Callable[[Candidate], bool], *, due: Collection[str] = ()) -> Candidate | None:
    """The next trial. affordable: whether the time allows it; due: rows of the ladder that the time left is needed for."""
    waiting = _in_turn(view, [item for item in proposals(view) if affordable(item)])
    if not waiting:
        return None
    hopes = {item.name: hope(view, item) for item in waiting}
    best = sorted(waiting, key=lambda item: (-hopes[item.name].rate, len(item.passes), item.name))
    openings = [item for item in best if hopes[item.name].ratio >= OPENING and _kind(view, item) != "autotune"]
    graphs = [item.name for item in (*casts_in_graph(view), *own_graphs(view), *called_directly(view))]
    lower, deep = _lower_compiled(view, waiting), [item.name for item in casts_on_fastest(view)]
    casts = [item for item in waiting if item.name in deep]
    is_ahead = (view.speed(leader) or 0.0) >= OPENING if (leader := fastest(view)) is not None else False
    first = [item for item in waiting if item.origin == WARM] \
        or [item for item in waiting if item.name == CHEAPEST and not view.context.on_gpu and not _compiles_anew(view)] \
        or [item for item in openings[:1] if is_cheap(item.passes)] \
        or sorted((item for item in waiting if item.name in graphs), key=lambda item: graphs.index(item.name)) \
        or [item for item in (*lower, *casts) if is_ahead] \
        or openings \
        or lower \
        or casts \
        or [item for item in waiting if item.name in LADDER[:2] and not (item.name == CARRIER and lower_ahead(view) is not None)
            and not (item.name == CHEAPEST and _compiles_anew(view))]
    if first:
        return first[0]
    if ladder := [item for item in waiting if item.name in due]:
        return ladder[0]
    known = bandit.arms(memory.plays_of(memory.trials_of(view.rows, view.speed)), view.priors)
    by_dimension: dict[str, list[Candidate]] = {}
    for item in waiting:
        by_dimension.setdefault(item.dimension, []).append(item)
    chosen = _order(view, known, by_dimension)[0]
    ahead = {item.name for item in waiting if item.ladder_row or (hopes[item.name].ratio > STEP and _kind(view, item) != "autotune")}
    return min(by_dimension[chosen], key=lambda item: (_COSTS.index(_kind(view, item)), item.name not in ahead, -hopes[item.name].rate,
                                                       len(item.passes), item.name))


def _in_turn(view: View, waiting: Sequence[Candidate]) -> list[Candidate]:
    """In a generation loop whose sizes grow the compiler's own CUDA graphs are compiled and captured for each size: as long as one graph of
    the whole call waits, which takes seconds, they come after it."""
    loop = view.context.facts.loop
    if loop is None or loop.grows is None or whole_graph(view).name not in {item.name for item in waiting}:
        return list(waiting)
    return [item for item in waiting if not any(CATALOGUE[name].sizes_in_graphs for name in item.passes)]


def _lower_compiled(view: View, waiting: Sequence[Candidate]) -> list[Candidate]:
    """The compiler on top of the fastest candidate, where that is of lower precision: the ladder's own compiled row can't catch up."""
    by_name = {item.name: item for item in waiting}
    return [by_name[item.name] for item in first_compiled(view) if item.name in by_name]


def _kind(view: View, item: Candidate) -> str:
    return kind(item.passes, has_products=once(view.context, has_products))


def upcoming(view: View, count: int) -> list[Candidate]:
    """Candidates that are likely to come soon and need a compiler, for compiling ahead. None that measures on the device while it is
    built: it would disturb, and be disturbed by, what is measured meanwhile."""
    waiting = [item for item in _in_turn(view, proposals(view)) if _kind(view, item) == "compile"
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
    played = {trial.dimension for trial in memory.trials_of(view.rows, view.speed)}
    unplayed = [name for name in order if name not in played]
    unplayed.sort(key=lambda name: (-view.priors.get(name, NO_PRIOR), min(_COSTS.index(_kind(view, item)) for item in by_dimension[name]),
                                    -max(hope(view, item).ratio for item in by_dimension[name]), name))
    return unplayed + [name for name in order if name not in unplayed]


def _alone_first(view: View, item: Pass) -> bool:
    """Whether a pass is tried alone: where that is cheap, or nothing is there to put it on. What it needs beside it comes first."""
    needed = {*item.partners, *({CARRIER} & set(by_itself(view, item).passes))} - {item.name}
    unseen = {name for name in needed if CATALOGUE[name].refusal(view.context) is None
              and view.row(by_itself(view, CATALOGUE[name]).name) is None}
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
    graph = view.row(whole_graph(view).name)
    on_graph = graph if graph is not None and base is not graph and can_capture(view) and view.speed(graph) else None
    found = []
    for item in passes:
        if PRECISION_ORDER.index(item.precision) > PRECISION_ORDER.index(level):
            continue
        if item.cost == "cheap" and item.level in ("module", "runtime") and view.row(by_itself(view, item).name) is None:
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
    if item.opened_by and rewrites_of(ways[0]) in (idle := idle_rewrites(view)):
        opened = [joined(base.passes, opener) for opener in openers_of(view, item)]
        ways = [joined(names, item.name) for names in opened if rewrites_of(names) not in idle]  # one that is idle opens nothing
    capture = capture_passes(view)
    graphed = [[*{*names, *capture}] for names in ways if GRAPH not in names and compatible([*names, *capture])]
    if graphed and capture and shortens(view, item):
        ways += graphed
    return [candidate(way, view.context, origin="step", parents=(base.name,), dimension=item.dimension) for way in ways
            if set(way) != {item.name} and not was_tried_on(view, item.name, way, level)]


def _relieved(view: View, level: Precision) -> list[Candidate]:
    """What was put on the best and does not apply there, though all that it adds was seen to work: the same without that pass of the best
    which measures whether it pays and has shown least. Beside another it may not pay, which says nothing of the rest (attention, H200:
    `blas_library` twice, in code that the compiler had made: 2.3x was kept; in a search without it 2.7x)."""
    best = incumbent(view, level)
    if best is None:
        return []
    measuring = {name for name in best.passes if CATALOGUE[name].measures}
    worked = {name for row in view.rows if view.speed(row) for name in row.passes}
    found = []
    for row in view.rows:
        added, left = added_by(view, row), measuring & set(row.passes)
        if row.parents[:1] != (best.name,) or row.status != "not_applicable" or row.verdict is not None or IDLE in row.reason \
                or not left or not added or not added <= worked:
            continue
        shown = shown_by(evidence(view), graphed=is_graphed(row.passes))
        least = min(sorted(left), key=lambda name: shown(name) or UNKNOWN_GAIN)
        found.append(candidate([name for name in row.passes if name != least], view.context, origin="step", parents=(best.name,),
                               dimension=CATALOGUE[sorted(added)[0]].dimension))
    return still_open(view, found)


def _gives_up_graph(passes: Iterable[str], name: str) -> bool:
    """Whether a pass that only spares the host would take the place of the call's CUDA graph, which spares it all of the launches."""
    return CATALOGUE[name].dimension == "host" and any(CATALOGUE[one].one_launch and not compatible([one, name]) for one in passes)


def _rescues(view: View) -> list[Candidate]:
    """What gained in some candidate, is missing from the best one and did not fail or turn out to be of no use on top of it: all of it at
    once, and each of the strongest that the best one excludes (another compile mode, a capture of one's own) in the excluding pass's
    place, with all that goes with it."""
    trials = memory.trials_of(view.rows, view.speed)
    by_name = {row.name: row.passes for row in view.rows}
    parents = {row.passes: by_name.get(row.parents[0], ()) if row.parents else always(row.passes) for row in view.rows}
    gains = memory.useful(trials, parents)
    found = []
    for level in view.allowed:
        best = incumbent(view, level)
        if best is None:
            continue
        refused_by_best = {frozenset(added_by(view, row)) for row in view.rows
                           if row.parents[:1] == (best.name,) and is_bad(row) and IDLE not in row.reason}
        lacking = [passes - {*best.passes} for passes in outdone_passes(view, best.passes, level)]
        earned_nothing = {name for names in lacking if len(names) == 1 for name in names}
        missing = sorted((name for name in gains if name in CATALOGUE and name not in best.passes and name not in earned_nothing
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


def _distinct(items: Iterable[Candidate]) -> list[Candidate]:
    found: dict[str, Candidate] = {}
    for item in items:
        found.setdefault(item.name, item)
    return list(found.values())
