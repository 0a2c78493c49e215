"""What the judge says of a candidate, and one row of the optimiser's ledger."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import Record
from .measurement import Measurement
from .profile import ClockReading
from .trial import Hypothesis, Origin, PassPrediction, Screen
from .workload import Precision

VerdictName = Literal["FASTER", "SLOWER", "SAME", "AMBIGUOUS", "WRONG", "CHEAT", "FAILED"]
ACCEPTABLE: frozenset[str] = frozenset({"FASTER", "SLOWER", "SAME", "AMBIGUOUS"})
"""Exit 0 for these, 5 for the others."""


class Comparison(Record):
    """A paired, interleaved A/B timing. Ratios are reference time / candidate time (above 1: faster)."""

    reference: Measurement
    candidate: Measurement
    speedup: float
    interval: tuple[float, float]
    """95% confidence interval of the speed-up."""
    smallest_detectable_effect_pct: float
    pairs: int
    blocks: int
    method: str
    level_pct: float = 95.0
    """Of the interval, over all looks together."""
    log_ratios: tuple[float, ...] = ()
    """Natural logarithm of each counted quad's ratio, in the order run."""
    quads_of_pairs: tuple[int, ...] = ()
    """How many of them came from each pair of processes; empty: all from one."""


class OutputError(Record):
    """Accuracy of one output leaf on one fresh input, against the float64 oracle."""

    path: str
    round: int
    reference_error: float
    """||reference - oracle|| / ||oracle||."""
    candidate_error: float
    limit: float
    passed: bool
    note: str = ""
    distribution: str = ""
    """Empty for the generator's own inputs, else the kind of other inputs, e.g. "large"."""


class OtherInputs(Record):
    """One round on inputs of another distribution than the generator's."""

    kind: Literal["small", "large", "shifted", "constant_rows", "mixed", "spikes", "special", "nonfinite"]
    round: int
    status: Literal["passed", "failed", "dropped"]
    changed: dict[str, str] = Field(default_factory=dict)
    """By path of the input: what was done to the generator's values."""
    note: str = ""
    """Why it was dropped, or what was seen and not held against the candidate."""


class Steadiness(Record):
    """The candidate called again."""

    repeatable: bool | None = None
    """The same bits from a second call on the same inputs under the same seed. None: not looked at."""
    difference: float | None = None
    """||second - first|| / ||first|| where the bits differ (the largest over the outputs)."""
    reference_repeatable: bool | None = None
    calls: int = 0
    """Further calls before the first round's inputs were given again; 0 where that was not done."""


class Reproducer(Record):
    """The smallest case that shows what is wrong: one element, or what differs in structure."""

    kind: Literal["value", "structure", "state"]
    """state: right at first, wrong when it was called again."""
    summary: str
    round: int
    distribution: str = ""
    """Empty: the generator's own."""
    changed: dict[str, str] = Field(default_factory=dict)
    free: bool = False
    """The changed values may have left the range that the generator's keep to."""
    inputs_seed: int
    """Seed under which the workload's generator made this round's inputs (and under which they were changed)."""
    path: str = ""
    """Of the output; empty for a lone tensor."""
    shape: tuple[int, ...] = ()
    index: tuple[int, ...] | None = None
    """Of the worst element. None where only a random sample was compared."""
    expected: float | str | None = None
    """The oracle's value; text for complex numbers, NaN and infinities."""
    reference: float | str | None = None
    got: float | str | None = None
    error: float | None = None
    limit: float | None = None
    wrong_elements: int | None = None
    """Elements off by more than the limit times the larger of their own size and the output's root mean square."""
    compared_elements: int | None = None


class Correctness(Record):
    """The correctness half of a verdict."""

    passed: bool
    oracle: str
    """"float64", or "reference (<why no float64>)"."""
    rounds: int
    """Of the generator's own inputs."""
    errors: tuple[OutputError, ...] = ()
    reasons: tuple[str, ...] = ()
    dropped_rounds: tuple[int, ...] = ()
    """Rounds in which the reference's own error was above 1% on every output: no evidence, drawn again under other seeds."""
    distributions: tuple[OtherInputs, ...] = ()
    steadiness: Steadiness | None = None
    warnings: tuple[str, ...] = ()
    """Of the workload: what its outputs do not depend on, so that the comparison cannot see it."""


