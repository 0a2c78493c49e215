"""What a pass is: when a rewrite applies, what it predicts, and where it stands among the others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...diagnose.common import matching
from ...model.capture import ProbeEnvironment
from ...model.profile import Operator, Profile
from ...model.workload import Precision, WorkloadFacts
from ...timeline.kernel_names import GRAPH_LAUNCHES

# Layers, innermost first: the model itself, its compilation, flags around the call, capture, grad mode.
LAYER_FOLD, LAYER_LAYOUT, LAYER_CAST, LAYER_COMPILE, LAYER_FLAGS, LAYER_GRAPH, LAYER_GRAD = range(7)
Cost = Literal["cheap", "compile", "autotune"]
Level = Literal["module", "functional", "aten", "inductor", "calls", "runtime"]
"""Where a rewrite works: on the model, on Dynamo's graph, on the ATen graph inside AOTAutograd's inner compile, as a patch of
Inductor's configuration, in how the compiled graph is called, or around the call."""
GRAPH_LEVELS: tuple[Level, ...] = ("functional", "aten", "inductor", "calls")
"""The levels that stand in torch.compile's backend; a candidate with one of them needs a carrier, the pass that compiles."""
Takes = Literal["one shape", "sizes", "values"]
"""What may differ between two calls: only what is in the tensors; sizes of inputs too; plain numbers and words among the inputs too."""
Dimension = Literal["precision", "layout", "fusion", "graph capture", "algorithms", "attention", "host"]
"""What the search chooses between."""
SEALED_PCT = 90.0
"""Of the measured time: where replays of the workload's own graphs hold so much, what is left outside of them is worth no search."""
GRAPHED = "Graphed"
"""The operator that torch.cuda.make_graphed_callables replays a graph in; other replays are launches outside any operator."""
Quantity = Literal["kernels", "launches", "idle time", "kernel time", "DRAM bytes", "tensor-core share"]


@dataclass(frozen=True)
class Move:
    """A measured quantity that a pass is expected to change: value after / value before, from low to high."""

    quantity: Quantity
    low: float
    high: float
    operators: str = ""
    """Regular expression: of these operators alone. "": of the whole call."""

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high < math.inf:  # JSON has no infinity
            raise ValueError(f"{self.quantity}: {self.low} to {self.high} is no range of factors")


@dataclass(frozen=True)
class Products:
    """What a pass multiplies with in the place of the workload's own arithmetic."""

    dtype: Literal["tf32", "bfloat16", "float16"]
    """Of the fastest tensor cores (on a CPU: instructions) that it may use."""
    times: int = 1
    """Narrow products for one of the workload's."""


@dataclass(frozen=True)
class Prediction:
    """What a pass should give on this workload."""

    words: str
    """Short; no number that the profile does not hold."""
    gain: tuple[float, float] | None = None
    """Speed-up (time of a call before / after), from low to high; None where the profile supports no number."""
    moves: tuple[Move, ...] = ()
    """How it should come about: held against the profile of what was kept."""


REDRAWN = r"^aten::(?:native_dropout|bernoulli|rand(?!perm|om_)\w*|log_normal_|cauchy_|geometric_)$"
"""What Inductor replaces by random numbers of its own (torch 2.13). For `uniform_`, `normal_`, `bernoulli_`, `random_` and `multinomial` it
calls torch's own operators, which draw the same. It replaces `exponential_` too, of which torch's own `multinomial` is made: left to the
judge."""


