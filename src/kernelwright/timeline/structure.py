"""All analyses of what a recording is made of, in one record. Definitions: docs/timeline-structure.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model.base import Abstained, Figure
from ..model.profile import Operator
from ..model.structure import FoundIterations, HostLink, IterationComparison, RegionTree, Structure
from ..model.trace import Trace
from .critical_path import critical_path
from .graph_candidates import graph_candidates
from .iteration_compare import compare_iterations, slowest_iteration, typical_iteration
from .iterations import given, iterations
from .memory_peaks import memory_peaks
from .owners import Owners
from .regions import RangePlaces, module_tree, region_tree
from .sequences import sequences
from .transfers import transfers
from .work import Work

NO_DEVICE = "no device work was recorded"


def structure(trace: Trace, *, operators: Sequence[Operator] = (), peak: Figure | None = None,
              links: Mapping[str, HostLink] | None = None, compare: tuple[int, int] | None = None,
              found: FoundIterations | None = None) -> Structure:
    """Everything but concurrency and gaps.

    operators: attribution's calls of this trace (module, FLOPs, source line of each); without them modules, MFU and lines are not known.
    peak: arithmetic peak at the dtype in use, in TFLOP/s, for MFU. links: device name -> its link to the host. compare: two iterations;
    by default the typical and the slowest. found: what with_found_steps() said of the steps; traces with steps_from "whole" should go
    through it first.
    """
    work = Work(trace)
    owners = Owners(trace, work, operators)
    places = RangePlaces(trace)
    abstained: list[Abstained] = []
    comparison = _comparison(trace, work, compare, abstained)
    candidates, reason = graph_candidates(trace, work, owners.where) if trace.is_cuda else ((), NO_DEVICE)
    if reason is not None:
        abstained.append(Abstained(name="graph_candidates", reason=reason))
    if not trace.is_cuda:
        abstained += [Abstained(name=name, reason=NO_DEVICE)
                      for name in ("sequences", "fusion_candidates", "transfers", "critical_path")]
    peaks = memory_peaks(trace, owners, places)
    if not peaks:
        abstained.append(Abstained(name="memory_peaks", reason="no allocation was recorded in the steps"))
    trees: list[RegionTree] = [region_tree(trace, work, owners, operators, peak)]
    modules = module_tree(operators, peak, on_device=trace.is_cuda)
    if modules is not None:
        trees.append(modules)
    else:
        abstained.append(Abstained(name="modules", reason="no module is known of any operator"))
    return Structure(
        iterations_found=found or given(trace), iterations=iterations(trace, work, operators=operators, peak=peak), comparison=comparison,
        sequences=sequences(work, owners.where, fusible=False), fusion_candidates=sequences(work, owners.where, fusible=True),
        graph_candidates=candidates, transfers=transfers(trace, work, links) if trace.is_cuda else None, memory_peaks=peaks,
        region_trees=tuple(trees), critical_path=critical_path(trace, work, owners) if trace.is_cuda else None, abstained=tuple(abstained))


def _comparison(trace: Trace, work: Work, compare: tuple[int, int] | None, abstained: list[Abstained]) -> IterationComparison | None:
    reason = None
    if not trace.is_cuda:
        reason = NO_DEVICE
    elif len(trace.steps) < 2:
        reason = "one iteration only"
    if reason is not None:
        abstained.append(Abstained(name="comparison", reason=reason))
        return None
    return compare_iterations(trace, work, *(compare or (typical_iteration(trace), slowest_iteration(trace))))
