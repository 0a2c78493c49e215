"""What a pass is: when a rewrite applies, what it predicts, and where it stands among the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from ...diagnose.common import matching
from ...model.capture import ProbeEnvironment
from ...model.profile import Operator, Profile
from ...model.workload import Precision, WorkloadFacts

# Layers, innermost first: the model itself, its compilation, flags around the call, capture, grad mode.
LAYER_FOLD, LAYER_LAYOUT, LAYER_CAST, LAYER_COMPILE, LAYER_FLAGS, LAYER_GRAPH, LAYER_GRAD = range(7)
Cost = Literal["cheap", "compile", "autotune"]
Level = Literal["module", "functional", "aten", "inductor", "runtime"]
"""Where a rewrite works: on the model, on Dynamo's graph, on the ATen graph inside AOTAutograd's inner compile, as a patch of
Inductor's configuration, or around the call."""
GRAPH_LEVELS: tuple[Level, ...] = ("functional", "aten", "inductor")
"""The levels that stand in torch.compile's backend; a candidate with one of them needs a carrier, the pass that compiles."""
Takes = Literal["one shape", "sizes", "values"]
"""What may differ between two calls: only what is in the tensors; sizes of inputs too; plain numbers and words among the inputs too."""
Dimension = Literal["precision", "layout", "fusion", "graph capture", "algorithms", "attention", "host"]
"""What the search chooses between."""
Quantity = Literal["launches", "idle time", "kernel time", "DRAM bytes", "tensor-core share"]


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


@dataclass(frozen=True)
class Context:
    """What is known of the workload when passes are asked."""

    facts: WorkloadFacts
    environment: ProbeEnvironment
    profile: Profile
    known: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was worked out from the three before (see expected.py): the same is asked of them hundreds of times."""

    @property
    def on_gpu(self) -> bool:
        """Whether the workload runs on a CUDA device."""
        return self.environment.device == "cuda"

    def runs(self, *words: str) -> bool:
        """Whether an operator of the profile has one of the words in its name or its parents' names."""
        names = (name for operator in self.profile.operators for name in (operator.operator_name, *operator.parents))
        return any(word in name for name in names for word in words)

    def share_pct(self, *words: str) -> float | None:
        """Share of measured time, in percent, of the operators with one of the words in their name; None without a timeline."""
        return self._share_pct(operator for operator in self.profile.operators
                               if any(word in name for name in (operator.operator_name, *operator.parents) for word in words))

    def share_where_pct(self, wanted: Callable[[Operator], bool]) -> float | None:
        """The same, of the operators that are wanted."""
        return self._share_pct(operator for operator in self.profile.operators if wanted(operator))

    def share_matching_pct(self, pattern: str) -> float | None:
        """The same, of the operators whose own name the regular expression matches."""
        return self._share_pct(matching(self.profile.operators, pattern))

    def _share_pct(self, operators: Iterable[Operator]) -> float | None:
        timeline = self.profile.timeline
        if timeline is None or timeline.measured_ns <= 0:
            return None
        return 100.0 * sum(operator.aggregated.total_duration_ns for operator in operators) / timeline.measured_ns


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
    """Whether it is valid for a training step."""
    copies_weights: bool = False
    """It works on copies of weights; for a training step, where gradients must land in the model's own, it changes those in place."""
    fixes_addresses: bool = False
    measures: bool = False
    """Its rewrite times kernels while it is built or first called, and keeps the faster ones: nothing else may run then. What Inductor or
    cuDNN time by themselves is not meant."""
    one_launch: bool = False
    """The call is replayed as CUDA graphs: the host launches once, not once a kernel."""
    casts_edges: bool = False
    """It casts inputs and outputs, and leaves that to the copies of a pass that copies_edges."""
    copies_edges: bool = False
    """It copies inputs in and outputs out, in any dtype."""
    sizes_in_graphs: bool = False
    """It captures stretches between the host's reads, each for one size."""
    takes: Takes = "one shape"
    products: Products | None = None
    """None: the workload's own arithmetic."""
    carrier: bool = False
    """It compiles the model, and takes a backend made of the graph-level passes beside it."""
    conflicts: frozenset[str] = frozenset()
    partners: frozenset[str] = frozenset()
    """Without these it does not pay: a candidate with it has them too."""

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
        """Why it does not apply, or None."""
        if context.facts.training and not self.training:
            return "not valid for a training step"
        return self.refuse(context) or self._changes_refused(context.facts) or self._loop_refused(context.facts)

    def _changes_refused(self, facts: WorkloadFacts) -> str | None:
        """Where shapes or plain values change from call to call."""
        if any(item.dims is None for item in facts.changing_inputs):
            return "an input's number of dimensions or dtype changes from call to call"
        if facts.changing_values and self.takes != "values":
            return "plain values among the inputs change from call to call, and this holds for one of them"
        if facts.changing_inputs and self.takes == "one shape":
            return "input shapes change from call to call, and this holds for one shape"
        return None

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
