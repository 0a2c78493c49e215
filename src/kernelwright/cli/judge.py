"""judge WORKLOAD CANDIDATE.py: correctness, A/B timing and audit of one candidate; a verdict."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path

from ..judge import JudgeOptions, judge
from ..model.errors import EXIT_NOT_ACCEPTABLE, EXIT_OK, BadInput, Interrupted, KernelwrightError, NotWritable
from ..model.files import leave_error, write_json_atomic, write_text_atomic
from ..model.profile import ClockReading
from ..model.saying import Say
from ..model.verdict import ACCEPTABLE, Verdict
from ..model.workload import WorkloadRef
from ..pipeline.source import check_source
from ..pipeline.stored import safe_name
from ..pipeline.target import refuse_script, resolve_target
from ..report.templates import render
from .common import Answer, add_run_options, clocks_of, name, positive_count, run_clocks, seconds

HELP = "judge one candidate: correctness, timing, audit"
DESCRIPTION = """Runs the candidate and its workload in two processes, on fresh inputs, and gives one verdict:
FASTER, SLOWER, SAME or AMBIGUOUS (exit 0), WRONG, CHEAT or FAILED (exit 5)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """WORKLOAD, CANDIDATE, --precision and the shared options."""
    parser.add_argument("workload", metavar="WORKLOAD", help="workload file, or a kernel of the project file")
    parser.add_argument("candidate", metavar="CANDIDATE.py", type=Path,
                        help="file with ModelNew, optimize(model, inputs), BACKEND, or a function with the versions' signature")
    parser.add_argument("--version", help="version to compare with (a workload with versions)")
    parser.add_argument("--precision", choices=("equal", "tf32", "bf16"), default="equal",
                        help="lowest precision that the candidate may declare (default: equal)")
    parser.add_argument("--rounds", type=positive_count, default=3, metavar="N",
                        help="fresh inputs to compare outputs on, at least 3 (default: 3)")
    parser.add_argument("--max-timing", type=seconds, default=6.0, metavar="TIME", help="longest time spent timing (default: 6s)")
    parser.add_argument("--seed", type=_seed, metavar="N", help="repeat a judgement with the seed that its verdict names (default: secret)")
    parser.add_argument("--model-name", type=name, metavar="NAME", help="name in reports (default: the file's)")
    add_run_options(parser)


def run(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Judge, write verdict.json and verdict.md; a verdict of WRONG, CHEAT or FAILED is exit 5."""
    workload = resolve_target(args.workload, args.version, params, args.model_name)
    refuse_script(workload, "judge")
    check_source(args.candidate, "candidate")
    if args.rounds < 3:
        raise BadInput("usage", "--rounds must be at least 3", where="--rounds", fix="leave it out, or ask for 3 or more")
    folder = _folder(args.out, workload)
    options = JudgeOptions(precision=args.precision, device=args.device, python=args.python, timeout_s=args.timeout or 600.0,
                           rounds=args.rounds, seed=args.seed, max_timing_s=args.max_timing, keep_dir=folder / "raw")
    try:
        with run_clocks(args, workload, say) as clocks:
            verdict = judge(workload, args.candidate, options, say=say)
    except KeyboardInterrupt:
        leave_error(folder, Interrupted(str(folder)))
        raise
    except (KernelwrightError, OSError) as error:
        fault = error if isinstance(error, KernelwrightError) else NotWritable(error, error.filename or folder)
        leave_error(folder, fault)
        raise fault from error.__cause__
    verdict = verdict.model_copy(update={"clocks": clocks.reading()})
    return _answer(verdict, workload, folder, clocks.reading(), _again(verdict, workload, args))


def _seed(text: str) -> int:
    """argparse type: what a verdict calls its seed."""
    if text.isdigit() and int(text) < 2**48:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number below 2**48")


def _answer(verdict: Verdict, workload: WorkloadRef, folder: Path, clocks: ClockReading, again: str) -> Answer:
    write_json_atomic(folder / "verdict.json", verdict.model_dump(mode="json"))
    page = render("verdict.md.j2", verdict=verdict, workload=workload, clocks=clocks, again=again)
    report = write_text_atomic(folder / "verdict.md", page)
    data = {"out_dir": str(folder), "verdict": verdict.verdict, "speedup": verdict.speedup,
            "interval": list(verdict.interval) if verdict.interval else None, "reasons": list(verdict.reasons), "report": str(report)}
    text = "\n".join([verdict.verdict, *(f"- {reason}" for reason in verdict.reasons)])
    return Answer(data, text, EXIT_OK if verdict.verdict in ACCEPTABLE else EXIT_NOT_ACCEPTABLE, tail=f"\nreport: {report}")


def _again(verdict: Verdict, workload: WorkloadRef, args: argparse.Namespace) -> str:
    """The command that repeats this judgement with the same inputs and weights."""
    words = [*_command(), str(workload.path), verdict.candidate, "--seed", str(verdict.seed), "--precision", verdict.precision]
    words += ["--version", workload.version] if workload.version else []
    words += ["--rounds", str(args.rounds), "--max-timing", f"{args.max_timing:g}s", "--device", args.device]
    words += ["--clocks", clocks_of(args, workload)]
    words += ["--python", args.python] if args.python else []
    words += ["--timeout", f"{args.timeout:g}s"] if args.timeout else []
    return shlex.join([*words, *(f"--{name}={value}" for name, value in workload.params.items())])


def _command() -> list[str]:
    """How this very program was started: the script by its full path, or `kernelwright judge`."""
    started = Path(sys.argv[0])
    if started.suffix == ".py" and started.stem == "judge":
        return ["python3", str(started.absolute())]
    return ["kernelwright", "judge"]


def _folder(out: Path | None, workload: WorkloadRef) -> Path:
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
    folder = (out or Path.cwd() / "out" / "judge" / safe_name(workload.name) / stamp).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in ("error.json", "verdict.json", "verdict.md"):
            (folder / stale).unlink(missing_ok=True)
    except OSError as error:
        raise NotWritable(error, folder) from error
    return Path(os.path.realpath(folder))
