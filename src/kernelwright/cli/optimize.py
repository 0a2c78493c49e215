"""optimize WORKLOAD [VERSION]: profile, try improvements, judge them, keep the best."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..model.errors import EXIT_INTERRUPTED, EXIT_OK
from ..model.saying import Say
from ..model.workload import WorkloadRef
from ..optimize import OptimizeOptions, Outcome, optimize
from ..pipeline.one_file import as_one_file
from ..pipeline.target import refuse_script
from ..report.templates import render
from .common import Answer, add_run_options, clocks_of, device_of, name, run_clocks, seconds
from .several import Outcome as One
from .several import first_error, run_each, words_of
from .targets import TARGETS, workloads

HELP = "profile, try improvements, judge them, keep the best"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """WORKLOAD, VERSION, --budget, --precision, --resume and the shared options."""
    parser.add_argument("targets", metavar=TARGETS, nargs="+", help="workload file, or a kernel or version of the project file; several "
                        "are optimised one after another, each with the whole budget, and give one table")
    parser.add_argument("--budget", type=seconds, default=600.0, metavar="TIME",
                        help="time to the last judgement, e.g. 90s, 10m, 1h30m (default: 10m)")
    parser.add_argument("--precision", choices=("equal", "tf32", "bf16"), default="equal",
                        help="the lowest precision allowed (default: equal)")
    parser.add_argument("--all", action="store_true", help="every version of the kernels named, in one table")
    parser.add_argument("--resume", action="store_true", help="go on with the latest optimisation of this workload")
    parser.add_argument("--model-name", type=name, metavar="NAME", help="name in reports (default: the file's)")
    add_run_options(parser)


def run(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Optimise; exit 130 when interrupted, with the best so far."""
    found = workloads(args, params, say, verb="optimize")
    for workload in found:
        refuse_script(workload, "optimize")
    found = [as_one_file(workload, Path.cwd() / "out" / "workloads") for workload in found]
    if len(found) == 1:
        return _optimize(found[0], args, say)
    return _table(run_each(found, args, lambda workload, own: _optimize(workload, own, say), say), found)


def _optimize(workload: WorkloadRef, args: argparse.Namespace, say: Say) -> Answer:
    """One optimisation."""
    options = OptimizeOptions(
        budget_s=args.budget, precision=args.precision, resume=args.resume, device=device_of(args, workload),
        clocks=clocks_of(args, workload), python=args.python, timeout_s=args.timeout, command=tuple(sys.argv),
    )
    with run_clocks(args, workload, say) as clocks:
        outcome = optimize(workload, options, args.out, say=say, clocks=clocks.reading)
    text = f"{outcome.line}\n" + (f"optimized: {outcome.optimized}\n" if outcome.optimized else "") + f"report: {outcome.report}"
    return Answer(_data(outcome), text, EXIT_INTERRUPTED if outcome.interrupted else EXIT_OK)


def _table(outcomes: Sequence[One], asked: Sequence[WorkloadRef]) -> Answer:
    """The table of several optimisations, those with it that an interrupt left. The exit code is that of the first that failed, else of
    the one that was interrupted."""
    found = [{"kernel": one.workload.name, "version": one.workload.version, "words": words_of(one.workload), "status": "ok",
              **(one.answer.data if one.answer is not None else {}),
              **({"status": "error", "error": one.error.as_dict()} if one.error is not None else {})} for one in outcomes]
    found += [{"kernel": one.name, "version": one.version, "words": words_of(one), "status": "not begun"} for one in asked[len(outcomes):]]
    failed = first_error(outcomes)
    fault = failed.as_dict() if failed is not None else next((row["error"] for row in found if "error" in row), None)
    stopped = next((one.answer.exit_code for one in outcomes if one.answer is not None and one.answer.exit_code), 0)
    data = {"optimizations": found, **({"status": "error", "error": fault} if fault is not None else {})}
    return Answer(data, render("several_optimized.md.j2", rows=found).rstrip("\n"), failed.exit_code if failed is not None else stopped)


def _data(outcome: Outcome) -> dict[str, object]:
    data: dict[str, object] = {
        "out_dir": str(outcome.out_dir), "kept": list(outcome.kept), "speedup": outcome.speedup,
        "interval": list(outcome.interval) if outcome.interval else None,
        "optimized": str(outcome.optimized) if outcome.optimized else None, "report": str(outcome.report),
        "devlog": str(outcome.devlog) if outcome.devlog else None, "contract": str(outcome.contract),
        "precision": outcome.precision, "confirmed": outcome.confirmed, "clocks": outcome.clocks, "warnings": list(outcome.warnings),
    }
    if outcome.interrupted:
        error = {"code": "interrupted", "message": "interrupted; the best so far was written", "where": "", "fix": "go on with --resume"}
        data |= {"status": "error", "error": error}
    return data