Tier = Literal["honest mistake", "known exploit", "hostile"]


class Mechanism(Record):
    """One thing that separates the candidate from the judge."""

    name: str
    held: bool
    detail: str
    """How it was tried or applied, or why it is missing."""


class Separation(Record):
    """Against what kind of candidate this judgement holds (docs/judge-separation.md)."""

    tier: Tier
    held: tuple[Mechanism, ...] = ()
    missing: tuple[Mechanism, ...] = ()


class Audit(Record):
    """One look at a candidate beside its outputs and its times."""

    name: str
    result: Literal["passed", "failed", "warned", "not_applicable"]
    """warned: a reader should look, and nothing follows from it."""
    detail: str = ""


class ConditionTiming(Record):
    """Both programs timed under one condition. Times are of one call, in ns; ratios are reference time / candidate time."""

    condition: str
    """"warm" (alone; the verdict's own figure), "cold L2", "end to end", or "graph"."""
    reference_ns: float | None = None
    candidate_ns: float | None = None
    """Medians. None where not applicable."""
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    pairs: int = 0
    method: str = ""
    not_applicable: str = ""
    """Why it was not timed; empty where it was."""
    note: str = ""
    """"graph": which of the two was not captured, since it replays CUDA graphs of its own."""


class Verdict(Record):
    """`verdict.json`."""

    schema_version: str = "1.1"
    verdict: VerdictName
    precision: Precision
    declared_precision: str = "equal"
    speedup: float | None = None
    """Median paired ratio; None when nothing was timed."""
    interval: tuple[float, float] | None = None
    reasons: tuple[str, ...] = ()
    correctness: Correctness | None = None
    comparison: Comparison | None = None
    separation: Separation | None = None
    audits: tuple[Audit, ...] = ()
    reproducer: Reproducer | None = None
    workload: str
    candidate: str
    workload_sha256: str = ""
    candidate_sha256: str = ""
    device_name: str = ""
    torch_version: str = ""
    environment: dict[str, str] = Field(default_factory=dict)
    """device, python_version, cuda_version, triton_version, compute_capability, cpu_threads, driver_version, kernelwright_version:
    those that are known."""
    seed: int = 0
    elapsed_s: float = 0.0
    candidate_setup_s: float | None = None
    """Seconds the candidate took to build and warm up (compilation included)."""
    timings: tuple[ConditionTiming, ...] = ()
    """The same two programs under each condition; the verdict is by the first, warm."""
    phases_s: dict[str, float] = Field(default_factory=dict)
    """Where the time went: start, load, build, correctness, timing, conditions, audits, confirmation."""
    clocks: ClockReading | None = None
    """Of the whole judgement. None inside an optimisation, whose report has them."""


class Experiment(Record):
    """One row of `ledger.jsonl`."""

    index: int
    name: str
    """E.g. "channels_last+compile_max_autotune"."""
    passes: tuple[str, ...]
    precision: Precision
    ladder_row: bool = False
    """One of torch.compile's own rows, shown in every report for comparison."""
    candidate_file: str
    """Relative to the optimisation's folder."""
    status: Literal["judged", "screened", "not_applicable", "failed", "out_of_budget"]
    """screened: the quick screen looked at it and it has had no judgement; a row of the same name with one may follow."""
    verdict: Verdict | None = None
    reason: str = ""
    predicted: str = ""
    """The words of `prediction`."""
    prediction: tuple[PassPrediction, ...] = ()
    """By pass."""
    screen: Screen | None = None
    """None: it was not screened."""
    origin: Origin | None = None
    parents: tuple[str, ...] = ()
    """Names of the candidates that it was made from."""
    dimension: str = ""
    """What it changes of its first parent; the search's choice. Empty: several, or none."""
    warm: bool = False
    """It won on this machine before, for this workload."""
    hypotheses: tuple[Hypothesis, ...] = ()
    """Of the row with tag role=hypothesis alone, which is neither a candidate nor a confirmation."""
    started_utc: str = ""
    elapsed_s: float = 0.0
    kept: bool = False
    tags: dict[str, str] = Field(default_factory=dict)
