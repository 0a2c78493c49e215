"""What is tried with a CUDA graph of the whole call, or in its place. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from .expected import evidence, fastest, modelled, shown_by, stays_out, waits_for_guards, waits_for_host
from .passes import CATALOGUE, Pass
from .plan import AUTOCAST, GRAPH, GRAPHLESS, Candidate, candidate, carrier_of, compatible
from .ruled_out import UNCAPTURED, can_capture, capture_passes, freed_capture, still_open, usable_passes, whole_graph
from .view import OPENING, View

DIRECT = "direct_calls"


def own_graphs(view: View) -> list[Candidate]:
    """Where the fastest candidate has the compiler's CUDA graphs and its call is short: one's own graph in their place. What was compiled
    is in the caches, so that it takes seconds."""
    best = fastest(view)
    if best is None or not waits_for_host(view, best) or stays_out(view.context, best.passes) or not can_capture(view):
        return []
    return [candidate(in_capture(view, best.passes), view.context, origin="step", parents=(best.name,),
                      dimension=CATALOGUE[GRAPH].dimension)]


def called_directly(view: View) -> list[Candidate]:
    """Where the fastest candidate is compiled, its call is short, and a CUDA graph of it was tried or can't be: the same without Dynamo's
    guards. What was compiled is in the caches, so that it takes seconds."""
    best = fastest(view)
    if best is None or carrier_of(best.passes) is None or {DIRECT, AUTOCAST} & set(best.passes) or not waits_for_guards(view, best) \
            or not any(item.name == DIRECT for item in usable_passes(view)) or not compatible([*best.passes, DIRECT]):
        return []
    in_graph = candidate(in_capture(view, best.passes), view.context).name
    if can_capture(view) and compatible([*best.passes, GRAPH]) and view.row(in_graph) is None:
        return []
    return [candidate([*best.passes, DIRECT], view.context, origin="step", parents=(best.name,),
                      dimension=CATALOGUE[DIRECT].dimension)]


def freed_captures(view: View, passes: Iterable[Pass]) -> list[Candidate]:
    """Where the call can't be captured as it is: the CUDA graph with what takes such obstacles out, all of it first, then with one less
    after another, until one can be captured."""
    graph = view.row(GRAPH)
    if graph is None or UNCAPTURED not in graph.reason or freed_capture(view) is not None:
        return []
    free = sorted(item.name for item in passes if item.frees_capture)
    for count in range(len(free), 0, -1):
        if left := still_open(view, [candidate([*some, GRAPH], view.context, origin="step", dimension=CATALOGUE[GRAPH].dimension)
                                     for some in combinations(free, count)]):
            return left
    return []


def in_capture(view: View, passes: Iterable[str]) -> list[str]:
    """These passes in that graph."""
    found = list(passes)
    for name in capture_passes(view):
        found = found if name in found else joined(found, name)
    return found


def with_graph(view: View, item: Pass) -> Candidate:
    """The pass in a CUDA graph of the whole call."""
    graph = whole_graph(view)
    return candidate([item.name, *graph.passes], view.context, origin="step", parents=(graph.name,) if view.row(graph.name) else (),
                     dimension=item.dimension)


def pays_in_graph(view: View, item: Pass) -> bool:
    """Whether a pass works without the compiler, and shortens the device's work so much that the host's launches may be what is left."""
    if item.one_launch or item.carrier or item.in_graph or item.cost == "cheap" or not compatible([item.name, GRAPH]):
        return False
    return shortens(view, item)


def shortens(view: View, item: Pass) -> bool:
    """Whether a pass is expected to gain OPENING where no launch of the host is waited for."""
    return modelled(view.context, [item.name], shown_by(evidence(view), graphed=True)) >= OPENING


def joined(passes: Iterable[str], new: str) -> list[str]:
    """These passes with one more, less those that it excludes; a compile mode takes the place of another, and a CUDA graph of one's own
    that of the compiler's: what was compiled stays compiled."""
    kept = [name for name in passes if compatible([name, new])]
    without_graphs = [GRAPHLESS[name] for name in passes if name not in kept and name in GRAPHLESS] if new == GRAPH else []
    return [*kept, *without_graphs, new]