@dataclass(frozen=True)
class Context:
    """What is known of the workload when passes are asked."""

    facts: WorkloadFacts
    environment: ProbeEnvironment
    profile: Profile
    uncompiled: Profile | None = None
    """Of the same workload without its own torch.compile, which hides what the model runs (a captured graph is one operator); None where it
    has none, or could not be recorded without."""
    known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was worked out from the three before (see expected.py): the same is asked of them hundreds of times."""

    @property
    def on_gpu(self) -> bool:
        """Whether the workload runs on a CUDA device."""
        return self.environment.device == "cuda"

    @property
    def seen(self) -> Profile:
        """The profile that shows which operators the model runs."""
        return self.uncompiled or self.profile

    @property
    def whole(self) -> str:
        """What shares are shares of, in words."""
        return "of the measured time" if self.uncompiled is None else "of the compiled call's time at most, by a recording without it"

    @property
    def replayed(self) -> tuple[Operator, ...]:
        """Replays of CUDA graphs, of the compiler's and of the workload's own."""
        return tuple(item for item in self.profile.operators if item.operator_name == GRAPHED or item.operator_name in GRAPH_LAUNCHES)

    @property
    def sealed(self) -> bool:
        """Whether nearly all of a call is in graphs that the workload captured itself, and that can't be taken off."""
        if self.facts.already_compiled or self.facts.hidden:
            return False
        share_pct = self.share_of_pct(item.aggregated.total_duration_ns for item in self.replayed)
        return share_pct is not None and share_pct >= SEALED_PCT

    @property
    def redraws(self) -> bool:
        """Whether a call draws random numbers in whose place code of torch.compile draws others (REDRAWN, and dropout that draws)."""
        names = self._once("own names", lambda: {operator.operator_name for operator in self.seen.operators})
        return any(re.search(REDRAWN, name) for name in names) or {"aten::dropout", "aten::bernoulli_"} <= names

    def runs(self, *words: str) -> bool:
        """Whether an operator of the profile has one of the words in its name, its parents' names or those of what is fused in it."""
        names = self._once("names", lambda: {name for operator in self.seen.operators for name in _names(operator)})
        return any(word in name for name in names for word in words)

    def share_pct(self, *words: str) -> float | None:
        """Share of measured time, in percent, of the operators with one of the words in their name; None without a timeline.

        Of a workload that is compiled already: what they take uncompiled, as a share of the compiled call's work. That is close for what
        the compiler leaves to libraries (products, convolutions, attention), and no less than what is left of anything that it fuses.
        """
        share: float | None = self._once(f"share of {words}", lambda: self.share_of_pct(
            operator.aggregated.total_duration_ns for operator in self.seen.operators
            if any(word in name for name in (operator.operator_name, *operator.parents) for word in words)))
        return share

    def share_where_pct(self, wanted: Callable[[Operator], bool]) -> float | None:
        """The same, of the operators that are wanted."""
        return self.share_of_pct(operator.aggregated.total_duration_ns for operator in self.seen.operators if wanted(operator))

    def share_matching_pct(self, pattern: str) -> float | None:
        """The same, of the operators whose own name the regular expression matches."""
        return self.share_of_pct(operator.aggregated.total_duration_ns for operator in matching(self.seen.operators, pattern))

    def share_of_pct(self, durations_ns: Iterable[int]) -> float | None:
        """The same, of these durations; never more than all."""
        timeline = self.seen.timeline
        if timeline is None or timeline.measured_ns <= 0:
            return None
        ratio = self._work_ratio()
        return None if ratio is None else min(100.0, ratio * 100.0 * sum(durations_ns) / timeline.measured_ns)

    def _once(self, what: str, work_out: Callable[[], Any]) -> Any:
        if what not in self.known:
            self.known[what] = work_out()
        return self.known[what]

    def _work_ratio(self) -> float | None:
        """Work of the recording that shows the operators over that of the workload as it stands; None where that is not known."""
        if self.uncompiled is None:
            return None if self.facts.hidden else 1.0
        plain, own = work_ns(self.uncompiled), work_ns(self.profile)
        return plain / own if plain and own else None


def work_ns(profile: Profile) -> float | None:
    """Work of one call: what the device does; on a CPU, where the profiler slows small operators down, the unprofiled call's time."""
    timeline, timing = profile.timeline, profile.timing
    if profile.capture_metadata.device == "cpu" and timing is not None:
        return timing.median_ns
    return timeline.measured_ns / timeline.steps if timeline is not None and timeline.steps else None


def _names(operator: Operator) -> Iterable[str]:
    """Everything that an operator is known to compute."""
    return (operator.operator_name, *operator.parents, *(f"aten::{name}" for name in operator.fused_ops))


def always(_context: Context) -> str | None:
    """Applies everywhere."""
    return None


