"""What the trials so far have ruled out, and how the call can be captured as a CUDA graph. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.verdict import Experiment
from ..model.workload import Precision
from .expected import is_graphed
from .passes import CATALOGUE, Pass
from .plan import GRAPH, GRAPHLESS, LADDER, UNWRAP, Candidate, candidate, carrier_of, compatible, refusal
from .view import View, refused

FOR_REWRITES = ("freeze_weights", "cudnn_benchmark", "blas_library")
"""Settings that change what later rewrites see (frozen weights are constants), or which kernels they are measured against."""
UNCAPTURED = "the call can't be captured"
"""In the reason of such a candidate (probe/rewrites/cuda_graph.py)."""
IDLE = "found nothing to change in the compiled graphs"
"""In the reason of such a candidate (probe/rewrites/graphs.py)."""
_BAD = ("wrong", "failed", "not_applicable")


def still_open(view: View, items: Iterable[Candidate]) -> list[Candidate]:
    """Those that were not measured, can be put together and apply, and are not put on what is outdone."""
    done = {row.name for row in view.rows if row.status != "out_of_budget"}
    idle = idle_rewrites(view)
    return [item for item in items if item.name not in done and item.precision in view.allowed and compatible(item.passes)
            and refusal(item, view.context) is None and rewrites_of(item.passes) not in idle
            and not any(passes < {*item.passes} for passes in outdone_passes(view, item.passes, item.precision))]


def outdone_passes(view: View, passes: Sequence[str], level: Precision) -> list[frozenset[str]]:
    """The passes of each candidate that is outdone, at this precision and under the same compile mode, in a CUDA graph or not as here."""
    runs = (level, carrier_of(passes), is_graphed(passes))
    return [frozenset(row.passes) for row in view.rows
            if row.name in view.outdone and (row.precision, carrier_of(row.passes), is_graphed(row.passes)) == runs]


def usable_passes(view: View) -> list[Pass]:
    """Passes that apply, are allowed and were not refuted, as those that they need beside them."""
    found = [item for item in CATALOGUE.values() if item.precision in view.allowed and item.refusal(view.context) is None
             and not is_refuted(view, item.name) and not (item.name == "no_grad" and view.context.facts.needs_gradients)]
    names = {item.name for item in found}
    return [item for item in found if item.partners <= names]


def is_refuted(view: View, name: str) -> bool:
    """Alone it was wrong, failed or found nothing to do; or it was so in a CUDA graph that works without it, or on top of two different
    candidates. That it found nothing says little while what may bring together what it looks for was not beside it."""
    unopened, beside = openers_of(view, CATALOGUE[name]), CATALOGUE[name].better_beside
    after = {item.name for item in CATALOGUE.values() if name in item.partners}
    if beside and any(name in _found_nothing(row) and rewrites_of(row.passes) - beside - after - {"tf32"} == {name} for row in view.rows):
        return True  # what shows a pass more does not decide whether it finds anything; types do

    def says_little(row: Experiment) -> bool:
        return bool(unopened) and IDLE in row.reason and not CATALOGUE[name].opened_by & set(row.passes)

    alone = view.row(by_itself(view, CATALOGUE[name]).name)
    if alone is not None and not says_little(alone):
        return is_bad(alone)
    graph, both = view.row(GRAPH), view.row(candidate([name, GRAPH], view.context).name) if name != GRAPH else None
    if both is not None and graph is not None and not is_bad(graph) and both.status == "not_applicable" and not says_little(both):
        return True
    tried = [row for row in view.rows if row.parents and name in added_by(view, row) <= {name, *CATALOGUE[name].opened_by}
             and not says_little(row)]
    return sum(is_bad(row) for row in tried) >= 2 and all(is_bad(row) for row in tried)


def is_bad(row: Experiment) -> bool:
    """Whether it failed, does not apply, or was found wrong, by the screen or by the judge."""
    return row.status in ("failed", "not_applicable") or (row.screen is not None and row.screen.status in _BAD) or refused(row)


def was_tried_on(view: View, name: str, passes: Sequence[str], level: Precision) -> bool:
    """Whether this pass was added to another candidate of this precision under the same compile mode, in a CUDA graph or not as here, and
    gained nothing: it would hardly here. That it found nothing says nothing of it beside what brings together what it looks for."""
    runs, openers = (carrier_of(passes), is_graphed(passes)), CATALOGUE[name].opened_by & set(passes)
    beside = {GRAPH, *capture_passes(view)} - {name}
    for row in view.rows:
        if IDLE in row.reason and openers - set(row.passes):
            continue
        if row.parents and row.precision == level and name in row.passes and added_by(view, row) - beside == {name} \
                and (carrier_of(row.passes), is_graphed(row.passes)) == runs and row.screen is not None:
            parent = view.row(row.parents[0])
            own, before = view.speed(row), view.speed(parent) if parent is not None else None
            if own is None or before is None or own <= before:
                return True
    return False


def added_by(view: View, row: Experiment) -> set[str]:
    """Passes that a candidate has and the one that it was built on has not; all of them where there is none."""
    parent = view.row(row.parents[0]) if row.parents else None
    before = set(parent.passes) if parent is not None else set()
    return set(row.passes) - before - {GRAPHLESS[name] for name in before & GRAPHLESS.keys() if GRAPH in row.passes}


def openers_of(view: View, item: Pass) -> list[str]:
    """Passes that may bring together what this one looks for: those that apply and were not refuted."""
    return sorted(name for name in item.opened_by if CATALOGUE[name].precision in view.allowed
                  and CATALOGUE[name].refusal(view.context) is None and not is_refuted(view, name))


def _found_nothing(row: Experiment) -> list[str]:
    """Passes that found nothing to change in this candidate."""
    return row.reason.partition(f"{IDLE}: ")[2].split(", ")


def idle_rewrites(view: View) -> set[frozenset[str]]:
    """Sets of rewrites of which one found nothing to change."""
    return {rewrites_of(row.passes) for row in view.rows if row.status == "not_applicable" and IDLE in row.reason} - {frozenset()}


def rewrites_of(passes: Iterable[str]) -> frozenset[str]:
    """The passes that decide what a rewrite is given, and what its measurements are. Where one of them found nothing to change, it finds
    nothing under another compile mode or other settings of Inductor either; beside another rewrite it may (batch norms that are folded
    away bring a convolution and its ReLU together)."""
    items = [CATALOGUE[name] for name in passes if name in CATALOGUE and name != UNWRAP]
    return frozenset(item.name for item in items if not item.carrier and (
        item.level in ("module", "functional", "aten") or item.precision != "equal" or item.name in FOR_REWRITES))


def capture_passes(view: View) -> tuple[str, ...]:
    """What a CUDA graph of the whole call is made of: itself, with what took the obstacles out where it was captured so. () where it can't
    be had."""
    if CATALOGUE[GRAPH].refusal(view.context) is not None:
        return ()
    if not is_refuted(view, GRAPH):
        return (GRAPH,)
    freed = freed_capture(view)
    return tuple(sorted(bare(freed.passes))) if freed is not None else ()


def freed_capture(view: View) -> Experiment | None:
    """The fastest CUDA graph of the call with nothing but what takes obstacles out of its way (Pass.frees_capture)."""
    found = [row for row in view.rows if GRAPH in row.passes and bare(row.passes) != {GRAPH} and not is_bad(row)
             and view.speed(row) and all(CATALOGUE[name].frees_capture for name in bare(row.passes) - {GRAPH})]
    return max(found, key=lambda row: view.speed(row) or 0.0, default=None)


def whole_graph(view: View) -> Candidate:
    """A CUDA graph of the whole call and nothing else."""
    return candidate(capture_passes(view) or (GRAPH,), view.context)


def can_capture(view: View) -> bool:
    """Whether such a graph can be had, as far as is known."""
    return bool(capture_passes(view))


def by_itself(view: View, item: Pass) -> Candidate:
    """The pass alone, with what it can't be without."""
    return candidate([item.name], view.context, ladder_row=item.name in LADDER, origin="single", dimension=item.dimension)


def bare(passes: Iterable[str]) -> set[str]:
    """These passes without those that are a condition of others."""
    return set(passes) - {"no_grad", UNWRAP}
