"""Passes whose candidates start processes of their own, before the judge, which confines them."""

from __future__ import annotations

import sys
from pathlib import Path

from kernelwright.judge import JudgeOptions, judge
from kernelwright.model.verdict import ACCEPTABLE
from kernelwright.model.workload import WorkloadRef
from kernelwright.optimize.generate import render_source, write_source
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.plan import candidate, refusal
from kernelwright.optimize.stages import OptimizeOptions, RealStages

OWN_LOADER = Path(__file__).resolve().parents[2] / "bench" / "workloads" / "own_loader.py"


def test_a_loader_with_workers_is_judged(tmp_path: Path) -> None:
    """It was FAILED, always: batches came through a socket, and the candidate's process may not connect."""
    workload = WorkloadRef(path=OWN_LOADER, name="own_loader", params={"items": "64", "batch": "8"})
    run = RealStages(OptimizeOptions(device="cpu", python=sys.executable), lambda _line: None).profile(workload, tmp_path, None, 120.0)
    assert run.result.facts is not None and run.result.environment is not None
    context = Context(facts=run.result.facts, environment=run.result.environment, profile=run.profile)
    assert refusal(candidate(["loader_workers"], context), context) is None, "most of a call waits for the loader"
    source = render_source(workload, run.result.facts, [CATALOGUE["loader_workers"]], device="cpu")
    file = write_source(tmp_path / "candidates" / "loader_workers.py", source)
    verdict = judge(workload, file, JudgeOptions(device="cpu", python=sys.executable, max_timing_s=4.0))
    assert verdict.verdict in ACCEPTABLE, verdict.reasons
    assert verdict.correctness is not None and verdict.correctness.passed and verdict.comparison is not None
