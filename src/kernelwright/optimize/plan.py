"""Which candidates are tried, in which order. Pure: the same context and results give the same plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ..judge.correctness import PRECISION_ORDER
from ..model.trial import Origin
from ..model.verdict import ACCEPTABLE, Experiment
from ..model.workload import Precision
from .generate import lowest_precision
from .passes import CARRIER, CATALOGUE, Context, Pass, in_order
from .passes.conditions import replays_graphs

LADDER = ("no_grad", "compile_default", "compile_reduce_overhead", "compile_max_autotune_no_cudagraphs", "compile_max_autotune")
"""The rows every user knows: the model itself without gradients, and torch.compile's modes."""
GRAPHLESS = {"compile_reduce_overhead": "compile_default", "compile_max_autotune": "compile_max_autotune_no_cudagraphs"}
"""A compile mode with CUDA graphs of its own -> the same without."""
AUTOCAST = "bf16_autocast"
CASTS = frozenset({"tf32", "bf16", AUTOCAST})
"""Lower precision as every user can have it: a flag, a cast of the model, autocast."""
HOPELESS = 0.5
"""A lower-precision pass that alone makes the workload slower than this (no hardware support) is not combined with others."""
GRAPH = "cuda_graph"
UNWRAP = "unwrap_compiled"
"""Comes with what the workload's own torch.compile, or its graphs, would hide the model from; the names of candidates leave it out."""
WARM: Origin = "warm start"
"""Origin of what won for this workload before on this machine."""
RUNTIMES_COMBINED = 2
"""Combinations are built on this many of the best runtime passes."""


@dataclass(frozen=True)
class Candidate:
    """A set of passes to try together."""

    name: str
    passes: tuple[str, ...]
    """In their order of application, innermost first."""
    ladder_row: bool = False
    origin: Origin = "single"
    parents: tuple[str, ...] = ()
    """Names of the candidates that it was made from."""
    dimension: str = ""
    """What it changes of its first parent; "" where that is several things."""

    @property
    def precision(self) -> Precision:
        """The lowest precision among its passes."""
        return lowest_precision([CATALOGUE[name] for name in self.passes])


def candidate(
    names: Iterable[str], context: Context, *, ladder_row: bool = False, origin: Origin = "single", parents: tuple[str, ...] = (),
    dimension: str = "",
) -> Candidate:
    """The candidate made of these passes. Those whose calls need no gradients all run without; the name leaves that out. Passes on a
    compiler's graph bring torch.compile along where none of the passes is a compile mode. So do, on a workload that is compiled already,
    passes on the model itself: its own torch.compile would hide the model from them, and is taken off. Where it is graphed by
    make_graphed_callables, they bring a CUDA graph of the whole call in the place of those."""
    wanted = set(names) | (set() if context.facts.needs_gradients else {"no_grad"})
    wanted |= {partner for name in wanted for partner in CATALOGUE[name].partners}
    if carrier_of(wanted) is None and any(CATALOGUE[name].in_graph for name in wanted):
        wanted.add(CARRIER)
    if UNWRAP not in wanted and _hidden(wanted, context):
        wanted |= {UNWRAP, *_in_its_place(wanted, context, ladder_row)}
    ordered = tuple(item.name for item in in_order(CATALOGUE[name] for name in wanted))
    shown = [name for name in ordered if name not in ("no_grad", UNWRAP)] or [name for name in ordered if name == UNWRAP] or ["no_grad"]
    return Candidate("+".join(shown), ordered, ladder_row, origin, parents, dimension)


def _hidden(passes: Iterable[str], context: Context) -> bool:
    """Whether the workload's own torch.compile, or its graphs, are in the way of these passes. A CUDA graph can be captured around
    compiled code, but not around code that replays graphs of its own; what works around any call is not hindered."""
    facts, own = context.facts, {name for name in passes if not CATALOGUE[name].around_any}
    return facts.hidden and (bool(own - {GRAPH}) or (GRAPH in own and (facts.already_graphed or replays_graphs(context))))


