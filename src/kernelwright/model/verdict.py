"""What the judge says of a candidate, and one row of the optimiser's ledger."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import Record
from .measurement import Measurement
from .profile import ClockReading
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


class Correctness(Record):
    """The correctness half of a verdict."""

    passed: bool
    oracle: str
    """"float64", or "reference (<why no float64>)"."""
    rounds: int
    errors: tuple[OutputError, ...] = ()
    reasons: tuple[str, ...] = ()


class Audit(Record):
    """One look at a candidate beside its outputs and its times."""

    name: str
    result: Literal["passed", "failed", "warned", "not_applicable"]
    """warned: a reader should look, and nothing follows from it."""
    detail: str = ""


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
    audits: tuple[Audit, ...] = ()
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
    status: Literal["judged", "not_applicable", "failed", "out_of_budget"]
    verdict: Verdict | None = None
    reason: str = ""
    predicted: str = ""
    started_utc: str = ""
    elapsed_s: float = 0.0
    kept: bool = False
    tags: dict[str, str] = Field(default_factory=dict)
