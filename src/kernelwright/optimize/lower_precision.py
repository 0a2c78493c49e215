"""What is tried of lower precision: casts in a CUDA graph, compiled, and in what is ahead at a higher one. Pure."""

from __future__ import annotations

from ..model.verdict import Experiment
from ..model.workload import Precision
from .budget import kind
from .captures import with_graph
from .expected import evidence, fastest, is_graphed, launches_hide, modelled, once, shown_by
from .passes import CARRIER, CATALOGUE, Pass
from .passes.conditions import has_products
from .plan import AUTOCAST, CASTS, GRAPH, HOPELESS, LADDER, Candidate, candidate, carrier_of, compatible
from .ruled_out import bare, can_capture, capture_passes, is_bad, is_refuted, still_open, usable_passes, was_tried_on
from .view import OPENING, STEP, View

WEIGHTS = "bf16"
ALIKE = 1.1
"""Casts whose screens differ by less are as good as each other."""


def best_cast(view: View) -> str | None:
    """The flag or cast that was fastest alone, compiled or in a CUDA graph; None where none gained."""
    found = {name: max((view.speed(row) or 0.0 for row in view.rows if name in row.passes and not is_bad(row)
                        and bare(row.passes) <= {name, GRAPH, *LADDER}), default=0.0) for name in sorted(CASTS)}
    best = max(found, key=lambda name: found[name])
    return best if found[best] > STEP else None


def lower_ahead(view: View) -> Experiment | None:
    """The fastest candidate so far, where it computes at lower precision."""
    best = fastest(view)
    return best if best is not None and best.precision != "equal" else None


def casts_in_graph(view: View) -> list[Candidate]:
    """Where a candidate in a CUDA graph is ahead, or a cast whose launches may hide what it gains: the casts that are allowed in one too,
    before anything is compiled. Without a graph they show the host's launches, not what they shorten (GPT-2: bf16 1.2x, in a graph 4.7x on
    an H200; tf32 1.3x and 4.2x on an H100). Of those the one that is ahead comes first."""
    best = fastest(view)
    hidden = best is not None and set() < bare(best.passes) <= CASTS and launches_hide(view, best)
    if best is None or not (hidden or GRAPH in best.passes) or not can_capture(view):
        return []
    casts = sorted((item for item in usable_passes(view) if item.name in CASTS), key=lambda item: item.name not in best.passes)
    return [with_graph(view, item) for item in casts]


def first_compiled(view: View) -> list[Candidate]:
    """The fastest candidate compiled, where it is of lower precision and was not: first with the passes that are early, where they are
    expected to gain (a budget of a minute has no second compilation for them), then without."""
    base = _weights_alike(view) or lower_ahead(view)
    if base is None or carrier_of(base.passes) is not None:
        return []
    usable, shown = usable_passes(view), shown_by(evidence(view), is_graphed(base.passes))
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
        plain = next((view.speed(other) for other in view.rows if set(other.passes) == without), None)
        own = view.speed(row)
        if (is_bad(row) and bare(without) <= {*CASTS, CARRIER, GRAPH}) or (own is not None and plain is not None and own <= plain):
            return True
    return False


def _weights_alike(view: View) -> Experiment | None:
    """The weights' cast, where autocast is ahead, alone or in a CUDA graph, and that is as good: it is the one to compile, since then it
    casts nothing but inputs (a product with a batch norm at bf16, H200: autocast 7.44x, compiled 9.2x; the weights 7.40x, compiled 9.9x).
    None where it was compiled, without success."""
    best = fastest(view)
    if best is None or bare(best.passes) - {GRAPH} != {AUTOCAST} or is_refuted(view, WEIGHTS):
        return None
    own, least = bare(best.passes) - {AUTOCAST} | {WEIGHTS}, max(STEP, (view.speed(best) or 0.0) / ALIKE)
    alike = [row for row in view.rows if bare(row.passes) == own and not is_bad(row) and (view.speed(row) or 0.0) > least]
    compiled = [candidate([*row.passes, CARRIER], view.context) for row in alike[:1]]
    return alike[0] if still_open(view, compiled) else None


def casts_on_fastest(view: View) -> list[Candidate]:
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
    seen = [(name, view.speed(row) or 1.0) for row in view.rows if row.screen is not None
            for name in CASTS & set(row.passes) if bare(row.passes) <= {name, GRAPH, *capture_passes(view)}]
    casts = {name for name, _ in seen} - {name for name, speed in seen if speed < HOPELESS}
    usable = [item for item in usable_passes(view) if item.name in casts and item.precision == view.precision]
    # That a cast gained nothing in a graph alone says little of what it gains beside a kernel of one's own.
    tried = {item.name for item in usable if mode is not None and was_tried_on(view, item.name, [*rest, item.name], view.precision)}
    return still_open(view, [candidate([*rest, item.name], view.context, origin="step", parents=(best.name,), dimension=item.dimension)
                             for item in usable if item.name not in tried])