def _in_its_place(passes: Collection[str], context: Context, ladder_row: bool) -> list[str]:
    """What comes in the place of the workload's own torch.compile or graphs: a compile mode; a CUDA graph of the whole call, where nearly
    all of that is replayed as it stands, so that it can be captured, and the candidate is no row of the ladder."""
    if not context.facts.already_compiled:
        fits = not ladder_row and replays_graphs(context) and CATALOGUE[GRAPH].refusal(context) is None
        return [GRAPH] if fits and compatible([*passes, GRAPH]) else []
    return [CARRIER] if carrier_of(passes) is None and compatible([*passes, CARRIER]) else []


def carrier_of(passes: Iterable[str]) -> str | None:
    """The compile mode among the passes."""
    return next((name for name in passes if name.startswith("compile_")), None)


def measures(passes: Iterable[str]) -> bool:
    """Whether such a candidate times kernels while it is built and first called."""
    return any(CATALOGUE[name].measures for name in passes)


def lasts(passes: Iterable[str]) -> bool:
    """Whether such a candidate leaves settings in its process that make the original faster too."""
    return any(CATALOGUE[name].lasts for name in passes)


def first_round(context: Context, precision: Precision) -> list[Candidate]:
    """Ladder rows and single passes, cheap kinds first. Those that do not apply are in it too (see `refusal`)."""
    allowed = PRECISION_ORDER[: PRECISION_ORDER.index(precision) + 1]
    names = [item.name for item in CATALOGUE.values() if item.precision in allowed]
    if context.facts.needs_gradients:
        names.remove("no_grad")
    costs = ("cheap", "compile", "autotune")
    names.sort(key=lambda name: (PRECISION_ORDER.index(CATALOGUE[name].precision), costs.index(CATALOGUE[name].cost)))
    return [candidate([name], context, ladder_row=name in LADDER, origin="ladder" if name in LADDER else "single",
                      dimension=CATALOGUE[name].dimension) for name in names]


def refusal(item: Candidate, context: Context) -> str | None:
    """Why a candidate does not apply: the first of its passes that does not, or two that exclude each other."""
    for name in item.passes:
        reason = CATALOGUE[name].refusal(context)
        if reason:
            return reason if len(item.passes) <= 2 else f"{name}: {reason}"
    return None


def next_round(context: Context, precision: Precision, done: Mapping[str, Experiment]) -> list[Candidate]:
    """Combinations that the results so far suggest and that were not tried, the most promising first.

    Everything that came out FASTER alone is combined with the best runtime passes (compile modes, CUDA graph); each
    lower-precision pass with the best equal combination and the best runtime passes. The two take turns, the lowest precision
    that is allowed first, so that a short budget sees the best of each.
    """
    lower = [item for item in CATALOGUE.values() if item.precision != "equal" and item.refusal(context) is None
             and PRECISION_ORDER.index(item.precision) <= PRECISION_ORDER.index(precision)]
    lower.sort(key=lambda item: -PRECISION_ORDER.index(item.precision))
    turns = zip_longest(_equal_combinations(context, done), *(_lower_combinations(item, done) for item in lower))
    found: dict[str, Candidate] = {}
    for names in (names for turn in turns for names in turn if names is not None):
        item = candidate(names, context, origin="combination")
        if item.name not in done and compatible(item.passes) and refusal(item, context) is None:
            found.setdefault(item.name, item)
    return list(found.values())


def best(rows: Iterable[Experiment], precisions: Sequence[Precision] = PRECISION_ORDER) -> list[Experiment]:
    """FASTER rows of these precisions, the largest lower bound of the speed-up first."""
    faster = [row for row in rows if row.precision in precisions and lower_bound(row) is not None]
    return sorted(faster, key=lambda row: -(lower_bound(row) or 0.0))


def ranked(rows: Iterable[Experiment]) -> list[Experiment]:
    """FASTER rows in the order in which they should be kept: the largest lower bound first, but a lower-precision row goes before
    the best one of higher precision only where it is clearly faster (their intervals do not overlap)."""
    rows = list(rows)
    order: list[Experiment] = []
    for level in PRECISION_ORDER:
        own = best(rows, (level,))
        ahead = [row for row in own if not order or (lower_bound(row) or 0.0) > upper_bound(order[0])]
        order = [*ahead, *order, *(row for row in own if row not in ahead)]
    return order


