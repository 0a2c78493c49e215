"""optimize WORKLOAD [VERSION]: profile, try improvements, judge them, keep the best."""

from __future__ import annotations

import argparse
import sys

from ..model.errors import EXIT_INTERRUPTED, EXIT_OK
from ..model.saying import Say
from ..optimize import OptimizeOptions, Outcome, optimize
from ..pipeline.target import refuse_script, resolve_target
from .common import Answer, add_run_options, clocks_of, name, run_clocks, seconds

HELP = "profile, try improvements, judge them, keep the best"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """WORKLOAD, VERSION, --budget, --precision, --resume and the shared options."""
    parser.add_argument("workload", metavar="WORKLOAD", help="workload file, or a kernel or version of the project file")
    parser.add_argument("version", metavar="VERSION", nargs="?", help="version of a kernel with versions")
    parser.add_argument("--budget", type=seconds, default=600.0, metavar="TIME",
                        help="time to the last judgement, e.g. 90s, 10m, 1h30m (default: 10m)")
    parser.add_argument("--precision", choices=("equal", "tf32", "bf16"), default="equal",
                        help="the lowest precision allowed (default: equal)")
    parser.add_argument("--resume", action="store_true", help="go on with the latest optimisation of this workload")
    parser.add_argument("--model-name", type=name, metavar="NAME", help="name in reports (default: the file's)")
    add_run_options(parser)


def run(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Optimise; exit 130 when interrupted, with the best so far."""
    workload = resolve_target(args.workload, args.version, params, args.model_name)
    refuse_script(workload, "optimize")
    options = OptimizeOptions(
        budget_s=args.budget, precision=args.precision, resume=args.resume, device=args.device, clocks=clocks_of(args, workload),
        python=args.python, timeout_s=args.timeout, command=tuple(sys.argv),
    )
    with run_clocks(args, workload, say) as clocks:
        outcome = optimize(workload, options, args.out, say=say, clocks=clocks.reading)
    text = f"{outcome.line}\n" + (f"optimized: {outcome.optimized}\n" if outcome.optimized else "") + f"report: {outcome.report}"
    return Answer(_data(outcome), text, EXIT_INTERRUPTED if outcome.interrupted else EXIT_OK)


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