@dataclass(frozen=True)
class Pass:
    """One entry of the catalogue."""

    name: str
    layer: int
    why: str
    """One line on what it does and why, written above its call in generated files."""
    predict: Callable[[Context], Prediction]
    """What it should give, from the profile."""
    refuse: Callable[[Context], str | None] = always
    """Why it does not apply to this workload, or None."""
    precision: Precision = "equal"
    cost: Cost = "cheap"
    level: Level = "module"
    dimension: Dimension = "fusion"
    training: bool = True
    """Whether it is valid for a training step, and for a call that runs a backward pass itself."""
    copies_weights: bool = False
    """It works on copies of weights, or on what tracing made of them; for a training step and a call that runs a backward pass, where
    gradients must land in the model's own, it changes those in place."""
    fixes_addresses: bool = False
    measures: bool = False
    """Its rewrite times kernels while it is built or first called, and keeps the faster ones: nothing else may run then. What Inductor or
    cuDNN time by themselves is not meant."""
    lenient: bool = False
    """Its rewrite takes strict=False: where nothing measures faster it does the rest of its work."""
    one_launch: bool = False
    """The call is replayed as CUDA graphs: the host launches once, not once a kernel."""
    lasts: bool = False
    """It changes settings of its whole process, where the original becomes faster too."""
    casts_edges: bool = False
    """It casts inputs and outputs, and leaves that to the copies of a pass that copies_edges."""
    copies_edges: bool = False
    """It copies inputs in and outputs out, in any dtype."""
    frees_capture: bool = False
    """It takes out what a CUDA graph of the whole call can't hold: waits of the host, copies from its pageable memory."""
    sizes_in_graphs: bool = False
    """It captures stretches between the host's reads, each for one size."""
    takes: Takes = "one shape"
    products: Products | None = None
    """None: the workload's own arithmetic."""
    carrier: bool = False
    """It compiles the model, and takes a backend made of the graph-level passes beside it."""
    early: bool = False
    """Below equal precision it is in the first compilation, where it is expected to gain."""
    better_beside: frozenset[str] = frozenset()
    """Passes that show it more, as long as it is early: they say nothing of whether it finds anything to change."""
    conflicts: frozenset[str] = frozenset()
    partners: frozenset[str] = frozenset()
    """Without these it does not pay: a candidate with it has them too."""
    opened_by: frozenset[str] = frozenset()
    """Passes that bring together what it looks for: where it found nothing to change, it may beside one of them."""

    @property
    def around_any(self) -> bool:
        """Whether it stands around a call of any kind: torch.compile's stays as it is below it."""
        return self.layer in (LAYER_FLAGS, LAYER_GRAD)

    def prediction(self, context: Context) -> Prediction:
        """What it should give on this workload. Kernels and traffic of compiled code are not those that the uncompiled model shows: how far
        they move from there is not predicted."""
        made = self.predict(context)
        hidden = ("kernels", "DRAM bytes") if context.facts.already_compiled else ()
        return replace(made, moves=tuple(move for move in made.moves if move.quantity not in hidden))

    @property
    def in_graph(self) -> bool:
        """Whether it works inside torch.compile's backend."""
        return self.level in GRAPH_LEVELS

    @property
    def narrows_weights(self) -> bool:
        """Whether weights lie in memory in half of float32's bytes."""
        return self.copies_weights and self.products is not None and self.products.times == 1 and self.products.dtype != "tf32"

    @property
    def rewrite(self) -> str:
        """Name of its file in probe/rewrites/."""
        return self.name

    def refusal(self, context: Context) -> str | None:
        """Why it does not apply, or None. Asked hundreds of times in a search, and worked out once: a profile may hold 27,000 operators."""
        why, key = context.known, f"refusal of {self.name}"
        if key not in why:
            why[key] = self._refusal(context)
        told: str | None = why[key]
        return told

    def _refusal(self, context: Context) -> str | None:
        if self.carrier and context.redraws:
            return "the call draws random numbers, and code of torch.compile draws others"
        if context.facts.training and not self.training:
            return "not valid for a training step"
        if context.facts.backward_inside and not self.training:
            return "not valid where a call runs a backward pass itself"
        if context.sealed and (self.dimension != "host" or self.in_graph):
            return "the call replays a CUDA graph of the workload's own, and what that holds can't be changed from outside"
        return self.refuse(context) or self._changes_refused(context.facts) or self._loop_refused(context.facts) \
            or self._attributes_refused(context.facts)

    def _changes_refused(self, facts: WorkloadFacts) -> str | None:
        """Where shapes or plain values change from call to call."""
        if any(item.dims is None for item in facts.changing_inputs):
            return "an input's number of dimensions or dtype changes from call to call"
        if facts.changing_values and self.takes != "values":
            return "plain values among the inputs change from call to call, and this holds for one of them"
        if facts.changing_inputs and self.takes == "one shape":
            return "input shapes change from call to call, and this holds for one shape"
        return None

    def _attributes_refused(self, facts: WorkloadFacts) -> str | None:
        """Where a call binds attributes of the model anew: a copy of the model would keep them to itself, and a replay sets none."""
        elsewhere = self.copies_weights or self.captures_whole or (self.layer >= 0 and self.level in ("module", "calls"))
        if not facts.changing_attributes or not elsewhere:
            return None
        names = ", ".join(facts.changing_attributes[:3]) + (", ..." if len(facts.changing_attributes) > 3 else "")
        return f"a call sets attributes of the model ({names}), and beside this the model would not have them"

    def _loop_refused(self, facts: WorkloadFacts) -> str | None:
        """Where one call is a generation loop."""
        loop = facts.loop
        if loop is None:
            return None
        if loop.reads and self.captures_whole:
            return f"a generation loop: the host reads {loop.reads} values within a call, so it can't be captured whole"
        if loop.grows is not None and loop.reads and self.sizes_in_graphs:
            return "a generation loop: sizes grow from step to step, and each would need a CUDA graph of its own"
        if loop.grows is not None and self.measures and self.in_graph:
            return "a generation loop: sizes grow from step to step, and this measures at one of them"
        return None

    @property
    def captures_whole(self) -> bool:
        """Whether it needs the whole call in one CUDA graph."""
        return self.one_launch and not self.carrier