def lower_bound(row: Experiment) -> float | None:
    """Lower end of the speed-up's interval of a FASTER row, else None."""
    if row.verdict is None or row.verdict.verdict != "FASTER" or row.verdict.interval is None:
        return None
    return row.verdict.interval[0]


def upper_bound(row: Experiment) -> float:
    """Upper end of the speed-up's interval; 0 where nothing was timed."""
    return row.verdict.interval[1] if row.verdict is not None and row.verdict.interval is not None else 0.0


def _equal_combinations(context: Context, done: Mapping[str, Experiment]) -> list[set[str]]:
    faster = {name for name, row in done.items() if lower_bound(row) is not None and row.precision == "equal"}
    helpers = [name for name in faster if name in CATALOGUE and not _is_runtime(CATALOGUE[name]) and name != "no_grad"]
    runtimes = _runtimes(done)
    wanted: list[set[str]] = []
    for runtime in runtimes:
        wanted.append({*helpers, runtime})
    if len(helpers) > 1:
        wanted.append(set(helpers))
        wanted += [{helper, runtime} for runtime in runtimes[:1] for helper in helpers]
    if GRAPH in faster:
        wanted += [{*extra, GRAPH} for extra in ([*helpers, *_best_plain_compile(done)], _best_plain_compile(done)) if extra]
    # A layout or a fold that gains nothing alone can gain under a compiler, which sees the whole graph.
    layouts = {name for name in ("fold_conv_bn", "channels_last") if CATALOGUE[name].refusal(context) is None}
    usable = {name for name in layouts if name in done and not _bad(done[name])}
    if usable and runtimes:
        wanted.append({*usable, runtimes[0]})
    return wanted + _neighbours(context, done)


def _neighbours(context: Context, done: Mapping[str, Experiment]) -> list[set[str]]:
    """The best equal row with one pass more, and with another of the best runtime passes."""
    top = best(done.values(), ("equal",))[:1]
    if not top:
        return []
    own = set(top[0].passes)
    more = [own | {item.name} for item in CATALOGUE.values() if item.precision == "equal" and not _is_runtime(item) and item.name not in own
            and item.refusal(context) is None and not (item.name in done and _bad(done[item.name]))]
    fixed = {name for name in own if not _is_runtime(CATALOGUE[name])}
    return more + [fixed | {runtime} for runtime in _runtimes(done)]


def _lower_combinations(lower: Pass, done: Mapping[str, Experiment]) -> list[set[str]]:
    alone = done.get(lower.name)
    if alone is not None and (_bad(alone) or (alone.verdict is not None and (alone.verdict.speedup or 1.0) < HOPELESS)):
        return []
    top = best(done.values(), ("equal",))
    wanted = [{lower.name, *row.passes} for row in top[:1]]
    wanted += [{lower.name, runtime} for runtime in _runtimes(done)]
    if GRAPH in done and done[GRAPH].status == "judged":
        wanted.append({lower.name, GRAPH, *_best_plain_compile(done)})
    return wanted


def _runtimes(done: Mapping[str, Experiment]) -> list[str]:
    rows = [row for name, row in done.items() if name in CATALOGUE and _is_runtime(CATALOGUE[name])]
    return [row.name for row in best(rows, ("equal",))][:RUNTIMES_COMBINED]


def _best_plain_compile(done: Mapping[str, Experiment]) -> list[str]:
    """The better of the compile modes without CUDA graphs of their own, which a capture can wrap; FASTER or not."""
    rows = [row for name in ("compile_max_autotune_no_cudagraphs", "compile_default")
            if (row := done.get(name)) is not None and row.verdict is not None and row.verdict.speedup is not None]
    return [max(rows, key=lambda row: (row.verdict and row.verdict.speedup) or 0.0).name] if rows else []


def _bad(row: Experiment) -> bool:
    return row.verdict is None or row.verdict.verdict not in ACCEPTABLE


def _is_runtime(item: Pass) -> bool:
    return item.name == GRAPH or item.name.startswith("compile_")


def compatible(names: Sequence[str]) -> bool:
    """Whether these passes can be applied together: one compile mode at most, and none that another excludes."""
    if sum(name.startswith("compile_") for name in names) > 1:
        return False
    return not any(CATALOGUE[name].conflicts & set(names) for name in names)
