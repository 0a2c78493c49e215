"""Verdicts in the fields that evaluators of KernelBench runs read (its KernelExecResult and fast_p)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from ..model.base import Record
from ..model.errors import BadInput, KernelwrightError
from ..model.measurement import Measurement
from ..model.verdict import ACCEPTABLE, Verdict

THRESHOLDS = (0.0, 1.0, 2.0)
NOT_TIMED = -1.0
"""What KernelBench writes for a runtime that it does not have."""
HOW_COUNTED = (
    "fast_p is the share of all candidates named that are right and whose speed-up over the reference is above p; fast_p_certain asks "
    "that the whole 95% interval is above p. The speed-up is the estimate over pairs of interleaved blocks, not the ratio of two separate "
    "runs. Right means: the judge's limits against float64 and no cheat found; KernelBench compares with allclose at 1e-4 or 1e-2. "
    "Runtimes are medians in ms. KernelBench's own fast_p is over problems, one candidate each: add the rows of several runs for that.")


class Result(Record):
    """One candidate. The first eight fields are KernelBench's; times in ms, -1 where nothing was timed."""

    sample_id: int
    compiled: bool = False
    """It was imported and built."""
    correctness: bool = False
    """Right, and no cheat."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    runtime: float = NOT_TIMED
    runtime_stats: dict[str, Any] = Field(default_factory=dict)
    ref_runtime: float = NOT_TIMED
    ref_runtime_stats: dict[str, Any] = Field(default_factory=dict)
    candidate: str
    verdict: str | None = None
    """None: it could not be judged; metadata.error says why."""
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    reasons: tuple[str, ...] = ()
    report: str = ""


class Summary(Record):
    """Over all candidates that were named, those not reached among them."""

    n: int
    judged: int
    compiled: int
    correct: int
    fast_p: dict[str, float]
    """"0.0", "1.0", "2.0" -> share of n."""
    fast_p_certain: dict[str, float]
    how_counted: str = HOW_COUNTED


def candidates_of(named: Sequence[Path]) -> list[Path]:
    """Files as named; of a folder its Python files, sorted. Raises BadInput for an empty folder."""
    found: list[Path] = []
    for path in named:
        inside = sorted(file for file in path.glob("*.py") if file.is_file()) if path.is_dir() else [path]
        if not inside:
            raise BadInput("no_candidates", "holds no Python file", where=str(path.absolute()), fix="name a folder of candidates")
        found += inside
    return list(dict.fromkeys(path.absolute() for path in found))


def result_of(verdict: Verdict, sample_id: int, report: str = "") -> Result:
    """A verdict in KernelBench's fields."""
    right = verdict.verdict in ACCEPTABLE and verdict.correctness is not None and verdict.correctness.passed
    timed = verdict.comparison if right else None
    machine = {"hardware": verdict.device_name, "device": verdict.environment.get("device", "")}
    return Result(
        sample_id=sample_id, compiled=verdict.candidate_setup_s is not None, correctness=right,
        metadata={**machine, **_trials(verdict), **_issue(verdict)}, candidate=verdict.candidate,
        runtime=_ms(timed.candidate) if timed else NOT_TIMED, runtime_stats=_stats(timed.candidate, machine) if timed else {},
        ref_runtime=_ms(timed.reference) if timed else NOT_TIMED, ref_runtime_stats=_stats(timed.reference, machine) if timed else {},
        verdict=verdict.verdict, speedup=verdict.speedup, interval=verdict.interval, reasons=verdict.reasons, report=report)


def error_of(error: KernelwrightError, candidate: Path, sample_id: int) -> Result:
    """A candidate that could not be judged: no entry point, unreadable, or the reference failed beside it."""
    return Result(sample_id=sample_id, candidate=str(candidate), reasons=(error.line(),),
                  metadata={"compilation_error_name": error.code, "compilation_error": error.message, "error": error.as_dict()})


def summary_of(results: Sequence[Result], n: int) -> Summary:
    """n: candidates that were named."""
    low = [result.interval[0] if result.interval else None for result in results]
    return Summary(
        n=n, judged=sum(result.verdict is not None for result in results), compiled=sum(result.compiled for result in results),
        correct=sum(result.correctness for result in results),
        fast_p={str(p): _share(results, [result.speedup for result in results], p, n) for p in THRESHOLDS},
        fast_p_certain={str(p): _share(results, low, p, n) for p in THRESHOLDS})


def _share(results: Sequence[Result], values: Sequence[float | None], p: float, n: int) -> float:
    above = [result.correctness and (p == 0 or (value is not None and value > p)) for result, value in zip(results, values, strict=True)]
    return sum(above) / n


def _trials(verdict: Verdict) -> dict[str, str]:
    if verdict.correctness is None:
        return {}
    failed = {error.round for error in verdict.correctness.errors if not error.passed}
    rounds = verdict.correctness.rounds
    passed = rounds - max(len(failed), 0 if verdict.correctness.passed else 1)
    return {"correctness_trials": f"({max(passed, 0)} / {rounds})"}


def _issue(verdict: Verdict) -> dict[str, str]:
    """KernelBench's key for what went wrong."""
    if verdict.verdict in ACCEPTABLE or not verdict.reasons:
        return {}
    if verdict.verdict == "FAILED":
        return {"compilation_error" if verdict.candidate_setup_s is None else "runtime_error": verdict.reasons[0]}
    return {"cheat" if verdict.verdict == "CHEAT" else "correctness_issue": verdict.reasons[0]}


def _ms(measured: Measurement) -> float:
    return measured.median_ns / 1e6


def _stats(measured: Measurement, machine: dict[str, str]) -> dict[str, Any]:
    return {"median": _ms(measured), "iqr": measured.iqr_ns / 1e6, "ci95": [measured.ci95_low_ns / 1e6, measured.ci95_high_ns / 1e6],
            "num_trials": measured.samples, "timer": measured.timer, **machine}
